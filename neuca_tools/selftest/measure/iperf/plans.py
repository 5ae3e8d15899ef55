"""The plans quick, standard and full of a self-test, and the search for the loss-free rate."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.conditions.udp import LOSS_FREE_SHARE, SENT_SHARE

STEPS = tuple(
    "as-planned reach latency path path-mtu tcp tcp-reverse loaded tcp-parallel tcp-bidir udp"
    " one-way connections".split()
)
# Not in the plan "quick".
SLOW = frozenset({"tcp-parallel", "tcp-bidir", "path", "udp", "one-way", "connections"})
PORT = 45678  # as in test_bandwidth.sh of the Deep Learning Benchmarking Suite
# Rates of the ladder, as parts of the highest one; the lowest in bit/s, unless that is lower.
LADDER = (0.01, 0.1, 0.5, 1.0)
LOWEST_RATE = 1e6
# A loss below this part of the datagrams may be chance in a slow test: one or two datagrams, lost
# while the host was busy for a moment.
CHANCE_LOSS = 0.05
# Steps of the search between the highest rate without loss and the lowest with loss.
SEARCH_STEPS = 4
CLOSE_FACTOR = 1.1  # the search ends when the two differ by less than this factor
STEP_SECONDS = 5.0  # of one test with UDP, at most
# If much is lost at the lowest rate, this part of what got through is offered next, unless that is
# less than SLOWEST_RATE, in bit/s. A policer passes it, and random loss affects it too.
RETRY_SHARE, SLOWEST_RATE = 0.5, 50e3


@dataclass(frozen=True)
class Options:
    """The options of one test; the default is the plan "standard".

    `seconds` are those of each throughput test, `parallel` the numbers of streams to test with, and
    `round_trips` those that are measured on the idle path. Rates are in bit/s: `rate` limits every
    step, `expect` is what the path should reach. `numa` is the number of a node, or "auto" for the
    NIC's. `source` is the address of this host to test from; None for the kernel's choice.
    """

    steps: frozenset[str] = frozenset(STEPS)
    seconds: float = 10.0
    parallel: tuple[int, ...] = (1, 8)
    round_trips: int = 200
    port: int = PORT
    rate: Optional[float] = None
    expect: Optional[float] = None
    interface: Optional[str] = None
    numa: Optional[str] = None
    ssh: Optional[str] = None
    secret: Optional[bytes] = None
    label: Optional[str] = None
    source: Optional[Address] = None

    @property
    def duration(self) -> float:
        """The longest time that a whole test takes, in seconds; a helper has to run for as long."""
        tests = 8 + len(self.parallel) + len(LADDER) + SEARCH_STEPS
        return 90 + tests * (self.seconds + 15)


PLANS = {
    "quick": Options(Options.steps - SLOW, seconds=4.0, round_trips=100),
    "standard": Options(),
    "full": Options(seconds=30.0, parallel=(1, 8, 128), round_trips=500),
}


class Rung(NamedTuple):
    """One step of the ladder: the rates requested and sent in bit/s, and the share lost."""

    offered: float
    sent: float
    loss: float

    @property
    def is_loss_free(self) -> bool:
        return self.loss <= LOSS_FREE_SHARE


def _may_be_chance(rungs: Sequence[Rung]) -> bool:
    """Whether the last rate was the first with loss, and lost little."""
    is_first = not rungs[-1].is_loss_free and sum(not rung.is_loss_free for rung in rungs) == 1
    return is_first and rungs[-1].loss < CHANCE_LOSS


def next_rate(rungs: Sequence[Rung], top: float) -> Optional[float]:
    """The next rate in bit/s, up to `top`; None if the loss-free rate is known well enough.

    Climb the ladder while nothing is lost, then search between the highest rate without loss and
    the lowest with loss. A rate that got through cancels every loss at a lower rate, as chance.
    A small loss may be chance: the next rate shows it. If even the lowest rate loses much, half of
    what got through is offered once.
    """
    if any(rung.sent < SENT_SHARE * rung.offered for rung in rungs):
        return None
    ladder = sorted({min(top, max(LOWEST_RATE, part * top)) for part in LADDER})
    low, high = _search_bounds(rungs)
    if high is None:
        return _next_above(low, ladder)
    above = _next_above(high, ladder)
    if above is not None and _may_be_chance(rungs):
        return above
    if not low:
        return _rate_below(rungs[0]) if len(rungs) == 1 else None
    if len(rungs) >= len(ladder) + SEARCH_STEPS:
        return None
    return _rate_between(low, high)


def _rate_below(lowest: Rung) -> Optional[float]:
    """bit/s: half of what got through of the lowest rate; None if that is too little."""
    rate = RETRY_SHARE * lowest.sent * (1 - lowest.loss)
    return rate if rate >= SLOWEST_RATE else None


def _search_bounds(rungs: Sequence[Rung]) -> tuple[float, Optional[float]]:
    """The highest rate without loss, 0 for none, and the lowest above it with loss."""
    low = max((rung.offered for rung in rungs if rung.is_loss_free), default=0.0)
    lossy = [rung.offered for rung in rungs if not rung.is_loss_free and rung.offered > low]
    return low, min(lossy, default=None)


def _rate_between(low: float, high: float) -> Optional[float]:
    """Their mean, the geometric one if they are far apart; None if they are close enough."""
    if high <= CLOSE_FACTOR * low:
        return None
    if high > 2 * low:
        return math.sqrt(low * high)
    return (low + high) / 2


def _next_above(rate: float, ladder: Sequence[float]) -> Optional[float]:
    return next((higher for higher in ladder if higher > rate), None)


def loss_free_rate(rungs: Sequence[Rung]) -> Optional[float]:
    """The highest rate in bit/s that was sent without loss; None if there was none."""
    return max((rung.sent for rung in rungs if rung.is_loss_free), default=None)
