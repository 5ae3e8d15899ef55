"""What a test shows on a terminal: its stages and estimate, drawn on a real pseudoterminal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neuca_tools.selftest.measure.iperf.plans import PLANS, Options
from neuca_tools.selftest.measure.live import (
    ERASE,
    Stage,
    live_line,
    planned_stages,
)

ROOT = Path(__file__).parents[2]
STAGES = [Stage("reach", 2.0), Stage("tcp", 5.5), Stage("udp", 5.5), Stage("udp", 5.5)]


def test_the_live_line_has_the_stage_and_the_estimate(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("COLUMNS", "80")
    assert live_line(STAGES, 3600.0) == "reach         the test ends at about 01:00:18"
    assert live_line(STAGES[3:], 0.0) == "udp           the test ends at about 00:00:05"
    monkeypatch.setenv("COLUMNS", "10")
    assert live_line(STAGES, 0.0) == "reach    "
    assert live_line([], 0.0) == ""


def test_the_stages_of_a_plan_are_its_steps_in_order():
    names = [stage.name for stage in planned_stages(PLANS["quick"])]
    assert names == ["as-planned", "reach", "latency", "path-mtu", "tcp", "tcp-reverse"]
    many = [stage.name for stage in planned_stages(PLANS["full"])]
    assert (many.count("tcp-parallel"), "loaded" in many, many[-1]) == (2, False, "connections")
    assert [many.count(name) for name in ("one-way", "path")] == [2, 1]
    both = planned_stages(Options(frozenset({"one-way"}), seconds=7.0))
    assert both == [Stage("one-way", 6.5)] * 2
    assert planned_stages(Options(frozenset({"tcp"}), seconds=7.0)) == [Stage("tcp", 8.5)]


def test_the_estimate_is_what_the_manual_page_says():
    page = (ROOT / "docs" / "man" / "neuca-selftest.1").read_text()
    assert "\nTest for about 20 seconds, 2 minutes (the default), or 4 minutes.\n" in page
    for name, seconds in {"quick": 20, "standard": 120, "full": 240}.items():
        estimate = sum(stage.seconds for stage in planned_stages(PLANS[name]))
        assert 0.75 * seconds <= estimate <= 1.25 * seconds, name


# --- Drawn ----------------------------------------------------------------------------------------------------------------

LIMIT = 120  # seconds of silence, for what hangs
# Whoever runs these tests in the background may ignore SIGINT, and children inherit that.
DRAWN = """
import os, select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
def wait():  # Python notices a signal just before a read only when there is something to read
    while not select.select([sys.stdin], [], [], 0.1)[0]: pass
from neuca_tools.selftest.measure.live import can_draw, draw_progress
from neuca_tools.selftest.measure.live import Stage
assert can_draw()
print("header")
with draw_progress([Stage("reach", 2.0), Stage("tcp", 5.0)]) as tell:
    {body}
print("VERDICT")
"""


def shown(content: bytes) -> list[str]:
    """The lines of a terminal that was sent this."""
    lines = content.decode().replace("\r\n", "\n").split("\n")
    return [line.rpartition(ERASE)[2] for line in lines]


class Terminal:
    """A program on a pseudoterminal of its own."""

    def __init__(self, program: str, term: str = "xterm", columns: int = 80):
        self.master, slave = pty.openpty()
        os.set_blocking(self.master, True)
        import fcntl
        import struct
        import termios

        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": term},
            start_new_session=True,
        )
        os.close(slave)
        self.content = b""

    def until(self, what: bytes) -> None:
        while what not in self.content:
            self.content += self._read()

    def _read(self) -> bytes:
        if not select.select([self.master], [], [], LIMIT)[0]:
            self.process.kill()
            pytest.fail(f"nothing within {LIMIT} s, after {self.content!r}")
        return os.read(self.master, 65536)

    def end(self) -> tuple[int, str, list[str]]:
        """The exit code, what standard error got, and the lines that are left on the terminal."""
        while True:
            try:
                piece = self._read()
            except OSError:  # EIO: every descriptor of the other side is closed
                break
            self.content += piece
        error = self.process.stderr.read().decode()
        code = self.process.wait(60)
        os.close(self.master)
        return code, error, shown(self.content)


def test_the_line_is_drawn_and_leaves_nothing_behind():
    body = 'tell("reach", "reach  pass"); tell("skipped", ""); tell("tcp", "tcp    pass")'
    terminal = Terminal(DRAWN.format(body=body))
    assert terminal.end() == (0, "", ["header", "reach  pass", "tcp    pass", "VERDICT", ""])
    assert f"{ERASE}reach         the test ends at about ".encode() in terminal.content


def test_the_line_is_erased_when_the_test_fails():
    terminal = Terminal(DRAWN.format(body='tell("reach", "reach  pass"); raise SystemExit(6)'))
    assert terminal.end() == (6, "", ["header", "reach  pass", ""])


def test_an_interrupt_erases_the_line():
    terminal = Terminal(DRAWN.format(body="wait()"))
    terminal.until(b"the test ends at about ")
    os.killpg(terminal.process.pid, signal.SIGINT)
    code, error, lines = terminal.end()
    assert (code != 0, "KeyboardInterrupt" in error) == (True, True)
    assert lines[-1] == ""


def test_a_narrow_terminal_is_never_overfull():
    terminal = Terminal(DRAWN.format(body='tell("reach", "")'), columns=12)
    assert terminal.end()[0] == 0
    drawn = re.findall(rb"\x1b\[K([^\r\n]*)", terminal.content)
    assert max(map(len, drawn)) == 11


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_erase_gets_no_escape_sequence(term):
    program = "import os\nfrom neuca_tools.selftest.measure.live import can_draw\nprint(can_draw())"
    terminal = Terminal(program, term or "dumb")
    assert terminal.end() == (0, "", ["False", ""])


def test_a_pipe_is_no_terminal():
    program = "from neuca_tools.selftest.measure.live import can_draw; print(can_draw())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        timeout=60,
        check=True,
    )
    assert done.stdout == "False\n"
