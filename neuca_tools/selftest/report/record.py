"""The report for scripts: everything that was seen and concluded, as JSON with a version."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ... import plain
from ..codec import encode
from ..codes import WORDS
from ..diagnosis import Diagnosis
from ..evidence import Evidence

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
    return plain.document(document(evidence, diagnosis))
