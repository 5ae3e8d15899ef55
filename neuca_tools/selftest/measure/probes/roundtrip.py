"""Round trips, while idle or during a test: by UDP or TCP to the helper's echo, or by ping.

ping(8) is not used: at an interval of 10 ms (-i 0.01), its 200 requests take 3.3 s instead of 2 s,
it reports no percentiles, and each of the sizes that path_mtu tries would be a process.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import randbits
from typing import NamedTuple, Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Latency
from neuca_tools.selftest.measure.host.kernel import FAMILIES
from neuca_tools.selftest.measure.probes.echo import HEADER
from neuca_tools.selftest.measure.wait import wait_readable

# Seconds between requests.
REQUEST_SECONDS = 0.01
# Seconds for the last answers: four times the longest round trip, within bounds of our own.
SHORTEST_WAIT, LONGEST_WAIT = 0.2, 2.0
# Seconds assumed for a round trip while none is known.
UNKNOWN_ROUND_TRIP = 0.25
# Round trips that are not counted: they resolve addresses and wake CPUs.
UNCOUNTED = 3
# Bytes of a ping, with its ICMP header.
PING = 24
# The most requests of one probe: the number of a ping has 16 bits.
MOST_REQUESTS = 0xFFFF
# ICMP types (RFC 792, RFC 4443).
PROTOCOLS = {4: socket.IPPROTO_ICMP, 6: socket.IPPROTO_ICMPV6}
ECHO, ANSWER = {4: 8, 6: 128}, {4: 0, 6: 129}


class RoundTrips:
    """Requests at a fixed rate, independent of the answers.

    `request` makes the packet with a number. `number_of` reads the number from an answer: 0 for
    anything else. `every` is in seconds.
    """

    def __init__(
        self,
        sender: socket.socket,
        request: Callable[[int], bytes],
        number_of: Callable[[bytes], int],
        every: float = REQUEST_SECONDS,
    ) -> None:
        sender.setblocking(False)
        self._socket, self._every = sender, every
        self._request, self._number_of = request, number_of
        self._sent: dict[int, float] = {}
        self._times: list[float] = []
        self._next_due, self._number = time.monotonic(), 0

    def fileno(self) -> int:
        """The descriptor on which answers arrive."""
        return self._socket.fileno()

    def due(self) -> float:
        """When the next request has to be sent, by the monotonic clock in seconds."""
        return self._next_due

    def turn(self) -> None:
        """Read the answers that have arrived, and send a request if it is due."""
        self._take()
        if time.monotonic() >= self._next_due and self._number < MOST_REQUESTS:
            self._next_due = max(self._next_due + self._every, time.monotonic())
            self._number += 1
            self._sent[self._number] = time.monotonic()
            # A full queue or a missing route loses the request like any other.
            with suppress(OSError):
                self._socket.send(self._request(self._number))

    def _take(self) -> None:
        # No more answers for now, or an ICMP error for an earlier request.
        with suppress(OSError):
            while True:
                number = self._number_of(self._socket.recv(65536))
                sent = self._sent.pop(number, None)
                if sent is not None and number > UNCOUNTED:
                    self._times.append(time.monotonic() - sent)

    def end(self) -> Latency:
        """Wait for the last answers and close. Without any, only the counts are set."""
        deadline = time.monotonic() + min(
            LONGEST_WAIT, max(SHORTEST_WAIT, 4 * max(self._times, default=UNKNOWN_ROUND_TRIP))
        )
        while self._sent and time.monotonic() < deadline:
            if wait_readable([self._socket], deadline):
                self._take()
        self._socket.close()
        lost = sum(number > UNCOUNTED for number in self._sent)
        return latency_of(self._times, lost)


def udp_round_trips(
    peer: Address, port: int, token: bytes, source: Address, every: float = REQUEST_SECONDS
) -> RoundTrips:
    """Round trips by UDP, to the echo of a helper. Raises OSError."""
    sender = socket.socket(FAMILIES[peer.version], socket.SOCK_DGRAM)
    sender.bind((str(source), 0))
    sender.connect((str(peer), port))

    def number_of(answer: bytes) -> int:
        if len(answer) < HEADER.size:
            return 0
        return int(HEADER.unpack_from(answer)[1])

    return RoundTrips(
        sender, lambda number: HEADER.pack(token, number, HEADER.size), number_of, every
    )


def icmp_round_trips(
    peer: Address, source: Optional[Address], every: float = REQUEST_SECONDS
) -> RoundTrips:
    """Round trips by ICMP, which needs root. Raises OSError."""
    sender, version, identity = ping_socket(peer.version), peer.version, randbits(16)
    if source:
        sender.bind((str(source), 0))
    sender.connect((str(peer), 0))
    return RoundTrips(
        sender,
        lambda number: echo_request(version, identity, number, PING),
        lambda packet: answered_number(version, identity, packet),
        every,
    )


def ping_socket(version: int) -> socket.socket:
    """A raw ICMP socket, which needs root. Raises OSError."""
    return socket.socket(FAMILIES[version], socket.SOCK_RAW, PROTOCOLS[version])


def echo_request(version: int, identity: int, number: int, size: int) -> bytes:
    """An ICMP echo request of `size` bytes with its header. The kernel adds IPv6's checksum."""
    body = bytes(max(0, size - 8))
    header = struct.pack("!BBHHH", ECHO[version], 0, 0, identity, number & 0xFFFF)
    total = 0
    if version == 4:
        total = internet_checksum(header + body)
    return struct.pack("!BBHHH", ECHO[version], 0, total, identity, number & 0xFFFF) + body


