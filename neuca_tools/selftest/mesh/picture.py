"""The heat map of a mesh: cells with their texts up to 63 hosts, a bitmap (PNG) from 64 on.

Eight tests of each of 1,000 hosts colour one pixel of the bitmap in 125: there, a map of the groups
shows what a bitmap cannot.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, Optional

from neuca_tools.model.printable import markup
from neuca_tools.selftest import amounts
from neuca_tools.selftest.mesh.model import Row
from neuca_tools.selftest.mesh.report import MeshResult

# From this number of hosts on, a cell is a pixel.
BITMAP_FROM = 64
# The colours of a share of the reference, the worst first; of no test, and of a test that failed.
SCALE = ("#b3261e", "#d1552c", "#e58a2e", "#efc04a", "#9bc26b", "#3c9d5d", "#12743a")
UNTESTED, FAILED, SMALL = "#b8bcc2", "#6b1fa8", "#2468c2"
# The lower bounds of the shares, but for the first colour.
STEPS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
LEGEND = (
    *zip(SCALE, ("below 20%", "20%", "40%", "60%", "80%", "90%", "97% or more")),
    (SMALL, "small packets only"),
    (FAILED, "no connection, or it failed"),
    (UNTESTED, "not tested"),
)
CELL, STRIP = 12, 14
# The width of the bitmap on the page.
WIDTH = 1000


class Cell(NamedTuple):
    """One direction of a pair: its colour, what its tooltip says, and the rate in bit/s."""

    colour: str
    text: str
    rate: Optional[float] = None


Cells = Mapping[tuple[str, str], Cell]


def cells(result: MeshResult) -> dict[tuple[str, str], Cell]:
    """Every direction that was tested, by sender and receiver; the last test counts."""
    found: dict[tuple[str, str], Cell] = {}
    sizes = [one for row in result.rows for one in (row.mtu_out, row.mtu_back) if one]
    full = max(sizes, default=0)
    for row in result.rows:
        ways = (
            (row.client, row.server, row.rate_out, row.mtu_out),
            (row.server, row.client, row.rate_back, row.mtu_back),
        )
        for sender, receiver, rate, mtu in ways:
            words = ", ".join(_words(row, rate, mtu))
            colour = _colour(row, rate, mtu is not None and mtu < full, result.reference)
            found[sender, receiver] = Cell(colour, f"{sender} > {receiver}: {words}", rate)
    return found


def _colour(row: Row, rate: Optional[float], small: bool, reference: Optional[float]) -> str:
    if row.error or rate is None or not reference:
        return FAILED
    if small:
        return SMALL
    return SCALE[sum(rate / reference >= step for step in STEPS)]


def _words(row: Row, rate: Optional[float], mtu: Optional[int]) -> Iterator[str]:
    if row.error:
        yield row.error
    if rate is not None:
        yield amounts.rate(rate)
    if mtu is not None:
        yield f"MTU {mtu}"
    if len(row.macs) > 1:
        yield f"{len(row.macs)} MACs"


def ordered(result: MeshResult) -> list[tuple[str, str]]:
    """The hosts with their groups: by group, and first what a finding names."""
    named = {name for one in result.verdict.findings for name in one.names}
    plan = result.plan
    hosts = [(host.name, plan.group_of(number)) for number, host in enumerate(plan.hosts)]
    return sorted(hosts, key=lambda one: (one[1] not in named, one[1], one[0] not in named, one[0]))


def heat_map(result: MeshResult) -> str:
    """The picture as SVG: rows send, columns receive."""
    hosts, found = ordered(result), cells(result)
    if len(hosts) < BITMAP_FROM:
        return _grid(hosts, found, "rates between all hosts")
    return _bitmap(hosts, found)


def group_map(result: MeshResult) -> str:
    """A cell for each pair of groups, if there are several and the hosts are a bitmap."""
    hosts = ordered(result)
    groups = [(group, group) for group in dict.fromkeys(group for _, group in hosts)]
    if len(hosts) < BITMAP_FROM or not 1 < len(groups) < BITMAP_FROM:
        return ""
    return _grid(groups, _between_groups(hosts, cells(result)), "rates between groups")


def _between_groups(hosts: Sequence[tuple[str, str]], found: Cells) -> Cells:
    """Every direction between two groups, or within one, that was tested: its median."""
    group = dict(hosts)
    between: dict[tuple[str, str], list[Cell]] = {}
    for (sender, receiver), cell in found.items():
        between.setdefault((group[sender], group[receiver]), []).append(cell)
    return {way: _median(way, several) for way, several in between.items()}


def _median(way: tuple[str, str], several: Sequence[Cell]) -> Cell:
    middle = len(several) // 2
    colour = sorted((one.colour for one in several), key=_ORDER.index)[middle]
    rate = sorted(one.rate or 0.0 for one in several)[middle]
    pairs = f"{len(several)} pairs" if len(several) > 1 else "1 pair"
    return Cell(colour, f"{' > '.join(way)}: {pairs}, median {amounts.rate(rate)}", rate)


def legend() -> str:
    shown = (f'<span><i style="background:{one}"></i>{text}</span>' for one, text in LEGEND)
    return f"<p class=legend>{''.join(shown)}</p>"


def _svg(width: int, height: int, inside: Sequence[str], label: str) -> str:
    about = f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}"'
    style = f'style="max-width:{2 * width}px"'
    return f"<svg class=mesh {about} {style}>{''.join(inside)}</svg>"


# --- Cells -------------------------------------------------------------------------------------


def _grid(hosts: Sequence[tuple[str, str]], found: Cells, about: str) -> str:
    """A cell for each pair, split: at the upper left what the row sends, else what it receives.

    `hosts` with their groups, or groups, of which the diagonal is what stays inside.
    """
    left = 7 * max(len(name) for name, _ in hosts) + 8
    inside = []
    for row, (one, _) in enumerate(hosts):
        y = left + row * CELL
        label = markup(one)
        inside.append(f'<text x="{left - 4}" y="{y + CELL - 3}" text-anchor="end">{label}</text>')
        turned = f'transform="rotate(-90 {y + CELL - 3} {left - 4})"'
        inside.append(f'<text x="{y + CELL - 3}" y="{left - 4}" {turned}>{label}</text>')
        for column, (two, _) in enumerate(hosts):
            if one != two or (one, two) in found:
                x = left + column * CELL
                inside += _split(x, y, found.get((one, two)), found.get((two, one)))
    borders = _borders(hosts)
    for before, _ in borders if len(borders) + 1 < len(hosts) else ():
        end = left + len(hosts) * CELL
        at = left + before * CELL
        inside.append(f'<path class=border d="M{at} {left}V{end}M{left} {at}H{end}"/>')
    size = left + len(hosts) * CELL + 2
    return _svg(size, size, inside, about)


def _split(x: int, y: int, sent: Optional[Cell], received: Optional[Cell]) -> Iterator[str]:
    size = CELL - 1
    shapes = (f"M{x} {y}h{size}L{x} {y + size}z", f"M{x + size} {y + size}h-{size}L{x + size} {y}z")
    for shape, cell in zip(shapes, (sent, received)):
        if cell is None:
            yield f'<path d="{shape}" fill="{UNTESTED}"/>'
        else:
            title = f"<title>{markup(cell.text)}</title>"
            yield f'<path d="{shape}" fill="{cell.colour}">{title}</path>'


def _borders(hosts: Sequence[tuple[str, str]]) -> list[tuple[int, str]]:
    """Where each group but the first begins, with its name."""
    found, place = [], 0
    for group, members in groupby(group for _, group in hosts):
        if place:
            found.append((place, group))
        place += len(list(members))
    return found


# --- A bitmap ----------------------------------------------------------------------------------


def _bitmap(hosts: Sequence[tuple[str, str]], found: Cells) -> str:
    """A pixel for each direction, with tooltips for blocks of groups, and a strip for each host."""
    image = b64encode(png(hosts, found)).decode()
    place = f'x="{STRIP}" y="{STRIP}" width="{WIDTH}" height="{WIDTH}"'
    address = f"data:image/png;base64,{image}"
    inside = [f'<image class=pixels {place} preserveAspectRatio="none" href="{address}"/>']
    inside += _blocks(hosts, _between_groups(hosts, found))
    inside += _strips(hosts, found)
    return _svg(WIDTH + STRIP, WIDTH + STRIP, inside, "rates between all hosts")


def _blocks(hosts: Sequence[tuple[str, str]], between: Cells) -> Iterator[str]:
    """A tooltip for each block of two groups."""
    starts = [0, *(at for at, _ in _borders(hosts)), len(hosts)]
    scale = WIDTH / len(hosts)
    spans = [(one * scale, two * scale, hosts[one][1]) for one, two in zip(starts, starts[1:])]
    if len(spans) > BITMAP_FROM:
        return
    for top, bottom, one in spans:
        for left, right, two in spans:
            title = between.get((one, two), Cell(UNTESTED, f"{one} > {two}: not tested")).text
            where = f'x="{STRIP + left:.1f}" y="{STRIP + top:.1f}"'
            size = f'width="{right - left:.1f}" height="{bottom - top:.1f}"'
            yield f"<rect class=block {where} {size}><title>{markup(title)}</title></rect>"


def _strips(hosts: Sequence[tuple[str, str]], found: Cells) -> Iterator[str]:
    """At the left and on top, a mark for each host with what it sends and receives."""
    sent: dict[str, list[str]] = {}
    received: dict[str, list[str]] = {}
    for (sender, receiver), cell in found.items():
        sent.setdefault(sender, []).append(cell.colour)
        received.setdefault(receiver, []).append(cell.colour)
    scale = WIDTH / len(hosts)
    for number, (name, group) in enumerate(hosts):
        at = STRIP + number * scale
        for known, words, where in (
            (sent, "sends", f'x="0" y="{at:.1f}" width="{STRIP - 2}" height="{scale:.2f}"'),
            (received, "receives", f'x="{at:.1f}" y="0" width="{scale:.2f}" height="{STRIP - 2}"'),
        ):
            colours = sorted(known.get(name, [UNTESTED]), key=_ORDER.index)
            good = sum(one in SCALE[4:] for one in colours)
            of = len(known.get(name, ()))
            title = markup(f"{name} {group} {words}: {good} of {of} tests good")
            colour = colours[len(colours) // 2]
            yield f'<rect {where} fill="{colour}"><title>{title}</title></rect>'


_ORDER = [FAILED, *SCALE[:4], SMALL, *SCALE[4:], UNTESTED]


def png(hosts: Sequence[tuple[str, str]], found: Cells) -> bytes:
    """The bitmap with a palette (PNG, W3C 2003): a row of pixels for each sender."""
    places = {name: number for number, (name, _) in enumerate(hosts)}
    colours = [UNTESTED, "#ffffff", *SCALE, SMALL, FAILED]
    count = len(hosts)
    # Each row begins with its filter, 0 for none.
    lines = [bytearray(count + 1) for _ in hosts]
    for (sender, receiver), cell in found.items():
        lines[places[sender]][places[receiver] + 1] = colours.index(cell.colour)
    for number, pixels in enumerate(lines):
        pixels[number + 1] = 1
    palette = b"".join(bytes.fromhex(one[1:]) for one in colours)
    header = struct.pack("!IIBBBBB", count, count, 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", header),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(b"".join(lines), 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack("!I", len(content)) + name + content + struct.pack("!I", check)
