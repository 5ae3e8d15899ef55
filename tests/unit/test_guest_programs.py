"""Programs that a feature runs: where they are looked for, what they get, how long they may take, what an error says."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import signal

import pytest

from neuca_tools.errors import ApplyError
from neuca_tools.guest import programs


def failure(*command, seconds=30.0):
    with pytest.raises(ApplyError) as caught:
        programs.run_program("try it", command, seconds)
    return caught.value.text


def test_it_gives_what_was_printed_for_what_was_given():
    assert programs.run_program("copy", ["cat"], 30.0, b"text") == "text"


def test_a_program_gets_a_plain_environment(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent")
    assert programs.run_program("look", ["env"], 30.0).split() == [
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL=C.UTF-8",
    ]


def test_it_is_never_taken_from_the_directory_that_somebody_is_in(
    tmp_path, monkeypatch
):  # defect o of 1.7
    for name in ("useradd", "unheard-of"):
        (tmp_path / name).write_text("#!/bin/sh\necho planted\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:.")
    assert programs.find_program("useradd") in (None, "/usr/sbin/useradd", "/usr/bin/useradd")
    assert failure("unheard-of") == "try it: unheard-of is not installed"


def test_an_error_has_the_words_of_the_program():
    assert (
        failure("sh", "-c", "echo why not >&2; exit 3") == "try it: sh ended with status 3: why not"
    )
    assert failure("sh", "-c", "printf 'no answer\\nno answer\\ngiven up\\n' >&2; false") == (
        "try it: sh ended with status 1: no answer given up"
    )
    assert failure("false") == "try it: false ended with status 1"


def test_what_takes_too_long_is_killed():
    assert (
        failure("sleep", "60", seconds=0.1)
        == "try it: sleep took longer than 0.1 s, and was killed"
    )


def test_what_it_leaves_in_the_background_is_neither_waited_for_nor_killed():
    said = failure("sh", "-c", "sleep 60 & echo $! >&2; exit 3", seconds=30.0)
    begin, number = said.rsplit(" ", 1)
    assert begin == "try it: sh ended with status 3:"
    os.kill(int(number), signal.SIGKILL)


def test_much_input_and_output_of_a_slow_program_is_complete():
    text = "line\n" * 10_000
    assert programs.run_program("copy", ["sh", "-c", "sleep 1.2; cat"], 30.0, text.encode()) == text
