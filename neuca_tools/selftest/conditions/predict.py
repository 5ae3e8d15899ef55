"""Arithmetic of paths: line rates, windows and losses."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from typing import NamedTuple, Optional

# bit/s: the speeds of Ethernet, and those to aim for where no rate is expected.
SPEEDS = tuple(gigabits * 1e9 for gigabits in (0.01, 0.1, 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400))
STEPS = tuple(gigabits * 1e9 for gigabits in (1, 10, 25, 40, 100, 200, 400))
# The leading digits of rates that are ordered.
ROUND = (1, 2, 2.5, 4, 5, 6, 8, 10)
# Bytes: IPv4 and TCP with timestamps; preamble, Ethernet header, checksum and gap between frames.
HEADERS, FRAMING = 52, 38
TOLERANCE = 0.005


class Limit(NamedTuple):
    """One thing that keeps the rate below `rate`, in bit/s."""

    name: str
    condition: str
    rate: float


def goodput(speed: float, mtu: int = 1500) -> float:
    """bit/s that TCP can carry over Ethernet of this speed: 94.15 % at MTU 1500, 99 % at 9000."""
    return speed * (mtu - HEADERS) / (mtu + FRAMING)


def line_of(rate: float, mtu: Optional[int] = None) -> Optional[float]:
    """The speed of the Ethernet that a TCP flow of this rate fills."""
    for speed in SPEEDS:
        if abs(rate / goodput(speed, mtu or 1500) - 1) <= TOLERANCE:
            return speed
    return None


def round_rate(rate: float) -> Optional[float]:
    """The round rate that this one is just below; policers count headers too."""
    if rate <= 0:
        return None
    decade = 10.0 ** math.floor(math.log10(rate))
    near = (step * decade for step in ROUND if 0.93 <= rate / (step * decade) <= 1.0)
    return next(near, None)


def target_rate(rate: float, expect: Optional[float]) -> float:
    """The rate to make room for: what is expected, else the next usual speed well above `rate`."""
    if expect:
        return expect
    return next((step for step in STEPS if step >= 1.2 * rate), 2 * rate)


def buffer_for(rate: float, rtt: float) -> int:
    """Bytes of tcp_rmem[2] and tcp_wmem[2], in whole MiB.

    Twice the bandwidth-delay product, because Linux advertises half of the buffer as its window.
    """
    return max(1, math.ceil(2 * rate * rtt / 8 / 2**20)) * 2**20


def mathis_rate(mss: float, rtt: float, loss: float) -> float:
    """The rate in bit/s that loss leaves to a Reno-like sender.

    Mathis, Semke, Mahdavi, Ott: The macroscopic behavior of the TCP congestion avoidance algorithm
    (Computer Communication Review 27(3), 1997).
    """
    return mss * 8 / (rtt * math.sqrt(loss))
