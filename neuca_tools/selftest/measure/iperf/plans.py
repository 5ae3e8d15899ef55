"""What a self-test consists of: the plans quick, standard and full, and the search for the rate at which nothing is lost."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from neuca_tools.selftest.conditions.udp import LOSSY

STEPS = (
    "as-planned",
    "reach",
    "latency",
    "path-mtu",
    "tcp",
    "tcp-reverse",
    "loaded",
    "tcp-parallel",
    "tcp-bidir",
    "udp",
    "connections",
    "rdma",
    "broadcast",
)
OPT_IN = frozenset({"broadcast"})  # never but where it is asked for
PORT = 45678  # as test_bandwidth.sh of the Deep Learning Benchmarking Suite has it
LADDER = (0.01, 0.1, 0.5, 1.0)  # of the rate that is expected
LOWEST = 1e6  # bit/s, of a step of the ladder
FEW = 0.05  # of the datagrams: so few of a slow test may be one or two of a host that was busy for a moment
TRIES = 4  # of the search between the last rate without loss and the first with
CLOSE = 1.1  # the two are near enough
OFFERED = 0.95  # of what was asked for: a sender that does not reach it reaches no more either
STEP_SECONDS = 5.0  # at most, of one step


class Plan(NamedTuple):
    """One of the three plans: its steps, seconds of each throughput test, numbers of streams, round trips when idle."""

    steps: frozenset[str]
    seconds: float
    parallel: tuple[int, ...]
    round_trips: int


PLANS = {
    "quick": Plan(
        frozenset(STEPS) - OPT_IN - {"tcp-parallel", "tcp-bidir", "udp", "connections", "rdma"},
        4.0,
        (1, 8),
        100,
    ),
    "standard": Plan(frozenset(STEPS) - OPT_IN, 10.0, (1, 8), 200),
    "full": Plan(frozenset(STEPS) - OPT_IN, 30.0, (1, 8, 128), 500),
}


@dataclass(frozen=True)
class Options:
    """One test, as it is asked for. Rates in bit/s; `rate`: no test goes faster; `path_name` of a test among several."""

    steps: frozenset[str] = PLANS["standard"].steps
    seconds: float = PLANS["standard"].seconds
    parallel: tuple[int, ...] = PLANS["standard"].parallel
    round_trips: int = PLANS["standard"].round_trips
    port: int = PORT
    rate: Optional[float] = None
    expect: Optional[float] = None
    interface: Optional[str] = None
    numa: Optional[str] = None  # a node, or "auto"
    ssh: Optional[str] = None
    secret: Optional[bytes] = None
    label: Optional[str] = None
    broadcast: Optional[int] = None  # hosts that should answer

    @property
    def duration(self) -> float:
        """Seconds that a whole test may take at most; a helper is asked to be there for so long."""
        tests = 4 + len(self.parallel) + len(LADDER) + TRIES
        return 60 + tests * (self.seconds + 15)


class Rung(NamedTuple):
    """One step of the ladder: what was asked for and sent (bit/s), and the share of the datagrams that never came."""

    asked: float
    sent: float
    loss: float

    @property
    def clean(self) -> bool:
        return self.loss <= LOSSY


def next_rate(rungs: Sequence[Rung], top: float) -> Optional[float]:
    """The next rate to offer: up the ladder while nothing is lost, then between; None: enough is known.

    Where the slowest loses a few already the next one tells whether that was chance; what gets through above a loss says that it
    was.
    """
    climbed = [max(LOWEST, part * top) for part in LADDER]
    climbed = sorted(set(climbed))
    low = max((one.asked for one in rungs if one.clean), default=0.0)
    lossy = [one.asked for one in rungs if not one.clean and one.asked > low]
    if any(one.sent < OFFERED * one.asked for one in rungs):
        return None
    if not lossy:
        return next((rate for rate in climbed if rate > low), None)
    high = min(lossy)
    if not low and len(rungs) == 1 and rungs[0].loss < FEW:
        return next((rate for rate in climbed if rate > high), None)
    if not low or high <= CLOSE * low or len(rungs) >= len(climbed) + TRIES:
        return None
    return (low * high) ** 0.5 if high > 2 * low else (low + high) / 2


def loss_free(rungs: Sequence[Rung]) -> Optional[float]:
    """The highest rate that was sent and came whole."""
    return max((one.sent for one in rungs if one.clean), default=None)
