"""A program started for a test: its output is kept up to a limit, and it ends with this process."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

from neuca_tools.libc import end_with
from neuca_tools.selftest.measure.wait import PIECE, wait_readable

# Never the current directory, whatever the environment says.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Bytes of each output: 128 streams for an hour.
MOST_OUTPUT = 32 * 1024 * 1024
# Seconds that a program gets to end once its outputs are closed, or it was killed.
END_SECONDS = 2.0


class Ended(NamedTuple):
    """The exit code, negative for a signal, and both outputs; `was_killed` if it was late."""

    code: int
    out: bytes
    error: bytes
    was_killed: bool = False


class Program:
    """A running program. `confine` is called in the new process first.

    Wait until one of the descriptors in `waiting` is readable and `take` from it, until `waiting`
    is empty; then call `end`. The constructor raises OSError if the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], confine: Optional[Callable[[], None]] = None
    ) -> None:
        parent = os.getpid()

        def begin() -> None:
            if confine is not None:
                confine()
            # Last, because a change of user clears it (prctl(2)).
            if not end_with(parent):
                os._exit(1)

        self._process = _start_program(command, begin)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._streams = {
            stream.fileno(): stream for stream in (self._process.stdout, self._process.stderr)
        }
        self._out, self._error = self._streams
        self._kept = {descriptor: bytearray() for descriptor in self._streams}

    @property
    def waiting(self) -> tuple[int, ...]:
        """The descriptors of the outputs that are still open."""
        return tuple(self._streams)

    def take(self, descriptor: int) -> None:
        """Read what has arrived, and discard what exceeds MOST."""
        piece = os.read(descriptor, PIECE)
        kept = self._kept[descriptor]
        kept += piece[: MOST_OUTPUT - len(kept)]
        if not piece:
            self._streams.pop(descriptor).close()

    def finish(self, seconds: float = 10.0) -> Ended:
        """Wait up to `seconds` for its end, then kill it."""
        deadline = time.monotonic() + seconds
        while self.waiting and time.monotonic() < deadline:
            for descriptor in wait_readable(self.waiting, deadline):
                self.take(descriptor)
        return self.end()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> Ended:
        """The result. Kills the program if it still has an output open."""
        was_killed = bool(self._streams)
        if was_killed:
            self._process.kill()
            for descriptor in self.waiting:
                while descriptor in self._streams:
                    self.take(descriptor)
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            # It closed its outputs without ending.
            self._process.kill()
            code, was_killed = self._process.wait(), True
        return Ended(code, bytes(self._kept[self._out]), bytes(self._kept[self._error]), was_killed)


def _start_program(command: Sequence[str], begin: Callable[[], None]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", "PATH": PATH, "TMPDIR": "/tmp"},
            cwd="/",
            preexec_fn=begin,  # noqa: PLW1509 - this process has no threads
        )
    except subprocess.SubprocessError as error:
        # `begin` raised an exception.
        raise OSError(errno.EPERM, "it cannot be confined") from error
