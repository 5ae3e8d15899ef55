"""Standard output that is closed, full or no longer read: no traceback, and the documented exit code."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from neuca_tools.agent.image_capture import check_destination
from neuca_tools.commands.common import run_guarded
from neuca_tools.commands.context import output_path
from neuca_tools.errors import ApplyError

ROOT = Path(__file__).parents[2]
NEUCA = "import sys; sys.argv[0] = 'neuca'; from neuca_tools.commands.neuca import main; sys.exit(main())"
NEUCAD = "import sys; from neuca_tools.commands.neucad import main; sys.exit(main())"
INVALID = str(Path(__file__).parent / "golden" / "bad.ini")
FULL = "neuca: standard output: No space left on device\n"
COMMANDS = [
    (NEUCA, "--help", 0),
    (NEUCA, "version", 0),
    (NEUCA, "help status", 0),
    (NEUCA, f"check {INVALID}", 78),
    (NEUCA, "check --json examples/user-data.ini", 0),
    (NEUCA, "selftest --help", 0),
    (NEUCAD, "--help", 0),
]


def run(code, words, unbuffered, **streams):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        **streams,
    )


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(("code", "words", "expected"), COMMANDS)
def test_a_full_output_is_one_line_and_an_exit_code(code, words, expected, unbuffered):
    with Path("/dev/full").open("w") as full:
        ended = run(code, words, unbuffered, stdout=full)
    program = "neucad" if code == NEUCAD else "neuca"
    assert (ended.returncode, ended.stderr) == (expected or 1, FULL.replace("neuca", program))


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(("code", "words", "expected"), COMMANDS)
def test_a_reader_that_has_ended_changes_nothing(code, words, expected, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    ended = run(code, words, unbuffered, stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (expected, "")


@pytest.mark.parametrize("descriptors", [(1,), (1, 2)])
@pytest.mark.parametrize(("code", "words", "expected"), COMMANDS)
def test_closed_streams_change_nothing(code, words, expected, descriptors):
    closing = (
        f"import os; [os.close(fd) for fd in {descriptors}]; os.execvp(sys.argv[1], sys.argv[1:])"
    )
    start = [sys.executable, "-c", f"import sys; {closing}", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [*start, *words.split()], capture_output=True, text=True, check=False, env=environment
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (expected, "", "")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("status", "neuca_tools.status.judge"),
        ("selftest paths", "neuca_tools.commands.selftest"),
    ],
)
def test_an_interrupt_while_modules_are_imported_prints_nothing(words, name):
    interrupt = f"event == 'import' and names[0] == {name!r} and os.kill(os.getpid(), 2)"
    hook = f"import os, sys; sys.addaudithook(lambda event, names: {interrupt}); "
    ended = run(hook + NEUCA, words, unbuffered=False, stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize("words", ["check -", "selftest explain -"])
def test_closed_standard_input_is_one_line(words):
    start = f"import os, sys; os.close(0); os.execv(sys.executable, ['python3', '-c', {NEUCA!r}, *sys.argv[1:]])"
    ended = run(start, words, unbuffered=False, stdout=subprocess.PIPE)
    assert ended.returncode == 1
    assert ended.stderr.endswith(': read "-": standard input is closed\n')
    assert (ended.stdout, ended.stderr.count("\n")) == ("", 1)


def test_standard_input_that_is_named_twice_is_read_once():
    ended = run(NEUCA, "check - -", unbuffered=False, input="mtu", stdout=subprocess.PIPE)
    first, _, second, _ = ended.stdout.splitlines()
    assert first == '-: error: cannot read the document: it has no section, such as "[interfaces]"'
    assert second.startswith("-: error: cannot read the document: it is empty, ")
    assert (ended.returncode, ended.stderr) == (78, "")


def test_a_quiet_command_prints_a_name_that_is_not_utf8_to_nowhere(capfd):
    def print_name(_: object) -> int:
        print(os.fsdecode(b"\xff"))
        return 0

    assert run_guarded(print_name, SimpleNamespace(quiet=True)) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("prepare", "tried"),
    [
        (lambda: output_path("logs.tar"), 'write "logs.tar"'),
        (lambda: check_destination(Path("guest.tar")), 'capture into "guest.tar"'),
    ],
)
def test_a_working_directory_that_was_removed_is_one_line(tmp_path, monkeypatch, prepare, tried):
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    with pytest.raises(ApplyError) as error:
        prepare()
    assert error.value.text == f"{tried}: No such file or directory"
