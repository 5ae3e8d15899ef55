"""The live line of a test, drawn by a process of its own, so that drawing never delays a test.

The test tells that process what it has to print. When the test ends, however it ends, the pipe
between them is closed: the process then erases the line and ends.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from neuca_tools.files import text_of
from neuca_tools.model.printable import printable_line
from neuca_tools.selftest import amounts
from neuca_tools.selftest.measure.iperf.plans import (
    LADDER,
    LOAD_SECONDS,
    SEARCH_STEPS,
    STEP_SECONDS,
    STEPS,
    Options,
)
from neuca_tools.selftest.measure.wait import wait_readable

# Called with the name of a stage that ended, and the line to print; empty for none.
ReportStage = Callable[[str, str], None]
# Seconds between two drawings.
DRAW_SECONDS = 1.0
# ECMA-48: return to the first column and erase to the end of the line.
ERASE = "\r\x1b[K"
# Seconds that iperf3 takes to connect and to exchange results.
CONNECT_SECONDS = 1.5
# Seconds of the other steps; those not listed take about one. `loaded` runs beside `tcp`.
SECONDS = {
    "reach": 2.0,
    "latency": 3.0,
    "path-mtu": 3.0,
    "path": 4.0,
}
CONCURRENT = frozenset({"loaded"})
# Steps with a test in each direction, and its longest duration.
BOTH_WAYS = {"rpm": LOAD_SECONDS, "one-way": STEP_SECONDS}
PIECE = 65536
DEVICES = Path("/proc/net/dev")


def can_draw() -> bool:
    """Whether standard output is a terminal that can erase a line."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def planned_stages(options: Options) -> list[Stage]:
    """The steps of a test in order, with the seconds that each is likely to take."""
    planned = []
    for name in STEPS:
        if name in options.steps - CONCURRENT:
            planned += [Stage(name, seconds) for seconds in _test_seconds(name, options)]
    return planned


def _test_seconds(name: str, options: Options) -> list[float]:
    """The seconds of each test of a step."""
    each = options.seconds + CONNECT_SECONDS
    if name == "tcp-parallel":
        return [each for streams in options.parallel if streams > 1]
    if name == "udp":
        return [min(STEP_SECONDS, options.seconds) + CONNECT_SECONDS] * (
            len(LADDER) + SEARCH_STEPS // 2
        )
    if name.startswith("tcp"):
        return [each]
    if name in BOTH_WAYS:
        return [min(BOTH_WAYS[name], options.seconds) + CONNECT_SECONDS] * 2
    return [SECONDS.get(name, 1.0)]


@contextmanager
def draw_progress(planned: Sequence[Stage], device: Optional[str] = None) -> Iterator[ReportStage]:
    """Draw until the context ends; `device` is the one whose rates are shown."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        yield _print_line
        return
    if child == 0:
        os.close(writing)
        _draw_in_child(reading, planned, device)
    os.close(reading)
    try:
        yield lambda name, text: _send_line(writing, name, text)
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def _print_line(_: str, text: str) -> None:
    if text:
        print(text, flush=True)


def _send_line(writing: int, name: str, text: str) -> None:
    try:
        os.write(writing, json.dumps([name, text]).encode() + b"\n")
    except BrokenPipeError:
        # The other process was killed, and has left its line.
        _print_line(name, f"{ERASE}{text}" if text else "")


def _draw_in_child(reading: int, planned: Sequence[Stage], device: Optional[str]) -> None:
    """Does not return: this process ends here, without running the parent's exit handlers."""
    try:
        # An interrupt ends the test, and thereby this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(OSError, ValueError):
            _LiveLine(Progress(planned), device).run(reading)
    finally:
        os._exit(0)


class _LiveLine:
    """The state of the line: the stage, when it began, and the last counters of the device."""

    def __init__(self, progress: Progress, device: Optional[str]) -> None:
        self._progress, self._device = progress, device
        self._began = self._counted_at = time.monotonic()
        self._counters = self._read_counters()
        self._rates = ""

    def run(self, reading: int) -> None:
        """Draw, and print what arrives, until the pipe is closed."""
        waiting = b""
        while True:
            self._draw_line()
            if not wait_readable([reading], time.monotonic() + DRAW_SECONDS):
                self._measure()
                continue
            piece = os.read(reading, PIECE)
            if not piece:
                break
            *whole, waiting = (waiting + piece).split(b"\n")
            for line in whole:
                self._end_stage(*json.loads(line))
        self._write(ERASE)

    def _end_stage(self, name: str, text: str) -> None:
        current = self._progress.current
        self._progress.ended(name)
        if self._progress.current != current:
            self._began = time.monotonic()
        if text:
            self._write(f"{ERASE}{text}\n")

    def _draw_line(self) -> None:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
        elapsed = time.monotonic() - self._began
        self._write(ERASE + live_line(self._progress, elapsed, self._rates, columns or 80))

    def _measure(self) -> None:
        now, counters = time.monotonic(), self._read_counters()
        self._rates = ""
        if self._device and self._counters and counters:
            seconds = now - self._counted_at
            self._rates = rates_of(self._device, self._counters, counters, seconds)
        self._counters, self._counted_at = counters, now

    def _read_counters(self) -> Optional[Counted]:
        if self._device is None:
            return None
        return device_bytes(text_of(DEVICES), self._device)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


# The columns of a step's name.
LABEL = 14
# Bytes received and sent by a device.
Counted = tuple[int, int]


class Stage(NamedTuple):
    """A step that is still to come, and the seconds that it is likely to take."""

    name: str
    seconds: float


class Progress:
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
    whole = duration_text(sum(stage.seconds for stage in stages))
    return printable_line(
        f"{peer}{through}, plan {plan}: {each:g} s for each test, about {whole} in all"
    )


def duration_text(seconds: float) -> str:
    """Rounded up to 5 s, from two minutes on to 10 s: "25 s", "2 min 10 s", "1 h 5 min"."""
    step = 5 if seconds < 120 else 10
    whole = max(step, math.ceil(seconds / step) * step)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    if whole >= 60:
        rest = f" {whole % 60} s" if whole % 60 else ""
        return f"{whole // 60} min{rest}"
    return f"{whole} s"


def live_line(progress: Progress, elapsed: float, rates: str, columns: int) -> str:
    """The current stage, for how long it has run, the rates of the device, and the estimate."""
    if not progress.current:
        return ""
    left = progress.left(elapsed)
    rest = f"about {duration_text(left)} left" if left else "almost done"
    parts = (f"{progress.current:<{LABEL}}{elapsed:.0f} s", rates, rest)
    return printable_line("  ".join(filter(None, parts)))[: max(0, columns - 1)]


def rates_of(device: str, before: Counted, after: Counted, seconds: float) -> str:
    """ "eth1 941 Mbit/s out, 12.0 Mbit/s in"; empty if a counter was reset."""
    received, sent = (8 * (new - old) / seconds for old, new in zip(before, after))
    if received < 0 or sent < 0:
        return ""
    return f"{device} {amounts.rate(sent)} out, {amounts.rate(received)} in"


def device_bytes(text: str, device: str) -> Optional[Counted]:
    """The bytes of a device in /proc/net/dev (proc(5)); None if it is not there."""
    for line in text.split("\n"):
        name, _, rest = line.rpartition(":")
        columns = rest.split()
        if name.strip() == device and len(columns) > 8 and columns[0].isdecimal():
            return int(columns[0]), int(columns[8])
    return None
