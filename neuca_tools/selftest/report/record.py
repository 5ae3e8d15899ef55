"""The reports for programs: JSON with a version, OpenMetrics, and a line for Nagios."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from neuca_tools.model import printable
from neuca_tools.model.openmetrics import Sample, metrics_text, seconds_of_time
from neuca_tools.model.printable import printable_line
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import NAGIOS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.evidence.responsiveness import known_scores
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.report.entry import tested_interface

VERSION = 1


def report_data(evidence: Evidence, diagnosis: Diagnosis) -> dict[str, object]:
    """Within a version, keys may be added but not removed. What is not known is left out."""
    return {
        "version": VERSION,
        "verdict": diagnosis.words,
        "exit_code": int(diagnosis.exit_code),
        "unknown": diagnosis.unknown,
        "expect": diagnosis.expect,
        "phases": encode(diagnosis.phases),
        "failures": list(diagnosis.failures),
        "findings": encode(diagnosis.findings),
        "possible": encode(diagnosis.possible),
        "responsiveness": encode(known_scores(evidence.responsiveness)),
        "evidence": encode(evidence),
    }


def report_json(evidence: Evidence, diagnosis: Diagnosis) -> str:
    return printable.json_document(report_data(evidence, diagnosis))


def subject_of(evidence: Evidence, file: str) -> dict[str, str]:
    """What is known of these, by its name in the JSON report."""
    run = next((phase.run for phase in evidence.phases if phase.run), Run("iperf"))
    version = run.version or ""
    facts = {
        "file": file,
        "tool": f"{run.tool} {version}".strip(),
        "date": evidence.taken or run.taken,
        "peer": evidence.address or run.peer,
        "options": run.options,
        "system": run.system,
    }
    return {name: printable_line(value) for name, value in facts.items() if value}


def subject_line(about: dict[str, str]) -> str:
    """The same in words: "run.txt: iperf3 3.12, Tue 5 Nov 2019, peer 10.0.0.1, options -P 4"."""
    facts = [about.get("tool", ""), about.get("date", "")]
    facts += [f"{name} {about[name]}" for name in ("peer", "options") if name in about]
    return f"{about['file']}: {', '.join(filter(None, facts))}"


# --- Metrics, for the textfile collector of the node exporter ---

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


# --- Nagios and compatible systems ---

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def nagios_line(diagnosis: Diagnosis) -> str:
    """The line (Monitoring Plugins guidelines); the exit code is `NAGIOS[diagnosis.exit_code]`."""
    state, limit = STATES[NAGIOS[diagnosis.exit_code]], diagnosis.limit
    words, values = [], []
    for place, phase in enumerate(diagnosis.phases):
        if phase.rate is not None:
            words.append(f"{phase.name} {amounts.rate(phase.rate)}")
            values.append(
                f"'{place}-{_performance_label(phase.name)}-{_performance_label(phase.direction)}'={phase.rate:.0f}"
            )
    words = words or [diagnosis.words]
    words += diagnosis.failures
    words += [f"{limit.id} {limit.title}"] if limit else []
    words += filter(None, [diagnosis.unknown])
    line = f"DATAPLANE {state} - {', '.join(words)}".replace("|", "/").replace("\n", " ")
    if not values:
        return printable_line(line)
    return f"{printable_line(line)} | {printable_line(' '.join(values))}"


def _performance_label(word: str) -> str:
    """A label of performance data, which must not contain its quote or an equals sign."""
    return re.sub("['=|]", "?", word).replace("\n", " ")
