"""The signals that stop the run of a mesh, each of which leaves time for its end."""

# SPDX-License-Identifier: MIT

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """A signal asked for the end of the run."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """The first signal raises StoppedError; those after it, or after the context, are ignored.

    timeout(1) sends SIGTERM twice, and the end of a run must not be interrupted.
    """

    def ignore() -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def stop(_number: int, _frame: object) -> None:
        ignore()
        raise StoppedError

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        ignore()
