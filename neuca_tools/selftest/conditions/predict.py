"""Arithmetic of paths: line rates, windows, losses; and which limit comes next once one is lifted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from typing import NamedTuple, Optional

SPEEDS = tuple(
    speed * 1e9 for speed in (0.01, 0.1, 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400)
)  # of Ethernet, bit/s
STEPS = tuple(
    speed * 1e9 for speed in (1, 10, 25, 40, 100, 200, 400)
)  # what to aim for, where nobody said
HEADERS = 52  # bytes: IPv4 and TCP with timestamps
FRAMING = 38  # bytes: preamble, Ethernet header, checksum, gap between frames
TOLERANCE = 0.005


class Limit(NamedTuple):
    """One thing that keeps the rate below `rate`."""

    name: str
    condition: str
    rate: float


def goodput(speed: float, mtu: int = 1500) -> float:
    """The most that TCP can carry over Ethernet of this speed: 0.9415 of it at MTU 1500, 0.9900 at 9000."""
    return speed * (mtu - HEADERS) / (mtu + FRAMING)


def line_of(rate: float, mtu: Optional[int] = None) -> Optional[float]:
    """The speed of Ethernet of which this rate is all that it can carry."""
    return next(
        (speed for speed in SPEEDS if abs(rate / goodput(speed, mtu or 1500) - 1) <= TOLERANCE),
        None,
    )


def round_rate(rate: float) -> Optional[float]:
    """The provisioned rate that this one is just below: policers count headers too, and people order 1, 2, 5 or 10."""
    decade = 10.0 ** math.floor(math.log10(rate)) if rate > 0 else 1.0
    return next(
        (
            step * decade
            for step in (1, 2, 2.5, 4, 5, 6, 8, 10)
            if 0.93 <= rate / (step * decade) <= 1.0
        ),
        None,
    )


def aim(rate: float, expect: Optional[float]) -> float:
    """The rate to make room for: what is expected, else the next usual link with some room above this rate."""
    if expect:
        return expect
    return next((step for step in STEPS if step >= 1.2 * rate), 2 * rate)


def buffer_for(rate: float, rtt: float) -> int:
    """Bytes of tcp_rmem[2] and tcp_wmem[2]: twice the bandwidth-delay product, in whole MiB, for Linux advertises half."""
    return max(1, math.ceil(2 * rate * rtt / 8 / 2**20)) * 2**20


def mathis(mss: float, rtt: float, loss: float) -> float:
    """The most that loss leaves to a Reno-like sender, bit/s (Mathis, Semke, Mahdavi, Ott: CCR 27(3), 1997)."""
    return mss * 8 / (rtt * math.sqrt(loss))
