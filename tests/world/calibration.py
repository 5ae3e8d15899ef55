"""The share of right verdicts for each level of confidence. A verdict is the first finding above information."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "unit"))
sys.path.append(str(Path(__file__).parents[1] / "machine" / "faults"))
sys.path.append(str(Path(__file__).parents[2]))

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.readers.documents import evidence_of

TESTS = Path(__file__).parents[1]
LEVELS = ("high", "medium", "low")
AIMS = {"high": 0.95, "medium": 0.75}
DATA = TESTS / "unit" / "data" / "faults"
# Published outputs with their known causes; not part of this project.
KNOWN = TESTS.parents[1] / "shared" / "samples" / "explain"


class Judged(NamedTuple):
    """One verdict: its confidence, and whether it names what is wrong."""

    name: str
    confidence: str
    right: bool


def judged(name: str, content: bytes, wanted: Iterable[str]) -> Iterator[Judged]:
    """The verdict on one document; none where nothing is said, which claims nothing."""
    try:
        found = diagnose(evidence_of(content)).limit
    except SelftestError:
        return
    if found is not None:
        yield Judged(name, found.confidence, found.id in set(wanted))


def recorded() -> list[Judged]:
    """What was recorded in guests while a cause was injected (tests/machine/faults)."""
    from test_selftest_faults import FOUND

    return [
        one
        for name in sorted(FOUND)
        for one in judged(name, (DATA / f"{name}.json").read_bytes(), [FOUND[name][0]])
    ]


def published(folder: Path) -> list[Judged]:
    """Outputs that others have published, with what they found out; without those of unknown cause."""
    if not folder.exists():
        return []
    with (folder / "truth.tsv").open() as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    known = [(row[0], row[2].split(",")) for row in rows if row[2] != "-"]
    return [
        one
        for name, wanted in known
        for one in judged(name, (folder / "cases" / name).read_bytes(), wanted)
    ]


def kept(folder: Path) -> list[Judged]:
    """Reports of `world/run --reports`, or of `machine/faults/run --keep`."""
    return [one for path in sorted(folder.glob("*.json")) for one in _kept(path)]


def _kept(path: Path) -> Iterator[Judged]:
    row = json.loads(path.read_text())
    if "report" not in row or row.get("unplayed"):
        return
    if "wanted" in row:
        wanted = [name for names in row["wanted"] for name in names]
    else:
        from everything import cases

        wanted = [cases(row["seed"], [row["name"]])[0].wanted]
    yield from judged(path.stem, json.dumps(row["report"]).encode(), wanted)


def shares(found: Iterable[Judged]) -> dict[str, tuple[int, int]]:
    """For each level how many are right, and of how many."""
    known = list(found)
    return {
        level: (
            sum(one.right for one in known if one.confidence == level),
            sum(one.confidence == level for one in known),
        )
        for level in LEVELS
    }


def table(corpora: Mapping[str, list[Judged]]) -> str:
    """As Markdown, with the sum of all and the names of those that are wrong."""
    rows = {**corpora, "all": [one for some in corpora.values() for one in some]}
    lines = [f"| corpus | {' | '.join(LEVELS)} |", f"|---{'|---' * len(LEVELS)}|"]
    for name, some in rows.items():
        cells = (f"{right} of {of}" for right, of in shares(some).values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    wrong = [f"{one.name} ({one.confidence})" for one in rows["all"] if not one.right]
    return "\n".join([*lines, "", f"wrong: {', '.join(wrong) or 'none'}"])
