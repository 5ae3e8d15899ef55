"""How busy the CPUs of one end were during a phase."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Optional

from neuca_tools.selftest.evidence import Cpu, Sample

# Of the intervals (D09).
HALF = 0.5
# Of an interval: a CPU that is busier than this is full (facts, D09).
FULL = 0.95


@dataclass(frozen=True)
class Load:
    """The busiest CPU: the one that was full in most intervals. Shares are of its own time.

    `full` is the share of the intervals in which it was full. `steal` is the largest of all CPUs.
    """

    cpu: Optional[int] = None
    full: Optional[float] = None
    busy: Optional[float] = None
    user: Optional[float] = None
    system: Optional[float] = None
    softirq: Optional[float] = None
    steal: Optional[float] = None

    @property
    def is_full(self) -> bool:
        """Whether it was full in at least half of the intervals; the first and the last of a test never are."""
        return (self.full or 0.0) >= HALF

    @property
    def what(self) -> str:
        """What it spent most of its busy time on: "user", "system" or "softirq"."""
        parts = {"user": self.user or 0, "system": self.system or 0, "softirq": self.softirq or 0}
        return max(parts, key=lambda name: parts[name])


def loads(samples: Sequence[Sample]) -> Load:
    """Load() if fewer than two samples have CPU times."""
    known = [sample for sample in samples if sample.cpus]
    if len(known) < 2:
        return Load()
    count = min(len(sample.cpus) for sample in known)
    each = [_load(number, [sample.cpus[number] for sample in known]) for number in range(count)]
    busiest = max(each, key=lambda one: (one.full or 0, one.busy or 0))
    steal = max(one.steal or 0 for one in each)
    return Load(
        busiest.cpu,
        busiest.full,
        busiest.busy,
        busiest.user,
        busiest.system,
        busiest.softirq,
        steal,
    )


def busy_series(samples: Sequence[Sample]) -> tuple[tuple[float, ...], ...]:
    """The busy share of each interval, for each CPU."""
    known = [sample for sample in samples if sample.cpus]
    count = min((len(sample.cpus) for sample in known), default=0)
    return tuple(
        tuple(
            _busy(before.cpus[number], after.cpus[number])
            for before, after in zip(known, known[1:])
        )
        for number in range(count)
    )


def _load(number: int, looks: Sequence[Cpu]) -> Load:
    busy = [_busy(before, after) for before, after in zip(looks, looks[1:])]
    first, last = looks[0], looks[-1]
    gone = max(1e-9, _total(last) - _total(first))
    return Load(
        number,
        mean(1.0 if one >= FULL else 0.0 for one in busy),
        mean(busy),
        (last.user - first.user) / gone,
        (last.system - first.system) / gone,
        (last.softirq - first.softirq) / gone,
        (last.steal - first.steal) / gone,
    )


def _total(cpu: Cpu) -> float:
    return cpu.user + cpu.system + cpu.softirq + cpu.idle + cpu.steal


def _busy(before: Cpu, after: Cpu) -> float:
    gone = _total(after) - _total(before)
    return min(1.0, max(0.0, 1 - (after.idle - before.idle) / gone)) if gone > 0 else 0.0
