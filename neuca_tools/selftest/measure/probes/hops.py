"""The routers on the way to a peer and the MTU at each, as tracepath(8) finds them.

The probes are UDP datagrams with "don't fragment" and a hop limit, and the answers are ICMP errors
from the socket's error queue (IP_RECVERR, ip(7)), so no raw socket is needed. A flow keeps its
ports, because routers with several equal ways choose by them (RFC 2992); other flows have other
source ports. Linux answers a host with six ICMP errors at once and then one a second
(icmp_ratelimit, Documentation/networking/ip-sysctl.rst): the first flow and the five others stay
within that, and silence is taken for loss only after a pause.

tracepath(8) itself is not used. It took 92 s on a path whose routers do not respond, for which this
takes 7 s. It has one flow and cannot be bound to a device, and it does not find an MTU that no
router reports.
"""

# SPDX-License-Identifier: MIT

import errno
import os
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple, Optional

from neuca_tools.backends.routing import FAMILIES
from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence.route import Hop, Narrowing, Route
from neuca_tools.selftest.measure.probes import echo
from neuca_tools.selftest.measure.probes.path_mtu import ERROR, LOCAL, RECEIVE_ERRORS, SMALLEST
from neuca_tools.selftest.measure.wait import wait_readable

# The most hops; those that may be silent one after the other; flows; and seconds for everything.
MAX_HOPS, MAX_SILENT_HOPS, FLOWS, TRACE_SECONDS = 30, 4, 6, 30.0
FIRST_PORT = 33434  # the first one of traceroute(8), which firewalls expect
LARGEST_HOP_LIMIT = 64  # more than any route needs
# Seconds to wait for an answer beyond two round trips, at most, and before silence is believed.
ANSWER_SECONDS, MAX_ANSWER_SECONDS, ICMP_PAUSE_SECONDS = 0.3, 1.0, 1.1
# The most times that routers may report a smaller MTU: a forged report must not keep this busy.
MAX_REPORTS = 8
# IP_TTL, IPV6_UNICAST_HOPS (linux/in.h, in6.h).
HOP_LIMIT = {4: (socket.IPPROTO_IP, 2), 6: (socket.IPPROTO_IPV6, 16)}
# ICMP's type and code (RFC 792, RFC 4443).
HOP_LIMIT_EXCEEDED = {4: (11, 0), 6: (3, 0)}
PORT_UNREACHABLE = {4: (3, 3), 6: (1, 4)}
PACKET_TOO_LARGE = {4: (3, 4), 6: (2, 0)}
# The offset of the address in struct sockaddr_in and sockaddr_in6, and its length.
OFFENDER = {4: (4, 4), 6: (8, 16)}

ROUTER, REACHED, TOO_LARGE, REFUSED = "router", "reached", "large", "refused"  # kinds of a Reply


class Target(NamedTuple):
    """The peer with its port, and the device and the address that packets leave from.

    With the `token` of a helper's echo at that port, the peer responds with an answer; without, it
    responds with ICMP "port unreachable", unless that is filtered. `rtt` is in seconds.
    """

    peer: Address
    source: Address
    device: str
    port: int = FIRST_PORT
    token: bytes = bytes(echo.TOKEN_BYTES)
    rtt: float = 0.0


class Reply(NamedTuple):
    """The response to a probe: its `kind`, its sender, and the MTU in bytes that it reports."""

    kind: str
    address: str
    seconds: float
    mtu: int = 0


