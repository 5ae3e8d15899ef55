"""Waits for descriptors, however many this process has open (poll(2)), and reads their lines."""

# SPDX-License-Identifier: MIT

import json
import math
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Optional

PIECE = 65536  # bytes that are read or written at once
LONGEST_POLL = 2**31 - 1  # milliseconds (poll(2))


def wait_readable(
    sources: Sequence[Any], deadline: float, writing: Optional[int] = None
) -> list[Any]:
    """The sources that can be read; empty if none can by the monotonic time `deadline`, in seconds.

    A source is a descriptor or an object with `fileno`. The descriptor `writing` is in the list if
    it can be written.
    """
    poll = select.poll()
    by_descriptor = {
        source if isinstance(source, int) else source.fileno(): source for source in sources
    }
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    if writing is not None:
        poll.register(writing, select.POLLOUT)
        by_descriptor[writing] = writing
    milliseconds = min(max(0.0, deadline - time.monotonic()) * 1000, LONGEST_POLL)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(math.ceil(milliseconds))]


def write_all(descriptor: int, content: bytes, seconds: float) -> None:
    """Write to a descriptor that does not block. Raises OSError, as after `seconds`."""
    deadline = time.monotonic() + seconds
    while content:
        if not wait_readable([], deadline, descriptor):
            raise TimeoutError(0, f"it accepted nothing for {seconds:g} s")
        content = content[write_piece(descriptor, content) :]


def write_piece(descriptor: int, content: bytes) -> int:
    """Write the beginning of the content, without waiting; return its length. Raises OSError."""
    try:
        return os.write(descriptor, content[:PIECE])
    except BlockingIOError:
        return 0


class Lines:
    """The lines that arrive at a descriptor, without those of more than `max_bytes`.

    Read when the descriptor is readable. `ended`: nothing more will come.
    """

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        self._descriptor, self._max_bytes = descriptor, max_bytes
        self._buffer = b""
        self._skipping = self.ended = False

    def fileno(self) -> int:
        return self._descriptor

    def read_lines(self) -> list[bytes]:
        """Read once; the lines that are complete now."""
        piece = os.read(self._descriptor, PIECE)
        self.ended = not piece
        *lines, rest = (self._buffer + piece).split(b"\n")
        if lines and self._skipping:
            # The end of a line that was too long.
            del lines[0]
            self._skipping = False
        self._skipping = self._skipping or len(rest) > self._max_bytes
        self._buffer = b"" if self._skipping else rest
        return [line for line in lines if len(line) <= self._max_bytes]

    def read_messages(self) -> list[dict[str, Any]]:
        """Read once; the JSON objects in the lines that are complete now."""
        messages = map(parse_message, self.read_lines())
        return [message for message in messages if message is not None]


def parse_message(line: bytes) -> Optional[dict[str, Any]]:
    """The JSON object in a line; None if it has none."""
    with suppress(ValueError, RecursionError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return None


def line_of(message: Mapping[str, object]) -> bytes:
    """The line that `parse_message` reads, with its end."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def number_in(message: Mapping[str, object], key: str) -> float:
    """The number under a key; NaN, which is in no range, for anything else."""
    number = message.get(key)
    with suppress(OverflowError):
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return float(number)
    return math.nan
