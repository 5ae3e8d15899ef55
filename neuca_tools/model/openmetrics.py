"""OpenMetrics 1.0 that is also Prometheus' text format 0.0.4, in base units.

The textfile collector of the node exporter reads the latter, and takes the end mark of the former
as a comment. It rejects a file with two samples of the same name and labels, and one with times.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Optional

from neuca_tools.model.printable import plain_lines

Sample = tuple[str, Mapping[str, str], Optional[float]]
"""Name and labels; the value is None if it is not known."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})  # of the value of a label


def metrics_text(
    prefix: str, titles: Mapping[str, str], samples: Iterable[Sample], digits: int
) -> str:
    """The whole file, by the order of `titles`. What is not known has no line."""
    samples_by_name: dict[str, dict[str, str]] = {}
    for name, labels, value in samples:
        if value is not None:
            series = _series_name(prefix + name, labels)
            samples_by_name.setdefault(name, {}).setdefault(series, f"{series} {value:.{digits}g}")
    lines = []
    for name in filter(samples_by_name.__contains__, titles):
        full = prefix + name
        head = f"# HELP {full} {titles[name]}", f"# TYPE {full} gauge"
        lines += [*head, *samples_by_name[name].values()]
    return "\n".join([*lines, "# EOF"]) + "\n"


def seconds_of_time(text: Optional[str]) -> Optional[float]:
    """Seconds since 1970 for a time of RFC 3339; None if it is not one."""
    try:
        return datetime.strptime(text or "", "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None


def _series_name(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(
        f'{key}="{plain_lines(word).translate(_ESCAPES)}"' for key, word in labels.items()
    )
    return name + (f"{{{inside}}}" if inside else "")
