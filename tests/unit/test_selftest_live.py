"""What a test shows on a terminal: its header, stages and estimate, drawn by a real process on a real pseudoterminal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.selftest.measure.iperf.plans import PLANS, Options
from neuca_tools.selftest.measure.live import (
    ERASE,
    Progress,
    Stage,
    device_bytes,
    duration_text,
    header,
    live_line,
    planned_stages,
    rates_of,
)

ROOT = Path(__file__).parents[2]
STAGES = [Stage("reach", 2.0), Stage("tcp", 5.5), Stage("udp", 5.5), Stage("udp", 5.5)]
DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
eth1:12345678  10    0    0    0     0          0         0 87654321       9    0    0    0     0       0          0
 eth1.5:       7       1    0    0    0     0          0         0        8       1    0    0    0     0       0          0
"""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.1, "5 s"),
        (21, "25 s"),
        (60, "1 min"),
        (119, "2 min"),
        (121, "2 min 10 s"),
        (3601, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_duration_is_rounded_up(seconds, text):
    assert duration_text(seconds) == text


def test_the_header_names_peer_nic_plan_and_duration():
    assert header("172.16.0.2", "eth1", "quick", 4.0, STAGES) == (
        "172.16.0.2 through eth1, plan quick: 4 s for each test, about 20 s in all"
    )
    assert header("fd00::2", None, "full", 30.0, STAGES).startswith("fd00::2, plan full: 30 s ")


def test_the_course_follows_the_steps():
    progress = Progress(STAGES)
    assert (progress.current, progress.left(0), progress.left(1.5), progress.left(99)) == (
        *("reach", 18.5, 17.0),
        16.5,
    )
    progress.ended("loaded")
    assert progress.current == "reach"
    progress.ended("tcp")
    assert (progress.current, progress.left(1)) == ("udp", 10.0)
    for name in ("udp", "udp", "udp", "unheard of"):
        progress.ended(name)
    assert (progress.current, progress.left(3)) == ("", 0.0)


def test_the_live_line_has_the_stage_the_rates_and_the_estimate():
    progress = Progress(STAGES)
    assert live_line(progress, 1.2, "", 80) == "reach         1 s  about 20 s left"
    progress.ended("udp")
    rates = "eth1 941 Mbit/s out, 1.00 Mbit/s in"
    assert live_line(progress, 2, rates, 80) == f"udp           2 s  {rates}  about 5 s left"
    assert live_line(progress, 30, "", 80) == "udp           30 s  almost done"
    assert live_line(progress, 30, "", 10) == "udp      "
    progress.ended("udp")
    assert live_line(progress, 1, rates, 80) == ""


def test_the_rates_are_those_of_the_device():
    before, after = device_bytes(DEV, "eth1"), (12345678 + 250_000, 87654321 + 125_000_000)
    assert before == (12345678, 87654321)
    assert device_bytes(DEV, "eth1.5") == (7, 8)
    assert [device_bytes(DEV, name) for name in ("eth", "eth2", "face |bytes    packets")] == [
        None
    ] * 3
    assert rates_of("eth1", before, after, 2.0) == "eth1 500 Mbit/s out, 1.00 Mbit/s in"
    assert rates_of("eth1", before, (0, 87654321), 1.0) == ""


def test_the_stages_of_a_plan_are_its_steps_in_order():
    names = [stage.name for stage in planned_stages(PLANS["quick"])]
    assert names == ["as-planned", "reach", "latency", "path-mtu", "tcp", "tcp-reverse"]
    many = [stage.name for stage in planned_stages(PLANS["full"])]
    assert (many.count("tcp-parallel"), "loaded" in many, many[-1]) == (2, False, "connections")
    assert [many.count(name) for name in ("rpm", "one-way", "path")] == [2, 2, 1]
    both = planned_stages(Options(frozenset({"rpm", "one-way"}), seconds=7.0))
    assert both == [Stage("rpm", 8.5)] * 2 + [Stage("one-way", 6.5)] * 2
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
with draw_progress([Stage("reach", 2.0), Stage("tcp", 5.0)], "lo") as tell:
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
    assert f"{ERASE}reach         0 s  about 10 s left".encode() in terminal.content


def test_the_line_is_erased_when_the_test_fails():
    terminal = Terminal(DRAWN.format(body='tell("reach", "reach  pass"); raise SystemExit(6)'))
    assert terminal.end() == (6, "", ["header", "reach  pass", ""])


def test_the_line_is_drawn_again_each_second_with_the_rates():
    terminal = Terminal(DRAWN.format(body="sys.stdin.readline()"))
    terminal.until(b"bit/s in")
    os.write(terminal.master, b"\n")
    assert terminal.end()[:2] == (0, "")
    assert re.search(
        rb"reach         \d+ s  lo \S+ \w?bit/s out, \S+ \w?bit/s in", terminal.content
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_whoever_ends_the_test_ends_the_drawing(number):
    terminal = Terminal(DRAWN.format(body="wait()"))
    terminal.until(b"about 10 s left")
    os.kill(terminal.process.pid, number)
    code, _, lines = terminal.end()
    assert code != 0
    assert [line for line in lines if "left" in line] == []


def test_an_interrupt_from_the_keyboard_ends_the_test_alone():
    """The whole foreground group gets it; the drawing erases its line."""
    terminal = Terminal(DRAWN.format(body="wait()"))
    terminal.until(b"about 10 s left")
    os.killpg(terminal.process.pid, signal.SIGINT)
    code, error, lines = terminal.end()
    assert (code != 0, "KeyboardInterrupt" in error) == (True, True)
    assert lines[-1] == ""


def test_a_test_goes_on_without_the_process_that_draws():
    body = (
        "children = open(f'/proc/self/task/{os.getpid()}/children').read().split();"
        " os.kill(int(children[0]), 9); os.waitid(os.P_PID, int(children[0]), os.WEXITED | os.WNOWAIT);"
        ' tell("reach", "reach  pass"); tell("tcp", "tcp    pass")'
    )
    code, error, lines = Terminal(DRAWN.format(body=body)).end()
    assert (code, error) == (0, "")
    assert lines[-4:] == ["reach  pass", "tcp    pass", "VERDICT", ""]


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
