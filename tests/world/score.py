"""The scores of a world: what was named first, what of pairs was named, and what was named though nothing is wrong. Pure."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[2]))

from neuca_tools.selftest.codes import FAULTY, WORDS, ExitCode

# Of the causes of single faults that come first, of the pairs of which both are named, of the healthy in which something is (issue
# 15).
SINGLE, PAIR, FALSE_ALARM = 0.90, 0.80, 0.05
# What the verdict says of a failure that no condition explains.
ALARMS = (FAULTY, WORDS[ExitCode.BELOW])
Result = Mapping[str, Any]


class Score(NamedTuple):
    right: int
    of: int

    @property
    def share(self) -> float:
        return self.right / self.of if self.of else 0.0

    def __str__(self) -> str:
        return f"{self.right} of {self.of} ({100 * self.share:.0f}%)"


def is_played(result: Result) -> bool:
    """Whether its fault was in effect (see `effect`)."""
    return not result.get("unplayed")


def told(result: Result) -> list[str]:
    """The conditions above information, in order."""
    return [one["id"] for one in result["findings"] if one["severity"] != "info"]


def is_right(result: Result) -> bool:
    """Whether what is wrong comes first; of two faults, whether both are named; of none, whether nothing is, and the test passes."""
    found, wanted = told(result), result["wanted"]
    if "error" in result:
        return False
    if not wanted:
        return not found and result.get("verdict") not in ALARMS
    if len(wanted) == 1:
        return bool(found) and found[0] in wanted[0]
    return all(set(names) & set(found) for names in wanted) and _distinct(wanted, found)


def _distinct(wanted: Sequence[Sequence[str]], found: Sequence[str]) -> bool:
    """Whether two conditions name two faults, where one could name either."""
    return len({one for names in wanted for one in names} & set(found)) >= len(wanted)


def scores(results: Iterable[Result]) -> dict[str, Score]:
    """Those of single faults, pairs and healthy set-ups; of these how many are quiet."""
    count: Counter[tuple[str, bool]] = Counter()
    for one in filter(is_played, results):
        kind = {0: "healthy", 1: "single"}.get(len(one["wanted"]), "pair")
        count[kind, is_right(one)] += 1
    return {
        kind: Score(count[kind, True], count[kind, True] + count[kind, False])
        for kind in ("single", "pair", "healthy")
    }


def confidences(results: Iterable[Result]) -> dict[str, Score]:
    """Of the first findings above information, by confidence: how many name something that is wrong."""
    count: Counter[tuple[str, bool]] = Counter()
    for one in filter(is_played, results):
        first = next((each for each in one["findings"] if each["severity"] != "info"), None)
        if first is not None:
            is_true = any(first["id"] in names for names in one["wanted"])
            count[first["confidence"], is_true] += 1
    return {
        level: Score(count[level, True], count[level, True] + count[level, False])
        for level in ("high", "medium", "low")
    }


def line(result: Result) -> str:
    """One result for people."""
    word = "right" if is_right(result) else "WRONG"
    if not is_played(result):
        word = f"not played ({result['unplayed']})"
    wanted = " and ".join("/".join(names) for names in result["wanted"]) or "nothing"
    found = ", ".join(told(result)) or result.get("error") or "nothing"
    return (
        f"{word}: {result['seed']}-{result['number']} {result['name']} ({result['what']}): "
        f"{wanted}, found {found}"
    )


def summary(results: Sequence[Result]) -> str:
    rows = scores(results)
    lines = [
        f"single faults named first: {rows['single']} (aim {SINGLE:.0%})",
        f"pairs with both named: {rows['pair']} (aim {PAIR:.0%})",
        f"healthy without a finding: {rows['healthy']} (aim {1 - FALSE_ALARM:.0%})",
    ]
    lines += [
        f"right of confidence {level}: {score}"
        for level, score in confidences(results).items()
        if score.of
    ]
    missed = sum(not is_played(one) for one in results)
    if missed:
        lines.append(f"not played: {missed} of {len(results)}")
    return "\n".join(lines)


def read(text: str) -> list[Result]:
    """Results as JSON Lines, the first of each set-up: later runs do not count."""
    found: dict[tuple[int, int], Result] = {}
    for row in filter(None, text.splitlines()):
        one = json.loads(row)
        found.setdefault((one["seed"], one["number"]), one)
    return list(found.values())
