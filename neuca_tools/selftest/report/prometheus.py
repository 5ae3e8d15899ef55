"""The report as a text file for Prometheus' node exporter (its text file collector): base units, as its naming rules ask."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from neuca_tools.model.printable import plain_lines
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis

METRICS = {
    "verdict": "The exit code of the self-test: 0 is a pass.",
    "rate_bits_per_second": "What arrived in all of a test, as iperf3 says.",
    "expected_bits_per_second": "What the path should carry.",
    "lost_ratio": "Of TCP the bytes that were sent again, of UDP the datagrams that never came, as a share of all.",
    "retransmits": "Segments that were sent again in the steady part of a test.",
    "finding_share": "The share of the lost time, or of what was lost, that a condition explains.",
}
Row = tuple[str, dict[str, str], Optional[float]]


def prometheus(diagnosis: Diagnosis) -> str:
    """The whole file. A value that is not known has no line."""
    rows = [row for row in _rows(diagnosis) if row[2] is not None]
    lines = []
    for name, purpose in METRICS.items():
        own = [_line(*row) for row in rows if row[0] == name]
        if own:
            lines += [
                f"# HELP neuca_selftest_{name} {purpose}",
                f"# TYPE neuca_selftest_{name} gauge",
                *own,
            ]
    return "\n".join(lines) + "\n"


def _rows(diagnosis: Diagnosis) -> Iterator[Row]:
    yield "verdict", {}, float(diagnosis.exit_code)
    yield "expected_bits_per_second", {}, diagnosis.expect
    for place, phase in enumerate(diagnosis.phases):
        labels = {"phase": phase.name, "direction": phase.direction, "number": str(place)}
        yield "rate_bits_per_second", labels, phase.rate
        yield "lost_ratio", labels, phase.loss
        yield "retransmits", labels, None if phase.retransmits is None else float(phase.retransmits)
    for finding in diagnosis.findings:
        labels = {
            "id": finding.id,
            "title": finding.title,
            "severity": finding.severity,
            "end": finding.end,
        }
        yield "finding_share", labels, finding.share


def _line(name: str, labels: dict[str, str], value: Optional[float]) -> str:
    inside = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
    return f"neuca_selftest_{name}{'{' + inside + '}' if inside else ''} {value:.10g}"


def _escaped(word: str) -> str:
    return plain_lines(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
