"""Processes and the files that identify them: the DHCP clients of hosts without systemd."""

# SPDX-License-Identifier: MIT

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from select import select
from signal import pidfd_send_signal

from neuca_tools.errors import ObserveError
from neuca_tools.files import as_apply_error, names_in, text_of, write_files

# The suffixes of the files: that of the process which the agent starts where there is no systemd,
# and that of the DHCP client, which is the same process in the end.
PROCESS, CLIENT = ".process", ".pid"


def has_ended_process(directory: Path, ignored: Collection[str]) -> bool:
    """Whether a process with a file here has ended; `ignored` are names without the suffix."""
    with suppress(ObserveError):
        paths = [directory / name for name in names_in(directory) if name.endswith(PROCESS)]
        return not all(noted_pid(path) for path in paths if path.stem not in ignored)
    return False


def write_process_note(path: Path, pid: int) -> None:
    """Write the file of the process of the client with this request. Raises ApplyError."""
    # The agent and the process itself both do so: either may be killed before it has done it.
    write_files({path.with_suffix(PROCESS): process_note(pid)})


def process_note(pid: int) -> bytes:
    """What identifies a process even if its ID is used again: the ID, and when it began."""
    return f"{pid} {_start_ticks(pid)}".encode()


def noted_pid(path: Path) -> int:
    """The ID of the process that a file notes; 0 if it has ended."""
    return running_pid(text_of(path))


def running_pid(note: str) -> int:
    """The ID of the process that a note identifies (`process_note`); 0 if it has ended."""
    pid, _, began = note.partition(" ")
    if pid.isdecimal() and began and _start_ticks(int(pid)) == began:
        return int(pid)
    return 0


def end_process(pid: int, signal_number: int, seconds: float) -> bool:
    """Send a process a signal that ends it; return whether it has ended within so many seconds.

    The process ID 0 is that of one that has ended. Raises ApplyError.
    """
    if not pid:
        return True
    with as_apply_error(f"end process {pid}"), suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            pidfd_send_signal(handle, signal_number)
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
