"""What a person sees of a test that runs: a last line with the current step."""

# SPDX-License-Identifier: MIT

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from neuca_tools.model.printable import printable_line
from neuca_tools.selftest.measure.iperf import plans
from neuca_tools.selftest.measure.iperf.plans import Options

# Called with the name of a stage that ended, and the line to print; empty for none.
ReportStage = Callable[[str, str], None]
ERASE = "\r\x1b[K"  # ECMA-48: return to the first column and erase to the end of the line
CONNECT_SECONDS = 1.5  # that iperf3 takes to connect and to exchange results
# Seconds of the other steps; those not listed take about one.
SECONDS = {"reach": 2.0, "latency": 3.0, "path-mtu": 3.0, "path": 4.0}
LABEL = 12  # the columns of a step's name


class Stage(NamedTuple):
    """A step that is still to come, and the seconds that it is likely to take."""

    name: str
    seconds: float


def can_draw() -> bool:
    """Whether standard output is a terminal that can erase a line."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def planned_stages(options: Options) -> list[Stage]:
    """The steps of a test in order, with the seconds that each is likely to take."""
    # The step loaded runs during tcp.
    names = [name for name in plans.STEPS if name in options.steps and name != "loaded"]
    return [Stage(name, seconds) for name in names for seconds in _test_seconds(name, options)]


def _test_seconds(name: str, options: Options) -> list[float]:
    each = options.seconds + CONNECT_SECONDS
    if name == "tcp-parallel":
        return [each for streams in options.parallel if streams > 1]
    # The tests of the steps with datagrams: one-way has one in each direction.
    tests = {"udp": len(plans.LADDER) + plans.SEARCH_STEPS // 2, "one-way": 2}
    if name in tests:
        return [min(plans.STEP_SECONDS, options.seconds) + CONNECT_SECONDS] * tests[name]
    if name.startswith("tcp"):
        return [each]
    return [SECONDS.get(name, 1.0)]


@contextmanager
def draw_progress(planned: Sequence[Stage]) -> Iterator[ReportStage]:
    """Show the current stage below the lines of those that ended, until the context ends."""
    stages = list(planned)

    def end_stage(name: str, text: str) -> None:
        """The stage with this name ended, and so have those before it. Others are ignored."""
        names = [stage.name for stage in stages]
        if name in names:
            del stages[: names.index(name) + 1]
        line = f"{text}\n" if text else ""
        print(f"{ERASE}{line}{live_line(stages, time.time())}", end="", flush=True)

    try:
        end_stage("", "")
        yield end_stage
    finally:
        print(ERASE, end="", flush=True)


def live_line(stages: Sequence[Stage], now: float) -> str:
    """The current stage, and when the last one is likely to end; `now` in seconds since 1970."""
    if not stages:
        return ""
    left = sum(stage.seconds for stage in stages)
    end = time.strftime("%H:%M:%S", time.localtime(now + left))
    columns = shutil.get_terminal_size().columns
    line = f"{stages[0].name:<{LABEL}}  the test ends at about {end}"
    return printable_line(line)[: columns - 1]
