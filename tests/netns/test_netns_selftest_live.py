"""neuca-selftest on a terminal: a live line for a person, and none for anybody else."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys

from ends import FAR, MAIN, TCP

ERASE = "\r\x1b[K"


def on_a_terminal(ends, *words, command="run", peers=(FAR,), term="xterm"):
    """The exit code, and all that a terminal is sent."""
    master, slave = pty.openpty()
    options = ("--config", ends.lab.config_file, "--secret-file", ends.secret, *words)
    process = subprocess.Popen(
        [*ends.lab.guest.enter, sys.executable, "-c", MAIN, *map(str, (command, *options, *peers))],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**ends.lab.environment, "TERM": term},
    )
    os.close(slave)
    said = b""
    with contextlib.suppress(OSError):  # EIO: the program has ended
        while piece := os.read(master, 65536):
            said += piece
    os.close(master)
    return process.wait(60), said.decode().replace("\r\n", "\n")


def test_a_person_sees_a_live_line(ends):
    ends.serve()
    code, said = on_a_terminal(ends, *TCP)
    lines = [line.rpartition(ERASE)[2] for line in said.split("\n")]
    assert [line.split()[0] for line in lines[:2]] == ["reach", "tcp"], said
    assert [line for line in lines if "ends at about" in line] == []
    assert re.search(r"\r\x1b\[K(reach|tcp) +the test ends at about \d\d:\d\d:\d\d", said)
    assert re.match(r"(\x1b\[3[123]m)?VERDICT(\x1b\[0m)?     ", lines[-2])
    assert code in (0, 4)


def test_a_program_sees_none_on_a_terminal(ends):
    ends.serve()
    _, said = on_a_terminal(ends, "--json", *TCP)
    assert json.loads(said)["version"] == 1
    _, said = on_a_terminal(ends, "--nagios", *TCP)
    assert (said.startswith("DATAPLANE "), said.count("\n"), "\x1b" in said) == (True, 1, False)


def test_without_a_terminal_there_is_none(ends):
    ends.serve()
    piped = ends.test("--secret-file", ends.secret, *TCP)
    _, plain = on_a_terminal(ends, *TCP, term="dumb")
    for said in (piped.out, plain):
        assert ("\x1b" in said, "\r" in said) == (False, False)
        assert [line.split()[0] for line in said.split("\n")[:2]] == ["reach", "tcp"], said


def test_several_paths_have_a_live_line(ends):
    ends.serve()
    paths = (f"one={FAR}", f"two={FAR}")
    _, said = on_a_terminal(ends, "--rounds", "1", *TCP, command="compare-paths", peers=paths)
    lines = [line.rpartition(ERASE)[2] for line in said.split("\n")]
    assert [line.split()[:5] for line in lines[:2]] == [
        ["round", "1", "of", "1", "one"],
        ["round", "1", "of", "1", "two"],
    ]
    assert f"{ERASE}round 1 of 1, one" in said
