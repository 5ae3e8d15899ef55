"""What a check finds in a document."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]
MOST_SPELLINGS = 200  # unknown words that are compared with the known ones


class Finding(NamedTuple):
    """One fault. `line` is 0 if it has no line; `meant` is the probable spelling, if any."""

    line: int
    severity: Severity
    text: str
    meant: str = ""


def line_with(lines: Sequence[str], first: int, item: str) -> int:
    """The number of the first line, from `first` on, that has this item; else `first` itself."""
    if first and item:
        for number, line in enumerate(lines[first - 1 :], first):
            if item in line.lower():
                return number
    return first


def suggested(text: str, meant: str) -> str:
    """The text with the probable spelling, if there is one."""
    if not meant:
        return text
    return f'{text}; did you mean "{meant}"?'
