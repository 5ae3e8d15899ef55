"""How windows and rates move from interval to interval."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, pstdev
from typing import Optional

from neuca_tools.selftest.evidence.run import Interval

# What TCP multiplies its window with after a loss: 0.5 (RFC 5681), 0.7 for CUBIC (RFC 9438,
# section 4.6). An interval of iperf may contain some of the recovery.
FALLS = 0.85
BACK = 0.95  # of the window before: a loss from which it recovers within an interval costs nothing
RISES = 1.1


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """The standard deviation of `xs`, and slope and correlation of the line through the points."""
    x, y = mean(xs), mean(ys)
    var_x, var_y = pstdev(xs) ** 2, pstdev(ys) ** 2
    covariance = mean((one - x) * (other - y) for one, other in zip(xs, ys))
    if not var_x or not var_y:
        return 0.0, 0.0, 0.0
    return math.sqrt(var_x), covariance / var_x, covariance / math.sqrt(var_x * var_y)


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
