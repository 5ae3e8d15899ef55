"""The report for scripts: all observations and conclusions, as JSON with a version."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.model import printable
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.evidence.responsiveness import scores

VERSION = 1


def document(evidence: Evidence, diagnosis: Diagnosis) -> dict[str, object]:
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
        "responsiveness": encode(scores(evidence.responsiveness)),
        "evidence": encode(evidence),
    }


def record(evidence: Evidence, diagnosis: Diagnosis) -> str:
    return printable.document(document(evidence, diagnosis))
