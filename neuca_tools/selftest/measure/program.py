"""A program started for a test: its output is kept up to a limit, and it ends with this process."""

# SPDX-License-Identifier: MIT

import errno
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

from neuca_tools.libc import end_with
from neuca_tools.selftest.measure.wait import wait_readable

# Never the current directory, whatever the environment says.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_OUTPUT = 32 * 1024 * 1024  # bytes of each output


class ProgramResult(NamedTuple):
    """The exit code, negative for a signal, and both outputs; `was_killed` if it was late."""

    code: int
    out: bytes
    error: bytes
    was_killed: bool = False


class Program:
    """A running program. `confine` is called in the new process first.

    Call `end` once: its outputs are files in memory, which nobody has to read meanwhile. The
    constructor raises OSError if the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], confine: Optional[Callable[[], None]] = None
    ) -> None:
        parent = os.getpid()

        def prepare_process() -> None:
            if confine is not None:
                confine()
            # Last, because a change of user clears it (prctl(2)).
            if not end_with(parent):
                os._exit(1)

        self._descriptors = [os.memfd_create("out"), os.memfd_create("error")]
        try:
            self._process, pidfd = _start_program(command, prepare_process, self._descriptors)
            self._descriptors.append(pidfd)
        except OSError:
            self._close()
            raise

    def fileno(self) -> int:
        """The descriptor that is readable once the program has ended."""
        return self._descriptors[-1]

    def terminate(self) -> None:
        self._process.terminate()

    def end(self, seconds: float = 0.0) -> ProgramResult:
        """The result. Kills the program if it has not ended within `seconds`."""
        was_killed = not wait_readable([self], time.monotonic() + seconds)
        if was_killed:
            self._process.kill()
        code = self._process.wait()
        out, error = (os.pread(output, MAX_OUTPUT, 0) for output in self._descriptors[:2])
        self._close()
        return ProgramResult(code, out, error, was_killed)

    def _close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


def _start_program(
    command: Sequence[str], prepare: Callable[[], None], outputs: Sequence[int]
) -> tuple[subprocess.Popen[bytes], int]:
    """A process and its pidfd."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            env={**os.environ, "LC_ALL": "C", "PATH": PATH, "TMPDIR": "/tmp"},
            cwd="/",
            preexec_fn=prepare,  # noqa: PLW1509 - this process has no threads
        )
    except subprocess.SubprocessError as error:
        # `prepare` raised an exception.
        raise OSError(errno.EPERM, "it cannot be confined") from error
    try:
        return process, os.pidfd_open(process.pid)
    except OSError:
        # Nobody would wait for it.
        process.kill()
        process.wait()
        raise
