"""How windows and rates move from interval to interval, and where they settle."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest.evidence.run import Interval, Run, known_rates

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
