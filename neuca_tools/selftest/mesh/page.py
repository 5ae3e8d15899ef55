"""The report of a mesh as one HTML file without scripts or external resources.

Its heat map has a cell for each direction of a pair of hosts, or of groups if there are many hosts:
eight tests of each of 1,000 hosts color one cell in 125, and medians between groups show more.
"""

# SPDX-License-Identifier: MIT

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from neuca_tools import __version__
from neuca_tools.model.printable import counted, escape_markup
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import NAGIOS
from neuca_tools.selftest.mesh import report
from neuca_tools.selftest.mesh.causes import directed_subject
from neuca_tools.selftest.mesh.report import MeshResult
from neuca_tools.selftest.mesh.verdict import CONFIRMED, MeshFinding
from neuca_tools.selftest.report.page import STATES, html_file

OWN_STYLE = """
table.mesh{width:auto;margin:0 auto;font:9px ui-monospace,monospace}
.mesh tr{display:table-row;border:0}.mesh td,.mesh th{padding:0;width:auto}
.mesh td{border:1px solid var(--card);min-width:11px;height:11px}
.mesh th{padding:2px;color:var(--quiet)}.mesh th[scope=row]{text-align:right}
.mesh th[scope=col]{writing-mode:vertical-rl;vertical-align:bottom}figure{overflow-x:auto}
"""
TITLE = "Mesh self-test"
MIN_WITHOUT_CELLS = 64  # hosts, or groups: so many have no cells of their own
# The colors for shares of the reference rate, the lowest first; and from which share on each
# color but the first is used.
SCALE = ("#b3261e", "#d1552c", "#e58a2e", "#efc04a", "#9bc26b", "#3c9d5d", "#12743a")
STEPS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
UNTESTED, FAILED = "#b8bcc2", "#6b1fa8"
LEGEND = (
    *zip(SCALE, ("below 20%", "20%", "40%", "60%", "80%", "90%", "97% or more")),
    (FAILED, "no connection, or it failed"),
    (UNTESTED, "not tested"),
)


def mesh_page(result: MeshResult) -> str:
    inside = "\n".join(_body_parts(result))
    return html_file(f"{TITLE}: {result.words}", inside, OWN_STYLE)


def _body_parts(result: MeshResult) -> Iterator[str]:
    verdict, plan = result.verdict, result.plan
    yield f"<header><h1>{TITLE}</h1>"
    about = f"{len(plan.hosts)} hosts, {counted(plan.rounds, 'round')}, seed {plan.seed}"
    about += f", pairs: {report.pairs_text(result)}"
    if result.reference:
        about += f", reference {amounts.rate(result.reference)}"
    yield f"<p class=quiet>{about}</p>"
    state = STATES[NAGIOS[verdict.exit_code]]
    yield f'<p class="verdict {state}">{escape_markup(report.verdict_line(result))}</p></header>'
    yield "<div class=findings>"
    for finding in verdict.findings:
        yield from _finding_section(finding)
    for word, text in report.verdict_shortcomings(result):
        title = f"<h2>{word.capitalize()}</h2>"
        yield f'<section class="finding limit">{title}<p>{escape_markup(text)}</p></section>'
    yield "</div>"
    picture = heat_map(result)
    if picture:
        caption = "<figcaption>Rates: rows send, columns receive</figcaption>"
        shown = [f'<span><i style="background:{color}"></i>{text}</span>' for color, text in LEGEND]
        legend = f"<p class=legend>{''.join(shown)}</p>"
        yield f"<section><figure>{caption}{legend}{picture}</figure></section>"
    yield f"<footer class=quiet>neuca-guest-tools {escape_markup(__version__)}</footer>"


def _finding_section(finding: MeshFinding) -> Iterator[str]:
    severity = "fault" if finding.state == CONFIRMED else "limit"
    tag = f"<span class=tag>{escape_markup(finding.state)}</span>"
    text = finding.text[:1].upper() + finding.text[1:]
    subject = escape_markup(directed_subject(finding.subject, finding.direction))
    title = f"<h2>{tag} {escape_markup(finding.kind)}: {subject}</h2>"
    yield f'<section class="finding {severity}">{title}<p>{escape_markup(text)}.</p>'
    yield from (
        f"<p class=quiet>{escape_markup(words)}</p>" for words in report.evidence_lines(finding)
    )
    if finding.diagnosis:
        texts = "".join(f"<li>{escape_markup(text)}</li>" for text in finding.diagnosis)
        yield f"<p>Full diagnosis of {escape_markup(' > '.join(finding.path))}:</p><ul>{texts}</ul>"
    yield "</section>"


