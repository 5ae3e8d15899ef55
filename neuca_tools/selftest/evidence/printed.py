"""What iperf alone says of a run: for outputs of others, where no host was sampled.

`printed` derives the figures that the rules in `conditions.printed` compare. Rates are in bit/s,
sizes in bytes, times in seconds; None is "not known".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest.evidence.look import FLAT, Look
from neuca_tools.selftest.evidence.run import (
    Flow,
    Interval,
    Run,
    is_loopback,
    is_private,
    is_same_subnet,
    known_rates,
    version_of,
)

MSS = 1448  # of MTU 1500 with timestamps (RFC 7323), where iperf does not print it
FOLLOWS, NEARLY_EVEN = 0.95, 0.05  # of the rate before the window fell; its variation
SHORT, INITIAL = 2.0, 10  # seconds; segments of the first window (RFC 6928)
ANSWERED = 0.5  # of the losses
ETHERNET = 9216  # bytes: a larger MSS is that of a link without frames, such as lo
UNSHAPED = 0.5e9  # bit/s: a test of netem or tbf on lo is slower
STRETCH, OUTLIERS = 1.25, 8  # the longest round trip over the shortest; one of so many
ROUNDED = 0.005  # how far windows differ that are the same; CUBIC's last steps are larger
# Since 3.16 iperf3 has a thread for each stream (release notes); all earlier ones share one.
THREADED = (3, 16)
KEPT = "printed"  # the name of these figures among a look's own
# What TCP multiplies its window with after a loss: 0.5 (RFC 5681), 0.7 for CUBIC (RFC 9438,
# section 4.6). An interval of iperf may contain some of the recovery.
FALLS = 0.85
BACK = 0.95  # of the window before: a loss from which it recovers within an interval costs nothing
RISES = 1.1
RISES_FROM, RISEN = 0.5, 0.9  # of the usual rate: where a long rise begins at most, and ends
RESTED = 4  # intervals
QUEUES, NO_FASTER = 1.3, 1.05  # times the window, and the rate, at first
TAIL = 0.5  # of the usual interval: iperf3 prints what is left at the end of a test as one more
# Of the intervals after the send buffer was full: how many at least, and how much they vary.
FILLED, PLATEAU = 4, 0.03
# Bytes: the kernel's own default, tcp_wmem[2] (tcp(7)), of what was written but not yet sent.
SEND_BUFFER = 4 * 2**20


@dataclass(frozen=True)
class Printed:
    """One direction of a run. `late` are its intervals after slow start, `every` all of them."""

    run: Run
    rate: float
    every: tuple[Interval, ...]
    late: tuple[Interval, ...]
    rtt: Optional[float]
    retransmits: Optional[int]
    share: float  # of the segments that were sent again
    arrived: Optional[float] = None  # bit/s, as the receiver counted in all

    @cached_property
    def rates(self) -> list[float]:
        return known_rates(self.late)

    @cached_property
    def spread(self) -> Optional[float]:
        """The coefficient of variation of the rate; None for fewer than three intervals."""
        rates = self.rates
        if len(rates) < 3 or mean(rates) <= 0:
            return None
        return pstdev(rates) / mean(rates)

    @property
    def known_spread(self) -> float:
        """The same; 0 if it is not known."""
        return self.spread or 0.0

    @property
    def streams(self) -> int:
        return max(1, self.run.streams or 1)

    @property
    def mss(self) -> int:
        return self.run.mss or MSS

    @cached_property
    def cwnds(self) -> list[float]:
        return [one.cwnd for one in self.late if one.cwnd]

    @property
    def cwnd(self) -> Optional[float]:
        return median(self.cwnds) if self.cwnds else None

    @cached_property
    def trips(self) -> list[float]:
        return [one.rtt for one in self.late if one.rtt]

    @cached_property
    def flights(self) -> list[float]:
        """Bytes in flight in each interval: its rate times its round trip."""
        return [one.rate * one.rtt / 8 for one in self.late if one.rate and one.rtt]

    @cached_property
    def arrivals(self) -> list[float]:
        """The rates of the intervals whose losses a receiver counted."""
        return [one.rate for one in self.late if one.rate and one.lost is not None]

    @property
    def is_unqueued(self) -> bool:
        """Whether the round trip hardly varies, but for one of eight: nothing waits on the path."""
        trips = sorted(self.trips)
        most = trips[: len(trips) - len(trips) // OUTLIERS]
        return bool(most) and most[-1] <= STRETCH * most[0]

    @property
    def is_flat(self) -> bool:
        """Whether the congestion window stayed where it was."""
        cwnds = self.cwnds
        return len(cwnds) > 1 and max(cwnds) - min(cwnds) <= FLAT * max(cwnds)

    @property
    def is_reduced(self) -> bool:
        """Whether the congestion window is smaller than at the very start: loss alone does that."""
        return self.cwnd is not None and self.cwnd < INITIAL * self.mss * self.streams

    @property
    def is_received(self) -> bool:
        """Whether the intervals are the receiver's, although the sender's count is known."""
        return self.retransmits is not None and all(one.retransmits is None for one in self.every)

    @cached_property
    def queued(self) -> float:
        """Of the rate, what the growing window holds back: it was sent, and did not arrive yet."""
        seconds = sum(one.seconds for one in self.late[1:])
        cwnds = self.cwnds
        if len(cwnds) < 3 or seconds <= 0:
            return 0.0
        return max(0.0, cwnds[-1] - cwnds[0]) * 8 * self.streams / seconds

    @property
    def level(self) -> tuple[Interval, ...]:
        """The last intervals, in which the congestion window stayed where it was."""
        stays, found = max((one.cwnd or 0.0 for one in self.every[-1:]), default=0.0), 0
        for one in reversed(self.every):
            if not one.cwnd or abs(one.cwnd - stays) > ROUNDED * stays:
                break
            found += 1
        return self.every[len(self.every) - found :]

    @property
    def tail(self) -> tuple[Interval, ...]:
        """The last intervals in which the congestion window stayed and nothing was lost."""
        level = self.level
        lost = max((at for at, one in enumerate(level) if one.retransmits), default=-1)
        return level[lost + 1 :]

    @property
    def is_unused(self) -> bool:
        """Whether nothing made the congestion window change: neither loss nor a need for more."""
        return self.is_flat and self.retransmits == 0

    @property
    def events(self) -> int:
        """In how many intervals, slow start included, something was sent again."""
        return sum(1 for one in self.every if one.retransmits)

    @property
    def late_share(self) -> float:
        """As `share`, of the segments after slow start, if each interval tells what it lost."""
        counts = [one.retransmits for one in self.late]
        size = sum(one.bytes or 0 for one in self.late)
        if None in counts or not size:
            return self.share
        return min(1.0, sum(filter(None, counts)) * self.mss / size)

    @property
    def is_recovering(self) -> bool:
        """Whether window and rate still grow from what a loss in slow start left of them."""
        cwnds, rates = [one.cwnd for one in self.every if one.cwnd], known_rates(self.every)
        third = len(self.every) // 3
        if not third or not self.every[0].retransmits:
            return False
        if not len(cwnds) == len(rates) == len(self.every):
            return False
        if any(one.retransmits for one in self.every[third:]) or queues(cwnds, rates):
            return False
        is_slower_at_last = mean(rates[-third:]) <= mean(rates[third:-third])
        return rises(cwnds, third) and rises(rates, third) and not is_slower_at_last

    @property
    def follows_loss(self) -> bool:
        """Whether the congestion window fell after a loss, and the rate with it.

        A queue on the path keeps the rate up while the window falls. An interval of many seconds
        tells the window at its end alone, so that the rates cannot be compared.
        """
        falls = lasting_falls(self.every)
        later = [pair for pair in falls if pair[0] is not self.every[0]]  # without slow start
        if not later:
            is_over = len(self.tail) >= len(self.every) / 2
            return (bool(falls) and self.events == 1 and not is_over) or self.is_recovering
        if len(later) < ANSWERED * (self.events - 1):
            return False
        before, after = (sum(known_rates(side)) for side in zip(*later))
        if (self.spread or 1.0) < NEARLY_EVEN:
            # Slower than usual as well, because every radio's rate goes up and down.
            before = min(before, median(self.rates) * len(later))
        return after <= FOLLOWS * before or later[0][0].seconds > SHORT

    @property
    def is_local_network(self) -> bool:
        """Whether both ends are in one subnet, as far as their addresses tell."""
        return any(is_same_subnet(one.local, one.remote) for one in self.run.connections)

    @property
    def is_private(self) -> bool:
        """Whether both ends have private addresses: such paths are long only through a tunnel."""
        hosts = [host for one in self.run.connections for host in (one.local, one.remote)]
        return bool(hosts) and all(map(is_private, hosts))

    @property
    def is_loopback(self) -> bool:
        """Whether nothing leaves the host, as far as the addresses and the MSS tell."""
        hosts = [host for one in self.run.connections for host in (one.local, one.remote)]
        hosts.append(self.run.peer or "")
        if self.mss > ETHERNET or any(one.local == one.remote for one in self.run.connections):
            return True
        return any(host == "localhost" or is_loopback(host) for host in hosts)

    @property
    def is_inside(self) -> bool:
        """Whether nothing leaves the host, as fast as only its CPUs limit it."""
        return self.is_loopback and self.rate >= UNSHAPED

    @property
    def implied_rtt(self) -> float:
        """The round trip if the congestion window is what limits the rate; 0 if it is not known."""
        return (self.cwnd or 0.0) * 8 / self.rate

    @property
    def cpus(self) -> tuple[float, float]:
        """How busy each iperf process kept its CPU, the local one first; 1 is full.

        Of the threads that it has, their mean.
        """
        flows = max(1, len(self.run.flows))
        threads = self.streams * flows if version_of(self.run) >= THREADED else 1
        local, remote = self.run.cpu_local or 0.0, self.run.cpu_remote or 0.0
        return local / threads / 100, remote / threads / 100


def printed(look: Look) -> Optional[Printed]:
    """None if a host was sampled, which says more, or if no rate is known.

    Nearly every rule asks for it, so that it is kept with the look.
    """
    kept: dict[str, Optional[Printed]] = vars(look)
    if KEPT not in kept:
        kept[KEPT] = _derived(look)
    return kept[KEPT]


def _derived(look: Look) -> Optional[Printed]:
    run, flow = look.phase.run, look.flow
    if run is None or flow is None or look.phase.sender or look.phase.receiver or not look.rate:
        return None
    every = whole(flow.intervals)
    late = _after_slow_start(look, every)
    rates, rate = known_rates(late), look.rate
    if rates and look.protocol == "tcp":
        rate = mean(rates)
    if rate <= 0:
        return None  # all in the first interval
    again = _retransmits(flow, every)
    share = min(1.0, (again or 0) * (run.mss or MSS) / _size(flow, every))
    return Printed(run, rate, every, late, look.rtt, again, share, flow.received.rate)


def _after_slow_start(look: Look, every: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Of a short test all but the first interval, although slow start may be part of it."""
    steady = set(map(id, look.throughput.steady))
    late = tuple(one for one in every if id(one) in steady)
    if len(late) <= 2:
        return every[1:] or every
    return risen(sent(late, look.phase.run) if look.phase.run else late)


