"""The live line of a test, drawn by a process of its own, so that drawing never delays a test.

The test tells that process what it has to print. When the test ends, however it ends, the pipe
between them is closed: the process then erases the line and ends.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Optional

from neuca_tools.files import text_of
from neuca_tools.selftest.measure.iperf.plans import (
    LADDER,
    STEP_SECONDS,
    STEPS,
    TRIES,
    Options,
)
from neuca_tools.selftest.measure.wait import readable
from neuca_tools.selftest.report.progress import (
    Counted,
    Course,
    Stage,
    counted,
    live_line,
    rates_of,
)

# Called with the name of a stage that ended, and the line to print; empty for none.
Tell = Callable[[str, str], None]
# Seconds between two drawings.
EVERY = 1.0
# ECMA-48: return to the first column and erase to the end of the line.
ERASE = "\r\x1b[K"
# Seconds that iperf3 takes to connect and to exchange results.
AROUND = 1.5
# Seconds of the other steps; those not listed take about one. `loaded` runs beside `tcp`.
SECONDS = {"reach": 2.0, "latency": 3.0, "path-mtu": 3.0, "rdma": 0.0, "broadcast": 4.0}
BESIDE = frozenset({"loaded"})
PIECE = 65536
DEVICES = Path("/proc/net/dev")


def can_draw() -> bool:
    """Whether standard output is a terminal that can erase a line."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def stages(options: Options) -> list[Stage]:
    """The steps of a test in order, with the seconds that each is likely to take."""
    found = []
    for name in STEPS:
        if name in options.steps - BESIDE:
            found += [Stage(name, seconds) for seconds in _seconds(name, options)]
    return found


def _seconds(name: str, options: Options) -> list[float]:
    """The seconds of each test of a step."""
    each = options.seconds + AROUND
    if name == "tcp-parallel":
        return [each for streams in options.parallel if streams > 1]
    if name == "udp":
        return [min(STEP_SECONDS, options.seconds) + AROUND] * (len(LADDER) + TRIES // 2)
    if name.startswith("tcp"):
        return [each]
    return [SECONDS.get(name, 1.0)]


@contextmanager
def live(planned: Sequence[Stage], device: Optional[str] = None) -> Iterator[Tell]:
    """Draw until the context ends; `device` is the one whose rates are shown."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        yield _print
        return
    if child == 0:
        os.close(writing)
        _child(reading, planned, device)
    os.close(reading)
    try:
        yield lambda name, text: _send(writing, name, text)
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def _print(_: str, text: str) -> None:
    if text:
        print(text, flush=True)


def _send(writing: int, name: str, text: str) -> None:
    try:
        os.write(writing, json.dumps([name, text]).encode() + b"\n")
    except BrokenPipeError:
        # The other process was killed.
        _print(name, text)


def _child(reading: int, planned: Sequence[Stage], device: Optional[str]) -> None:
    """Does not return: this process ends here, without running the parent's exit handlers."""
    try:
        # An interrupt ends the test, and thereby this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(OSError, ValueError):
            _Drawing(Course(planned), device).run(reading)
    finally:
        os._exit(0)


class _Drawing:
    """The state of the line: the stage, when it began, and the last counters of the device."""

    def __init__(self, course: Course, device: Optional[str]) -> None:
        self._course, self._device = course, device
        self._began = self._counted_at = time.monotonic()
        self._counters = self._count()
        self._rates = ""

    def run(self, reading: int) -> None:
        """Draw, and print what arrives, until the pipe is closed."""
        waiting = b""
        while True:
            self._draw()
            if not readable([reading], time.monotonic() + EVERY):
                self._measure()
                continue
            piece = os.read(reading, PIECE)
            if not piece:
                break
            *whole, waiting = (waiting + piece).split(b"\n")
            for line in whole:
                self._ended(*json.loads(line))
        self._write(ERASE)

    def _ended(self, name: str, text: str) -> None:
        current = self._course.current
        self._course.ended(name)
        if self._course.current != current:
            self._began = time.monotonic()
        if text:
            self._write(f"{ERASE}{text}\n")

    def _draw(self) -> None:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
        elapsed = time.monotonic() - self._began
        self._write(ERASE + live_line(self._course, elapsed, self._rates, columns or 80))

    def _measure(self) -> None:
        now, counters = time.monotonic(), self._count()
        self._rates = ""
        if self._device and self._counters and counters:
            seconds = now - self._counted_at
            self._rates = rates_of(self._device, self._counters, counters, seconds)
        self._counters, self._counted_at = counters, now

    def _count(self) -> Optional[Counted]:
        if self._device is None:
            return None
        return counted(text_of(DEVICES), self._device)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
