"""Read the time spans of netplan and cloud-init: a number, or numbers with units (`1min 30s`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping

from neuca_tools.documents.neuca.values import UnusableError, clip

# Milliseconds in each unit of systemd.time(7) that these documents have a use for.
_UNITS: Mapping[str, int] = {
    "ms": 1,
    "msec": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "seconds": 1000,
    "m": 60000,
    "min": 60000,
    "minute": 60000,
    "minutes": 60000,
    "h": 3600000,
    "hr": 3600000,
    "hour": 3600000,
    "hours": 3600000,
}
_SPAN = re.compile(r"(?:[0-9]{1,9} ?[a-z]+ ?){1,8}")
_TERM = re.compile(r"([0-9]+) ?([a-z]+)")


def milliseconds(text: str) -> str:
    """A time span in milliseconds; a number without a unit stands for milliseconds.

    >>> milliseconds("100"), milliseconds("1s"), milliseconds("1s 500ms")
    ('100', '1000', '1500')
    """
    if _SPAN.fullmatch(text.strip()):
        return str(_total(text))
    return text


def seconds(text: str) -> str:
    """A time span in seconds; a number without a unit stands for seconds.

    >>> seconds("15"), seconds("2min"), seconds("2000ms")
    ('15', '120', '2')
    """
    if not _SPAN.fullmatch(text.strip()):
        return text
    whole, rest = divmod(_total(text), 1000)
    if rest:
        raise UnusableError(f'"{clip(text)}" is not a whole number of seconds')
    return str(whole)


def _total(text: str) -> int:
    terms = _TERM.findall(text)
    for _, unit in terms:
        if unit not in _UNITS:
            raise UnusableError(f'"{clip(text)}" has the unknown unit of time "{clip(unit)}"')
    return sum(int(number) * _UNITS[unit] for number, unit in terms)
