"""Another program, run within limits: no shell, a plain environment, no word of ours that it could take for an option."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from typing import Optional

from neuca_tools.errors import ApplyError

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # never the directory that somebody started us in
ENVIRONMENT = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
MOST_SAID = 400  # characters of what a program says that an error repeats


def find(name: str) -> Optional[str]:
    """The path of a program of the system, None where it is not installed."""
    return shutil.which(name, path=PATH)


def run(
    what: str,
    command: Sequence[str],
    seconds: float,
    given: bytes = b"",
    well: Collection[int] = (0,),
) -> str:
    """Run it to its end and give what it printed. `what` says in an error what was tried. `given` is its standard input.

    Raises ApplyError: it is not installed, takes longer than `seconds` and is killed, or ends with a status that is not `well`.
    """
    program = find(command[0])
    if program is None:
        raise ApplyError(f"{what}: {command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=given,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=ENVIRONMENT,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise ApplyError(
            f"{what}: {command[0]} took longer than {seconds:g} s, and was killed"
        ) from None
    except OSError as error:
        raise ApplyError(
            f"{what}: run {program}: {os.strerror(error.errno or 0)}", error.errno or 0
        ) from error
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").splitlines()
    said = " ".join(" ".join(dict.fromkeys(lines)).split())[
        :MOST_SAID
    ]  # who tries several times says the same again
    if done.returncode not in well:
        raise ApplyError(
            f"{what}: {command[0]} ended with status {done.returncode}{f': {said}' if said else ''}"
        )
    return done.stdout.decode("utf-8", "replace")
