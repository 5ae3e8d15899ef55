"""The report for scripts: everything that was seen and concluded, as JSON with a version."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.model import printable
from neuca_tools.selftest.codes import WORDS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode

VERSION = 1


def document(evidence: Evidence, diagnosis: Diagnosis) -> dict[str, object]:
    """Keys may come and none may go within a version. What is not known is left out."""
    return {
        "version": VERSION,
        "verdict": WORDS[diagnosis.exit_code],
        "exit_code": int(diagnosis.exit_code),
        "unknown": diagnosis.unknown,
        "expect": diagnosis.expect,
        "phases": encode(diagnosis.phases),
        "findings": encode(diagnosis.findings),
        "evidence": encode(evidence),
    }


def record(evidence: Evidence, diagnosis: Diagnosis) -> str:
    return printable.document(document(evidence, diagnosis))
