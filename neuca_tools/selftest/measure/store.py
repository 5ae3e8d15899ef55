"""The reports and the archive of earlier tests, in the agent's state directory, to compare with."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.files import read_bytes, write_files
from neuca_tools.selftest import REPORTS
from neuca_tools.selftest.evidence import VERSION, Evidence
from neuca_tools.selftest.evidence.codec import decode
from neuca_tools.selftest.measure import archive
from neuca_tools.selftest.readers import MOST_DOCUMENT_BYTES
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.entry import Entry

# The most reports that are kept.
MOST_REPORTS = 30
# The most earlier tests that a rate is compared with.
MOST_EARLIER = 10


@dataclass(frozen=True)
class EarlierTest:
    """An earlier test: its report, if that is still kept, or its entry in the archive."""

    address: Optional[str]
    label: Optional[str] = None
    boot: Optional[str] = None
    taken: str = ""
    report: Optional[Path] = None
    archived: object = None

    def evidence(self) -> Optional[Evidence]:
        """What was observed; None if it cannot be read."""
        if self.report:
            with suppress(OSError, SelftestError):
                return evidence_of(read_bytes(self.report, MOST_DOCUMENT_BYTES + 1) or b"")
        if isinstance(self.archived, dict):
            with suppress(RecursionError, SelftestError):
                return decode(Evidence, self.archived, VERSION)
        return None


def report_paths(state: Path) -> list[Path]:
    """The paths of all reports, the oldest first; none if the directory cannot be read."""
    with suppress(OSError):
        return sorted(path for path in state.iterdir() if fnmatchcase(path.name, REPORTS))
    return []


def keep_report(state: Path, evidence: Evidence, report: str) -> Path:
    """Write a report and delete the oldest beyond KEPT. Returns its path. Raises ApplyError."""
    stamp = re.sub(r"[-:]", "", evidence.taken or "")
    path, number = state / f"selftest-{stamp}.json", 1
    while path.exists():
        path, number = state / f"selftest-{stamp}-{number}.json", number + 1
    old = report_paths(state)
    write_files(
        {path: report.encode(), **dict.fromkeys(old[: max(0, len(old) + 1 - MOST_REPORTS)])},
        mode=0o600,
    )
    return path


def kept_tests(state: Path) -> list[EarlierTest]:
    """All tests of a known peer, the oldest first. A report that cannot be read is skipped.

    Raises SelftestError if the archive cannot be read.
    """
    reports = {path.name: path for path in report_paths(state)}
    tests = [_of_entry(entry, reports) for entry in archive.read_entries(state)[0]]
    archived = {test.report for test in tests}
    tests += [_of_report(path) for path in reports.values() if path not in archived]
    return sorted((test for test in tests if test.address is not None), key=lambda test: test.taken)


def _of_entry(entry: Entry, reports: dict[str, Path]) -> EarlierTest:
    address, label, boot, taken, name = (
        value if isinstance(value, str) else None
        for value in map(entry.get, ("peer", "label", "boot", "taken", "report"))
    )
    return EarlierTest(
        address, label, boot, taken or "", reports.get(name or ""), entry.get("evidence")
    )


def _of_report(path: Path) -> EarlierTest:
    """A report that is not in the archive, because that could not be written."""
    evidence = EarlierTest(None, report=path).evidence() or Evidence()
    return EarlierTest(evidence.address, evidence.label, evidence.boot, evidence.taken or "", path)


def earlier_tests(state: Path, address: Optional[str]) -> list[Evidence]:
    """The last MOST_EARLIER tests of this peer, the oldest first. Raises SelftestError."""
    evidences: list[Evidence] = []
    for test in reversed(kept_tests(state)):
        evidence = test.evidence() if test.address == address else None
        if evidence is not None:
            evidences.insert(0, evidence)
        if len(evidences) == MOST_EARLIER:
            break
    return evidences
