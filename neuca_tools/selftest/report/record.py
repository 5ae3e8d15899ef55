"""The reports for programs: JSON with a version, OpenMetrics, a line for Nagios, the archive."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Optional

from neuca_tools.model import printable
from neuca_tools.model.openmetrics import Sample, metrics_text, seconds_of_time
from neuca_tools.model.printable import printable_line
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers.values import mappings
from neuca_tools.selftest.report.text import name_with_arrow

VERSION = 1


def report_data(evidence: Evidence, diagnosis: Diagnosis) -> dict[str, object]:
    """The JSON of a test. Within a version, keys may be added but not removed."""
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
        "evidence": encode(evidence),
    }


def report_json(evidence: Evidence, diagnosis: Diagnosis) -> str:
    return printable.json_document(report_data(evidence, diagnosis))


def subject_of(evidence: Evidence, file: str) -> dict[str, str]:
    """What is known of the file, tool, date, peer, options and system of a run."""
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
    """ "run.txt: iperf3 3.12, Tue 5 Nov 2019, peer 10.0.0.1, options -P 4"."""
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
    "retransmits": "The segments retransmitted in the whole of a test.",
    "finding_share": "The share of the lost time or of the loss that a condition explains.",
}
Test = tuple[Evidence, Diagnosis]


def prometheus_text(tests: Sequence[Test]) -> str:
    samples = chain.from_iterable(_test_samples(*test) for test in tests)
    return metrics_text("neuca_selftest_", METRICS, samples, 10)


def _test_samples(evidence: Evidence, diagnosis: Diagnosis) -> Iterator[Sample]:
    path = _path_labels(evidence)
    yield "verdict", path, float(diagnosis.exit_code)
    yield "timestamp_seconds", path, seconds_of_time(evidence.taken)
    yield "expected_bits_per_second", path, diagnosis.expect
    for number, phase in enumerate(diagnosis.phases):
        labels = {"phase": phase.name, "direction": phase.direction, "number": str(number), **path}
        yield "rate_bits_per_second", labels, phase.rate
        yield "lost_ratio", labels, phase.loss
        yield "retransmits", labels, phase.retransmits
    for finding in diagnosis.findings:
        labels = {name: getattr(finding, name) for name in ("id", "title", "severity", "end")}
        if finding.direction:
            labels["direction"] = finding.direction
        yield "finding_share", {**labels, **path}, finding.share


def _path_labels(evidence: Evidence) -> dict[str, str]:
    """The peer and this host's interface, as far as they are known."""
    peers = [evidence.address, *(phase.run.peer for phase in evidence.phases if phase.run)]
    peer, device = next(filter(None, peers), None), tested_interface(evidence)
    return {name: text for name, text in (("peer", peer), ("interface", device)) if text}


# --- Nagios and compatible systems ---

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def nagios_line(diagnosis: Diagnosis) -> str:
    """The line (Monitoring Plugins guidelines); the exit code is `NAGIOS[diagnosis.exit_code]`."""
    state, cause = STATES[NAGIOS[diagnosis.exit_code]], diagnosis.cause
    words, values = [], []
    for number, phase in enumerate(diagnosis.phases):
        if phase.rate is not None:
            back = " back" if phase.direction == "reverse" else ""
            words.append(f"{phase.name}{back} {amounts.rate(phase.rate)}")
            # A label must not contain its quote or an equals sign.
            label = re.sub("['=|]", "?", f"{number}-{phase.name}-{phase.direction}")
            values.append(f"'{label}'={phase.rate:.0f}".replace("\n", " "))
    if not words or diagnosis.exit_code not in (ExitCode.PASS, ExitCode.BELOW):
        words.insert(0, diagnosis.words)
    words += diagnosis.failures
    words += [f"{cause.id} {cause.title}"] if cause else []
    words += filter(None, [diagnosis.unknown])
    line = f"DATAPLANE {state} - {', '.join(words)}".replace("|", "/").replace("\n", " ")
    if not values:
        return printable_line(line)
    return f"{printable_line(line)} | {printable_line(' '.join(values))}"


# --- Entries of the archive ---

ENTRY_VERSION = 1
# The fields of a finding that an entry has.
FINDING_FIELDS = ("id", "title", "severity", "share", "confidence", "phase", "end")
Entry = Mapping[str, Any]
# The columns of a line of history with their widths.
COLUMNS = {"taken": 21, "peer": 16, "interface": 10, "plan": 9, "verdict": 16}


def entry_of(
    evidence: Evidence, diagnosis: Diagnosis, plan: str, seconds: float, report: Optional[str]
) -> dict[str, object]:
    """A test with this plan and `seconds` for each throughput test; `report` is that kept of it.

    Within a version, keys may be added.
    """
    return {
        "version": ENTRY_VERSION,
        "taken": evidence.taken,
        "boot": evidence.boot,
        "label": evidence.label,
        "peer": evidence.address,
        "interface": tested_interface(evidence),
        "plan": plan,
        "seconds": seconds,
        "verdict": diagnosis.words,
        "exit_code": int(diagnosis.exit_code),
        "expect": diagnosis.expect,
        "phases": encode(diagnosis.phases),
        "findings": [
            {name: getattr(finding, name) for name in FINDING_FIELDS}
            for finding in diagnosis.findings
        ],
        "report": report,
    }


def tested_interface(evidence: Evidence) -> Optional[str]:
    """The device of this host through which the test went."""
    return next(iter(evidence.local.path), evidence.reach.route)


def history_line(entry: Entry) -> str:
    """One entry as text: when, peer, interface, plan, verdict, rates, limit, label."""
    words = [f"{entry.get(name) or '-'!s:<{width}}" for name, width in COLUMNS.items()]
    rates = []
    for phase in mappings(entry.get("phases")):
        if isinstance(phase.get("rate"), float):
            name = name_with_arrow(str(phase.get("name")), str(phase.get("direction")))
            rates.append(f"{name} {amounts.rate(phase['rate'])}")
    findings = mappings(entry.get("findings"))
    limits = [finding for finding in findings if finding.get("severity") != "info"]
    rest = [", ".join(rates), *(f"{limit.get('id')} {limit.get('title')}" for limit in limits[:1])]
    if entry.get("label"):
        rest.append(f'"{entry["label"]}"')
    return printable_line(f"{' '.join(words)} {'; '.join(filter(None, rest))}".rstrip())
