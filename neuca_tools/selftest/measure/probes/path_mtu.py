"""The path MTU by acknowledged probes: packets that must not be fragmented, and answers to them.

The kernel's own path MTU is ignored (IP_PMTUDISC_PROBE), because the kernel learns it only from
ICMP, which a black hole does not send. The socket's error queue (IP_RECVERR, ip(7)) shows whether
there was an ICMP message.
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

# Bytes that every path carries (RFC 791, RFC 8200).
SMALLEST = {4: 576, 6: 1280}
# Probes of one size.
TRIES = 3
# Seconds to wait for an answer, in addition to two round trips.
PATIENCE = 0.25
# IP_RECVERR, IPV6_RECVERR.
RECEIVE_ERRORS = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}
# struct sock_extended_err of linux/errqueue.h, and SO_EE_ORIGIN_LOCAL.
ERROR = struct.Struct("=IBBBBII")
LOCAL = 1


class DatagramProbe:
    """Probes by UDP to the echo of a helper, with large requests or large answers.

    The constructor raises OSError.
    """

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
        """Whether a packet of `size` bytes, headers included, reached the peer."""
        return self._acknowledged(size, HEADER.size)

    def backward(self, size: int) -> bool:
        """Whether a packet of `size` bytes, headers included, came back."""
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
                if error.errno == errno.EMSGSIZE:
                    # Larger than our own device takes.
                    return False
            if self._is_answered(max(answer, HEADER.size)):
                return True
        return False

    def _is_answered(self, answer: int) -> bool:
        """Whether an answer with a payload of `answer` bytes arrives in time."""
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
    """Probes by ICMP, for a peer without a helper. An answer has the size of its request.

    The constructor raises OSError.
    """

    def __init__(self, peer: Address, source: Address, rtt: float) -> None:
        self._version, self._number = peer.version, 0
        self._patience, self.told = PATIENCE + 2 * rtt, False
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
        """Whether a packet of `size` bytes, its IP header included, came back."""
        for _ in range(TRIES):
            self._number += 1
            try:
                self._socket.send(
                    echo_request(self._version, self._id, self._number, size - self._header)
                )
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    # Larger than our own device takes.
                    return False
            if self._is_answered():
                return True
        return False

    def _is_answered(self) -> bool:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.told = told(self._socket) or self.told
                with suppress(OSError):
                    packet = self._socket.recv(65536)
                    if answered(self._version, self._id, packet) == self._number & 0xFFFF:
                        return True
        return False

    def close(self) -> None:
        self._socket.close()


def told(asked: socket.socket) -> bool:
    """Whether ICMP reported that a packet was too large. Empties the socket's error queue."""
    found = False
    with suppress(OSError):
        while True:
            _, ancillary, _, _ = asked.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            found = any([found, *(_is_too_large(data) for _, _, data in ancillary)])
    return found


def _is_too_large(data: bytes) -> bool:
    """Whether a struct sock_extended_err is EMSGSIZE from the path, and not from this host."""
    if len(data) < ERROR.size:
        return False
    number, origin, *_ = ERROR.unpack_from(data)
    return bool(number == errno.EMSGSIZE and origin != LOCAL)


def largest(carried: Callable[[int], bool], low: int, high: int) -> Optional[int]:
    """The largest size that is carried, by bisection; None if even `low` is not."""
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
    """The path MTU in both directions.

    `mtu` is the largest size to try, `rtt` the round trip in seconds. Raises OSError.
    """
    probe = DatagramProbe(peer, port, token, source, rtt)
    try:
        low = SMALLEST[peer.version]
        forward = largest(probe.forward, low, max(mtu, low))
        backward = largest(probe.backward, low, max(mtu, low))
        return PathMtu(forward, backward, probe.told)
    finally:
        probe.close()


def alone(peer: Address, source: Address, mtu: int, rtt: float) -> PathMtu:
    """The largest ping that is answered; unknown if none is, because many hosts ignore pings.

    Raises OSError.
    """
    probe = PingProbe(peer, source, rtt)
    try:
        low = SMALLEST[peer.version]
        found = largest(probe.forward, low, max(mtu, low))
        return PathMtu(found, None, probe.told if found else None)
    finally:
        probe.close()
