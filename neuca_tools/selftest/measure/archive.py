"""The archive of all tests: JSON Lines in the state directory, at most two files of bounded size.

A test that cannot be archived is not lost: its report is printed all the same. Lines that are not
entries, such as one that a power cut left incomplete, are skipped.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from neuca_tools.errors import SelftestError
from neuca_tools.files import applying, locked, read_bytes
from neuca_tools.selftest import ARCHIVE, ARCHIVE_LOCK, OLD_ARCHIVE
from neuca_tools.selftest.report.entry import VERSION, Entry

# The entries and bytes of one file, after which it becomes the old one.
MOST_ENTRIES, MOST_BYTES = 1000, 8 * 1024 * 1024
# Bytes of one entry; a test of the plan full has about 20,000. A larger one has no evidence.
LARGEST_ENTRY = 256 * 1024
# Seconds to wait for another test that is being archived.
LOCK_SECONDS = 5.0


def append_entry(state: Path, entry: Mapping[str, object]) -> None:
    """Add an entry. Raises ApplyError.

    If it cannot be written as a whole, nothing is added.
    """
    line = _encoded_line(entry)
    if len(line) > LARGEST_ENTRY:
        line = _encoded_line({**entry, "evidence": None})
    path = state / ARCHIVE
    with locked(state / ARCHIVE_LOCK, LOCK_SECONDS), applying(f'write "{path}"'):
        content = read_bytes(path) or b""
        if content.count(b"\n") >= MOST_ENTRIES or len(content) + len(line) > MOST_BYTES:
            path.replace(state / OLD_ARCHIVE)
            content = b""
        # A line that a power cut left incomplete.
        begin = b"\n" if content and not content.endswith(b"\n") else b""
        _append_line(path, begin + line)


def _encoded_line(entry: Mapping[str, object]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _append_line(path: Path, line: bytes) -> None:
    """Append a line, or nothing. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        size = os.fstat(descriptor).st_size
        try:
            rest = line
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def read_entries(state: Path) -> tuple[list[Entry], int]:
    """All entries, the oldest first, and the number of lines that are none.

    Raises SelftestError if a file cannot be read.
    """
    entries_read: list[Entry] = []
    damaged = 0
    for name in (OLD_ARCHIVE, ARCHIVE):
        path = state / name
        try:
            content = read_bytes(path, 2 * MOST_BYTES) or b""
        except OSError as error:
            raise SelftestError(f'read "{path}": {error.strerror}') from error
        known = [_parse_entry(line) for line in content.split(b"\n") if line]
        entries_read += [entry for entry in known if entry]
        damaged += known.count({})
    return entries_read, damaged


def _parse_entry(line: bytes) -> Entry:
    """Empty if it is not an entry of this version."""
    try:
        entry = json.loads(line)
    except (RecursionError, ValueError):
        return {}
    if not isinstance(entry, dict) or entry.get("version") != VERSION:
        return {}
    return entry
