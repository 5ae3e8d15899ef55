"""Processes that are noted in files: the DHCP clients of hosts without systemd."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from select import select
from signal import pidfd_send_signal

from neuca_tools.errors import ObserveError
from neuca_tools.files import applying, names_in, text_of, write_files

# The suffixes of the files: of the process of a host without systemd, and of the client itself.
PROCESS, CLIENT = ".process", ".pid"


def has_ended(place: Path, but: Collection[str] = ()) -> bool:
    """Whether a process has ended that a file in this directory notes.

    `but`: files to ignore, without their suffix.
    """
    with suppress(ObserveError):
        names = [name for name in names_in(place) if name.endswith(PROCESS)]
        noted = [place / name for name in names if name[: -len(PROCESS)] not in but]
        return not all(map(noted_process, noted))
    return False


def mark_process(path: Path, pid: int) -> None:
    """Note the process of the client with this request. Raises ApplyError.

    The agent and the process itself do so: one of them may be killed before.
    """
    write_files({path.with_suffix(PROCESS): process_note(pid)})


def process_note(pid: int) -> bytes:
    """What identifies a process over the reuse of its ID: the ID, and when it began."""
    return f"{pid} {_start_ticks(pid)}".encode()


def noted_process(path: Path) -> int:
    """The ID of the process that a file notes; 0 if it has ended."""
    return running_process(text_of(path))


def running_process(note: str) -> int:
    """The ID of the process that a note identifies (`process_note`); 0 if it has ended."""
    pid, _, began = note.partition(" ")
    if pid.isdecimal() and began and _start_ticks(int(pid)) == began:
        return int(pid)
    return 0


def end_process(pid: int, number: int, seconds: float) -> bool:
    """Send a process a signal that ends it; return whether it has ended within so many seconds.

    The process ID 0 is that of one that has ended. Raises ApplyError.
    """
    if not pid:
        return True
    with applying(f"end process {pid}"), suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            pidfd_send_signal(handle, number)
            return bool(select([handle], [], [], seconds)[0])
        finally:
            os.close(handle)
    return True


def _start_ticks(pid: int) -> str:
    """When a process began, in clock ticks since the boot; empty if it has ended (proc(5))."""
    words = text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if len(words) < 20 or words[0] in "ZX":
        return ""
    return words[19]
