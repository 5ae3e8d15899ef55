"""HTML files without scripts or external resources, in a light or dark scheme; CSV and SVG."""

# SPDX-License-Identifier: MIT

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Optional

from neuca_tools import __version__
from neuca_tools.model.printable import escape_markup as escape
from neuca_tools.model.printable import printable_line
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import NAGIOS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.diagnosis.findings import Finding
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Host
from neuca_tools.selftest.evidence.route import Hop
from neuca_tools.selftest.report.panels import Band, Panel, end_of_bands, svg_figure
from neuca_tools.selftest.report.text import (
    HOST_WORDS,
    fact_line,
    name_with_arrow,
    phase_words,
    share_words,
    verdict_text,
    way_words,
)
from neuca_tools.selftest.report.timeline import timeline_panels

PASSED = {True: "pass", False: "fail", None: ""}
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MARKS = {"pass": "good", "fail": "bad", "unknown": "unknown"}
# The CSS classes of the verdicts, by their Nagios states.
STATES = ("good", "bad", "bad", "unknown")


def report_page(evidence: Evidence, diagnosis: Diagnosis) -> str:
    """The report as HTML."""
    title = evidence.label or "Dataplane self-test"
    inside = "\n".join(_body_parts(evidence, diagnosis, title))
    return html_file(f"{title}: {diagnosis.words}", inside)


def html_file(title: str, inside: str, style: str = "") -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{STYLE}{style}</style></head>\n"
        f"<body><main>\n{inside}\n</main></body></html>\n"
    )


def _body_parts(evidence: Evidence, diagnosis: Diagnosis, title: str) -> Iterator[str]:
    yield f"<header><h1>{escape(title)}</h1>"
    # The hosts and the time of the test, as far as they are known.
    hosts = (_about_host(evidence.local, None), _about_host(evidence.peer, evidence.address))
    about = "; ".join(filter(None, [evidence.taken, " → ".join(filter(None, hosts))]))
    yield f"<p class=quiet>{escape(about)}</p>"
    state = STATES[NAGIOS[diagnosis.exit_code]]
    yield f'<p class="verdict {state}">{escape(verdict_text(diagnosis))}</p>'
    if diagnosis.unknown:
        yield f"<p>{escape(diagnosis.unknown)}</p>"
    for finding in diagnosis.possible:
        words = f"possible: {finding.title} ({finding.id}): {finding.text}"
        yield f"<p class=quiet>{escape(words)}</p>"
    yield "</header>"
    yield from _tests_section(evidence, diagnosis)
    yield "<div class=findings>"
    for finding in diagnosis.findings:
        yield from _finding_section(finding)
    yield "</div><div class=pictures>"
    yield from _timeline_section(evidence)
    yield from _path_section(evidence.route.hops)
    yield f"</div><footer class=quiet>neuca-guest-tools {escape(__version__)}</footer>"


def _timeline_section(evidence: Evidence) -> Iterator[str]:
    picture = svg_figure(*timeline_panels(evidence))
    if picture:
        caption = "<figcaption>Over time</figcaption>"
        yield f"<section><figure class=timeline>{caption}{picture}</figure></section>"


def _about_host(host: Host, address: Optional[str]) -> str:
    agent, version = host.agent and f"neuca {host.agent}", host.iperf3 and f"iperf3 {host.iperf3}"
    return ", ".join(filter(None, [host.name, address, host.kernel, agent, version]))


def _tests_section(evidence: Evidence, diagnosis: Diagnosis) -> Iterator[str]:
    """The steps of a test by neuca-selftest; otherwise the phases of an iperf run."""
    steps = (step for step in evidence.steps if step.text != NOT_ASKED)
    rows = [(step.name, step.verdict, step.text) for step in steps]
    if not rows:
        rows = [
            (name_with_arrow(phase.name, phase.direction), PASSED[phase.passed], phase_words(phase))
            for phase in diagnosis.phases
        ]
    if not rows:
        return
    yield "<section><h2>Tests</h2><table>"
    for name, word, text in rows:
        mark = f'<td class="{MARKS.get(word, "quiet")}">{escape(word)}</td>'
        yield f"<tr><th scope=row>{escape(name)}</th>{mark}<td>{escape(text)}</td></tr>"
    yield "</table></section>"


