"""The heat map of a mesh: a cell for each pair of hosts, or of groups if there are many hosts.

Eight tests of each of 1,000 hosts colour one cell in 125: there, the medians between groups show
more.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from neuca_tools.model.printable import escape_markup
from neuca_tools.selftest import amounts
from neuca_tools.selftest.mesh.model import Row
from neuca_tools.selftest.mesh.report import MeshResult

# From this number of hosts, or of groups, on, there are no cells for them.
TOO_MANY = 64
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
# The colours in the order of a median.
_ORDER = [FAILED, *SCALE[:4], SMALL, *SCALE[4:], UNTESTED]
CELL = 12


class Cell(NamedTuple):
    """One direction of a pair: its colour, what its tooltip says, and the rate in bit/s."""

    colour: str
    text: str
    rate: Optional[float] = None


Cells = Mapping[tuple[str, str], Cell]


def cells_by_way(result: MeshResult) -> dict[tuple[str, str], Cell]:
    """Every direction that was tested, by sender and receiver; the last test counts."""
    cell_by_way: dict[tuple[str, str], Cell] = {}
    sizes = [size for row in result.rows for size in (row.mtu_out, row.mtu_back) if size]
    full = max(sizes, default=0)
    for row in result.rows:
        ways = (
            (row.client, row.server, row.rate_out, row.mtu_out),
            (row.server, row.client, row.rate_back, row.mtu_back),
        )
        for sender, receiver, rate, mtu in ways:
            words = ", ".join(_tooltip_words(row, rate, mtu))
            colour = _colour_of_rate(row, rate, mtu is not None and mtu < full, result.reference)
            cell_by_way[sender, receiver] = Cell(colour, f"{sender} > {receiver}: {words}", rate)
    return cell_by_way


def _colour_of_rate(
    row: Row, rate: Optional[float], small: bool, reference: Optional[float]
) -> str:
    if row.error or rate is None or not reference:
        return FAILED
    if small:
        return SMALL
    return SCALE[sum(rate / reference >= step for step in STEPS)]


def _tooltip_words(row: Row, rate: Optional[float], mtu: Optional[int]) -> Iterator[str]:
    if row.error:
        yield row.error
    if rate is not None:
        yield amounts.rate(rate)
    if mtu is not None:
        yield f"MTU {mtu}"
    if len(row.macs) > 1:
        yield f"{len(row.macs)} MACs"


def hosts_in_order(result: MeshResult) -> list[tuple[str, str]]:
    """The hosts with their groups: by group, and first what a finding names."""
    named = {name for finding in result.verdict.findings for name in finding.names}
    return sorted(
        result.plan.group_by_host.items(),
        key=lambda host: (host[1] not in named, host[1], host[0] not in named, host[0]),
    )


def heat_map(result: MeshResult) -> str:
    """The picture as SVG: rows send, columns receive. Empty for too many hosts and groups."""
    hosts, cell_by_way = hosts_in_order(result), cells_by_way(result)
    if len(hosts) < TOO_MANY:
        return _svg_grid(hosts, cell_by_way, "rates between all hosts")
    groups = [(group, group) for group in dict.fromkeys(group for _, group in hosts)]
    if not 1 < len(groups) < TOO_MANY:
        return ""
    return _svg_grid(groups, _between_groups(hosts, cell_by_way), "medians between groups")


def _between_groups(hosts: Sequence[tuple[str, str]], cell_by_way: Cells) -> Cells:
    """Every direction between two groups, or within one, that was tested: its median."""
    group = dict(hosts)
    between: dict[tuple[str, str], list[Cell]] = {}
    for (sender, receiver), cell in cell_by_way.items():
        between.setdefault((group[sender], group[receiver]), []).append(cell)
    return {way: _median_cell(way, several) for way, several in between.items()}


def _median_cell(way: tuple[str, str], several: Sequence[Cell]) -> Cell:
    middle = len(several) // 2
    colour = sorted((cell.colour for cell in several), key=_ORDER.index)[middle]
    rate = sorted(cell.rate or 0.0 for cell in several)[middle]
    pairs = f"{len(several)} pairs" if len(several) > 1 else "1 pair"
    return Cell(colour, f"{' > '.join(way)}: {pairs}, median {amounts.rate(rate)}", rate)


def html_legend() -> str:
    shown = (f'<span><i style="background:{colour}"></i>{text}</span>' for colour, text in LEGEND)
    return f"<p class=legend>{''.join(shown)}</p>"


def _svg_picture(width: int, height: int, inside: Sequence[str], label: str) -> str:
    about = f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}"'
    style = f'style="max-width:{2 * width}px"'
    return f"<svg class=mesh {about} {style}>{''.join(inside)}</svg>"


# --- Cells -------------------------------------------------------------------------------------


def _svg_grid(hosts: Sequence[tuple[str, str]], cell_by_way: Cells, about: str) -> str:
    """A cell for each pair, split: at the upper left what the row sends, else what it receives.

    `hosts` with their groups, or groups, of which the diagonal is what stays inside.
    """
    left = 7 * max(len(name) for name, _ in hosts) + 8
    inside = []
    for row, (sender, _) in enumerate(hosts):
        y = left + row * CELL
        label = escape_markup(sender)
        inside.append(f'<text x="{left - 4}" y="{y + CELL - 3}" text-anchor="end">{label}</text>')
        turned = f'transform="rotate(-90 {y + CELL - 3} {left - 4})"'
        inside.append(f'<text x="{y + CELL - 3}" y="{left - 4}" {turned}>{label}</text>')
        for column, (receiver, _) in enumerate(hosts):
            if sender != receiver or (sender, receiver) in cell_by_way:
                x = left + column * CELL
                inside += _split_cell(
                    x, y, cell_by_way.get((sender, receiver)), cell_by_way.get((receiver, sender))
                )
    borders = _group_borders(hosts)
    for before in borders if len(borders) + 1 < len(hosts) else ():
        end = left + len(hosts) * CELL
        at = left + before * CELL
        inside.append(f'<path class=border d="M{at} {left}V{end}M{left} {at}H{end}"/>')
    size = left + len(hosts) * CELL + 2
    return _svg_picture(size, size, inside, about)


def _split_cell(x: int, y: int, sent: Optional[Cell], received: Optional[Cell]) -> Iterator[str]:
    size = CELL - 1
    shapes = (f"M{x} {y}h{size}L{x} {y + size}z", f"M{x + size} {y + size}h-{size}L{x + size} {y}z")
    for shape, cell in zip(shapes, (sent, received)):
        if cell is None:
            yield f'<path d="{shape}" fill="{UNTESTED}"/>'
        else:
            title = f"<title>{escape_markup(cell.text)}</title>"
            yield f'<path d="{shape}" fill="{cell.colour}">{title}</path>'


def _group_borders(hosts: Sequence[tuple[str, str]]) -> list[int]:
    """Where each group but the first begins."""
    groups = [group for _, group in hosts]
    return [place for place in range(1, len(groups)) if groups[place] != groups[place - 1]]
