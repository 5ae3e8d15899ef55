"""What a user reads of each case of the other tests: `golden/diagnoses.txt` has the reports, under the name of the case.

`PYTHONPATH=. python3 tests/unit/test_selftest_golden.py` writes it anew; read the difference before you commit it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from pathlib import Path

import pytest
from selftest_hosts import HOSTS
from selftest_runs import diagnose
from test_selftest_conditions import CASES
from test_selftest_printed import CAUSES
from test_selftest_thresholds import COUNTED, THRESHOLDS

from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.record import nagios_line
from neuca_tools.selftest.report.text import report_text

GOLDEN = Path(__file__).parent / "golden" / "diagnoses.txt"
HEADING = "=== "
FAULTS = Path(__file__).parent / "data" / "faults"
JUDGED = {
    **{file.stem: evidence_of(file.read_bytes()) for file in sorted(FAULTS.iterdir())},
    **CASES,
    **HOSTS,
    **{name: content for name, (_, content) in CAUSES.items()},
    **{
        f"{words}, {without:g} or {value:g}": judged(value)
        for words, judged, without, value, _ in (*THRESHOLDS, *COUNTED)
    },
}


def report(name) -> str:
    judged = JUDGED[name]
    evidence = evidence_of(judged.encode()) if isinstance(judged, str) else judged
    diagnosis = diagnose(evidence)
    rows = map(row, (*diagnosis.findings, *diagnosis.possible))
    return "\n".join([report_text(diagnosis, verbose=True), *rows, nagios_line(diagnosis)])


def row(finding) -> str:
    """What only programs read of a finding."""
    ways = "/".join(str(way) for way in (finding.phase, finding.direction) if way)
    facts = ", ".join(
        f"{fact.field}={shown(fact.before)}>{shown(fact.after)}" for fact in finding.evidence
    )
    words = (
        finding.id,
        finding.severity,
        f"{finding.share:.3f}",
        finding.confidence,
        finding.end,
        ways,
    )
    return f"{' '.join(filter(None, words))}: {facts}"


def shown(value) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value or "")


def golden() -> dict[str, str]:
    sections = GOLDEN.read_text(encoding="utf-8").split(HEADING)[1:]
    return dict(section.rstrip("\n").split("\n", 1) for section in sections)


@pytest.mark.parametrize("name", JUDGED)
def test_a_diagnosis_says_what_it_always_said(name):
    assert report(name) == golden().get(name), "see the docstring of this file"


@pytest.mark.parametrize(
    "contradiction",
    [
        r"\b(\d\S* .?bit/s),? .*just below \1",
        r"(?im)^fix +on .*: .*\bon both hosts",
        r"without any loss, and nothing(.*\n){2} +sent again: 0\.",
        r"waits for acknowledgements .*\n.*limited by the send buffer: 0%",
    ],
)
def test_no_sentence_contradicts_itself(contradiction):
    matches = (re.search(contradiction, report) for report in golden().values())
    assert [match[0] for match in matches if match] == []


def test_each_report_belongs_to_a_case():
    assert golden().keys() == JUDGED.keys()


if __name__ == "__main__":
    text = "\n".join(f"{HEADING}{name}\n{report(name)}\n" for name in JUDGED)
    GOLDEN.write_text(text, encoding="utf-8")
