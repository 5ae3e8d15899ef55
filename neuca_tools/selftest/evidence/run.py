"""One run of iperf3 or iperf 2, of any version and format, and what its intervals show.

What a version or a format does not report is None ("not known"), never zero. Rates are in bit/s,
sizes in bytes, times in seconds.
"""

# SPDX-License-Identifier: MIT

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Literal, Optional, Union

MSS = 1448  # bytes: of MTU 1500 with timestamps (RFC 7323), where iperf does not print it
DEFAULT_MSS = 536  # bytes, without the option of TCP (RFC 9293, section 3.7.1)
FEW_RETRANSMITS = 1000  # segments, which the timers of many streams send on a dead path
JUMBO_FRAME = 9216  # bytes: a larger MSS is that of a link without frames, such as lo
# iperf3 has a thread for each stream since this version (release notes); before, all share one.
THREADED = (3, 16)
BBR = "bbr"  # the kernel's name of the algorithm (tcp_congestion_control of ip-sysctl)
SUBNETS = {4: 24, 6: 64}  # the usual lengths of the prefix of a local network
# "forward" is from the client to the server, or from the local host to its peer.
Direction = Literal["forward", "reverse"]


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
    datagrams: Optional[int] = None
    lost: Optional[int] = None
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


@dataclass(frozen=True)
class Flow:
    """One direction of a run: "forward" is from the client to the server."""

    direction: Direction = "forward"
    intervals: tuple[Interval, ...] = ()
    sent: Total = Total()
    received: Total = Total()

    @property
    def rate(self) -> Optional[float]:
        """bit/s of the whole test, as received if that is known."""
        if self.is_lost:
            return 0.0
        return self.sent.rate if self.received.rate is None else self.received.rate

    @property
    def retransmits(self) -> Optional[int]:
        """Segments of the run sent again, slow start included; None if more than it had at all."""
        counts = [each.retransmits for each in self.intervals if each.retransmits is not None]
        if self.sent.retransmits is None and not counts:
            return None
        # iperf3's totals leave out what was omitted (-O).
        count = max(sum(counts), self.sent.retransmits or 0)
        # TCP_INFO of some systems (WSL 1) has arbitrary numbers.
        return None if count > max(FEW_RETRANSMITS, self.size / DEFAULT_MSS) else count

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
    def ip_version(self) -> int:
        """4 unless an address is known, and that is IPv6."""
        hosts = (self.connections[0].remote if self.connections else "", self.peer or "")
        addresses = filter(None, map(_parsed_address, hosts))
        return next((address.version for address in addresses), 4)

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
        """How busy each iperf process kept its CPU, local first (1: full); mean of its threads."""
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
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    # A server that listens on :: prints ::ffff:192.0.2.1 for IPv4.
    mapped = address.ipv4_mapped if address.version == 6 else None
    return mapped or address


# --- Intervals ------------------------------------------------------------------------------------


# Slow start, which is left out: seconds, or round trips if that is longer; bounds of our own.
START_SECONDS = 2.0
ROUND_TRIPS = 20
# A congestion window that varies less than this share is capped; iperf3's text has three digits.
FLAT_SPREAD = 0.02
RISES_FROM, RISEN = 0.5, 0.9  # of the usual rate: where a long rise begins at most, and ends
TAIL_SHARE = 0.9  # of the usual interval: what arrives after the sender stopped is one more
# Bytes: the kernel's own default, tcp_wmem[2] (tcp(7)), of what was written but not yet sent.
SEND_BUFFER = 4 * 2**20


def slow_start(rtt: Optional[float]) -> float:
    """Seconds that slow start takes at most."""
    return max(START_SECONDS, ROUND_TRIPS * (rtt or 0))


def steady_intervals(intervals: Sequence[Interval], rtt: Optional[float]) -> tuple[Interval, ...]:
    """Without slow start: what iperf3 was told to omit, or else the first seconds."""
    counted = tuple(interval for interval in intervals if not interval.omitted)
    late = counted
    if len(counted) == len(intervals):
        begin = slow_start(rtt) - 0.5
        # If intervals are longer than slow start, only the first one contains it.
        late = tuple(
            each
            for each in counted
            if each.start >= begin or (each.start > 0 and each.seconds > START_SECONDS)
        )
    if len(late) > 1:
        return late
    # Too short a test: at least the first interval is left out if two remain.
    if len(counted) > 2:
        return counted[1:]
    return counted


def usual_intervals(intervals: Sequence[Interval], rtt: Optional[float]) -> tuple[Interval, ...]:
    """The intervals with the usual rate, if only iperf's rates tell when slow start ended.

    In a short test these are all but the first interval, although slow start may be part of them.
    """
    every = whole_intervals(intervals)
    steady = set(map(id, steady_intervals(intervals, rtt)))
    late = tuple(interval for interval in every if id(interval) in steady)
    if len(late) <= 2:
        return every[1:] or every
    return _without_rise(late)


def whole_intervals(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    """Without a last one that is shorter than the others."""
    if len(intervals) < 2 or intervals[-1].seconds >= TAIL_SHARE * intervals[0].seconds:
        return tuple(intervals)
    return tuple(intervals[:-1])


def _without_rise(late: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Without the first intervals, up to half of them, if each is faster than the one before.

    Where loss or a long round trip ended slow start early, it takes TCP longer to fill the path.
    """
    half = len(late) // 2
    usual = median(known_rates(late[half:]) or [0.0])
    first = next((at for at, each in enumerate(late) if (each.rate or 0) >= RISEN * usual), 0)
    rates = [interval.rate or 0.0 for interval in late[: first + 1]]
    is_rising = rates[0] < RISES_FROM * usual and rates == sorted(rates)
    return late[first:] if first <= half and is_rising else late


def send_buffer(run: Run) -> float:
    """Bytes that the first intervals may count as sent without any having left the host."""
    # The kernel doubles what -w asks for (SO_SNDBUF in socket(7)).
    return run.stream_count * max(SEND_BUFFER, 2 * (run.buffer or 0))


def known_windows(intervals: Sequence[Interval]) -> list[float]:
    """The congestion windows in bytes, where they are known."""
    return [interval.cwnd for interval in intervals if interval.cwnd]


def is_flat(windows: Sequence[float]) -> bool:
    """Whether the congestion window varied by no more than the share FLAT."""
    if len(windows) < 2 or not max(windows):
        return False
    return max(windows) - min(windows) <= FLAT_SPREAD * max(windows)


def known_round_trips(intervals: Sequence[Interval]) -> list[float]:
    """Seconds."""
    return [interval.rtt for interval in intervals if interval.rtt]


def in_flight(intervals: Sequence[Interval]) -> list[float]:
    """Bytes: the rate times the round trip, where both are known."""
    return [each.rate * each.rtt / 8 for each in intervals if each.rate and each.rtt]
