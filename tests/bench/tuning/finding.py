"""What an experiment has found, held against its aim, beside what was published; and a table of such findings."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

COLUMNS = ("effect", "published", "untuned", "tuned", "figure")


class Finding(NamedTuple):
    """One line. `figure` in `unit` is what is judged: it should lie from `least` to `most`, both included.

    `counter`: it shows where there is no such effect.
    """

    effect: str
    before: object
    after: object
    figure: float
    least: float | None = None
    most: float | None = None
    unit: str = "x"
    published: str = "–"
    counter: bool = False

    @property
    def met(self) -> bool:
        return (self.least is None or self.figure >= self.least) and (
            self.most is None or self.figure <= self.most
        )

    @property
    def aim(self) -> str:
        if self.least is None or self.most is None:
            return f"at least {self.least:g}" if self.most is None else f"at most {self.most:g}"
        return f"{self.least:g}" if self.least == self.most else f"{self.least:g} to {self.most:g}"

    def cells(self) -> tuple[str, ...]:
        shown = f"{self.figure:.2f}" if self.unit in ("x", "%") else f"{self.figure:g}"
        unit = self.unit if self.unit in ("", "%") else f" {self.unit}"
        effect = f"but: {self.effect}" if self.counter else self.effect
        return (
            effect,
            self.published,
            str(self.before),
            str(self.after),
            f"{shown}{unit}",
            self.aim,
        )

    def __str__(self) -> str:
        return " | ".join((*self.cells(), "met" if self.met else "MISSED"))


def ratio(effect: str, before, after, **more) -> Finding:
    """A finding whose figure is the rate of the second flow over that of the first."""
    return Finding(effect, before, after, after.rate / before.rate, **more)


def markdown(findings: Iterable[Finding]) -> str:
    """The table, as docs/TUNING.md has it: without the aims, which a test asserts."""
    figures = (finding.cells()[: len(COLUMNS)] for finding in findings)
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *figures]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
