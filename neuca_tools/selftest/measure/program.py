"""A program that is started for a test: what it says is kept up to a limit, and it never outlives the process that started it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # never the directory that somebody started us in
MOST = 32 * 1024 * 1024  # bytes of its output; 128 streams for an hour
PIECE = 65536
AT_ONCE = 2.0  # seconds that a program gets to end once its outputs are closed, or it was killed
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Ended(NamedTuple):
    """Exit code (below zero: the signal that ended it), its two outputs; `late`: it was ended, for its time was over."""

    code: int
    out: bytes
    error: bytes
    late: bool = False


class Program:
    """One program under way. `confine` is what the new process does first.

    Wait until one of `waiting` can be read, `take` it; there is nothing more once it is empty.
    Raises OSError where it cannot be started.
    """

    def __init__(
        self, command: Sequence[str], confine: Optional[Callable[[], None]] = None
    ) -> None:
        parent, libc = os.getpid(), ctypes.CDLL(None)

        def begin() -> None:
            if confine is not None:
                confine()
            # Last: the kernel forgets it with a change of user (prctl(2)).
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)  # it died in between

        self._process = _started(command, begin)
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
        """Read what is there; what is beyond the limit is thrown away."""
        piece = os.read(descriptor, PIECE)
        kept = self._kept[descriptor]
        kept += piece[: MOST - len(kept)]
        if not piece:
            self._streams.pop(descriptor).close()

    def finish(self, seconds: float = 10.0) -> Ended:
        """Wait until it ends by itself, so long."""
        deadline = time.monotonic() + seconds
        while self.waiting and time.monotonic() < deadline:
            for descriptor in select.select(
                self.waiting, [], [], max(0.0, deadline - time.monotonic())
            )[0]:
                self.take(descriptor)
        return self.end()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> Ended:
        """Its end, which is made if it has not come by itself."""
        late = bool(self._streams)
        if late:
            self._process.kill()
            for descriptor in self.waiting:
                while descriptor in self._streams:
                    self.take(descriptor)
        try:
            code = self._process.wait(AT_ONCE)
        except subprocess.TimeoutExpired:  # it has closed its outputs, and goes on
            self._process.kill()
            code, late = self._process.wait(), True
        return Ended(code, bytes(self._kept[self._out]), bytes(self._kept[self._error]), late)


def _started(command: Sequence[str], begin: Callable[[], None]) -> subprocess.Popen[bytes]:
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
    except subprocess.SubprocessError as error:  # of `begin`
        raise OSError(errno.EPERM, "it cannot be confined") from error
