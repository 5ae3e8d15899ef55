"""Runs one script, also after the agent's exit: saves its output, limits its time, records its end.

The kernel executes the file; /bin/sh runs a file without a `#!` line, as execvp(3) specifies.
Processes that the script leaves in the background may go on: the process that copies the output
exits when the last of them does.
"""

# SPDX-License-Identifier: MIT

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from neuca_tools.errors import NeucaError
from neuca_tools.files import locked, make_directory, write_files
from neuca_tools.guest.base import INSIDE, utc_now
from neuca_tools.state.store import content_of, read_state

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    INSIDE: "1",
    "PATH": PATH,
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
}
SECONDS_BEFORE_SIGKILL = 10.0  # after SIGTERM
OUTPUT_SECONDS = 2.0  # to wait for the rest of the output after the script has ended
MAX_OUTPUT_BYTES = 8 << 20  # in the file; the journal has limits of its own
CUT_IN_FILE = b"\n[neucad: what follows is in the journal alone]\n"
CUT_WITHOUT_JOURNAL = b"\n[neucad: what follows is not kept]\n"  # without systemd


def main(arguments: Sequence[str]) -> int:
    """`python3 -m neuca_tools.guest.supervisor BODY OUTPUT MARK SECONDS`; 0: the end was saved."""
    body, output, mark, seconds = arguments
    try:
        # The mark is locked until the script has ended; the agent waits for the lock. Meanwhile
        # nothing may open the mark here, since closing it would release the lock (fcntl(2)).
        file = Path(mark)
        known = read_state(file.parent, file.name)
        if known is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such mark", mark)
        with locked(file, 1.0):
            end = supervise(Path(body), Path(output), float(seconds))
            write_files({file: content_of(file.name, {**known, "end": end})}, 0o600)
    except (NeucaError, OSError) as error:
        print(f"neucad: {error}", file=sys.stderr)
        return 1
    return 0


def supervise(body: Path, output: Path, seconds: float) -> dict[str, Any]:
    """Run a script; returns how it ended, as the mark has it. Raises OSError."""
    stop, send = socket.socketpair()  # readable after SIGTERM: the host shuts down
    send.setblocking(False)
    signal.set_wakeup_fd(send.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    make_directory(output.parent)
    with suppress(FileNotFoundError):
        output.unlink()
    began = time.monotonic()
    copier, pipe = _start_copier(output)
    try:
        how = _run_script(body, pipe, seconds, stop)
    finally:
        os.close(pipe)
    select.select([copier], [], [], OUTPUT_SECONDS)
    return {"finished": utc_now(), "seconds": round(time.monotonic() - began, 1), **how}


def _run_script(body: Path, pipe: int, seconds: float, stop: socket.socket) -> Mapping[str, Any]:
    """Run it; returns its exit status (minus the number of a signal), and why it was killed."""
    try:
        process = _start_script(body, pipe)
    except OSError as error:
        return {"error": f"it cannot be run: {os.strerror(error.errno or 0)}"}
    descriptor = os.pidfd_open(process.pid)
    try:
        readable = select.select([descriptor, stop], [], [], seconds)[0]
        for number in (signal.SIGTERM, signal.SIGKILL) if descriptor not in readable else ():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            if select.select([descriptor], [], [], SECONDS_BEFORE_SIGKILL)[0]:
                break
        return {"status": process.wait(), "timed_out": not readable, "stopped": readable == [stop]}
    finally:
        os.close(descriptor)


def _start_script(body: Path, pipe: int) -> subprocess.Popen[bytes]:
    def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
        )

    try:
        return start([str(body)])
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        return start(["/bin/sh", str(body)])


def _start_copier(output: Path) -> tuple[int, int]:
    """Start a child that copies a pipe to a file and to stdout; returns its pidfd and the pipe."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        _copy_output(reading, file)
    os.close(reading)
    os.close(file)
    return os.pidfd_open(child), writing


def _copy_output(reading: int, file: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        output, null = os.fstat(sys.stdout.fileno()), Path(os.devnull).stat()
        cut = CUT_WITHOUT_JOURNAL if os.path.samestat(output, null) else CUT_IN_FILE
        left = MAX_OUTPUT_BYTES
        while True:
            part = os.read(reading, 65536)
            if not part:
                break
            if left >= 0:
                with suppress(OSError):  # a disk that is full: the script goes on
                    os.write(file, part[:left] + (cut if left < len(part) else b""))
                left -= len(part)
            with suppress(OSError):
                os.write(sys.stdout.fileno(), part)
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
