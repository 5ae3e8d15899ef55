"""The source `file:PATH`, for experiments and for guests without a metadata service."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path

from neuca_tools.errors import SourceError, UsageError
from neuca_tools.sources.base import BODY_LIMIT, Answer, Deadline, Session, Source, Surroundings

SETTLED = 0.2  # seconds


class File(Source):
    """`file:PATH`. An absent file is an error: whoever gives a path expects a document there."""

    def __init__(self, argument: str, _: Surroundings) -> None:
        if not argument or not argument.isprintable():
            raise UsageError('a path of printable characters must follow "file:"')
        self.path = argument
        self.name = f"file:{argument}"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        try:
            return Answer(self.name, read_regular(self.path), session)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}") from error


def settle(source: str) -> bool:
    """Wait until a file is SETTLED seconds old: whoever rewrites it in place may not have finished.

    Returns whether it was younger, and has to be read again.
    """
    try:
        age = time.time() - Path(source.partition(":")[2]).stat().st_mtime
    except OSError:
        return True  # reading it again says why
    is_young = 0 <= age < SETTLED
    if is_young:
        select.select([], [], [], SETTLED - age)
    return is_young


def read_regular(path: str) -> bytes:
    """The content of a regular file of at most BODY_LIMIT bytes. Raises OSError and SourceError."""
    with open(path, "rb", opener=_open) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SourceError("is not a regular file")
        data = file.read(BODY_LIMIT + 1)
    if len(data) > BODY_LIMIT:
        raise SourceError(f"is larger than {BODY_LIMIT} bytes")
    return data


def _open(path: str, flags: int) -> int:
    """Open with O_NONBLOCK: opening a FIFO without a writer would block (fifo(7))."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