def _retransmits(flow: Flow, every: Sequence[Interval]) -> Optional[int]:
    """Of the whole run, slow start included."""
    counts = [one.retransmits for one in every if one.retransmits is not None]
    if flow.sent.retransmits is None and not counts:
        return None
    # iperf3's totals leave out what was omitted (-O).
    return max(sum(counts), flow.sent.retransmits or 0)


def _size(flow: Flow, every: Sequence[Interval]) -> float:
    """Bytes that were sent; infinite if that is not known."""
    return max(flow.sent.bytes or 0, sum(one.bytes or 0 for one in every)) or math.inf


def queues(cwnds: Sequence[float], rates: Sequence[float]) -> bool:
    """Whether the window grew in the second half, and the rate did not: what it added waits."""
    half = len(cwnds) // 2
    if len(cwnds) < 2 * RESTED or len(cwnds) != len(rates):
        return False
    return cwnds[-1] >= QUEUES * cwnds[half] and rates[-1] <= rates[half] * NO_FASTER


def rises(values: Sequence[float], third: int) -> bool:
    return mean(values[-third:]) >= RISES * mean(values[:third])


def fell(before: Interval, after: Interval) -> bool:
    if not before.cwnd or not after.cwnd or not (before.retransmits or after.retransmits):
        return False
    return after.cwnd <= FALLS * before.cwnd