class Flow(socket.socket):
    """One socket with its own source port. The constructor raises OSError."""

    def __init__(self, target: Target) -> None:
        version = target.peer.version
        super().__init__(FAMILIES[version], socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._version, self._target, self._sent_at = version, target, 0.0
        # The numbers of the last probe and of the first one with its hop limit; that limit.
        self._number = self._first = self._hop_limit = 0
        try:
            # Even if routes change meanwhile, packets leave through this device or not at all.
            name = os.fsencode(target.device) + b"\0"
            self.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
            self.setsockopt(*echo.MTU_DISCOVER[version], echo.PMTUDISC_PROBE)
            self.setsockopt(*RECEIVE_ERRORS[version], 1)
            self.bind((str(target.source), 0))
            self.connect((str(target.peer), target.port))
        except OSError:
            self.close()
            raise

    def send_probe(self, hop_limit: int, size: int) -> None:
        """Send a probe of `size` bytes with the headers. One that cannot be sent is lost."""
        self._number += 1
        if hop_limit != self._hop_limit:
            self._discard_answers()
            self._first, self._hop_limit = self._number, hop_limit
        payload = echo.HEADER.pack(self._target.token, self._number, echo.HEADER.size)
        payload = payload.ljust(size - echo.IP_AND_UDP_BYTES[self._version], b"\0")
        self.setsockopt(*HOP_LIMIT[self._version], hop_limit)
        self._sent_at = time.monotonic()
        for _ in range(2):
            try:
                self.send(payload)
                return
            except OSError as error:
                # An error of an earlier probe is reported once, and then the socket works again.
                if error.errno not in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EMSGSIZE):
                    return

    def read_reply(self) -> Optional[Reply]:
        """The answer to a probe with the last hop limit, if one has arrived."""
        with suppress(OSError):
            while True:
                quoted, parts, _, _ = self.recvmsg(512, 512, socket.MSG_ERRQUEUE)
                # Not every router quotes as much as the number.
                if len(quoted) >= echo.HEADER.size and not self._is_current(quoted):
                    continue
                seconds = time.monotonic() - self._sent_at
                errors = (parse_error(self._version, data, seconds) for _, _, data in parts)
                reply = next(errors, None)
                if reply is not None:
                    return reply
        with suppress(OSError):
            answer = self.recv(65536)
            if len(answer) >= echo.HEADER.size and self._is_current(answer):
                return Reply(REACHED, str(self._target.peer), time.monotonic() - self._sent_at)
        return None

    def _discard_answers(self) -> None:
        with suppress(OSError):
            while True:
                self.recvmsg(512, 512, socket.MSG_ERRQUEUE)
        with suppress(OSError):
            while True:
                self.recv(65536)

    def _is_current(self, payload: bytes) -> bool:
        return bool(self._first <= echo.HEADER.unpack_from(payload)[1] <= self._number)


def parse_error(version: int, data: bytes, seconds: float = 0.0) -> Optional[Reply]:
    """What a struct sock_extended_err with its offender says; None for this host's own errors."""
    offset, length = OFFENDER[version]
    start = ERROR.size + offset
    if len(data) < start + length:
        return None
    _, origin, icmp_type, code, _, info, _ = ERROR.unpack_from(data)
    if origin == LOCAL:
        return None
    address = str(ip_address(data[start : start + length]))
    kinds = {
        HOP_LIMIT_EXCEEDED[version]: ROUTER,
        PORT_UNREACHABLE[version]: REACHED,
        PACKET_TOO_LARGE[version]: TOO_LARGE,
    }
    return Reply(kinds.get((icmp_type, code), REFUSED), address, seconds, info)


def trace_route(target: Target, mtu: int, known_size: Optional[int] = None) -> Route:
    """The route of packets of up to `mtu` bytes, within TRACE_SECONDS seconds.

    What was not found until then is absent. `known_size`, in bytes, is known to get there,
    if any. Raises OSError.
    """
    with ExitStack() as stack:
        flows = [stack.enter_context(Flow(target)) for _ in range(FLOWS)]
        return _Tracer(flows, target, mtu, known_size).route()


