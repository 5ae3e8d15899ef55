"""The report for the textfile collector of Prometheus' node exporter, in base units."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from neuca_tools.model.printable import plain_lines
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis

METRICS = {
    "verdict": "The exit code of the self-test: 0 is a pass.",
    "rate_bits_per_second": "The received rate over the whole of a test, as iperf3 reports it.",
    "expected_bits_per_second": "The rate that the path should carry.",
    "lost_ratio": "The share of TCP bytes that were retransmitted, or of UDP datagrams lost.",
    "retransmits": "The segments retransmitted in the steady part of a test.",
    "finding_share": "The share of the lost time or of the loss that a condition explains.",
}
Row = tuple[str, dict[str, str], Optional[float]]


def prometheus(diagnosis: Diagnosis) -> str:
    """The whole file. A value that is not known has no line."""
    found: dict[str, list[str]] = {}
    for name, labels, value in _rows(diagnosis):
        if value is not None:
            found.setdefault(name, []).append(_line(name, labels, value))
    lines = []
    for name in sorted(found, key=list(METRICS).index):
        full = f"neuca_selftest_{name}"
        lines += [f"# HELP {full} {METRICS[name]}", f"# TYPE {full} gauge", *found[name]]
    return "\n".join(lines) + "\n"


def _rows(diagnosis: Diagnosis) -> Iterator[Row]:
    yield "verdict", {}, float(diagnosis.exit_code)
    yield "expected_bits_per_second", {}, diagnosis.expect
    for place, phase in enumerate(diagnosis.phases):
        labels = {"phase": phase.name, "direction": phase.direction, "number": str(place)}
        yield "rate_bits_per_second", labels, phase.rate
        yield "lost_ratio", labels, phase.loss
        yield "retransmits", labels, phase.retransmits
    for finding in diagnosis.findings:
        labels = {name: getattr(finding, name) for name in ("id", "title", "severity", "end")}
        if finding.direction:
            labels["direction"] = finding.direction
        yield "finding_share", labels, finding.share


def _line(name: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
    braces = inside and f"{{{inside}}}"
    return f"neuca_selftest_{name}{braces} {value:.10g}"


def _escaped(word: str) -> str:
    return plain_lines(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
