"""Typed access to untrusted JSON: an absent, negative, infinite or mistyped value is None."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable, Mapping
from typing import Any, Optional, TypeVar

LARGEST_NUMBER = 2**63 - 1  # iperf prints a negative count of 64 bits as a larger one
Value = TypeVar("Value")


def parse_number(value: object) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 <= value <= LARGEST_NUMBER:
        return None
    return float(value)


def parse_whole(value: object) -> Optional[int]:
    known_number = parse_number(value)
    return None if known_number is None else int(known_number)


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        return []
    return [part for part in value if isinstance(part, dict)]


def known_values(values: Iterable[Optional[Value]]) -> list[Value]:
    return [value for value in values if value is not None]


def known_sum(values: Iterable[Optional[float]]) -> Optional[float]:
    """The sum of the known values; None if there are none."""
    numbers = known_values(values)
    return sum(numbers) if numbers else None


def known_mean(values: Iterable[Optional[float]]) -> Optional[float]:
    """The mean of the known values; None if there are none."""
    numbers = known_values(values)
    return sum(numbers) / len(numbers) if numbers else None


def scaled(value: Optional[float], factor: float) -> Optional[float]:
    return None if value is None else value * factor
