"""The report as one HTML file without scripts or external resources, in a light or dark scheme."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from neuca_tools import __version__
from neuca_tools.model.printable import escape_markup as escape
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.conditions.base import INFO
from neuca_tools.selftest.diagnosis.compare import with_keys
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.diagnosis.findings import Finding
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Host, Latency
from neuca_tools.selftest.evidence.derive import look_at_phase
from neuca_tools.selftest.evidence.route import Hop
from neuca_tools.selftest.evidence.run import Flow
from neuca_tools.selftest.report.panels import numbered_band_names, svg_figure
from neuca_tools.selftest.report.style import STYLE
from neuca_tools.selftest.report.text import (
    WHERE,
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
# The columns of the tables.
BEFORE = ("test", "before", "after")
LATENCY = ("path", "median", "99 of 100", "longest")
UDP = ("offered", "lost")
PATH = ("hop", "routers", "round trip", "MTU")
# The CSS classes of the verdicts.
STATES = {
    ExitCode.PASS: "good",
    ExitCode.BELOW: "bad",
    ExitCode.NOT_AS_PLANNED: "bad",
    ExitCode.WORSE: "bad",
    ExitCode.UNREACHABLE: "bad",
}


def report_page(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis] = None
) -> str:
    """The whole file; `before` adds the rates of an earlier test."""
    title = evidence.label or "Dataplane self-test"
    inside = "\n".join(_body_parts(evidence, diagnosis, before, title))
    return html_file(f"{title}: {diagnosis.words}", inside)


def html_file(title: str, inside: str, style: str = "") -> str:
    """A whole file."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{STYLE}{style}</style></head>\n"
        f"<body><main>\n{inside}\n</main></body></html>\n"
    )


def _body_parts(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis], title: str
) -> Iterator[str]:
    yield f"<header><h1>{escape(title)}</h1>"
    yield f"<p class=quiet>{escape(_about_test(evidence))}</p>"
    state = STATES.get(diagnosis.exit_code, "unknown")
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
    yield "<div class=tables>"
    yield from _report_tables(evidence, diagnosis, before)
    yield f"</div></div><footer class=quiet>neuca-guest-tools {escape(__version__)}</footer>"


def _timeline_section(evidence: Evidence) -> Iterator[str]:
    panels, bands = timeline_panels(evidence)
    picture = svg_figure(panels, bands)
    if not picture:
        return
    key = "; ".join(numbered_band_names(bands))
    yield "<section><figure class=timeline><figcaption>Over time</figcaption>"
    yield picture
    if key:
        yield f"<p class=quiet>{escape(key)}</p>"
    yield "</figure></section>"


def _about_test(evidence: Evidence) -> str:
    """The hosts and the time of the test, as far as they are known."""
    hosts = (_about_host(evidence.local, None), _about_host(evidence.peer, evidence.address))
    return "; ".join(filter(None, [evidence.taken, " → ".join(filter(None, hosts))]))


def _about_host(host: Host, address: Optional[str]) -> str:
    agent, version = host.agent and f"neuca {host.agent}", host.iperf3 and f"iperf3 {host.iperf3}"
    return ", ".join(filter(None, [host.name, address, host.kernel, agent, version]))


def _tests_section(evidence: Evidence, diagnosis: Diagnosis) -> Iterator[str]:
    """The steps of a test by neuca-selftest; otherwise the phases of an iperf run."""
    steps = [step for step in evidence.steps if step.text != NOT_ASKED]
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
    if finding.severity != INFO:
        meter = f'<span class=meter><span style="width:{finding.share:.0%}"></span></span>'
        explains = escape(share_words(finding) + way_words(finding))
        yield f"<p class=share>{meter} explains {explains}</p>"
    if finding.evidence:
        facts = (f"<li><code>{escape(fact_line(fact))}</code></li>" for fact in finding.evidence)
        yield f"<ul>{''.join(facts)}</ul>"
    if finding.advice:
        yield f"<p><b>Fix</b> {escape(WHERE.get(finding.end, ''))}</p>"
        yield f"<pre>{escape(finding.advice)}</pre>"
    if finding.tell:
        yield f"<p><b>Tell apart</b> {escape(finding.tell)}.</p>"
    if finding.predicted:
        yield f"<p><b>Predicted</b> {escape(amounts.rate(finding.predicted))}."
        yield f"<b>Next limit</b> {escape(finding.next_limit or 'not known')}.</p>"
    yield "</section>"


# --- Tables ---


def _report_tables(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis]
) -> Iterator[str]:
    """HTML; nothing for what was not measured. `before` is an earlier test to compare with."""
    yield from _html_table("Before and after", BEFORE, list(_before_and_after(diagnosis, before)))
    measured = {"idle": evidence.idle, "loaded": evidence.loaded}
    rows = [_latency_row(name, times) for name, times in measured.items() if times.p50 is not None]
    yield from _html_table("Latency, idle and under load", LATENCY, rows)
    yield from _html_table(
        "UDP: datagrams lost, against the rate offered", UDP, _udp_rows(evidence)
    )
    yield from _html_table("Path", PATH, list(map(_hop_row, evidence.route.hops)))


def _before_and_after(diagnosis: Diagnosis, before: Optional[Diagnosis]) -> Iterator[Sequence[str]]:
    """In the order of BEFORE."""
    earlier = dict(with_keys(before.phases)) if before else {}
    for key, phase in with_keys(diagnosis.phases):
        if key in earlier:
            rates = (earlier[key].rate or 0.0, phase.rate or 0.0)
            yield (name_with_arrow(phase.name, phase.direction), *map(amounts.rate, rates))


def _latency_row(name: str, times: Latency) -> Sequence[str]:
    """In the order of LATENCY."""
    values = (times.p50, times.p99, times.maximum)
    return (name, *("" if value is None else amounts.time(value) for value in values))


def _hop_row(hop: Hop) -> Sequence[str]:
    """In the order of PATH."""
    rtt = "" if hop.rtt is None else amounts.time(hop.rtt)
    return (str(hop.number), ", ".join(hop.addresses) or "no response", rtt, str(hop.mtu or ""))


def _udp_rows(evidence: Evidence) -> list[Sequence[str]]:
    """In the order of UDP."""
    points = []
    for phase in evidence.phases:
        phase_look, offered = look_at_phase(evidence, phase), (phase.flow or Flow()).sent.rate
        if phase_look.protocol == "udp" and offered is not None and phase_look.loss is not None:
            points.append((offered, phase_look.loss))
    return [(amounts.rate(rate), amounts.percent(loss)) for rate, loss in sorted(points)]


def _html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    yield f"<section><h2>{escape(title)}</h2><table class=columns><tr>"
    yield from (f"<th scope=col>{escape(column)}</th>" for column in columns)
    yield "</tr>"
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        yield f"<tr>{cells}</tr>"
    yield "</table></section>"
