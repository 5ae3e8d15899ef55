"""The report of the last pass, a file in the run directory: `neuca status` shows it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from neuca_tools.errors import RecordError
from neuca_tools.model import LinkKey, Problem
from neuca_tools.model.shapes import Shapes
from neuca_tools.state.store import Place, read_state, save_in_run
from neuca_tools.status.judge import Report, problem_json

FILE = "last-pass.json"
_SHAPES = Shapes({LinkKey: LinkKey})


def report_now(
    seconds: float,
    changed: tuple[str, ...],
    problems: tuple[Problem, ...],
    undone: bool,
    removed: tuple[str, ...] = (),
) -> Report:
    """The report of a pass that has just ended and took `seconds`."""
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Report(finished, round(seconds, 3), changed, problems, undone, removed)


def write_report(place: Place, report: Report) -> None:
    """Replace the report of the previous pass. Raises ApplyError."""
    data: dict[str, Any] = report._asdict()
    for name in ("problems", "stuck"):
        data[name] = [_problem_data(problem) for problem in data[name]]
    del data["failed"]
    save_in_run(place, FILE, data)


def read_report(directory: Path) -> Optional[Report]:
    """The report of the last pass since the boot; None if there is none, or it is unreadable."""
    with suppress(RecordError, ValueError, TypeError, KeyError):
        data = read_state(directory, FILE)
        if data is None:
            return None
        plain = ("finished", "seconds", "changed", "undone", "removed")
        report = _SHAPES.read(Report, {name: data[name] for name in plain})
        problems, stuck = data["problems"], data.get("stuck", ())
        return report._replace(
            problems=tuple(map(_read_problem, problems)), stuck=tuple(map(_read_problem, stuck))
        )
    return None


def _problem_data(problem: Problem) -> dict[str, Any]:
    mac, vlan_id = problem.link and problem.link.mac, problem.link and problem.link.vlan_id
    return {**problem_json(problem), "mac": mac, "vlan_id": vlan_id}


def _read_problem(data: Mapping[str, Any]) -> Problem:
    problem = _SHAPES.read(Problem, {"code": data["code"], "text": data["text"]})
    mac = _SHAPES.fit(data["mac"], Optional[str], "mac")
    vlan_id = _SHAPES.fit(data["vlan_id"], Optional[int], "vlan_id")
    return problem if mac is None else problem._replace(link=LinkKey(mac, vlan_id))
