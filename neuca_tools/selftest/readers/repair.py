"""JSON that was damaged on its way: commas that were left behind, and an end that is missing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from typing import Optional

_TRAILING_COMMA = re.compile(r",\s*([\]}])")  # left behind where intervals were cut out by hand
_TOKEN = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
CLOSING = {"{": "}", "[": "]"}
TRUNCATED = "truncated"  # the key that marks an object that was closed
DEEPEST = 12  # iperf3 nests less; deeper, the end is not looked for


def without_trailing_commas(document: str) -> str:
    return _TRAILING_COMMA.sub(r"\1", document)


def closed(document: str, start: int) -> Optional[str]:
    """The object at `start` up to its last whole part, with the brackets that are missing.

    It has the key TRUNCATED. None if it has no whole part, or does not end early. Takes time in
    proportion to the length.
    """
    opened: list[str] = []
    kept: Optional[tuple[int, str]] = None
    is_string = False
    for token in _TOKEN.finditer(document, start):
        one = token[0]
        if one == '"':
            is_string = not is_string
        elif is_string or one.startswith("\\"):
            continue
        elif one in CLOSING:
            opened.append(CLOSING[one])
        elif not opened or opened.pop() != one:
            return None
        elif len(opened) <= DEEPEST:
            kept = token.end(), "".join(reversed(opened))
        if not opened:
            return None
    if kept is None:
        return None
    end, missing = kept
    return f'{document[start:end]}{missing[:-1]}, "{TRUNCATED}": true}}'
