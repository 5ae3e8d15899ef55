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
from neuca_tools.selftest.evidence.moves import (
    lasting_falls,
    queues,
    risen,
    rises,
    sent,
    whole,
)
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
# Of the loss that a window answers, and of the window's variation that the rate has: a queue on
# the path keeps the rate up while the window falls.
ANSWERED, FOLLOWED = 0.5, 0.4
ETHERNET = 9216  # bytes: a larger MSS is that of a link without frames, such as lo
UNSHAPED = 0.5e9  # bit/s: a test of netem or tbf on lo is slower
STRETCH, OUTLIERS = 1.25, 8  # the longest round trip over the shortest; one of so many
ROUNDED = 0.005  # how far windows differ that are the same; CUBIC's last steps are larger
# Since 3.16 iperf3 has a thread for each stream (release notes); all earlier ones share one.
THREADED = (3, 16)
KEPT = "printed"  # the name of these figures among a look's own


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
    def is_queued(self) -> bool:
        """Whether the window varies much more than the rate: a queue takes up the difference.

        What it is at the end of an interval of many seconds says nothing about their rate.
        """
        cwnds = self.cwnds
        if len(cwnds) < 3 or self.spread is None or self.late[0].seconds > SHORT:
            return False
        return self.spread < FOLLOWED * pstdev(cwnds) / mean(cwnds)

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
