"""What the commands of `neuca-selftest` have in common: readers of values, and options."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Callable

from neuca_tools.commands.arguments import JSON, Options, flag, value
from neuca_tools.selftest.readers.lines import parse_rate

# --- Readers of single values; each raises argparse.ArgumentTypeError ----------------------------


def refused_value(word: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f'"{word}" is not {expected}')


def link_rate(word: str) -> float:
    """Parse a rate such as 5G, which needs a unit; return bit/s."""
    bits = parse_rate(word)
    if not bits or word.strip()[-1].isdecimal():
        raise refused_value(word, "a rate such as 5G or 100M")
    return bits


def parse_milliseconds(word: str) -> float:
    """Parse milliseconds; return seconds."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < 60_000:
        raise refused_value(word, "a time in milliseconds")
    return number / 1000


def integer(what: str, low: int, high: int) -> Callable[[str], int]:
    """A reader of integers from `low` (1 or more) to `high`."""

    def read(word: str) -> int:
        number = int(word) if word.isdecimal() and len(word) < 10 else 0
        if not low <= number <= high:
            raise refused_value(word, f"{what} from {low} to {high}")
        return number

    return read


# --- Options ----

EXPECT_OPTION: Options = {
    "expect": value("RATE", "the expected rate of the path (e.g. 5G)", type=link_rate)
}
# --json and --nagios cannot be combined.
OUTPUT_OPTIONS: Options = {
    **JSON,
    "nagios": flag("print one line and exit as a Nagios plugin does"),
}
_METRICS = "(OpenMetrics) for the textfile collector of the Prometheus node exporter"
REPORT_OPTIONS: Options = {
    "html": value("PATH", "also write the report to an HTML file", type=Path),
    "prometheus": value("PATH", f"also write metrics {_METRICS}", type=Path),
}
SERIES_OPTIONS: Options = {
    "csv": value("PATH", "also write the series over time to a CSV file", type=Path),
    "svg": value("PATH", "also write the plot of these to an SVG file", type=Path),
}
