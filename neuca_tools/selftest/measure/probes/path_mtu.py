"""The path MTU by acknowledged probes: packets that may not be fragmented, and an answer that says that one arrived.

The kernel's own idea of the path is left aside (IP_PMTUDISC_PROBE), for it hears of a smaller path only by ICMP, and a black
hole sends none. Whether ICMP told is known from the socket's error queue (IP_RECVERR, ip(7)).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Optional

from neuca_tools.backends.pathprobe import HEADERS, MTU_DISCOVER, PROBE
from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import PathMtu
from neuca_tools.selftest.measure.host.kernel import FAMILIES
from neuca_tools.selftest.measure.probes.echo import HEADER
from neuca_tools.selftest.measure.probes.roundtrip import answered, echo_request

SMALLEST = {4: 576, 6: 1280}  # bytes that every path takes (RFC 791, RFC 8200)
TRIES = 3
PATIENCE = 0.25  # seconds for an answer, beyond the round trip
RECEIVE_ERRORS = {
    4: (socket.IPPROTO_IP, 11),
    6: (socket.IPPROTO_IPV6, 25),
}  # IP_RECVERR, IPV6_RECVERR
ERROR = struct.Struct("=IBBBBII")  # struct sock_extended_err
LOCAL = 1  # SO_EE_ORIGIN_LOCAL


class DatagramProbe:
    """Probes by UDP to the echo of a helper: one way with large requests, the other way with large answers. Raises OSError."""

    def __init__(self, peer: Address, port: int, token: bytes, source: Address, rtt: float) -> None:
        self._token, self._overhead, self._number = token, HEADERS[peer.version], 0
        self._patience, self.told = PATIENCE + 2 * rtt, False
        self._socket = socket.socket(
            FAMILIES[peer.version], socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        )
        self._socket.setsockopt(*MTU_DISCOVER[peer.version], PROBE)
        self._socket.setsockopt(*RECEIVE_ERRORS[peer.version], 1)
        self._socket.bind((str(source), 0))
        self._socket.connect((str(peer), port))
        self._socket.setblocking(False)

    def forward(self, size: int) -> bool:
        return self._acknowledged(size, HEADER.size)

    def backward(self, size: int) -> bool:
        return self._acknowledged(HEADER.size + self._overhead, size - self._overhead)

    def close(self) -> None:
        self._socket.close()

    def _acknowledged(self, size: int, answer: int) -> bool:
        for _ in range(TRIES):
            self._number += 1
            request = HEADER.pack(self._token, self._number, answer)
            try:
                self._socket.send(request.ljust(size - self._overhead, b"\0"))
            except OSError as error:
                if error.errno == errno.EMSGSIZE:  # larger than our own device takes
                    return False
            if self._comes(max(answer, HEADER.size)):
                return True
        return False

    def _comes(self, answer: int) -> bool:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.told = told(self._socket) or self.told
                with suppress(OSError):
                    datagram = self._socket.recv(65536)
                    if len(datagram) == answer and HEADER.unpack_from(datagram)[1] == self._number:
                        return True
        return False


class PingProbe:
    """Probes by ICMP, for a peer without a helper: what comes back has gone both ways. Raises OSError."""

    def __init__(self, peer: Address, source: Address, rtt: float) -> None:
        self._version, self._number, self._patience, self.told = (
            peer.version,
            0,
            PATIENCE + 2 * rtt,
            False,
        )
        self._header = 20 if peer.version == 4 else 40
        protocol = socket.IPPROTO_ICMP if peer.version == 4 else socket.IPPROTO_ICMPV6
        self._socket = socket.socket(
            FAMILIES[peer.version], socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol
        )
        self._socket.setsockopt(*MTU_DISCOVER[peer.version], PROBE)
        self._socket.setsockopt(*RECEIVE_ERRORS[peer.version], 1)
        self._socket.bind((str(source), 0))
        self._socket.connect((str(peer), 0))
        self._socket.setblocking(False)
        self._id = os.getpid() & 0xFFFF

    def forward(self, size: int) -> bool:
        for _ in range(TRIES):
            self._number += 1
            try:
                self._socket.send(
                    echo_request(self._version, self._id, self._number, size - self._header)
                )
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    return False
            deadline = time.monotonic() + self._patience
            while time.monotonic() < deadline:
                if select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    self.told = told(self._socket) or self.told
                    with suppress(OSError):
                        if (
                            answered(self._version, self._id, self._socket.recv(65536))
                            == self._number & 0xFFFF
                        ):
                            return True
        return False

    def close(self) -> None:
        self._socket.close()


def told(asked: socket.socket) -> bool:
    """Whether a message of the path has come that a packet was too large for it."""
    found = False
    with suppress(OSError):
        while True:
            _, ancillary, _, _ = asked.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            for _, _, data in ancillary:
                if len(data) >= ERROR.size:
                    number, origin, *_ = ERROR.unpack_from(data)
                    found = found or (number == errno.EMSGSIZE and origin != LOCAL)
    return found


def largest(carried: Callable[[int], bool], low: int, high: int) -> Optional[int]:
    """The largest size that is carried; None if not even `low` is."""
    if carried(high):
        return high
    if not carried(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if carried(middle) else (low, middle)
    return low


def with_helper(
    peer: Address, port: int, token: bytes, source: Address, mtu: int, rtt: float
) -> PathMtu:
    """Both ways. Raises OSError."""
    probe = DatagramProbe(peer, port, token, source, rtt)
    try:
        low = SMALLEST[peer.version]
        forward = largest(probe.forward, low, max(mtu, low))
        backward = largest(probe.backward, low, max(mtu, low))
        return PathMtu(forward, backward, probe.told)
    finally:
        probe.close()


def alone(peer: Address, source: Address, mtu: int, rtt: float) -> PathMtu:
    """What comes back whole; not known where nothing does, for many hosts answer no ping. Raises OSError."""
    probe = PingProbe(peer, source, rtt)
    try:
        low = SMALLEST[peer.version]
        found = largest(probe.forward, low, max(mtu, low))
        return PathMtu(found, None, probe.told if found else None)
    finally:
        probe.close()
