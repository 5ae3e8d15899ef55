"""The reports of earlier tests, in the state directory: the last thirty, to compare with."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.files import read_bytes, write_files
from neuca_tools.selftest import REPORTS
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.readers.documents import evidence_of

KEPT = 30
USUAL = 10  # earlier tests that a rate is compared with


def names(state: Path) -> list[Path]:
    """Every report, the oldest first."""
    with suppress(OSError):
        return sorted(path for path in state.iterdir() if fnmatchcase(path.name, REPORTS))
    return []


def keep(state: Path, evidence: Evidence, report: str) -> Path:
    """Write a report, and remove those that are too many. Raises ApplyError."""
    stamp = re.sub(r"[-:]", "", evidence.taken or "")
    path, number = state / f"selftest-{stamp}.json", 1
    while path.exists():
        path, number = state / f"selftest-{stamp}-{number}.json", number + 1
    old = names(state)
    write_files(
        {path: report.encode(), **dict.fromkeys(old[: max(0, len(old) + 1 - KEPT)])}, mode=0o600
    )
    return path


def kept(state: Path) -> list[Evidence]:
    """Every test that is kept, the oldest first. One that cannot be read is passed over."""
    found = []
    for path in names(state):
        with suppress(OSError, SelftestError):
            found.append(evidence_of(read_bytes(path) or b""))
    return [one for one in found if one.address is not None]


def earlier(state: Path, address: Optional[str]) -> list[Evidence]:
    """The last tests of this peer, the oldest first."""
    return [one for one in kept(state) if one.address == address][-USUAL:]
