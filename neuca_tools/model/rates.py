"""Rates as tc(8) writes them: `2gbit`. The numbers are in bit/s; the units are decimal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_RATE = re.compile(r"([0-9]{1,11}(?:\.[0-9]{1,9})?)(bit|kbit|mbit|gbit)")


def rate_value(text: str) -> int:
    """Parse a rate: bit/s, rounded down to whole bytes. Raises ValueError."""
    found = _RATE.fullmatch(text.lower())
    if found is None:
        raise ValueError(text)
    # Few requests have a rate; it saves 1 ms.
    from decimal import Decimal

    return int(Decimal(found[1]) * _UNITS[found[2]]) // 8 * 8


def rate_text(rate: int) -> str:
    """A rate in the largest unit that gives a whole number.

    >>> rate_text(1500000000), rate_text(2 * 10**9)
    ('1500mbit', '2gbit')
    """
    unit = next(unit for unit in ("gbit", "mbit", "kbit", "bit") if rate % _UNITS[unit] == 0)
    return f"{rate // _UNITS[unit]}{unit}"
