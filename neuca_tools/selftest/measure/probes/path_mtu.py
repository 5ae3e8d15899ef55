"""The path MTU by acknowledged probes: packets that must not be fragmented, and answers to them.

The kernel's own path MTU is ignored (IP_PMTUDISC_PROBE), because the kernel learns it only from
ICMP, which a black hole does not send. The socket's error queue (IP_RECVERR, ip(7)) shows whether
there was an ICMP message.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import PathMtu
from neuca_tools.selftest.measure.host.kernel import FAMILIES
from neuca_tools.selftest.measure.probes.echo import HEADER, HEADERS, MTU_DISCOVER, PROBE
from neuca_tools.selftest.measure.probes.roundtrip import answered_number, echo_request, ping_socket
from neuca_tools.selftest.measure.wait import wait_readable

# Bytes that every path carries (RFC 791, RFC 8200).
SMALLEST = {4: 576, 6: 1280}
# Bytes of the header without options (RFC 791, RFC 8200).
IP_HEADER = {4: 20, 6: 40}
# Probes of one size.
TRIES = 3
# Seconds to wait for an answer, in addition to two round trips.
ANSWER_SECONDS = 0.25
# IP_RECVERR, IPV6_RECVERR.
RECEIVE_ERRORS = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}
# struct sock_extended_err of linux/errqueue.h, and SO_EE_ORIGIN_LOCAL.
ERROR = struct.Struct("=IBBBBII")
LOCAL = 1


class Probe:
    """Packets to the peer that must not be fragmented; `reported`: one was too large, by ICMP.

    `rtt` is the round trip in seconds. The constructor raises OSError.
    """

    def __init__(
        self, sender: socket.socket, source: Address, peer: Address, port: int, rtt: float
    ) -> None:
        self._socket, self._number = sender, 0
        self._patience, self.reported = ANSWER_SECONDS + 2 * rtt, False
        sender.setsockopt(*MTU_DISCOVER[peer.version], PROBE)
        sender.setsockopt(*RECEIVE_ERRORS[peer.version], 1)
        sender.bind((str(source), 0))
        sender.connect((str(peer), port))
        sender.setblocking(False)

    def acknowledged(
        self, request: Callable[[int], bytes], is_answer: Callable[[int, bytes], bool]
    ) -> bool:
        """Send a request with up to TRIES numbers; whether an answer to one of them arrives."""
        for _ in range(TRIES):
            self._number += 1
            try:
                self._socket.send(request(self._number))
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    # Larger than our own device takes.
                    return False
            if self._is_answered(is_answer):
                return True
        return False

    def _is_answered(self, is_answer: Callable[[int, bytes], bool]) -> bool:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if wait_readable([self._socket], deadline):
                self.reported = is_too_large_reported(self._socket) or self.reported
                with suppress(OSError):
                    if is_answer(self._number, self._socket.recv(65536)):
                        return True
        return False


def is_too_large_reported(asked: socket.socket) -> bool:
    """Whether ICMP reported that a packet was too large. Empties the socket's error queue."""
    reported = False
    with suppress(OSError):
        while True:
            _, ancillary, _, _ = asked.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            reported = any([reported, *(_is_too_large(data) for _, _, data in ancillary)])
    return reported


def _is_too_large(data: bytes) -> bool:
    """Whether a struct sock_extended_err is EMSGSIZE from the path, and not from this host."""
    if len(data) < ERROR.size:
        return False
    number, origin, *_ = ERROR.unpack_from(data)
    return bool(number == errno.EMSGSIZE and origin != LOCAL)


def largest_carried(carried: Callable[[int], bool], low: int, high: int) -> Optional[int]:
    """The largest size that is carried, by bisection; None if even `low` is not."""
    if carried(high):
        return high
    if not carried(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if carried(middle):
            low = middle
        else:
            high = middle
    return low


def with_helper(
    peer: Address, port: int, token: bytes, source: Address, mtu: int, rtt: float
) -> PathMtu:
    """The path MTU in both directions, by UDP to the helper's echo.

    `mtu` is the largest size to try, `rtt` the round trip in seconds. Raises OSError.
    """
    headers, low = HEADERS[peer.version], SMALLEST[peer.version]
    high = max(mtu, low)
    with socket.socket(FAMILIES[peer.version], socket.SOCK_DGRAM) as sender:
        probe = Probe(sender, source, peer, port, rtt)

        def echoed(size: int, answer: int) -> bool:
            """Whether a request with a payload of `size` bytes gets an answer of `answer` bytes."""
            return probe.acknowledged(
                lambda number: HEADER.pack(token, number, answer).ljust(size, b"\0"),
                lambda number, packet: (
                    len(packet) == answer and HEADER.unpack_from(packet)[1] == number
                ),
            )

        forward = largest_carried(lambda size: echoed(size - headers, HEADER.size), low, high)
        backward = largest_carried(lambda size: echoed(HEADER.size, size - headers), low, high)
        return PathMtu(forward, backward, probe.reported)


def without_helper(peer: Address, source: Address, mtu: int, rtt: float) -> PathMtu:
    """The largest ping that is answered; unknown if none is, because many hosts ignore pings.

    An answer has the size of its request. Raises OSError.
    """
    version, low, identity = peer.version, SMALLEST[peer.version], os.getpid() & 0xFFFF
    with ping_socket(version) as sender:
        probe = Probe(sender, source, peer, 0, rtt)

        def answers(size: int) -> bool:
            return probe.acknowledged(
                lambda number: echo_request(version, identity, number, size - IP_HEADER[version]),
                lambda number, packet: (
                    answered_number(version, identity, packet) == number & 0xFFFF
                ),
            )

        answered_size = largest_carried(answers, low, max(mtu, low))
        if answered_size is None:
            return PathMtu()
        return PathMtu(forward=answered_size, told=probe.reported)
