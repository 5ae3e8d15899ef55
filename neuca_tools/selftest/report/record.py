"""The report for scripts: all observations and conclusions, as JSON with a version."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.model import printable
from neuca_tools.model.printable import printable_line
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.evidence.responsiveness import known_scores
from neuca_tools.selftest.evidence.run import Run

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
