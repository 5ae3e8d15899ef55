"""Charts as SVG text: lines, stacked bars, bars and heat strips.

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
    rows = _ticks(max(ys), binary)
    parts = _grid(rows, form) + _columns(columns, across)
    for place, one in enumerate(series):
        path = [(_x(x, columns[-1]), _y(y, rows[-1])) for x, y in one.points]
        titles = [f"{one.name}: {across(x)}, {form(y)}" for x, y in one.points]
        parts.append(_polyline(place, path, one.name))
        if dots or len(path) == 1:
            parts += map(_dot, repeat(place), path, titles)
    return _svg(parts, HEIGHT)


def _ticks(top: float, binary: bool) -> list[float]:
    """Round numbers, of the largest power of 1024 that is not above `top` if `binary`."""
    unit = 1.0
    if binary and top >= 1:
        unit = 1024.0 ** math.floor(math.log(top, 1024))
    return [unit * value for value in ticks(top / unit)]


def _polyline(place: int, path: Sequence[tuple[float, float]], title: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
    return f'<polyline class="line s{place}" points="{points}">{_title(title)}</polyline>'


def _dot(place: int, at: tuple[float, float], title: str) -> str:
    x, y = at
    circle = f'<circle class="dot s{place}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
    return f"{circle}{_title(title)}</circle>"


def stacked(columns: Sequence[Sequence[float]], names: Sequence[str], across: Format) -> str:
    """One column of shares for each interval, which fill the height where they sum to 1."""
    if not columns:
        return ""
    width = ROOM / len(columns)
    parts = _grid([0, 0.25, 0.5, 0.75, 1.0], lambda value: f"{value:.0%}")
    parts += _columns(ticks(float(len(columns))), across)
    for number, shares in enumerate(columns):
        base = 0.0
        for place, share in enumerate(shares):
            top = min(1.0, base + max(0.0, share))
            box = Box(
                LEFT + number * width,
                _y(top, 1.0),
                max(1.0, width - 1),
                _y(base, 1.0) - _y(top, 1.0),
            )
            parts.append(_rect(f"fill s{place}", box, f"{names[place]}: {share:.0%}"))
            base = top
    return _svg(parts, HEIGHT)


def bars(rows: Sequence[Bar], form: Format, names: Sequence[str]) -> str:
    """Horizontal bars, one below the other, each followed by its value."""
    if not rows:
        return ""
    thick = 16
    longest = max((value for row in rows for value in row.parts), default=1.0) or 1.0
    parts, y = [], 6.0
    for row in rows:
        height = max(1, len(row.parts)) * (thick + 2)
        parts.append(_text("label", (LEFT - 8, y + height / 2 + 4), row.name, "end"))
        for place, value in enumerate(row.parts):
            box = Box(LEFT, y + place * (thick + 2), max(1.0, (ROOM - 84) * value / longest), thick)
            parts.append(_rect(f"fill s{place}", box, f"{names[place]}: {form(value)}", ' rx="2"'))
            parts.append(_text("value", (LEFT + box.width + 6, box.y + 12), form(value), "start"))
        y += height + 10
    return _svg(parts, int(y))


def heat(rows: Sequence[tuple[str, Sequence[float]]], across: Format) -> str:
    """A strip of cells for each row: the higher the share, the darker."""
    count = max((len(values) for _, values in rows), default=0)
    if not count:
        return ""
    tall, width = 16, ROOM / count
    parts = []
    for number, (name, values) in enumerate(rows):
        y = 4 + number * (tall + 3)
        parts.append(_text("label", (LEFT - 8, y + 12), name, "end"))
        parts.append(_rect("empty", Box(LEFT, y, ROOM, tall)))
        for place, value in enumerate(values):
            title = f"{name}, {across(place)}: {value:.0%}"
            opacity = f' fill-opacity="{min(1.0, max(0.0, value)):.2f}"'
            box = Box(LEFT + place * width, y, width, tall)
            parts.append(_rect("fill s0", box, title, opacity))
    height = 4 + len(rows) * (tall + 3) + BOTTOM
    return _svg(parts + _columns(ticks(float(count)), across, height), height)


def _rect(style: str, box: Box, title: str = "", more: str = "") -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<rect class="{style}" {place}{more}>{_title(title)}</rect>'


def _text(style: str, at: tuple[float, float], text: str, anchor: str) -> str:
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
        found.append(
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        )
        found.append(_text("tick", (LEFT - 8, y + 4), form(value), "end"))
    return found


def _columns(columns: Sequence[float], across: Format, height: int = HEIGHT) -> list[str]:
    anchors = ["start", *["middle"] * (len(columns) - 2), "end"]
    return [
        _text("tick", (_x(value, columns[-1]), height - 10), across(value), anchor)
        for value, anchor in zip(columns, anchors)
    ]


def _svg(parts: Sequence[str], height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