# --- The heat map ---


class Cell(NamedTuple):
    """One direction of a pair: its color, what its tooltip says, and the rate in bit/s."""

    color: str
    text: str
    rate: Optional[float]


Cells = Mapping[tuple[str, str], Cell]


def cells_by_path(result: MeshResult) -> dict[tuple[str, str], Cell]:
    """Every direction that was tested, by sender and receiver; the last test counts."""
    cell_by_path: dict[tuple[str, str], Cell] = {}
    for row in result.rows:
        directions = (
            (row.client, row.server, row.rate_out, row.mtu_out),
            (row.server, row.client, row.rate_back, row.mtu_back),
        )
        for sender, receiver, rate, mtu in directions:
            color = FAILED if row.error else _color_of_rate(rate, result.reference)
            text = f"{sender} > {receiver}: {', '.join(_tooltip_words(row.error, rate, mtu))}"
            cell_by_path[sender, receiver] = Cell(color, text, rate)
    return cell_by_path


def _tooltip_words(
    error: Optional[str], rate: Optional[float], mtu: Optional[int]
) -> Iterator[str]:
    if error:
        yield error
    if rate is not None:
        yield amounts.rate(rate)
    if mtu is not None:
        yield f"MTU {mtu}"


def _color_of_rate(rate: Optional[float], reference: Optional[float]) -> str:
    if not rate or not reference:
        return FAILED
    return SCALE[sum(rate / reference >= step for step in STEPS)]


def heat_map(result: MeshResult) -> str:
    """The table: rows send, columns receive, by group. Empty for too many hosts and groups."""
    hosts = sorted(result.plan.group_by_host.items(), key=lambda host: host[1])
    cell_by_path = cells_by_path(result)
    if len(hosts) < MIN_WITHOUT_CELLS:
        return _html_grid(hosts, cell_by_path)
    groups = dict.fromkeys(group for _, group in hosts)
    if not 1 < len(groups) < MIN_WITHOUT_CELLS:
        return ""
    return _html_grid([(group, "") for group in groups], _between_groups(result, cell_by_path))


def _between_groups(result: MeshResult, cell_by_path: Cells) -> Cells:
    """Every direction between two groups, or within one, that was tested: its median."""
    group = result.plan.group_by_host
    rates_by_path = defaultdict[tuple[str, str], list[float]](list)
    for (sender, receiver), cell in cell_by_path.items():
        rates_by_path[group[sender], group[receiver]].append(cell.rate or 0.0)
    medians: dict[tuple[str, str], Cell] = {}
    for path, rates in rates_by_path.items():
        rate = sorted(rates)[len(rates) // 2]
        text = f"{' > '.join(path)}: {counted(len(rates), 'pair')}, median {amounts.rate(rate)}"
        medians[path] = Cell(_color_of_rate(rate, result.reference), text, rate)
    return medians


def _html_grid(hosts: Sequence[tuple[str, str]], cell_by_path: Cells) -> str:
    """A cell for each direction. `hosts` have groups; or they are groups, which have none."""
    names = [name for name, _ in hosts]
    columns = "".join(f"<th scope=col>{escape_markup(name)}</th>" for name in names)
    rows = [f"<tr><td>{columns}</tr>"]
    for sender, group in hosts:
        cells = "".join(
            f"<td{_cell_attributes(sender, receiver, cell_by_path)}>" for receiver in names
        )
        label = escape_markup(f"{group} {sender}".strip())
        rows.append(f"<tr><th scope=row>{label}</th>{cells}</tr>")
    return f"<table class=mesh>{''.join(rows)}</table>"


def _cell_attributes(sender: str, receiver: str, cell_by_path: Cells) -> str:
    cell = cell_by_path.get((sender, receiver))
    if cell is not None:
        return f' bgcolor="{cell.color}" title="{escape_markup(cell.text)}"'
    return "" if sender == receiver else f' bgcolor="{UNTESTED}"'
