"""Panels over one time axis, one below the other, as an SVG: the tests are bands behind them.

Colors are CSS classes of the page, so that they follow its light or dark scheme.
"""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from neuca_tools.model.printable import escape_markup as escape

WIDTH, LEFT, RIGHT = 1000, 92, 14
ROOM = WIDTH - LEFT - RIGHT
# The bands' names, the title of a panel, its plot, and the space below it.
HEAD, TITLE, PLOT, GAP = 22, 20, 84, 12
FOOT = 36
# Of a character, on average, at the style sheet's 12 px.
CHARACTER = 6.4

Points = Sequence[tuple[float, float]]


class Band(NamedTuple):
    """One test, in seconds since the first began."""

    name: str
    start: float
    end: float


class Line(NamedTuple):
    """One line of a panel, in parts that are not joined; `color` is the number of a CSS class."""

    name: str
    color: int
    parts: Sequence[Points]


class Panel(NamedTuple):
    """One quantity. `form` writes the numbers at the y axis."""

    title: str
    form: Callable[[float], str]
    lines: Sequence[Line]
    binary: bool = False
    top: float = 0.0  # the end of the y axis; 0 for that of the data


def svg_figure(panels: Sequence[Panel], bands: Sequence[Band]) -> str:
    """The SVG; an empty text if there is nothing to show."""
    shown = [panel for panel in panels if any(any(line.parts) for line in panel.lines)]
    end = end_of_bands(bands)
    if not shown or end <= 0:
        return ""
    height = HEAD + len(shown) * (TITLE + PLOT + GAP) + FOOT
    scale = _Scale(end)
    parts = list(_band_shapes(bands, scale, height))
    for number, panel in enumerate(shown):
        parts += _panel_shapes(panel, scale, HEAD + number * (TITLE + PLOT + GAP) + TITLE)
    parts += _axis_shapes(scale, height)
    inside = "".join(parts)
    return f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img">{inside}</svg>'


def end_of_bands(bands: Sequence[Band]) -> float:
    return max((band.end for band in bands), default=0.0)


class _Scale(NamedTuple):
    """The x axis, from 0 to `end` seconds."""

    end: float

    def x(self, seconds: float) -> float:
        return LEFT + ROOM * min(1.0, max(0.0, seconds / self.end))


def _band_shapes(bands: Sequence[Band], scale: _Scale, height: int) -> Iterator[str]:
    """With their names where there is room; all have theirs as a tooltip."""
    for number, band in enumerate(bands, 1):
        x, width = scale.x(band.start), scale.x(band.end) - scale.x(band.start)
        size = (max(1.0, width), height - HEAD - FOOT + 4)
        shape = svg_rectangle(f"band b{number % 2}", (x, HEAD - 4), size)
        yield f"<g><title>{escape(band.name)}</title>{shape}</g>"
        if len(band.name) * CHARACTER <= width:
            yield svg_label("label", (x + width / 2, HEAD - 9), band.name, "middle")


def _panel_shapes(panel: Panel, scale: _Scale, top: int) -> Iterator[str]:
    points = chain.from_iterable(chain.from_iterable(line.parts for line in panel.lines))
    highest = panel.top or max((value for _, value in points), default=1.0)
    rows = ticks_of(highest, count=3, binary=panel.binary)
    yield svg_label("title", (LEFT, top - 6), panel.title, "start")
    yield from _legend_shapes(panel, top - 6)
    for value in rows:
        y = _y_of_value(value, rows[-1], top)
        yield svg_line("grid", (LEFT, y), (WIDTH - RIGHT, y))
        yield svg_label("tick", (LEFT - 8, y + 4), panel.form(value), "end")
    for line in panel.lines:
        for part in filter(None, line.parts):
            path = [(scale.x(x), _y_of_value(y, rows[-1], top)) for x, y in part]
            yield _curve_shape(line.color, path)


def _y_of_value(value: float, highest: float, top: int) -> float:
    return top + PLOT - PLOT * min(1.0, max(0.0, value / (highest or 1.0)))


def _legend_shapes(panel: Panel, y: int) -> Iterator[str]:
    """From the right end of the title's line; one line alone needs no legend."""
    lines = [line for line in panel.lines if any(line.parts)]
    x = WIDTH - RIGHT - sum(len(line.name) * CHARACTER + 32 for line in lines)
    for line in lines:
        yield svg_rectangle(f"s{line.color}", (x + 16, y - 9), (12, 10))
        yield svg_label("label", (x + 32, y), line.name, "start")
        x += len(line.name) * CHARACTER + 32


def _curve_shape(color: int, path: Points) -> str:
    if len(path) == 1:
        x, y = path[0]
        return f'<circle class="s{color}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
    return f'<polyline class="line s{color}" points="{points}"/>'


def _axis_shapes(scale: _Scale, height: int) -> Iterator[str]:
    y = height - FOOT
    yield svg_line("axis", (LEFT, y), (WIDTH - RIGHT, y))
    for value in round_ticks(scale.end, count=8):
        if value > scale.end:
            break
        x = scale.x(value)
        yield svg_line("axis", (x, y), (x, y + 4))
        yield svg_label("tick", (x, y + 16), f"{value:g}", "middle")
    title = "seconds since the first test began"
    yield svg_label("tick", (LEFT + ROOM / 2, y + 31), title, "middle")


def round_ticks(top: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to just above `top`."""
    if top <= 0 or not math.isfinite(top):
        return [0.0, 1.0]
    raw = top / count
    step = 10 ** math.floor(math.log10(raw))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step >= raw * 0.999)
    return [step * place for place in range(math.ceil(top / step - 1e-9) + 1)]


def ticks_of(top: float, count: int, binary: bool) -> list[float]:
    """Round numbers, of the largest power of 1024 that is not above `top` if `binary`."""
    unit = 1.0
    if binary and top >= 1:
        unit = 1024.0 ** math.floor(math.log(top, 1024))
    return [unit * value for value in round_ticks(top / unit, count)]


def svg_rectangle(style: str, at: tuple[float, float], size: tuple[float, float]) -> str:
    """A rectangle, of which `at` is the upper left corner."""
    (x, y), (width, height) = at, size
    return f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"/>'


def svg_line(style: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{style}" {ends}/>'


def svg_label(style: str, at: tuple[float, float], text: str, anchor: str) -> str:
    """A text whose start, middle or end is at a place."""
    x, y = at
    start = f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
    return f"{start}{escape(text)}</text>"
