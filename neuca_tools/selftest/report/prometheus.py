"""Reports as OpenMetrics 1.0 that is also Prometheus' text format 0.0.4, in base units.

The textfile collector of the node exporter reads the latter, and takes the end mark of the former
as a comment. It rejects a file with two samples of the same name and labels, and one with times.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Optional

from neuca_tools.model.printable import plain_lines
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.report.entry import interface

METRICS = {
    "verdict": "The exit code of the self-test: 0 is a pass.",
    "timestamp_seconds": "When the test began, in seconds since 1970.",
    "rate_bits_per_second": "The received rate over the whole of a test, as iperf3 reports it.",
    "expected_bits_per_second": "The rate that the path should carry.",
    "lost_ratio": "The share of TCP bytes that were retransmitted, or of UDP datagrams lost.",
    "retransmits": "The segments retransmitted in the steady part of a test.",
    "finding_share": "The share of the lost time or of the loss that a condition explains.",
}
Row = tuple[str, dict[str, str], Optional[float]]
Test = tuple[Evidence, Diagnosis]


def prometheus(tests: Sequence[Test]) -> str:
    """The whole file. A value that is not known has no line."""
    found: dict[str, dict[str, None]] = {}
    known: set[str] = set()
    for test in tests:
        for name, labels, value in _rows(*test):
            series = _series(name, labels)
            if value is not None and series not in known:
                known.add(series)
                found.setdefault(name, {})[f"{series} {value:.10g}"] = None
    lines = []
    for name in sorted(found, key=list(METRICS).index):
        full = f"neuca_selftest_{name}"
        lines += [f"# HELP {full} {METRICS[name]}", f"# TYPE {full} gauge", *found[name]]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _rows(evidence: Evidence, diagnosis: Diagnosis) -> Iterator[Row]:
    where = _where(evidence)
    yield "verdict", where, float(diagnosis.exit_code)
    yield "timestamp_seconds", where, _seconds(evidence.taken)
    yield "expected_bits_per_second", where, diagnosis.expect
    for place, phase in enumerate(diagnosis.phases):
        labels = {"phase": phase.name, "direction": phase.direction, "number": str(place)}
        labels.update(where)
        yield "rate_bits_per_second", labels, phase.rate
        yield "lost_ratio", labels, phase.loss
        yield "retransmits", labels, phase.retransmits
    for finding in diagnosis.findings:
        labels = {name: getattr(finding, name) for name in ("id", "title", "severity", "end")}
        if finding.direction:
            labels["direction"] = finding.direction
        yield "finding_share", {**labels, **where}, finding.share


def _where(evidence: Evidence) -> dict[str, str]:
    """The peer and this host's interface, as far as they are known."""
    peers = [evidence.address, *(phase.run.peer for phase in evidence.phases if phase.run)]
    peer, device = next(filter(None, peers), None), interface(evidence)
    return {name: text for name, text in (("peer", peer), ("interface", device)) if text}


def _seconds(taken: Optional[str]) -> Optional[float]:
    try:
        found = datetime.strptime(taken or "", "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None
    return found.timestamp()


def _series(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
    braces = inside and f"{{{inside}}}"
    return f"neuca_selftest_{name}{braces}"


def _escaped(word: str) -> str:
    return plain_lines(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
