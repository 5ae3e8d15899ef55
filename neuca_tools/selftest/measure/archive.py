"""The tests of this host: the last reports, and an archive with a line for each test.

A test that cannot be archived is not lost: its report is printed all the same. Lines that are not
entries are skipped.
"""

# SPDX-License-Identifier: MIT

import gzip
import re
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.files import as_apply_error, locked, read_bytes, write_files
from neuca_tools.selftest import ARCHIVE, ARCHIVE_LOCK, REPORTS
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.measure.wait import line_of, parse_message
from neuca_tools.selftest.readers.documents import MAX_DOCUMENT_BYTES, evidence_of
from neuca_tools.selftest.report.record import ENTRY_VERSION, Entry

MAX_REPORTS = 100  # the most reports that are kept, of up to 100 KiB each
MAX_EARLIER = 10  # the most earlier tests that a rate is compared with
MAX_ENTRIES, MAX_BYTES = 1000, 8 * 1024 * 1024  # of the archive
LOCK_SECONDS = 5.0  # to wait for another test that is being archived


def append_entry(state: Path, entry: Mapping[str, object]) -> None:
    """Add an entry, and remove the oldest beyond the limits.

    Raises ApplyError; nothing is added then.
    """
    path = state / ARCHIVE
    with locked(state / ARCHIVE_LOCK, LOCK_SECONDS):
        with as_apply_error(f'read "{path}"'):
            content = read_bytes(path) or b""
        lines = [line + b"\n" for line in content.split(b"\n") if line]
        lines = [*lines, line_of(entry)][-MAX_ENTRIES:]
        while len(lines) > 1 and sum(map(len, lines)) > MAX_BYTES:
            del lines[0]
        write_files({path: b"".join(lines)}, mode=0o600)


def read_entries(state: Path) -> tuple[list[Entry], int]:
    """All entries, the oldest first, and the number of lines that are not entries.

    Raises SelftestError if the file cannot be read.
    """
    path = state / ARCHIVE
    try:
        content = read_bytes(path) or b""
    except OSError as error:
        raise SelftestError(f'read "{path}": {error.strerror}') from error
    lines = list(filter(None, content.split(b"\n")))
    messages = filter(None, map(parse_message, lines))
    entries: list[Entry] = [each for each in messages if each.get("version") == ENTRY_VERSION]
    return entries, len(lines) - len(entries)


# --- Reports ---


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
    path, number = state / f"selftest-{stamp}.json.gz", 1
    while path.exists():
        path, number = state / f"selftest-{stamp}-{number}.json.gz", number + 1
    reports = report_paths(state)
    outdated = dict.fromkeys(reports[: max(0, len(reports) + 1 - MAX_REPORTS)])
    write_files({path: gzip.compress(report.encode()), **outdated}, mode=0o600)
    return path


def reported_tests(state: Path) -> list[Entry]:
    """The entries of a known peer whose reports are kept, the oldest first.

    Raises SelftestError if the archive cannot be read.
    """
    kept = {path.name for path in report_paths(state)}
    entries = [entry for entry in read_entries(state)[0] if str(entry.get("report")) in kept]
    tests = [entry for entry in entries if isinstance(entry.get("peer"), str)]
    return sorted(tests, key=lambda entry: str(entry.get("taken")))


def reported_evidence(state: Path, entry: Entry) -> Optional[Evidence]:
    """What was observed in one of `reported_tests`; None if its report cannot be read."""
    with suppress(OSError, SelftestError):
        return evidence_of(read_bytes(state / entry["report"], MAX_DOCUMENT_BYTES + 1) or b"")
    return None


def earlier_tests(state: Path, address: Optional[str]) -> list[Evidence]:
    """The last MAX_EARLIER tests of this peer, the oldest first. Raises SelftestError."""
    entries = [entry for entry in reported_tests(state) if entry["peer"] == address]
    evidences = (reported_evidence(state, entry) for entry in reversed(entries))
    return list(islice(filter(None, evidences), MAX_EARLIER))[::-1]
