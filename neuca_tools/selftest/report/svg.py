"""Charts as SVG text: lines and bars, and the parts that the timeline is drawn with.

Colours are CSS classes of the page, so that they follow its light or dark scheme.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple

from neuca_tools.model.printable import markup as escape

WIDTH, HEIGHT = 420, 220
LEFT, RIGHT, TOP, BOTTOM = 80, 12, 12, 30
ROOM = WIDTH - LEFT - RIGHT
Format = Callable[[float], str]


class Series(NamedTuple):
    """One line: its points must be in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """One bar: its parts are stacked from the left."""

    name: str
    parts: Sequence[float]


class Box(NamedTuple):
    """The upper left corner of a rectangle, and its size."""

    x: float
    y: float
    width: float
    height: float


def ticks(top: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to just above `top`."""
    if top <= 0 or not math.isfinite(top):
        return [0.0, 1.0]
    raw = top / count
    step = 10 ** math.floor(math.log10(raw))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step >= raw * 0.999)
    return [step * place for place in range(math.ceil(top / step - 1e-9) + 1)]


def lines(
    series: Sequence[Series], form: Format, across: Format, dots: bool = False, binary: bool = False
) -> str:
    """Lines over a y axis from zero, with `dots` at the points; `binary` is for sizes in bytes."""
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    xs, ys = zip(*points)
    # With dots the x axis shows rates, whose labels are long.
    columns = ticks(max(xs), 2 if dots else 4)
    rows = ticks_of(max(ys), binary=binary)
    parts = _grid(rows, form) + _columns(columns, across)
    for place, one in enumerate(series):
        path = [(_x(x, columns[-1]), _y(y, rows[-1])) for x, y in one.points]
        titles = [f"{one.name}: {across(x)}, {form(y)}" for x, y in one.points]
        parts.append(_polyline(place, path, one.name))
        if dots or len(path) == 1:
            parts += map(_dot, repeat(place), path, titles)
    return _svg(parts, HEIGHT)


def ticks_of(top: float, count: int = 4, binary: bool = False) -> list[float]:
    """Round numbers, of the largest power of 1024 that is not above `top` if `binary`."""
    unit = 1.0
    if binary and top >= 1:
        unit = 1024.0 ** math.floor(math.log(top, 1024))
    return [unit * value for value in ticks(top / unit, count)]


def _polyline(place: int, path: Sequence[tuple[float, float]], title: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
    return f'<polyline class="line s{place}" points="{points}">{_title(title)}</polyline>'


def _dot(place: int, at: tuple[float, float], title: str) -> str:
    x, y = at
    circle = f'<circle class="dot s{place}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
    return f"{circle}{_title(title)}</circle>"


def bars(rows: Sequence[Bar], form: Format, names: Sequence[str]) -> str:
    """Horizontal bars, one below the other, each followed by its value."""
    if not rows:
        return ""
    thick = 16
    longest = max((value for row in rows for value in row.parts), default=1.0) or 1.0
    parts, y = [], 6.0
    for row in rows:
        height = max(1, len(row.parts)) * (thick + 2)
        parts.append(label("label", (LEFT - 8, y + height / 2 + 4), row.name, "end"))
        for place, value in enumerate(row.parts):
            box = Box(LEFT, y + place * (thick + 2), max(1.0, (ROOM - 84) * value / longest), thick)
            parts.append(rect(f"fill s{place}", box, f"{names[place]}: {form(value)}", ' rx="2"'))
            parts.append(label("value", (LEFT + box.width + 6, box.y + 12), form(value), "start"))
        y += height + 10
    return _svg(parts, int(y))


def rect(style: str, box: Box, title: str = "", more: str = "") -> str:
    """A rectangle; browsers show its title when the pointer is on it."""
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<rect class="{style}" {place}{more}>{_title(title)}</rect>'


def line(style: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    """A straight line."""
    (x1, y1), (x2, y2) = start, end
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{style}" {ends}/>'


def label(style: str, at: tuple[float, float], text: str, anchor: str) -> str:
    """A text whose start, middle or end is at a place."""
    x, y = at
    start = f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
    return f"{start}{escape(text)}</text>"


def _title(text: str) -> str:
    """What a browser shows when the pointer is on it; nothing for an empty text."""
    return text and f"<title>{escape(text)}</title>"


def _x(x: float, top: float) -> float:
    return LEFT + ROOM * x / (top or 1.0)


def _y(y: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / (top or 1.0)


def _grid(rows: Sequence[float], form: Format) -> list[str]:
    found = []
    for value in rows:
        y = _y(value, rows[-1])
        found.append(line("grid", (LEFT, y), (WIDTH - RIGHT, y)))
        found.append(label("tick", (LEFT - 8, y + 4), form(value), "end"))
    return found


def _columns(columns: Sequence[float], across: Format, height: int = HEIGHT) -> list[str]:
    anchors = ["start", *["middle"] * (len(columns) - 2), "end"]
    return [
        label("tick", (_x(value, columns[-1]), height - 10), across(value), anchor)
        for value, anchor in zip(columns, anchors)
    ]


def _svg(parts: Sequence[str], height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
