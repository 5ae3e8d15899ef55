"""The path MTU by acknowledged probes: packets that must not be fragmented, and answers to them.

The kernel's own path MTU is ignored (IP_PMTUDISC_PROBE), because the kernel learns it only from
ICMP, which a black hole does not send. The socket's error queue (IP_RECVERR, ip(7)) shows whether
there was an ICMP message.
"""

# SPDX-License-Identifier: MIT

import errno
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Optional

from neuca_tools.selftest.evidence import PathMtu
from neuca_tools.selftest.measure.probes.echo import MTU_DISCOVER, PMTUDISC_PROBE, Requests
from neuca_tools.selftest.measure.wait import wait_readable

SMALLEST = {4: 576, 6: 1280}  # bytes that every path carries (RFC 791, RFC 8200)
TRIES = 3  # probes of one size
ANSWER_SECONDS = 0.25  # to wait for an answer, in addition to two round trips
# IP_RECVERR, IPV6_RECVERR.
RECEIVE_ERRORS = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}
# struct sock_extended_err of linux/errqueue.h, and SO_EE_ORIGIN_LOCAL.
ERROR = struct.Struct("=IBBBBII")
LOCAL = 1


class Probe:
    """Requests that must not be fragmented; `reported`: ICMP said that one was too large.

    `rtt` is the round trip in seconds. The constructor raises OSError.
    """

    def __init__(self, requests: Requests, rtt: float) -> None:
        self._requests, self._socket, self._number = requests, requests.socket, 0
        self._patience, self.reported = ANSWER_SECONDS + 2 * rtt, False
        self._socket.setsockopt(*MTU_DISCOVER[requests.version], PMTUDISC_PROBE)
        self._socket.setsockopt(*RECEIVE_ERRORS[requests.version], 1)
        self._socket.setblocking(False)

    def acknowledged(self, size: int, back: int) -> bool:
        """Send up to TRIES requests of these sizes; whether an answer to one of them arrives."""
        first = self._number + 1
        for _ in range(TRIES):
            self._number += 1
            # An error that an earlier packet caused is raised once, and nothing is sent then.
            with suppress(OSError):
                self._socket.send(self._requests.make(self._number, size, back))
            if self._is_answered(first):
                return True
        return False

    def _is_answered(self, first: int) -> bool:
        """Whether an answer to the request `first` or to a later one arrives in time."""
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if wait_readable([self._socket], deadline):
                self.reported |= is_too_large_reported(self._socket)
                with suppress(OSError):
                    if self._requests.number_of(self._socket.recv(65536)) >= first:
                        return True
        return False


def is_too_large_reported(sender: socket.socket) -> bool:
    """Whether ICMP reported that a packet was too large. Empties the socket's error queue."""
    reported = False
    with suppress(OSError):
        while True:
            _, ancillary, _, _ = sender.recvmsg(512, 512, socket.MSG_ERRQUEUE)
            for _, _, data in ancillary:
                if len(data) >= ERROR.size:
                    number, origin, *_ = ERROR.unpack_from(data)
                    # From the path, and not from this host.
                    reported |= number == errno.EMSGSIZE and origin != LOCAL
    return reported


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


def measure_path_mtu(requests: Requests, mtu: int, rtt: float) -> PathMtu:
    """The path MTU in both directions; by pings in one, unknown if none is answered.

    `mtu` is the largest size to try, `rtt` the round trip in seconds. Many hosts ignore pings, and
    an answer to one has the size of its request. Raises OSError.
    """
    with requests.socket:
        probe, low = Probe(requests, rtt), SMALLEST[requests.version]
        high = max(mtu, low)
        forward = largest_carried(lambda size: probe.acknowledged(size, 0), low, high)
        if requests.is_ping:
            return PathMtu(forward, None, probe.reported) if forward else PathMtu()
        backward = largest_carried(lambda size: probe.acknowledged(0, size), low, high)
        return PathMtu(forward, backward, probe.reported)
