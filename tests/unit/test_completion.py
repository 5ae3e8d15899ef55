"""Completion of `neuca` in bash: every command, every option, and the words that a command takes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from neuca_tools.commands import neuca

COMPLETION = Path(__file__).parents[2] / "packaging" / "completion" / "neuca"


def completed(*words):
    """What bash offers for the last word."""
    listed = " ".join(map(shlex.quote, ("neuca", *words)))
    script = (
        f"source {shlex.quote(str(COMPLETION))}; COMP_WORDS=({listed}); COMP_CWORD={len(words)};"
        ' _neuca; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_every_command_is_offered():
    names = {command.name for command in neuca.COMMANDS}
    assert set(completed("")) == {*names, "selftest", "--version", "--help"}
    assert completed("st") == ["status", "storage"]


@pytest.mark.parametrize("command", neuca.COMMANDS, ids=lambda command: command.name)
def test_the_options_of_a_command_are_offered(command):
    options = {f"--{name}" for name in (*command.options.split(), "config", "help")}
    assert set(completed(command.name, "--")) == options


def test_the_words_of_a_command_are_offered(tmp_path):
    assert completed("show", "d") == ["document", "desired"]
    assert completed("tune", "") == ["audit", "plan", "apply", "revert"]
    assert completed("image", "") == ["capture"]
    (tmp_path / "guest.tar").touch()
    assert completed("image", "capture", f"{tmp_path}/g") == [str(tmp_path / "guest.tar")]
    assert completed("explain", "l") == ["lo"]
    assert completed("status", "--timeout", "") == []
