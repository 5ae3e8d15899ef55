"""The report of a mesh as one HTML file without scripts or external resources."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator

from neuca_tools import __version__
from neuca_tools.model.printable import markup
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.mesh.picture import group_map, heat_map, legend
from neuca_tools.selftest.mesh.report import MeshResult, evidence, line, shortcomings
from neuca_tools.selftest.mesh.verdict import CONFIRMED, MeshFinding
from neuca_tools.selftest.report.page import STATES, html

OWN_STYLE = """
svg.mesh{font:9px ui-monospace,monospace;margin:0 auto}svg.mesh text{fill:var(--quiet)}
svg.mesh .border{stroke:var(--ink);stroke-width:.8;fill:none}
svg.mesh .pixels{image-rendering:pixelated}
svg.mesh .block{fill:transparent;stroke:var(--rule);stroke-width:.5}
svg.mesh .block:hover{stroke:var(--ink);stroke-width:1.5}
"""
TITLE = "Mesh self-test"


def page(result: MeshResult) -> str:
    """The whole file."""
    inside = "\n".join(_body(result))
    return html(f"{TITLE}: {result.words}", inside, OWN_STYLE, images="; img-src data:")


def _body(result: MeshResult) -> Iterator[str]:
    verdict, plan = result.verdict, result.plan
    yield f"<header><h1>{TITLE}</h1>"
    about = [f"{len(plan.hosts)} hosts", f"{plan.rounds} rounds", f"seed {plan.seed}"]
    if result.reference:
        about.append(f"reference {amounts.rate(result.reference)}")
    yield f"<p class=quiet>{markup(', '.join(about))}</p>"
    state = STATES.get(verdict.exit_code, "unknown")
    if verdict.exit_code is ExitCode.PASS:
        state = "good"
    yield f'<p class="verdict {state}">{markup(line(result))}</p></header>'
    yield "<div class=findings>"
    for finding in verdict.findings:
        yield from _finding(finding)
    for word, text in shortcomings(verdict):
        title = f"<h2>{word.capitalize()}</h2>"
        yield f'<section class="finding limit">{title}<p>{markup(text)}</p></section>'
    yield "</div>"
    groups = group_map(result)
    if groups:
        yield _figure("Medians between groups, and within each: rows send", groups)
    yield _figure("Rates: rows send, columns receive", heat_map(result))
    yield f"<footer class=quiet>neuca-guest-tools {markup(__version__)}</footer>"


def _figure(title: str, picture: str) -> str:
    caption = f"<figcaption>{title}</figcaption>"
    return f"<section><figure>{caption}{legend()}{picture}</figure></section>"


def _finding(one: MeshFinding) -> Iterator[str]:
    severity = "fault" if one.state == CONFIRMED else "limit"
    tag = f"<span class=tag>{markup(one.state)}</span>"
    way = "" if one.direction == "both" else f" ({one.direction})"
    text = one.text[:1].upper() + one.text[1:]
    title = f"<h2>{tag} {markup(one.kind)}: {markup(one.subject + way)}</h2>"
    yield f'<section class="finding {severity}">{title}<p>{markup(text)}.</p>'
    yield from (f"<p class=quiet>{markup(words)}</p>" for words in evidence(one))
    if one.diagnosis:
        texts = "".join(f"<li>{markup(text)}</li>" for text in one.diagnosis)
        yield f"<p>Full diagnosis of {markup(' > '.join(one.path))}:</p><ul>{texts}</ul>"
    yield "</section>"
