"""Runs other programs: without a shell, in a fixed environment, for a limited time."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from neuca_tools.errors import ApplyError

# subprocess and shutil are imported where they are used: most runs start no program.
if TYPE_CHECKING:
    import subprocess

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # never the current directory
SYSTEMD_DIRECTORY = Path("/run/systemd/system")  # exists where systemd runs (sd_booted(3))
ENVIRONMENT = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
OUTPUT_SECONDS = 1.0  # to wait for the rest of the output after a program has ended
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

    `purpose` begins the text of errors; `stdin` has at most 64 KiB, so that a pipe takes it
    (pipe(7)). Raises ApplyError if the program is not installed, cannot be run, takes longer than
    `timeout_seconds` (it is killed then), or if its exit status is not one of those `accepted`.
    """
    import subprocess  # saves 2 ms

    program = find_program(command[0])
    if program is None:
        raise ApplyError(f"{purpose}: {command[0]} is not installed")
    try:
        done = _run_command([program, *command[1:]], timeout_seconds, stdin)
    except subprocess.TimeoutExpired:
        text = f"{command[0]} took longer than {timeout_seconds:g} s, and was killed"
        raise ApplyError(f"{purpose}: {text}") from None
    except OSError as error:
        cause = os.strerror(error.errno or 0)
        raise ApplyError(f"{purpose}: run {program}: {cause}", error.errno or 0) from error
    if done.returncode not in accepted:
        output = (done.stderr or done.stdout).decode("utf-8", "replace")
        # A program that tries several times may repeat a line.
        words = " ".join(dict.fromkeys(output.splitlines())).split()
        cause = f": {' '.join(words)[:MAX_MESSAGE_CHARACTERS]}" if words else ""
        raise ApplyError(f"{purpose}: {command[0]} ended with status {done.returncode}{cause}")
    return done.stdout.decode("utf-8", "replace")


def _run_command(
    command: Sequence[str], timeout_seconds: float, stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    import subprocess  # saves 2 ms

    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT, cwd="/"
    ) as process:
        try:
            output, errors = _communicate(process, timeout_seconds, stdin)
        except BaseException:  # an interrupt, too
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _communicate(
    process: subprocess.Popen[bytes], timeout_seconds: float, stdin: bytes
) -> tuple[bytes, bytes]:
    """The standard output and error of a process. Raises TimeoutExpired if it does not end.

    What it leaves in the background may keep both open, and is not waited for.
    """
    import subprocess  # saves 2 ms

    deadline, has_ended = time.monotonic() + timeout_seconds, False
    while True:
        try:
            return process.communicate(stdin, min(timeout_seconds, OUTPUT_SECONDS))
        except subprocess.TimeoutExpired as expired:
            if has_ended:
                return expired.stdout or b"", expired.stderr or b""
            has_ended = process.poll() is not None
            if not has_ended and time.monotonic() >= deadline:
                raise
            stdin = b""  # the pipe has it
