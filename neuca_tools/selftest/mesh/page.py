"""The report of a mesh as one HTML file without scripts or external resources."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuca_tools import __version__
from neuca_tools.model.printable import escape_markup
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.mesh.picture import heat_map, html_legend
from neuca_tools.selftest.mesh.report import (
    MeshResult,
    Rates,
    evidence_lines,
    rates_of_hosts,
    verdict_line,
    verdict_shortcomings,
)
from neuca_tools.selftest.mesh.verdict import CONFIRMED, MeshFinding
from neuca_tools.selftest.report.page import STATES, html_file

OWN_STYLE = """
svg.mesh{font:9px ui-monospace,monospace;margin:0 auto}svg.mesh text{fill:var(--quiet)}
svg.mesh .border{stroke:var(--ink);stroke-width:.8;fill:none}
"""
TITLE = "Mesh self-test"
# The hosts in the table of the lowest rates.
MOST_ROWS = 20


def mesh_page(result: MeshResult) -> str:
    """The whole file."""
    inside = "\n".join(_body_parts(result))
    return html_file(f"{TITLE}: {result.words}", inside, OWN_STYLE)


def _body_parts(result: MeshResult) -> Iterator[str]:
    verdict, plan = result.verdict, result.plan
    yield f"<header><h1>{TITLE}</h1>"
    about = [f"{len(plan.hosts)} hosts", f"{plan.rounds} rounds", f"seed {plan.seed}"]
    if result.reference:
        about.append(f"reference {amounts.rate(result.reference)}")
    yield f"<p class=quiet>{escape_markup(', '.join(about))}</p>"
    state = STATES.get(verdict.exit_code, "unknown")
    if verdict.exit_code is ExitCode.PASS:
        state = "good"
    yield f'<p class="verdict {state}">{escape_markup(verdict_line(result))}</p></header>'
    yield "<div class=findings>"
    for finding in verdict.findings:
        yield from _finding_section(finding)
    for word, text in verdict_shortcomings(verdict):
        title = f"<h2>{word.capitalize()}</h2>"
        yield f'<section class="finding limit">{title}<p>{escape_markup(text)}</p></section>'
    yield "</div>"
    picture = heat_map(result)
    if picture:
        caption = "<figcaption>Rates: rows send, columns receive</figcaption>"
        yield f"<section><figure>{caption}{html_legend()}{picture}</figure></section>"
    yield from _table_of_lowest_rates(rates_of_hosts(result))
    yield f"<footer class=quiet>neuca-guest-tools {escape_markup(__version__)}</footer>"


def _table_of_lowest_rates(rates: Sequence[Rates]) -> Iterator[str]:
    """The hosts with the lowest rates, as shares of the reference."""

    def lowest(host: Rates) -> float:
        return min(value for value in (host.sent, host.received) if value is not None)

    known = [host for host in rates if host.sent is not None or host.received is not None]
    yield "<section><h2>Lowest rates</h2><table class=columns><tr><th scope=col>host</th>"
    yield "<th scope=col>group</th><th scope=col>sends</th><th scope=col>receives</th></tr>"
    for host in sorted(known, key=lowest)[:MOST_ROWS]:
        shares = ["" if value is None else f"{value:.0%}" for value in (host.sent, host.received)]
        cells = "".join(
            f"<td>{escape_markup(cell)}</td>" for cell in (host.name, host.group, *shares)
        )
        yield f"<tr>{cells}</tr>"
    yield "</table></section>"


def _finding_section(finding: MeshFinding) -> Iterator[str]:
    severity = "fault" if finding.state == CONFIRMED else "limit"
    tag = f"<span class=tag>{escape_markup(finding.state)}</span>"
    way = "" if finding.direction == "both" else f" ({finding.direction})"
    text = finding.text[:1].upper() + finding.text[1:]
    title = f"<h2>{tag} {escape_markup(finding.kind)}: {escape_markup(finding.subject + way)}</h2>"
    yield f'<section class="finding {severity}">{title}<p>{escape_markup(text)}.</p>'
    yield from (f"<p class=quiet>{escape_markup(words)}</p>" for words in evidence_lines(finding))
    if finding.diagnosis:
        texts = "".join(f"<li>{escape_markup(text)}</li>" for text in finding.diagnosis)
        yield f"<p>Full diagnosis of {escape_markup(' > '.join(finding.path))}:</p><ul>{texts}</ul>"
    yield "</section>"