def answered_number(version: int, identity: int, packet: bytes) -> int:
    """The number of the request that this answers; 0 for anything else.

    An IPv4 raw socket receives the IP header too.
    """
    if version == 4 and packet:
        packet = packet[(packet[0] & 0xF) * 4 :]
    if len(packet) < 8:
        return 0
    kind, _, _, whose, number = struct.unpack_from("!BBHHH", packet)
    if kind != ANSWER[version] or whose != identity:
        return 0
    return int(number)


def internet_checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def measure_latency(probe: RoundTrips, count: int, seconds: float) -> Latency:
    """Measure `count` round trips, or as many as fit in `seconds`."""
    deadline, sent = time.monotonic() + seconds, 0
    while sent < count and time.monotonic() < deadline:
        wait_readable([probe], min(probe.due(), deadline))
        before = probe.due()
        probe.turn()
        sent += probe.due() != before
    return probe.end()


def over_tcp(peer: Address, port: int, source: Address, count: int, seconds: float) -> Latency:
    """Requests over one connection, each after the answer to the one before.

    Raises OSError if it cannot connect.
    """
    times: list[float] = []
    deadline = time.monotonic() + seconds
    with socket.create_connection((str(peer), port), seconds, (str(source), 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(count + UNCOUNTED):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            connection.settimeout(left)
            began = time.monotonic()
            try:
                connection.sendall(b"?")
                answer = connection.recv(1)
            except OSError:
                # No answer in time, or the connection was reset.
                return latency_of(times, 1)
            if not answer:
                break
            if number >= UNCOUNTED:
                times.append(time.monotonic() - began)
    return latency_of(times, 0)


def latency_of(times: Sequence[float], lost: int) -> Latency:
    """The median, the 99th percentile (nearest rank) and the maximum, in seconds."""
    ordered = sorted(times)
    count = len(ordered) + lost
    if not count:
        return Latency()
    if not ordered:
        return Latency(count, lost)
    ranks = [ordered[min(len(ordered) - 1, int(part * len(ordered)))] for part in (0.5, 0.99)]
    return Latency(count, lost, ranks[0], ranks[1], ordered[-1])


# --- Foreign probes: a connection to the echo, and a byte there and back, beside a test ---------

# Seconds between probes, so that at most 20 begin in a second. The draft allows 100 (MPS).
PROBE_SECONDS = 0.05
# Bytes of a probe on the wire, there or back, and the part of the capacity that the probes may
# use: the draft's PTC.
PROBE_BYTES, CAPACITY_SHARE = 700, 0.05
# Probes at the same time, fewer than the connections that an echo accepts; probes of one test.
MOST_OPEN, MOST_PROBES = 32, 1000
# Seconds after which a probe has failed.
FAILED_SECONDS = 5.0


class Times(NamedTuple):
    """When each answered probe began, by the monotonic clock, and how long its parts took.

    All in seconds. `failed` probes had no answer in time, or were refused.
    """

    begun: tuple[float, ...] = ()
    connected: tuple[float, ...] = ()
    answered: tuple[float, ...] = ()
    failed: int = 0


@dataclass
class _Probe:
    socket: socket.socket
    begun: float
    connected: Optional[float] = None


def probe_interval(rate: Optional[float]) -> float:
    """Seconds between probes on a path of `rate` bit/s; None if that is not known."""
    if not rate:
        return PROBE_SECONDS
    return max(PROBE_SECONDS, PROBE_BYTES * 8 / (CAPACITY_SHARE * rate))


class ForeignProbes:
    """A probe every `every` seconds, independent of the answers; see `RoundTrips` for its use.

    The constructor raises OSError.
    """

    def __init__(
        self, peer: Address, port: int, source: Address, every: float = PROBE_SECONDS
    ) -> None:
        self._peer, self._source, self._every = (str(peer), port), str(source), every
        self._family = FAMILIES[peer.version]
        self._poll = select.epoll()
        self._open: dict[int, _Probe] = {}
        self._rows: list[tuple[float, float, float]] = []
        self._failed = self._begun_count = 0
        self._next_due = time.monotonic()

    def fileno(self) -> int:
        """The descriptor on which something happens to a probe."""
        return self._poll.fileno()

    def due(self) -> float:
        """When `turn` is needed in any case, by the monotonic clock in seconds."""
        return self._next_due

    def turn(self) -> None:
        """Handle what has happened, and begin a probe if that is due."""
        for descriptor, _ in self._poll.poll(0):
            self._advance_probe(descriptor)
        now = time.monotonic()
        for descriptor in [
            descriptor
            for descriptor, probe in self._open.items()
            if now > probe.begun + FAILED_SECONDS
        ]:
            self._close(descriptor)
            self._failed += 1
        if now >= self._next_due:
            self._next_due = max(self._next_due + self._every, now)
            if len(self._open) < MOST_OPEN and self._begun_count < MOST_PROBES:
                self._begin(now)

    def end(self) -> Times:
        """Close everything. Probes under way are not counted."""
        for descriptor in list(self._open):
            self._close(descriptor)
        self._poll.close()
        if not self._rows:
            return Times(failed=self._failed)
        begun, connected, answered = zip(*self._rows)
        return Times(begun, connected, answered, self._failed)

    def _begin(self, now: float) -> None:
        self._begun_count += 1
        connection = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # Closed by a reset, so that its port does not stay in TIME_WAIT.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.bind((self._source, 0))
            with suppress(BlockingIOError):
                connection.connect(self._peer)
        except OSError:
            connection.close()
            self._failed += 1
            return
        self._open[connection.fileno()] = _Probe(connection, now)
        self._poll.register(connection.fileno(), select.EPOLLOUT)

    def _advance_probe(self, descriptor: int) -> None:
        """The connection is there, or the answer, or neither."""
        probe, now = self._open[descriptor], time.monotonic()
        try:
            if probe.connected is None:
                # Raises the error of the connection, if it has failed.
                probe.socket.send(b"?")
                probe.connected = now
                self._poll.modify(descriptor, select.EPOLLIN)
                return
            if probe.socket.recv(1):
                taken = (probe.connected - probe.begun, now - probe.connected)
                self._rows.append((probe.begun, *taken))
            else:
                self._failed += 1
        except OSError:
            self._failed += 1
        self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._open.pop(descriptor).socket.close()
