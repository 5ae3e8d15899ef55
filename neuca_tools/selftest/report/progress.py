"""What is shown on a terminal while a test runs: a header, the current step and an estimate."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Optional

from neuca_tools.model.printable import plain
from neuca_tools.selftest import amounts

# The columns of a step's name.
LABEL = 14
# Bytes received and sent by a device.
Counted = tuple[int, int]


class Stage(NamedTuple):
    """A step that is still to come, and the seconds that it is likely to take."""

    name: str
    seconds: float


class Course:
    """Where a test is in its stages, which end in order; some end without having run."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = list(stages)

    @property
    def current(self) -> str:
        """The name of the current stage; empty after the last."""
        return self._stages[0].name if self._stages else ""

    def ended(self, name: str) -> None:
        """The stage with this name ended, and so have those before it. Others are ignored."""
        names = [stage.name for stage in self._stages]
        if name in names:
            del self._stages[: names.index(name) + 1]

    def left(self, elapsed: float) -> float:
        """The estimate of the seconds left, `elapsed` seconds after the current stage began."""
        seconds = [stage.seconds for stage in self._stages]
        return max(0.0, sum(seconds[:1]) - elapsed) + sum(seconds[1:])


def header(
    peer: str, device: Optional[str], plan: str, each: float, stages: Sequence[Stage]
) -> str:
    """ "172.16.0.2 through eth1, plan quick: 4 s for each test, about 25 s in all"."""
    through = f" through {device}" if device else ""
    whole = duration(sum(stage.seconds for stage in stages))
    return plain(f"{peer}{through}, plan {plan}: {each:g} s for each test, about {whole} in all")


def duration(seconds: float) -> str:
    """Rounded up to 5 s, from two minutes on to 10 s: "25 s", "2 min 10 s", "1 h 5 min"."""
    step = 5 if seconds < 120 else 10
    whole = max(step, math.ceil(seconds / step) * step)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    if whole >= 60:
        rest = f" {whole % 60} s" if whole % 60 else ""
        return f"{whole // 60} min{rest}"
    return f"{whole} s"


def live_line(course: Course, elapsed: float, rates: str, columns: int) -> str:
    """The current stage, for how long it has run, the rates of the device, and the estimate."""
    if not course.current:
        return ""
    left = course.left(elapsed)
    rest = f"about {duration(left)} left" if left else "almost done"
    parts = (f"{course.current:<{LABEL}}{elapsed:.0f} s", rates, rest)
    return plain("  ".join(filter(None, parts)))[: max(0, columns - 1)]


def rates_of(device: str, before: Counted, after: Counted, seconds: float) -> str:
    """ "eth1 941 Mbit/s out, 12.0 Mbit/s in"; empty if a counter was reset."""
    received, sent = (8 * (new - old) / seconds for old, new in zip(before, after))
    if received < 0 or sent < 0:
        return ""
    return f"{device} {amounts.rate(sent)} out, {amounts.rate(received)} in"


def counted(text: str, device: str) -> Optional[Counted]:
    """The bytes of a device in /proc/net/dev (proc(5)); None if it is not there."""
    for line in text.split("\n"):
        name, _, rest = line.rpartition(":")
        columns = rest.split()
        if name.strip() == device and len(columns) > 8 and columns[0].isdecimal():
            return int(columns[0]), int(columns[8])
    return None
