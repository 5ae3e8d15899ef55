"""The last pass in a file of the run directory, so that `neuca status` can say how it went and why a NIC failed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from .fileio import read_bytes, write_files
from .model import LinkKey, Problem
from .status import Report

FILE = "last-pass.json"


def now(
    seconds: float,
    changed: tuple[str, ...],
    problems: tuple[Problem, ...],
    undone: bool,
    removed: tuple[str, ...] = (),
) -> Report:
    """The report of a pass that has just ended."""
    finished = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Report(finished, round(seconds, 3), changed, problems, undone, removed)


def write_report(directory: Path, report: Report) -> None:
    """Raises ApplyError."""
    problems = [
        {
            "code": problem.code,
            "text": problem.text,
            "mac": problem.link and problem.link.mac,
            "vlan_id": problem.link and problem.link.vlan_id,
        }
        for problem in report.problems
    ]
    text = json.dumps({**report.__dict__, "problems": problems}, indent=1)
    write_files({directory / FILE: text.encode()})


def read_report(directory: Path) -> Optional[Report]:
    """None where there was no pass since the boot, or nothing that can be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        data = json.loads(read_bytes(directory / FILE) or b"null")
        problems = tuple(
            Problem(
                one["code"],
                one["text"],
                LinkKey(one["mac"], one["vlan_id"]) if one["mac"] else None,
            )
            for one in data["problems"]
        )
        return Report(
            data["finished"],
            data["seconds"],
            tuple(data["changed"]),
            problems,
            bool(data["undone"]),
            tuple(data.get("removed", ())),
        )
    return None