def lasting_falls(every: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Pairs in which the window fell after a loss, and was not back one interval later."""
    later = (*every[2:], None)
    return [
        (before, after)
        for before, after, following in zip(every, every[1:], later)
        if fell(before, after) and not _is_back(before, following)
    ]


def _is_back(before: Interval, following: Optional[Interval]) -> bool:
    if following is None or not following.cwnd or not before.cwnd:
        return False
    return following.cwnd >= BACK * before.cwnd


def whole(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    """Without a last one that is much shorter than the others."""
    if len(intervals) < 2 or intervals[-1].seconds >= TAIL * intervals[0].seconds:
        return tuple(intervals)
    return tuple(intervals[:-1])


def risen(late: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Without the first intervals, up to half of them, if each is faster than the one before.

    Where loss or a long round trip ended slow start early, it takes TCP longer to fill the path.
    """
    half = len(late) // 2
    usual = median(known_rates(late[half:]) or [0.0])
    first = next((at for at, one in enumerate(late) if (one.rate or 0) >= RISEN * usual), 0)
    rates = [one.rate or 0.0 for one in late[: first + 1]]
    is_rising = rates[0] < RISES_FROM * usual and rates == sorted(rates)
    return late[first:] if first <= half and is_rising else late


def sent(late: tuple[Interval, ...], run: Run) -> tuple[Interval, ...]:
    """Without the first intervals, if what they exceed the even rate after them by is buffered.

    A sender counts what waits in a send buffer of -w: until that is full, it is as fast as -b or
    the host allow.
    """
    if not run.buffer or all(one.cwnd is None and one.retransmits is None for one in late):
        return late
    starts = range(1, min(len(late) // 2, len(late) - FILLED) + 1)
    first = next((at for at in starts if _is_plateau(late[at:])), 0)
    usual = mean(known_rates(late[first:]) or [0.0])
    excess = [((one.rate or 0.0) - usual) * one.seconds / 8 for one in late[:first]]
    is_buffered = min(excess, default=0.0) > 0 and sum(excess) <= send_buffer(run)
    return late[first:] if is_buffered else late


def _is_plateau(rest: Sequence[Interval]) -> bool:
    rates = known_rates(rest)
    return len(rates) >= FILLED and pstdev(rates) < PLATEAU * mean(rates)


def send_buffer(run: Run) -> float:
    """Bytes that the first intervals may count as sent without any having left the host."""
    # The kernel doubles what -w asks for (SO_SNDBUF in socket(7)).
    return max(1, run.streams or 1) * max(SEND_BUFFER, 2 * (run.buffer or 0))
