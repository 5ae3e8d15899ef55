"""Charts as SVG text: lines, stacked bars, bars and heat strips. Colours are the page's CSS classes, so that dark is dark."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from neuca_tools.model.printable import markup as escape

WIDTH, HEIGHT = 420, 220
LEFT, RIGHT, TOP, BOTTOM = 80, 12, 12, 30
Format = Callable[[float], str]


class Series(NamedTuple):
    """One line: its points must be in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """One bar: its parts are stacked from the left."""

    name: str
    parts: Sequence[float]


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
    """Lines over a y axis from zero, with a dot for every point if `dots`; `binary` is for sizes in bytes."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    if not xs:
        return ""
    unit = _binary_unit(max(ys)) if binary else 1.0
    rows = [unit * value for value in ticks(max(ys) / unit)]
    # With dots the x axis shows rates, whose labels are long.
    columns = ticks(max(xs), 2 if dots else 4)
    parts = _grid(rows, form) + _columns(columns, across)
    for place, one in enumerate(series):
        points = [(_x(x, columns[-1]), _y(y, rows[-1])) for x, y in one.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline class="line s{place}" points="{path}">'
            f"<title>{escape(one.name)}</title></polyline>"
        )
        if dots or len(points) == 1:
            texts = [f"{one.name}: {across(x)}, {form(y)}" for x, y in one.points]
            parts += [_dot(place, at, text) for at, text in zip(points, texts)]
    return _svg(parts, HEIGHT)


def _binary_unit(top: float) -> float:
    """The largest power of 1024 that is not above `top`; 1 for anything less than one byte."""
    return 1024.0 ** math.floor(math.log(top, 1024)) if top >= 1 else 1.0


def _dot(place: int, at: tuple[float, float], text: str) -> str:
    return (
        f'<circle class="dot s{place}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4">'
        f"<title>{escape(text)}</title></circle>"
    )


def stacked(columns: Sequence[Sequence[float]], names: Sequence[str], across: Format) -> str:
    """One column of shares for each interval, which fill the height where they sum to 1."""
    if not columns:
        return ""
    width = (WIDTH - LEFT - RIGHT) / len(columns)
    parts = _grid([0, 0.25, 0.5, 0.75, 1.0], lambda value: f"{value:.0%}") + _columns(
        ticks(float(len(columns))), across
    )
    for number, shares in enumerate(columns):
        base = 0.0
        for place, share in enumerate(shares):
            top = min(1.0, base + max(0.0, share))
            parts.append(
                f'<rect class="fill s{place}" x="{LEFT + number * width:.1f}" y="{_y(top, 1.0):.1f}" '
                f'width="{max(1.0, width - 1):.1f}" '
                f'height="{_y(base, 1.0) - _y(top, 1.0):.1f}"><title>{escape(names[place])}: {share:.0%}</title></rect>'
            )
            base = top
    return _svg(parts, HEIGHT)


def bars(rows: Sequence[Bar], form: Format, names: Sequence[str] = ()) -> str:
    """Bars that lie, one below the other, each with its values written behind it."""
    if not rows:
        return ""
    thick = 16
    group = [max(1, len(row.parts)) * (thick + 2) + 10 for row in rows]
    top = max((value for row in rows for value in row.parts), default=1.0) or 1.0
    parts, y = [], 6.0
    room = WIDTH - LEFT - RIGHT - 84
    for row, height in zip(rows, group):
        parts.append(
            f'<text class="label" x="{LEFT - 8}" y="{y + (height - 10) / 2 + 4:.1f}" '
            f'text-anchor="end">{escape(row.name)}</text>'
        )
        for place, value in enumerate(row.parts):
            at, wide = y + place * (thick + 2), max(1.0, room * value / top)
            name = f"{names[place]}: " if place < len(names) else ""
            parts.append(
                f'<rect class="fill s{place}" x="{LEFT}" y="{at:.1f}" width="{wide:.1f}" height="{thick}" '
                f'rx="2"><title>{escape(name)}'
                f'{escape(form(value))}</title></rect><text class="value" x="{LEFT + wide + 6:.1f}" y="{at + 12:.1f}">'
                f"{escape(form(value))}</text>"
            )
        y += height
    return _svg(parts, int(y))


def heat(rows: Sequence[tuple[str, Sequence[float]]], across: Format) -> str:
    """A strip of cells for each row: the fuller, the darker."""
    if not rows or not any(values for _, values in rows):
        return ""
    tall = 16
    count = max(len(values) for _, values in rows)
    width = (WIDTH - LEFT - RIGHT) / count
    parts = []
    for number, (name, values) in enumerate(rows):
        y = 4 + number * (tall + 3)
        parts.append(
            f'<text class="label" x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
        )
        parts.append(
            f'<rect class="empty" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{tall}"/>'
        )
        parts += [
            f'<rect class="fill s0" fill-opacity="{min(1.0, max(0.0, value)):.2f}" x="{LEFT + place * width:.1f}" y="{y}" '
            f'width="{width:.1f}" height="{tall}"><title>{escape(name)}, {escape(across(place))}: '
            f"{value:.0%}</title></rect>"
            for place, value in enumerate(values)
        ]
    height = 4 + len(rows) * (tall + 3) + BOTTOM
    return _svg(parts + _columns(ticks(float(count)), across, height), height)


def _x(x: float, top: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * x / (top or 1.0)


def _y(y: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / (top or 1.0)


def _grid(rows: Sequence[float], form: Format) -> list[str]:
    found = []
    for value in rows:
        y = _y(value, rows[-1])
        found.append(
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        )
        found.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(form(value))}</text>'
        )
    return found


def _columns(columns: Sequence[float], across: Format, height: int = HEIGHT) -> list[str]:
    return [
        f'<text class="tick" x="{_x(value, columns[-1]):.1f}" y="{height - 10}" text-anchor="{_anchor(place, len(columns))}">'
        f"{escape(across(value))}</text>"
        for place, value in enumerate(columns)
    ]


def _anchor(place: int, count: int) -> str:
    if place == count - 1:
        return "end"
    return "middle" if place else "start"


def _svg(parts: Sequence[str], height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
