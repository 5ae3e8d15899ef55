"""Reports as metrics, for the textfile collector of the node exporter."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuca_tools.model.openmetrics import Sample, metrics_text, seconds_of_time
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.report.entry import tested_interface

METRICS = {
    "verdict": "The exit code of the self-test: 0 is a pass.",
    "timestamp_seconds": "When the test began, in seconds since 1970.",
    "rate_bits_per_second": "The received rate over the whole of a test, as iperf3 reports it.",
    "expected_bits_per_second": "The rate that the path should carry.",
    "lost_ratio": "The share of TCP bytes that were retransmitted, or of UDP datagrams lost.",
    "retransmits": "The segments retransmitted in the steady part of a test.",
    "finding_share": "The share of the lost time or of the loss that a condition explains.",
}
Test = tuple[Evidence, Diagnosis]


def prometheus_text(tests: Sequence[Test]) -> str:
    """The whole file."""
    rows = (row for test in tests for row in _test_samples(*test))
    return metrics_text("neuca_selftest_", METRICS, rows, 10)


def _test_samples(evidence: Evidence, diagnosis: Diagnosis) -> Iterator[Sample]:
    where = _path_labels(evidence)
    yield "verdict", where, float(diagnosis.exit_code)
    yield "timestamp_seconds", where, seconds_of_time(evidence.taken)
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


def _path_labels(evidence: Evidence) -> dict[str, str]:
    """The peer and this host's interface, as far as they are known."""
    peers = [evidence.address, *(phase.run.peer for phase in evidence.phases if phase.run)]
    peer, device = next(filter(None, peers), None), tested_interface(evidence)
    return {name: text for name, text in (("peer", peer), ("interface", device)) if text}
