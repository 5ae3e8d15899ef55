"""The reports of earlier tests, in the agent's state directory, to compare with."""

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

# The most reports that are kept.
KEPT = 30
# The most earlier tests that a rate is compared with.
USUAL = 10


def names(state: Path) -> list[Path]:
    """The paths of all reports, the oldest first; none if the directory cannot be read."""
    with suppress(OSError):
        return sorted(path for path in state.iterdir() if fnmatchcase(path.name, REPORTS))
    return []


def keep(state: Path, evidence: Evidence, report: str) -> Path:
    """Write a report and delete the oldest beyond KEPT. Returns its path. Raises ApplyError."""
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
    """All kept tests of a known peer, the oldest first. A report that cannot be read is skipped."""
    found = []
    for path in names(state):
        with suppress(OSError, SelftestError):
            found.append(evidence_of(read_bytes(path) or b""))
    return [one for one in found if one.address is not None]


def earlier(state: Path, address: Optional[str]) -> list[Evidence]:
    """The last USUAL tests of this peer, the oldest first."""
    return [one for one in kept(state) if one.address == address][-USUAL:]