class _Tracer:
    def __init__(
        self, flows: Sequence[Flow], target: Target, mtu: int, known_size: Optional[int]
    ) -> None:
        self._flows, self._target = flows, target
        self._smallest = SMALLEST[target.peer.version]
        self._size, self._known_size = max(mtu, self._smallest), known_size
        self._patience = min(MAX_ANSWER_SECONDS, ANSWER_SECONDS + 2 * target.rtt)
        self._end = time.monotonic() + TRACE_SECONDS
        self._hops: list[Hop] = []
        self._narrowings: list[Narrowing] = []
        self._refused: Optional[str] = None
        self._reached = False

    def route(self) -> Route:
        self._walk_hops()
        if not self._reached and not self._refused:
            # Behind routers that do not respond, the peer may.
            reply = self._ask(LARGEST_HOP_LIMIT, self._smallest)
            self._reached = reply is not None and reply.kind == REACHED and self._is_peer(reply)
        return Route(
            device=self._target.device,
            hops=tuple(map(self._with_other_flows, self._hops)),
            narrowings=tuple(self._narrowings),
            flows=FLOWS,
            reached=self._reached,
            refused=self._refused,
        )

    def _walk_hops(self) -> None:
        """Ask hop after hop, until the peer or too many silent ones; drop those at the end."""
        silent = 0
        for number in range(1, MAX_HOPS + 1):
            hop = self._find_hop(number)
            silent = 0 if hop.addresses else silent + 1
            self._hops.append(hop)
            if self._reached or self._refused or silent >= MAX_SILENT_HOPS or self._is_late():
                break
        del self._hops[len(self._hops) - silent :]

    def _is_late(self) -> bool:
        return time.monotonic() >= self._end

    # --- One flow: addresses and MTU ----------------------------------------------------------

    def _find_hop(self, number: int) -> Hop:
        """Try the size that got to the hop before, then again more patiently, then smaller ones."""
        reply = (
            self._ask(number, self._size)
            or self._ask(number, self._size, MAX_ANSWER_SECONDS)
            or self._ask_smaller(number)
        )
        if reply is None:
            return Hop(number)
        if reply.kind == REFUSED or (reply.kind == REACHED and not self._is_peer(reply)):
            self._refused = reply.address
        self._reached = reply.kind == REACHED and not self._refused
        return Hop(number, (reply.address,), round(reply.seconds, 6), self._size)

    def _is_peer(self, reply: Reply) -> bool:
        return ip_address(reply.address) == self._target.peer

    def _ask(self, number: int, size: int, patience: float = 0.0) -> Optional[Reply]:
        """The answer to one packet; a report that it is too large makes it smaller."""
        for _ in range(MAX_REPORTS):
            reply = self._await_replies(self._flows[:1], number, size, patience).get(0)
            if reply is None or reply.kind != TOO_LARGE:
                return reply
            if not self._smallest <= reply.mtu < size:
                # No router reports this: take it for silence.
                return None
            size = self._size = reply.mtu
            self._narrowings.append(Narrowing(number, size, reply.address))
        return None

    def _ask_smaller(self, number: int) -> Optional[Reply]:
        """Distinguish a router that is silent from one that large packets do not reach."""
        size = self._size
        for smaller in sorted({self._known_size or size, self._smallest}, reverse=True):
            if smaller >= size or self._is_late():
                continue
            reply = self._ask(number, smaller)
            if reply is None:
                continue
            # The answer to the large one may have been missing because of the limit on ICMP
            # messages: wait, and ask once more.
            wait_readable([], time.monotonic() + ICMP_PAUSE_SECONDS)
            again = self._ask(number, size)
            if again is None and self._size == size:
                self._size = smaller
                self._narrowings.append(Narrowing(number, smaller))
            return again or reply
        return None

    # --- Several flows: other ways --------------------------------------------------------------

    def _with_other_flows(self, hop: Hop) -> Hop:
        if self._is_late():
            return hop
        replies = self._await_replies(self._flows[1:], hop.number, self._smallest).values()
        addresses = [reply.address for reply in replies if reply.kind in (ROUTER, REACHED)]
        rtts = [hop.rtt, *(reply.seconds for reply in replies)]
        return replace(
            hop,
            addresses=tuple(sorted({*hop.addresses, *addresses})),
            rtt=min(filter(None, rtts), default=None),
        )

    def _await_replies(
        self, flows: Sequence[Flow], number: int, size: int, patience: float = 0.0
    ) -> dict[int, Reply]:
        """The answers to one packet of each flow, by the place of the flow."""
        replies: dict[int, Reply] = {}
        for flow in flows:
            flow.send_probe(number, size)
        deadline = min(time.monotonic() + max(patience, self._patience), self._end)
        while len(replies) < len(flows):
            waiting = [flow for place, flow in enumerate(flows) if place not in replies]
            ready = wait_readable(waiting, deadline)
            if not ready:
                break
            for flow in ready:
                reply = flow.read_reply()
                if reply is not None:
                    replies[flows.index(flow)] = reply
        return replies
