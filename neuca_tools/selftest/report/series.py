"""The series of runs for other programs, as CSV and SVG, and those of several runs in one plot."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from neuca_tools.model.printable import escape_markup, printable_line
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.report.page import html_file
from neuca_tools.selftest.report.panels import Band, Line, Panel, svg_figure
from neuca_tools.selftest.report.style import STYLE
from neuca_tools.selftest.report.timeline import timeline_panels

# A run and its name.
Runs = Sequence[tuple[str, Evidence]]
HEADER = ("run", "series", "line", "seconds", "value")
# Colours in addition to those of one run; with more runs than colours, they repeat.
COLOURS = ("#8e44ad", "#b03a5b", "#6b8e23", "#8b5a2b")
OWN_STYLE = "".join(
    f".s{number}{{fill:{colour}}}.line.s{number}{{stroke:{colour};fill:none}}"
    for number, colour in enumerate(COLOURS, 4)
)


def csv_of(runs: Runs) -> str:
    """A row for each point, with the unit in the name of its series; seconds since the start."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for name, evidence in runs:
        for panel in timeline_panels(evidence)[0]:
            writer.writerows((printable_line(name), *row) for row in _panel_points(panel))
    return text.getvalue()


def _panel_points(panel: Panel) -> Iterator[tuple[str, str, float, float]]:
    for line in panel.lines:
        for part in line.parts:
            yield from ((panel.title, line.name, round(x, 6), y) for x, y in part)


def svg_of(runs: Runs) -> str:
    """The plot as a file of its own; an empty picture if there is nothing to show."""
    picture = overlay_figure(runs) or '<svg class="timeline">'
    style = f"<style>{STYLE}{OWN_STYLE}</style>"
    head, inside = picture.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{inside or "</svg>"}\n'


def overlay_figure(runs: Runs) -> str:
    """One run as in its report; of several, a panel for each line, in which each run is a line."""
    if len(runs) == 1:
        return svg_figure(*timeline_panels(runs[0][1]))
    parts: dict[tuple[str, str], list[tuple[Panel, Line]]] = {}
    longest: list[Band] = []
    for number, (name, evidence) in enumerate(runs):
        panels, bands = timeline_panels(evidence)
        longest = max(longest, bands, key=_end_of_bands)
        for panel in panels:
            for line in panel.lines:
                own = Line(name, number % (4 + len(COLOURS)), line.parts)
                parts.setdefault((panel.title, line.name), []).append((panel, own))
    together = [
        lines[0][0]._replace(title=f"{title}, {line}", lines=[own for _, own in lines])
        for (title, line), lines in parts.items()
    ]
    return svg_figure(together, longest)


def _end_of_bands(bands: Sequence[Band]) -> float:
    return max((band.end for band in bands), default=0.0)


def comparison_page(runs: Runs, differences: str, state: str) -> str:
    """The differences between runs, and all of them in one plot."""
    verdict = differences.splitlines()[-1]
    inside = (
        f'<header><h1>Comparison</h1><p class="verdict {state}">{escape_markup(verdict)}</p>'
        "</header>"
        f"<pre>{escape_markup(differences)}</pre>"
        f"<section><figure class=timeline>{overlay_figure(runs)}</figure></section>"
    )
    return html_file("Comparison of self-tests", inside, style=OWN_STYLE)
