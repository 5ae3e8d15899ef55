"""One run of iperf3 or iperf 2, whatever its version and the format of its output.

What a version or a format does not report is None ("not known"), never zero. Rates are in bit/s,
sizes in bytes, times in seconds.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Optional, Union

MSS = 1448  # bytes: of MTU 1500 with timestamps (RFC 7323), where iperf does not print it
JUMBO_FRAME = 9216  # bytes: a larger MSS is that of a link without frames, such as lo
# iperf3 has a thread for each stream since this version (release notes); before, all share one.
THREADED = (3, 16)
EMBEDDED = "embedded"  # the system of a run by ESP-IDF's or NuttX' own iperf
SUBNETS = {4: 24, 6: 64}  # the usual lengths of the prefix of a local network


@dataclass(frozen=True)
class Interval:
    """One interval with all streams of a direction: windows are their sums, `rtt` is their mean.

    `cwnd` is the sender's congestion window, `snd_wnd` what the receiver allows (iperf3 3.10 or
    later on Linux 5.4 or later).
    """

    start: float
    end: float
    bytes: Optional[float] = None
    rate: Optional[float] = None
    retransmits: Optional[int] = None
    cwnd: Optional[float] = None
    snd_wnd: Optional[float] = None
    rtt: Optional[float] = None
    pmtu: Optional[int] = None
    datagrams: Optional[int] = None
    lost: Optional[int] = None
    jitter: Optional[float] = None
    omitted: bool = False

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.start)


def known_rates(intervals: Iterable[Interval]) -> list[float]:
    """The rates of those intervals for which one was reported, bit/s."""
    return [interval.rate for interval in intervals if interval.rate is not None]


@dataclass(frozen=True)
class Total:
    """The totals of a run, as one end counted them."""

    seconds: Optional[float] = None
    bytes: Optional[float] = None
    rate: Optional[float] = None
    retransmits: Optional[int] = None
    datagrams: Optional[int] = None
    lost: Optional[int] = None
    out_of_order: Optional[int] = None
    jitter: Optional[float] = None


@dataclass(frozen=True)
class Flow:
    """One direction of a run: "forward" is from the client to the server."""

    direction: str = "forward"
    intervals: tuple[Interval, ...] = ()
    sent: Total = Total()
    received: Total = Total()

    @property
    def rate(self) -> Optional[float]:
        """bit/s of the whole test, as received if that is known."""
        if self.is_lost:
            return 0.0
        return self.received.rate or self.sent.rate

    @property
    def retransmits(self) -> Optional[int]:
        """Segments of the whole run that were sent again, slow start included."""
        counts = [each.retransmits for each in self.intervals if each.retransmits is not None]
        if self.sent.retransmits is None and not counts:
            return None
        # iperf3's totals leave out what was omitted (-O).
        return max(sum(counts), self.sent.retransmits or 0)

    @property
    def size(self) -> float:
        """Bytes that were sent, as far as is known."""
        return max(self.sent.bytes or 0, sum(interval.bytes or 0 for interval in self.intervals))

    @property
    def is_lost(self) -> bool:
        """Whether none of the datagrams that were sent arrived."""
        lost, datagrams = self.received.lost, self.received.datagrams
        return bool(datagrams) and (lost or 0) >= (datagrams or 0) and not self.received.bytes


@dataclass(frozen=True)
class Connection:
    """A data connection, as seen by the end that wrote the document."""

    local: str
    local_port: int
    remote: str
    remote_port: int


@dataclass(frozen=True)
class Run:
    """One run. With an `error`, of iperf or of the reader, flows may be absent or incomplete."""

    tool: str
    version: Optional[str] = None
    protocol: Optional[str] = None  # "tcp" or "udp"
    flows: tuple[Flow, ...] = ()
    connections: tuple[Connection, ...] = ()
    streams: Optional[int] = None
    duration: Optional[float] = None  # as requested
    target: Optional[float] = None  # as requested, all streams together; 0 is no limit
    datagram: Optional[int] = None  # bytes of one write: of a datagram, with UDP
    buffer: Optional[float] = None  # as requested with -w
    sndbuf: Optional[float] = None
    rcvbuf: Optional[float] = None
    mss: Optional[int] = None
    congestion: Optional[str] = None  # the sender's algorithm
    cpu_local: Optional[float] = None  # per cent of one CPU, of the iperf process alone
    cpu_remote: Optional[float] = None
    peer: Optional[str] = None  # the host that the document names as the other end
    taken: Optional[str] = None  # when the run began, as iperf3 wrote it
    system: Optional[str] = None  # of the end that wrote the document, as uname(1)
    options: Optional[str] = None  # of the command line that was pasted along with it
    error: Optional[str] = None
    unreadable: bool = False  # `error` is the reader's, and iperf's document has no result
    notes: tuple[str, ...] = ()  # oddities of the document, for people

    def flow(self, direction: str) -> Optional[Flow]:
        return next((flow for flow in self.flows if flow.direction == direction), None)

    @property
    def stream_count(self) -> int:
        """1 if it is not known."""
        return max(1, self.streams or 1)

    @property
    def is_threaded(self) -> bool:
        """Whether each stream has a thread of its own."""
        return version_of(self) >= THREADED

    @property
    def is_local_network(self) -> bool:
        """Whether both ends are in one subnet, as far as their addresses tell."""
        return any(_is_same_subnet(each.local, each.remote) for each in self.connections)

    @property
    def is_loopback(self) -> bool:
        """Whether nothing leaves the host, as far as the addresses and the MSS tell."""
        if (self.mss or MSS) > JUMBO_FRAME or any(c.local == c.remote for c in self.connections):
            return True
        ends = ((each.local, each.remote) for each in self.connections)
        hosts = (*chain.from_iterable(ends), self.peer or "")
        return any(host == "localhost" or _is_loopback(host) for host in hosts)

    @property
    def cpus(self) -> tuple[float, float]:
        """How busy each iperf process kept its CPU, the local one first; 1 is full.

        Of the threads that it has, their mean.
        """
        threads = self.stream_count * max(1, len(self.flows)) if self.is_threaded else 1
        return (self.cpu_local or 0.0) / threads / 100, (self.cpu_remote or 0.0) / threads / 100


def version_of(run: Run) -> tuple[int, ...]:
    """Empty if it is not known."""
    # int() refuses more than 4300 digits.
    digits = (run.version or "")[:40].partition("-")[0].partition("+")[0].split(".")
    return tuple(int(number) for number in digits if number.isdecimal())


def _is_loopback(host: str) -> bool:
    address = _parsed_address(host)
    return address is not None and address.is_loopback


def _is_same_subnet(host: str, other: str) -> bool:
    """Whether both addresses are in one local network, if its prefix has the usual length."""
    first, second = _parsed_address(host), _parsed_address(other)
    if first is None or second is None or first.version != second.version:
        return False
    shift = first.max_prefixlen - SUBNETS[first.version]
    return int(first) >> shift == int(second) >> shift


def _parsed_address(host: str) -> Optional[Union[ipaddress.IPv4Address, ipaddress.IPv6Address]]:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
