"""Round trips, while idle or during a test: by UDP to the helper's echo, by TCP, or by ping."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Latency
from neuca_tools.selftest.measure.host.kernel import FAMILIES
from neuca_tools.selftest.measure.probes.echo import HEADER
from neuca_tools.selftest.measure.wait import readable

# Seconds between requests.
EVERY = 0.01
# Seconds after which an answer counts as lost.
LATE = 2.0
# Seconds assumed for a round trip while none is known. The last answers get four round trips.
FIRST = 0.25
# Round trips that are not counted: they resolve addresses and wake CPUs.
WARM = 3
# The most requests of one probe.
MOST = 100_000
# ICMP types (RFC 792, RFC 4443).
PROTOCOLS = {4: socket.IPPROTO_ICMP, 6: socket.IPPROTO_ICMPV6}
ECHO, ANSWER = {4: 8, 6: 128}, {4: 0, 6: 129}


class RoundTrips:
    """Requests at a fixed rate, independent of the answers: a `Probe` for `conduct`.

    Subclasses define the packets.
    """

    def __init__(self, sender: socket.socket, every: float = EVERY) -> None:
        self._socket, self._every = sender, every
        self._socket.setblocking(False)
        self._sent: dict[int, float] = {}
        self._times: list[float] = []
        self._next, self._number = time.monotonic(), 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def due(self) -> float:
        return self._next

    def turn(self) -> None:
        self._take()
        if time.monotonic() >= self._next and self._number < MOST:
            self._next = max(self._next + self._every, time.monotonic())
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
                if sent is not None and number > WARM:
                    self._times.append(time.monotonic() - sent)

    def end(self) -> Latency:
        """Wait for the last answers and close. Without any, only the counts are set."""
        deadline = time.monotonic() + min(LATE, max(0.2, 4 * max(self._times, default=FIRST)))
        while self._sent and time.monotonic() < deadline:
            if readable([self._socket], deadline):
                self._take()
        self._socket.close()
        lost = sum(number > WARM for number in self._sent)
        return latency(self._times, lost)

    def _request(self, number: int) -> bytes:
        raise NotImplementedError

    def _number_of(self, datagram: bytes) -> int:
        """The number of the request that this answers; 0 for anything else."""
        raise NotImplementedError


class Datagrams(RoundTrips):
    """By UDP, to the echo of a helper. The constructor raises OSError."""

    def __init__(
        self, peer: Address, port: int, token: bytes, source: Address, every: float = EVERY
    ) -> None:
        self._token = token
        sender = socket.socket(FAMILIES[peer.version], socket.SOCK_DGRAM)
        sender.bind((str(source), 0))
        sender.connect((str(peer), port))
        super().__init__(sender, every)

    def _request(self, number: int) -> bytes:
        return HEADER.pack(self._token, number, HEADER.size)

    def _number_of(self, datagram: bytes) -> int:
        return int(HEADER.unpack_from(datagram)[1]) if len(datagram) >= HEADER.size else 0


class Pings(RoundTrips):
    """By ICMP, which needs root. The constructor raises OSError."""

    def __init__(
        self, peer: Address, source: Optional[Address] = None, every: float = EVERY, size: int = 24
    ) -> None:
        self._version, self._size = peer.version, size
        sender = ping_socket(peer.version)
        if source:
            sender.bind((str(source), 0))
        sender.connect((str(peer), 0))
        self._id = (id(self) >> 4) & 0xFFFF
        super().__init__(sender, every)

    def _request(self, number: int) -> bytes:
        return echo_request(self._version, self._id, number, self._size)

    def _number_of(self, datagram: bytes) -> int:
        return answered(self._version, self._id, datagram)


def ping_socket(version: int) -> socket.socket:
    """A raw ICMP socket, which needs root. Raises OSError."""
    return socket.socket(FAMILIES[version], socket.SOCK_RAW, PROTOCOLS[version])


def echo_request(version: int, identity: int, number: int, size: int) -> bytes:
    """An ICMP echo request of `size` bytes with its header. The kernel adds IPv6's checksum."""
    body = bytes(max(0, size - 8))
    header = struct.pack("!BBHHH", ECHO[version], 0, 0, identity, number & 0xFFFF)
    total = checksum(header + body) if version == 4 else 0
    return struct.pack("!BBHHH", ECHO[version], 0, total, identity, number & 0xFFFF) + body


def answered(version: int, identity: int, packet: bytes) -> int:
    """The number of the request that this answers; 0 for anything else.

    An IPv4 raw socket receives the IP header too.
    """
    if version == 4:
        packet = packet[(packet[0] & 0xF) * 4 :] if packet else b""
    if len(packet) < 8:
        return 0
    kind, _, _, whose, number = struct.unpack_from("!BBHHH", packet)
    return int(number) if kind == ANSWER[version] and whose == identity else 0


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def measure(probe: RoundTrips, count: int, seconds: float) -> Latency:
    """Measure `count` round trips, or as many as fit in `seconds`."""
    deadline, sent = time.monotonic() + seconds, 0
    while sent < count and time.monotonic() < deadline:
        readable([probe], min(probe.due(), deadline))
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
        for number in range(count + WARM):
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
                return latency(times, 1)
            if not answer:
                break
            if number >= WARM:
                times.append(time.monotonic() - began)
    return latency(times, 0)


def latency(times: Sequence[float], lost: int) -> Latency:
    """The median, the 99th percentile (nearest rank) and the maximum, in seconds."""
    ordered = sorted(times)
    count = len(ordered) + lost
    if not ordered:
        return Latency(count or None, lost if count else None)
    ranks = [ordered[min(len(ordered) - 1, int(part * len(ordered)))] for part in (0.5, 0.99)]
    return Latency(count, lost, ranks[0], ranks[1], ordered[-1])
