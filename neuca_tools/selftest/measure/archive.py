"""The tests of this host: the last reports, and an archive of all tests.

A test that cannot be archived is not lost: its report is printed all the same. Lines that are not
entries are skipped.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.errors import SelftestError
from neuca_tools.files import as_apply_error, locked, read_bytes, write_files
from neuca_tools.selftest import ARCHIVE, ARCHIVE_LOCK, OLD_ARCHIVE, REPORTS
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import decode
from neuca_tools.selftest.measure.wait import line_of, parse_message
from neuca_tools.selftest.readers.documents import MAX_DOCUMENT_BYTES, evidence_of
from neuca_tools.selftest.report.record import ENTRY_VERSION, Entry

MAX_REPORTS = 30  # the most reports that are kept
MAX_EARLIER = 10  # the most earlier tests that a rate is compared with
# The entries and bytes of one file, after which it becomes the old one.
MAX_ENTRIES, MAX_BYTES = 1000, 8 * 1024 * 1024
# Bytes of one entry; a test of the plan full has about 20,000. A larger one has no evidence.
MAX_ENTRY_BYTES = 256 * 1024
LOCK_SECONDS = 5.0  # to wait for another test that is being archived


def append_entry(state: Path, entry: Mapping[str, object]) -> None:
    """Add an entry. Raises ApplyError; nothing is added then."""
    line = line_of(entry)
    if len(line) > MAX_ENTRY_BYTES:
        line = line_of({**entry, "evidence": None})
    path = state / ARCHIVE
    with locked(state / ARCHIVE_LOCK, LOCK_SECONDS):
        with as_apply_error(f'read "{path}"'):
            content = read_bytes(path) or b""
        if content and not content.endswith(b"\n"):
            content += b"\n"
        files = {path: content + line}
        if content.count(b"\n") >= MAX_ENTRIES or len(content) + len(line) > MAX_BYTES:
            files = {state / OLD_ARCHIVE: content, path: line}
        write_files(files, mode=0o600)


def read_entries(state: Path) -> tuple[list[Entry], int]:
    """All entries, the oldest first, and the number of lines that are not entries.

    Raises SelftestError if a file cannot be read.
    """
    entries: list[Entry] = []
    damaged = 0
    for name in (OLD_ARCHIVE, ARCHIVE):
        path = state / name
        try:
            content = read_bytes(path, 2 * MAX_BYTES) or b""
        except OSError as error:
            raise SelftestError(f'read "{path}": {error.strerror}') from error
        for line in filter(None, content.split(b"\n")):
            entry = parse_message(line)
            if entry and entry.get("version") == ENTRY_VERSION:
                entries.append(entry)
            else:
                damaged += 1
    return entries, damaged


# --- Earlier tests ---


class ArchivedTest(NamedTuple):
    """An earlier test: its report, if that is still kept, or its entry in the archive."""

    address: Optional[str]
    label: Optional[str]
    boot: Optional[str]
    taken: str
    report: Optional[Path]
    archived: object

    def evidence(self) -> Optional[Evidence]:
        """What was observed; None if it cannot be read."""
        if self.report:
            with suppress(OSError, SelftestError):
                return evidence_of(read_bytes(self.report, MAX_DOCUMENT_BYTES + 1) or b"")
        if isinstance(self.archived, dict):
            with suppress(RecursionError, SelftestError):
                return decode(Evidence, self.archived)
        return None


def report_paths(state: Path) -> list[Path]:
    """The paths of all reports, the oldest first; none if the directory cannot be read."""
    with suppress(OSError):
        return sorted(path for path in state.iterdir() if fnmatchcase(path.name, REPORTS))
    return []


def keep_report(state: Path, evidence: Evidence, report: str) -> Path:
    """Write a report and return its path; the oldest beyond MAX_REPORTS are deleted.

    Raises ApplyError.
    """
    stamp = re.sub(r"[-:]", "", evidence.taken or "")
    path, number = state / f"selftest-{stamp}.json", 1
    while path.exists():
        path, number = state / f"selftest-{stamp}-{number}.json", number + 1
    old = report_paths(state)
    write_files(
        {path: report.encode(), **dict.fromkeys(old[: max(0, len(old) + 1 - MAX_REPORTS)])},
        mode=0o600,
    )
    return path


def archived_tests(state: Path) -> list[ArchivedTest]:
    """All tests of a known peer, the oldest first.

    Raises SelftestError if the archive cannot be read.
    """
    reports = {path.name: path for path in report_paths(state)}
    tests = [_of_entry(entry, reports) for entry in read_entries(state)[0]]
    return sorted((test for test in tests if test.address is not None), key=lambda test: test.taken)


def _of_entry(entry: Entry, reports: dict[str, Path]) -> ArchivedTest:
    texts = {key: value for key, value in entry.items() if isinstance(value, str)}
    return ArchivedTest(
        texts.get("peer"),
        texts.get("label"),
        texts.get("boot"),
        texts.get("taken", ""),
        reports.get(texts.get("report", "")),
        entry.get("evidence"),
    )


def earlier_tests(state: Path, address: Optional[str]) -> list[Evidence]:
    """The last MAX_EARLIER tests of this peer, the oldest first. Raises SelftestError."""
    tests = [test for test in archived_tests(state) if test.address == address]
    evidences = filter(None, (test.evidence() for test in reversed(tests)))
    return list(islice(evidences, MAX_EARLIER))[::-1]
