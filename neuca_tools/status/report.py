"""The report of the last pass, a file in the run directory: `neuca status` shows it."""

# SPDX-License-Identifier: MIT

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from neuca_tools.errors import RecordError
from neuca_tools.model import LinkKey, Problem
from neuca_tools.model.shapes import Shapes
from neuca_tools.state.records import SHAPE_ERRORS, key_of
from neuca_tools.state.store import StateDirectories, read_state, save_in_run
from neuca_tools.status.judge import Report

FILE = "last-pass.json"
_SHAPES = Shapes({LinkKey: key_of}, strict=False)


def report_now(
    seconds: float,
    changed: tuple[str, ...],
    problems: tuple[Problem, ...],
    rolled_back: bool,
    removed: tuple[str, ...] = (),
) -> Report:
    """The report of a pass that ended now, after `seconds`, with each operation once."""
    changed = tuple(dict.fromkeys(changed))
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Report(finished, round(seconds, 3), changed, problems, rolled_back, removed)


def write_report(place: StateDirectories, report: Report) -> None:
    """Replace the report of the previous pass. Raises ApplyError."""
    data: dict[str, Any] = report._asdict()
    for name in ("problems", "not_rolled_back"):
        data[name] = [
            {**problem._asdict(), "link": problem.link and str(problem.link)}
            for problem in data[name]
        ]
    del data["failed"], data["new_links"], data["next_age"]
    save_in_run(place, FILE, data)


def read_report(directory: Path) -> Optional[Report]:
    """The report of the last pass since the boot; None if there is none, or it is unreadable."""
    with suppress(RecordError, *SHAPE_ERRORS):
        data = read_state(directory, FILE)
        if data is not None:
            return _SHAPES.read(Report, data)
    return None