def _finding_section(finding: Finding) -> Iterator[str]:
    tag = f"<span class=tag>{escape(finding.severity)}</span>"
    title = f"<h2>{tag} {escape(finding.title)} <small>{escape(finding.id)}</small></h2>"
    yield f'<section class="finding {escape(finding.severity)}">{title}'
    yield f"<p>{escape(finding.text)}.</p>"
    if finding.severity != "info":
        explains = escape(share_words(finding) + way_words(finding))
        yield f"<p class=quiet>explains {explains}</p>"
    if finding.evidence:
        facts = (f"<li><code>{escape(fact_line(fact))}</code></li>" for fact in finding.evidence)
        yield f"<ul>{''.join(facts)}</ul>"
    if finding.advice:
        yield f"<p><b>Fix</b> {escape(HOST_WORDS.get(finding.end, ''))}</p>"
        yield f"<pre>{escape(finding.advice)}</pre>"
    if finding.tell:
        yield f"<p><b>Tell apart</b> {escape(finding.tell)}.</p>"
    yield "</section>"


def _path_section(hops: Sequence[Hop]) -> Iterator[str]:
    """Each hop of the way to the peer; nothing if that was not measured."""
    if not hops:
        return
    columns = ("hop", "routers", "round trip", "MTU")
    headings = "".join(f"<th scope=col>{column}</th>" for column in columns)
    yield f"<section><h2>Path</h2><table class=columns><tr>{headings}</tr>"
    for hop in hops:
        rtt = "" if hop.rtt is None else amounts.time(hop.rtt)
        routers = ", ".join(hop.addresses) or "no response"
        cells = (str(hop.number), routers, rtt, str(hop.mtu or ""))
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</table></section>"


# --- Style ---

STYLE = """
:root{color-scheme:light dark;--ink:#1b1d21;--quiet:#5c6370;--paper:#fff;--card:#f6f7f9;
--rule:#dfe3e8;--code:#eceff3;--s0:#2468c2;--s1:#d0680c;--s2:#128a74;--s3:#a3aab5;--good:#12743a;
--bad:#b3261e;--unknown:#8a5a00}@media screen and
(prefers-color-scheme:dark){:root{--ink:#e8eaed;
--quiet:#a0a8b4;--paper:#14161a;--card:#1d2026;--rule:#343a44;--code:#272c34;--s0:#6ea8ff;
--s1:#f0a050;--s2:#4cc9b0;--s3:#6b7482;--good:#5fd38a;--bad:#ff8a80;--unknown:#f2c14e}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}main{max-width:1120px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:0 0 6px}small,.quiet{color:var(--quiet);
font-weight:400}.verdict{font-size:1.2rem;font-weight:600;margin:8px 0}.good{color:var(--good)}
.bad{color:var(--bad)}.unknown{color:var(--unknown)}section{margin:16px 0}
.finding,figure{background:var(--card);border:1px solid var(--rule);border-radius:8px;
padding:14px 16px}.finding.fault{border-left:5px solid var(--bad)}
.finding.limit{border-left:5px solid var(--unknown)}.finding p{margin:6px 0}.tag{font-size:.75rem;
text-transform:uppercase;letter-spacing:.05em;color:var(--quiet);margin-right:4px}
pre{background:var(--code);padding:10px 12px;border-radius:6px;margin:6px 0;white-space:pre-wrap;
overflow-wrap:anywhere}pre,code{font:14px/1.45 ui-monospace,monospace}ul{margin:6px 0;
padding-left:20px}code{overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:baseline;padding:3px 14px 3px 0;font-weight:400}
tr{border-bottom:1px solid var(--rule)}th,td:nth-child(2){white-space:nowrap;width:1%}
td:nth-child(3){overflow-wrap:anywhere}.columns th,.columns td{white-space:normal;
width:auto}.columns th{color:var(--quiet);vertical-align:bottom}
td.good,td.bad,td.unknown{font-weight:600}
.findings{display:grid;align-items:start;
grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));gap:12px}
.findings section{margin:0}figure{margin:0;
min-width:0}figcaption{font-weight:600;margin-bottom:4px}svg{display:block;width:100%;height:auto;
font:12px system-ui,sans-serif}.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 4px;
font-size:.85rem;color:var(--quiet)}.legend i{display:inline-block;width:12px;height:12px;
border-radius:3px;margin-right:6px;vertical-align:-1px}.grid{stroke:var(--rule);stroke-width:1}
.tick,.label{fill:var(--quiet)}rect,circle{fill:currentColor}.line{fill:none;stroke:currentColor;
stroke-width:1.4;stroke-linejoin:round}.s0{color:var(--s0)}.s1{color:var(--s1)}.s2{color:var(--s2)}
.s3{color:var(--s3)}.axis{stroke:var(--quiet)}.title{fill:var(--ink);font-weight:600}.band{fill:var(--ink)}
.band.b0{fill-opacity:.03}.band.b1{fill-opacity:.075}footer{margin-top:20px;font-size:.85rem}
@page{size:A4;margin:11mm}@media print{*{print-color-adjust:exact}body,table,pre,code{font-size:8pt;
line-height:1.25}main{max-width:none;padding:0}section,.verdict{margin:6px 0}
th,td{padding:1px 10px 1px 0}.findings{grid-template-columns:1fr 1fr;gap:6px}
.finding,figure{padding:6px 9px}.finding p,.finding ul,pre{margin:2px 0}pre{padding:4px 8px}
section,tr{break-inside:avoid}
.finding:nth-child(n+3) ul,.finding:nth-child(n+5)>:not(h2):not(h2+p){display:none}
.pictures{break-before:page}svg.timeline{width:78%;margin:0 auto}}
"""


