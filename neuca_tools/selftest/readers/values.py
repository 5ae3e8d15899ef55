"""Typed looks into untrusted JSON: what is absent, of another type, infinite or negative is None."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Optional

LARGEST = 1e21  # nothing that is measured here comes near: a zettabyte, 30 million years


def number(value: object) -> Optional[float]:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= LARGEST and math.isfinite(value) else None


def whole(value: object) -> Optional[int]:
    found = number(value)
    return None if found is None else int(found)


def text(value: object) -> Optional[str]:
    return value if isinstance(value, str) else None


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def total(values: Iterable[Optional[float]]) -> Optional[float]:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def mean(values: Iterable[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def scaled(value: Optional[float], factor: float) -> Optional[float]:
    return None if value is None else value * factor
