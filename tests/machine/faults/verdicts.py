"""What neuca-selftest said of a case, held against what was done to it; the confusion matrix of many. Pure."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[3]))

from catalogue import Case

from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.record import report_json

TARGET = 95.0  # per cent, of the causes and of the healthy set-ups (issue 5)
QUIET, NOTHING, FAILED = "quiet", "nothing", "no report"
HEALTHY = "healthy"


class Verdict(NamedTuple):
    """`found`: of a cause the first finding, of a healthy set-up the first above "info"; or one of the words above."""

    case: Case
    found: str
    findings: tuple[str, ...] = ()
    error: str = ""

    @property
    def right(self) -> bool:
        return self.found == (self.case.wanted or QUIET)

    def __str__(self) -> str:
        asked = f"{self.case.name} ({self.case.what})"
        aim = f"{self.case.wanted} first" if self.case.wanted else "nothing above info"
        said = "\n".join(f"    {one}" for one in (self.findings or (self.error or "no finding",)))
        return f"{'right' if self.right else 'WRONG'}: {asked}: {aim}, found {self.found}\n{said}"


def verdict(case: Case, outcome: Mapping) -> Verdict:
    """`outcome` as inside/rehearse.py gives it."""
    if "report" not in outcome:
        return Verdict(case, FAILED, error=str(outcome.get("error", ""))[-1000:])
    findings = outcome["report"]["findings"]
    counted = findings if case.wanted else [one for one in findings if one["severity"] != "info"]
    nothing = NOTHING if case.wanted else QUIET
    told = tuple(
        f"{one['id']} {one['severity']} {one['share']:.0%}: {one['text']}" for one in findings
    )
    return Verdict(case, counted[0]["id"] if counted else nothing, told)


def again(outcome: Mapping) -> Mapping:
    """The same, with the findings that the rules of this checkout have for its evidence."""
    if "report" not in outcome:
        return outcome
    evidence = evidence_of(json.dumps(outcome["report"]).encode())
    return {**outcome, "report": json.loads(report_json(evidence, diagnose(evidence)))}


def percent(verdicts: Iterable[Verdict]) -> float:
    known = list(verdicts)
    return 100 * sum(one.right for one in known) / max(1, len(known))


def matrix(verdicts: Iterable[Verdict]) -> str:
    """A line for each condition that was injected, with its causes, and what came first; the healthy ones last."""
    rows: dict[str, list[Verdict]] = {}
    for one in verdicts:
        rows.setdefault(one.case.wanted or HEALTHY, []).append(one)
    lines = [("injected", "causes", "found first", "right"), ("---",) * 4]
    for wanted in sorted(rows, key=lambda name: (name == HEALTHY, name)):
        some = rows[wanted]
        names = ", ".join(dict.fromkeys(one.case.name for one in some))
        found = ", ".join(
            f"{name} {count}" for name, count in Counter(one.found for one in some).most_common()
        )
        lines.append((wanted, names, found, f"{sum(one.right for one in some)} of {len(some)}"))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def summary(verdicts: Iterable[Verdict]) -> str:
    """The two figures, and whether they reach what was aimed at."""
    known = list(verdicts)
    lines = []
    for words, some in (
        ("the injected cause comes first", [one for one in known if one.case.wanted]),
        (
            "nothing above info where nothing is wrong",
            [one for one in known if not one.case.wanted],
        ),
    ):
        if some:
            share = percent(some)
            met = "met" if share >= TARGET else "MISSED"
            lines.append(
                f"{words}: {sum(one.right for one in some)} of {len(some)}, {share:.1f}% (aim {TARGET:g}%: {met})"
            )
    return "\n".join(lines)
