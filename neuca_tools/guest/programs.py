"""Runs other programs: without a shell, in a fixed environment, for a limited time."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Optional

from neuca_tools.errors import ApplyError

# subprocess and shutil are imported where they are used: most runs start no program.
if TYPE_CHECKING:
    import subprocess

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # never the current directory
ENVIRONMENT = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
MAX_MESSAGE_CHARACTERS = 400  # of a program's output in an error message


def find_program(name: str) -> Optional[str]:
    """The path of a program of the system; None if it is not installed."""
    import shutil  # saves 3 ms

    return shutil.which(name, path=PATH)


def run_program(
    purpose: str,
    command: Sequence[str],
    timeout_seconds: float,
    stdin: bytes = b"",
    *,
    accepted: Collection[int] = (0,),
) -> str:
    """Run a program to its end and return its standard output.

    `purpose` begins the text of errors. Raises ApplyError if the program is not installed, cannot
    be run, takes longer than `timeout_seconds` (it is killed then), or if its exit status is not
    one of those that are `accepted`.
    """
    import subprocess  # saves 2 ms

    program = find_program(command[0])
    if program is None:
        raise ApplyError(f"{purpose}: {command[0]} is not installed")
    try:
        done = _run_command([program, *command[1:]], timeout_seconds, stdin)
    except subprocess.TimeoutExpired:
        raise ApplyError(
            f"{purpose}: {command[0]} took longer than {timeout_seconds:g} s, and was killed"
        ) from None
    except OSError as error:
        cause = os.strerror(error.errno or 0)
        raise ApplyError(f"{purpose}: run {program}: {cause}", error.errno or 0) from error
    if done.returncode not in accepted:
        text = _output_text(done.stderr or done.stdout)
        cause = f": {text}" if text else ""
        raise ApplyError(f"{purpose}: {command[0]} ended with status {done.returncode}{cause}")
    return done.stdout.decode("utf-8", "replace")


def _run_command(
    command: Sequence[str], timeout_seconds: float, stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    import subprocess  # saves 2 ms

    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        timeout=timeout_seconds,
        check=False,
        env=ENVIRONMENT,
        cwd="/",
    )


def _output_text(output: bytes) -> str:
    """The output on one line, shortened; a program that tries several times may repeat a line."""
    lines = dict.fromkeys(output.decode("utf-8", "replace").splitlines())
    return " ".join(" ".join(lines).split())[:MAX_MESSAGE_CHARACTERS]
