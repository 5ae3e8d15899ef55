"""The command line: thin modules that parse arguments, call a stage and print its result."""

# SPDX-License-Identifier: MIT

import atexit
import gc
import io
import os
import sys
from collections.abc import Callable
from typing import Any, Optional, TextIO

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def collect_rarely() -> None:
    """Spend less of a short process on the search for cyclic garbage.

    Loading some 200 modules makes many objects and no garbage. The default threshold, 700 objects,
    has each of them visited again and again, and once more at exit.
    """
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def with_output(run: Callable[[], int], program: str) -> int:
    """Run a program whose output may be closed, full or no longer read; returns its exit code.

    Such output goes nowhere, and the program ends as it would have. If not all of standard output
    could be written, the code is 1 in place of 0, and a line says why; a reader that has ended is
    no error.
    """
    output = Output(sys.__stdout__, 1)
    sys.stdout, sys.stderr = output.text, Output(sys.__stderr__, 2).text
    try:
        code = run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:  # while modules are imported, which is half of the time of a command
        code = INTERRUPTED
    sys.stdout.flush()
    if output.error is None or isinstance(output.error, BrokenPipeError):
        return code
    print(f"{program}: standard output: {output.error.strerror}", file=sys.stderr)
    return code or 1


class Output(io.FileIO):
    """A standard stream. The first `error` in writing is kept, and what follows is discarded."""

    def __init__(self, stream: Optional[TextIO], descriptor: int) -> None:
        known = stream if isinstance(stream, io.TextIOWrapper) else None  # None: it is closed
        super().__init__(descriptor if known else os.devnull, "wb", closefd=known is None)
        self.error: Optional[OSError] = None
        self.text = io.TextIOWrapper(
            io.BufferedWriter(self),
            encoding=known.encoding if known else "utf-8",
            errors="backslashreplace",  # the name of an interface may not be valid UTF-8
            line_buffering=bool(known and known.line_buffering),
            write_through=bool(known and known.write_through),
        )

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        """Write; an error is not raised."""
        if self.error is None:
            try:
                return super().write(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes
