"""The intervals of a run of iperf: which count, and what their windows and losses show.

For tests of which no host was sampled, see `Look.is_unsampled`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import Optional

from neuca_tools.selftest.evidence.run import Flow, Interval, Run, known_rates

# Slow start, which is left out: seconds, or round trips if that is longer; bounds of our own.
START = 2.0
ROUND_TRIPS = 20
FOLLOWS, NEARLY_EVEN = 0.95, 0.05  # of the rate before the window fell; its variation
# A congestion window that varies less than this share is capped; iperf3's text has three digits.
FLAT = 0.02
SHORT = 2.0  # seconds
ANSWERED = 0.5  # of the losses
# What TCP multiplies its window with after a loss: 0.5 (RFC 5681), 0.7 for CUBIC (RFC 9438,
# section 4.6). An interval of iperf may contain some of the recovery.
FALLS = 0.85
BACK = 0.95  # of the window before: a loss from which it recovers within an interval costs nothing
RISES = 1.1
RISES_FROM, RISEN = 0.5, 0.9  # of the usual rate: where a long rise begins at most, and ends
TAIL = 0.5  # of the usual interval: iperf3 prints what is left at the end of a test as one more
# Bytes: the kernel's own default, tcp_wmem[2] (tcp(7)), of what was written but not yet sent.
SEND_BUFFER = 4 * 2**20


def slow_start(rtt: Optional[float]) -> float:
    """Seconds that slow start takes at most."""
    return max(START, ROUND_TRIPS * (rtt or 0))


def steady_intervals(intervals: Sequence[Interval], rtt: Optional[float]) -> tuple[Interval, ...]:
    """Without slow start: what iperf3 was told to omit, or else the first seconds."""
    counted = tuple(interval for interval in intervals if not interval.omitted)
    late = counted
    if len(counted) == len(intervals):
        begin = slow_start(rtt)
        late = tuple(each for each in counted if _is_after_slow_start(each, begin))
    if len(late) > 1:
        return late
    # Too short a test: at least the first interval is left out if two remain.
    if len(counted) > 2:
        return counted[1:]
    return counted


def _is_after_slow_start(interval: Interval, begin: float) -> bool:
    """Of intervals that are longer than slow start, only the first contains it."""
    return interval.start >= begin - 0.5 or (interval.start > 0 and interval.seconds > START)


def usual_intervals(flow: Flow, rtt: Optional[float]) -> tuple[Interval, ...]:
    """Those of the usual rate, where nothing but iperf tells when slow start ended.

    Of a short test all but the first interval, although slow start may be part of it.
    """
    every = whole_intervals(flow.intervals)
    steady = set(map(id, steady_intervals(flow.intervals, rtt)))
    late = tuple(interval for interval in every if id(interval) in steady)
    if len(late) <= 2:
        return every[1:] or every
    return _without_rise(late)


def whole_intervals(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    """Without a last one that is much shorter than the others."""
    if len(intervals) < 2 or intervals[-1].seconds >= TAIL * intervals[0].seconds:
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
    return max(windows) - min(windows) <= FLAT * max(windows)


def known_round_trips(intervals: Sequence[Interval]) -> list[float]:
    """Seconds."""
    return [interval.rtt for interval in intervals if interval.rtt]


def in_flight(intervals: Sequence[Interval]) -> list[float]:
    """Bytes: the rate times the round trip, where both are known."""
    return [each.rate * each.rtt / 8 for each in intervals if each.rate and each.rtt]


def is_recovering(every: Sequence[Interval]) -> bool:
    """Whether window and rate still grow from what a loss in slow start left of them."""
    windows, rates = known_windows(every), known_rates(every)
    third = len(every) // 3
    if not third or not every[0].retransmits or any(each.retransmits for each in every[third:]):
        return False
    if not len(windows) == len(rates) == len(every):
        return False
    is_slower_at_last = mean(rates[-third:]) <= mean(rates[third:-third])
    return _rises(windows, third) and _rises(rates, third) and not is_slower_at_last


def _rises(values: Sequence[float], third: int) -> bool:
    return mean(values[-third:]) >= RISES * mean(values[:third])


def follows_loss(every: Sequence[Interval], usual: Sequence[float], spread: float) -> bool:
    """Whether the congestion window fell after a loss, and the rate with it.

    `usual` are the rates after slow start, and `spread` is their coefficient of variation. A queue
    on the path keeps the rate up while the window falls. An interval of many seconds tells the
    window at its end alone, so that the rates cannot be compared.
    """
    events = sum(1 for interval in every if interval.retransmits)
    falls = _lasting_falls(every)
    later = [pair for pair in falls if pair[0] is not every[0]]  # without slow start
    if not later:
        return bool(falls) and events == 1
    if len(later) < ANSWERED * (events - 1):
        return False
    before, after = (sum(known_rates(side)) for side in zip(*later))
    if spread < NEARLY_EVEN:
        # Slower than usual as well, because every radio's rate goes up and down.
        before = min(before, median(usual) * len(later))
    return after <= FOLLOWS * before or later[0][0].seconds > SHORT


def _lasting_falls(every: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Pairs in which the window fell after a loss, and was not back one interval later."""
    later = (*every[2:], None)
    return [
        (before, after)
        for before, after, following in zip(every, every[1:], later)
        if _window_fell(before, after) and not _is_back(before, following)
    ]


def _window_fell(before: Interval, after: Interval) -> bool:
    if not before.cwnd or not after.cwnd or not (before.retransmits or after.retransmits):
        return False
    return after.cwnd <= FALLS * before.cwnd


def _is_back(before: Interval, following: Optional[Interval]) -> bool:
    if following is None or not following.cwnd or not before.cwnd:
        return False
    return following.cwnd >= BACK * before.cwnd