# --- Series for other programs, and several runs in one plot ---

# A run and its name.
Runs = Sequence[tuple[str, Evidence]]
HEADER = ("run", "series", "line", "seconds", "value")
# Colors in addition to those of one run; with more runs than colors, they repeat.
COLORS = ("#8e44ad", "#b03a5b", "#6b8e23", "#8b5a2b")
OWN_STYLE = "".join(f".s{number}{{color:{color}}}" for number, color in enumerate(COLORS, 4))


def csv_of(runs: Runs) -> str:
    """A row for each point, with the unit in the name of its series; seconds since the start."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for name, evidence in runs:
        # A label may come from others, and a spreadsheet takes one that begins so for a formula.
        harmless_name = re.sub(r"^(?=[=+@-].)", "'", printable_line(name))
        for panel in timeline_panels(evidence)[0]:
            for line in panel.lines:
                series = (harmless_name, panel.title, line.name)
                writer.writerows((*series, round(x, 6), y) for x, y in chain(*line.parts))
    return text.getvalue()


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
    panel_by_title: dict[str, Panel] = {}
    longest: list[Band] = []
    for number, (name, evidence) in enumerate(runs):
        panels, bands = timeline_panels(evidence)
        longest = max(longest, bands, key=end_of_bands)
        for panel in panels:
            for line in panel.lines:
                title = f"{panel.title}, {line.name}"
                own = line._replace(name=name, color=number % (4 + len(COLORS)))
                others = panel_by_title.get(title, panel._replace(lines=[])).lines
                panel_by_title[title] = panel._replace(title=title, lines=[*others, own])
    return svg_figure(list(panel_by_title.values()), longest)


def comparison_page(runs: Runs, differences: str, state: str) -> str:
    """The differences between runs, and all of them in one plot."""
    verdict = differences.splitlines()[-1]
    inside = (
        f'<header><h1>Comparison</h1><p class="verdict {state}">{escape(verdict)}</p>'
        "</header>"
        f"<pre>{escape(differences)}</pre>"
        f"<section><figure class=timeline>{overlay_figure(runs)}</figure></section>"
    )
    return html_file("Comparison of self-tests", inside, style=OWN_STYLE)
