"""How busy the CPUs of one end were during a phase."""

# SPDX-License-Identifier: MIT

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple, Optional

from neuca_tools.selftest.evidence import Cpu, Sample

# Constants of the condition D09. The share of the intervals in which a CPU has to be full.
MIN_FULL_INTERVALS = 0.5
# A CPU is full in an interval if it is busy for at least this share of it.
FULL_SHARE = 0.95
# Two threads on one CPU get half of it each. Below this share, iperf and softirqs were not short of
# CPU time, whatever else ran.
MIN_OWN_SHARE = 0.4


class Load(NamedTuple):
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
    own: Optional[float] = None  # share of a CPU that iperf's process used, as it says itself

    @property
    def is_full(self) -> bool:
        """Whether the test had no more CPU time to use, for iperf or for softirqs."""
        return self.has_full_cpu and not self.is_busy_with_others

    @property
    def has_full_cpu(self) -> bool:
        """Whether it was full in half of the intervals: the first and last are partly outside."""
        return (self.full or 0.0) >= MIN_FULL_INTERVALS

    @property
    def is_busy_with_others(self) -> bool:
        """Whether it was other programs that kept the CPU busy, as far as is known."""
        return self.own is not None and self.own + (self.softirq or 0.0) < MIN_OWN_SHARE

    @property
    def used(self) -> float:
        """The share of a CPU that the test used at least: 0 if it is not known."""
        if self.own is None:
            return self.busy or 0.0
        if self.is_busy_with_others:
            return self.own
        return min(self.busy or 0.0, self.own + (self.softirq or 0.0))

    @property
    def may_need_stolen_time(self) -> bool:
        """Whether the test may have needed the time that the hypervisor took."""
        others = (self.softirq or 0.0) + (self.steal or 0.0)
        return self.own is None or self.own + others >= MIN_OWN_SHARE

    @property
    def dominant_use(self) -> str:
        """What it spent most of its busy time on: "user", "system" or "softirq"."""
        parts = {"user": self.user or 0, "system": self.system or 0, "softirq": self.softirq or 0}
        return max(parts, key=lambda name: parts[name])


def busiest_load(samples: Sequence[Sample]) -> Load:
    """The load of the busiest CPU; Load() if fewer than two samples have CPU times."""
    known = [sample.cpus for sample in samples if sample.cpus]
    if len(known) < 2:
        return Load()
    loads = [_load_of_cpu(*cpu) for cpu in enumerate(zip(*known))]
    busiest = max(loads, key=lambda load: (load.full or 0, load.busy or 0))
    return busiest._replace(steal=max(load.steal or 0 for load in loads))


def _load_of_cpu(number: int, times: Sequence[Cpu]) -> Load:
    """The load of one CPU, by its times in each sample."""
    busy = [busy_share(before, after) for before, after in zip(times, times[1:])]
    first, last = times[0], times[-1]
    elapsed = max(1e-9, _total_seconds(last) - _total_seconds(first))
    return Load(
        number,
        mean(float(share >= FULL_SHARE) for share in busy),
        mean(busy),
        (last.user - first.user) / elapsed,
        (last.system - first.system) / elapsed,
        (last.softirq - first.softirq) / elapsed,
        (last.steal - first.steal) / elapsed,
    )


def _total_seconds(cpu: Cpu) -> float:
    return cpu.user + cpu.system + cpu.softirq + cpu.idle + cpu.steal


def busy_share(before: Cpu, after: Cpu) -> float:
    """The share of the time in which a CPU was not idle; 0 if no time has passed."""
    elapsed = _total_seconds(after) - _total_seconds(before)
    if elapsed <= 0:
        return 0.0
    return min(1.0, max(0.0, 1 - (after.idle - before.idle) / elapsed))
