"""Messages on a descriptor: a JSON object on each line, within a limit."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
from typing import Any, Optional

from neuca_tools.selftest.measure.wait import PIECE


class Lines:
    """What arrives at a descriptor. A line that is too long, or no JSON object, is passed over.

    Call `take` when the descriptor is readable. `ended`: nothing more will come.
    """

    def __init__(self, descriptor: int, longest: int) -> None:
        self._descriptor, self._longest = descriptor, longest
        self._buffer = bytearray()
        self._skipping = self.ended = False

    def fileno(self) -> int:
        return self._descriptor

    def raw(self) -> list[bytes]:
        """Read once; the lines that are complete now."""
        piece = os.read(self._descriptor, PIECE)
        self.ended = not piece
        *lines, rest = bytes(self._buffer + piece).split(b"\n")
        if lines and self._skipping:
            # The end of a line that was too long.
            del lines[0]
            self._skipping = False
        self._buffer = bytearray(rest)
        if len(rest) > self._longest:
            self._buffer.clear()
            self._skipping = True
        return lines

    def take(self) -> list[dict[str, Any]]:
        """Read once; the messages that are complete now."""
        messages = map(parse_message, self.raw())
        return [message for message in messages if message is not None]


def parse_message(line: bytes) -> Optional[dict[str, Any]]:
    """The JSON object in a line; None if it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    return message
