"""The report as one HTML file: no script, nothing fetched, light or dark as the reader's system is."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Optional

from neuca_tools.model.printable import markup as escape
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import WORDS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, Finding
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence
from neuca_tools.selftest.report.charts import Chart, charts
from neuca_tools.selftest.report.style import STYLE
from neuca_tools.selftest.report.text import WHERE, fact_line, phase_words, verdict

PASSED = {True: "pass", False: "fail", None: ""}
MARKS = {"pass": "good", "fail": "bad", "unknown": "unknown"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis] = None) -> str:
    """The whole file; `before` adds bars of an earlier test's rates."""
    title = evidence.label or "Dataplane self-test"
    inside = "\n".join(_body(evidence, diagnosis, before, title))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: {escape(WORDS[diagnosis.exit_code])}</title>\n<style>{STYLE}</style></head>\n"
        f"<body><main>\n{inside}\n</main></body></html>\n"
    )


def _body(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis], title: str
) -> Iterator[str]:
    state = (
        "good"
        if int(diagnosis.exit_code) == 0
        else "bad"
        if int(diagnosis.exit_code) in (4, 5, 7, 8)
        else "unknown"
    )
    yield f"<header><h1>{escape(title)}</h1>"
    yield f"<p class=quiet>{escape(_about(evidence))}</p>"
    yield f'<p class="verdict {state}">{escape(verdict(diagnosis))}</p>'
    if diagnosis.unknown:
        yield f"<p>{escape(diagnosis.unknown)}</p>"
    yield "</header>"
    yield from _tests(evidence, diagnosis)
    yield from (text for finding in diagnosis.findings for text in _finding(finding))
    for group, figures in groupby(
        charts(evidence, diagnosis, before), key=lambda chart: chart.group
    ):
        yield f"<section>{f'<h2>{escape(group)}</h2>' if group else ''}<div class=charts>"
        yield from map(_figure, figures)
        yield "</div></section>"


def _about(evidence: Evidence) -> str:
    """Which hosts, and when; no more than is known."""
    hosts = [
        ", ".join(
            filter(None, [host.name, more, host.kernel, host.iperf3 and f"iperf3 {host.iperf3}"])
        )
        for host, more in ((evidence.local, None), (evidence.peer, evidence.address))
    ]
    return "; ".join(filter(None, [evidence.taken, " → ".join(filter(None, hosts))]))


def _tests(evidence: Evidence, diagnosis: Diagnosis) -> Iterator[str]:
    """The steps of a test of ours; of somebody else's run its phases."""
    rows = [(one.name, one.verdict, one.text) for one in evidence.steps if one.text != NOT_ASKED]
    rows = rows or [
        (
            f"{one.name}{' ←' if one.direction == 'reverse' else ''}",
            PASSED[one.passed],
            phase_words(one),
        )
        for one in diagnosis.phases
    ]
    if rows:
        yield "<section><h2>Tests</h2><table>"
        yield from (
            f'<tr><th scope=row>{escape(name)}</th><td class="{MARKS.get(word, "quiet")}">{escape(word)}</td>'
            f"<td>{escape(text)}</td></tr>"
            for name, word, text in rows
        )
        yield "</table></section>"


def _finding(one: Finding) -> Iterator[str]:
    tag = f"<span class=tag>{escape(one.severity)}</span>"
    yield f'<section class="finding {escape(one.severity)}"><h2>{tag} {escape(one.title)} <small>{escape(one.id)}</small></h2>'
    yield f"<p>{escape(one.text)}.</p>"
    if one.severity != "info":
        sure = "" if one.confidence == "high" else f", {one.confidence} confidence"
        meter = f'<span class=meter><span style="width:{one.share:.0%}"></span></span>'
        yield f"<p class=share>{meter} explains {escape(amounts.percent(one.share))}{escape(sure)}</p>"
    if one.evidence:
        yield (
            "<ul>"
            + "".join(f"<li><code>{escape(fact_line(fact))}</code></li>" for fact in one.evidence)
            + "</ul>"
        )
    if one.advice:
        yield f"<p><b>Fix</b> {escape(WHERE.get(one.end, ''))}</p><pre>{escape(one.advice)}</pre>"
    if one.predicted:
        yield f"<p><b>Predicted</b> {escape(amounts.rate(one.predicted))}."
        yield f"<b>Next limit</b> {escape(one.next_limit or 'not known')}.</p>"
    yield "</section>"


def _figure(chart: Chart) -> str:
    legend = "".join(
        f'<span><i class="s{place}"></i>{escape(name)}</span>'
        for place, name in enumerate(chart.legend)
    )
    shown = f"<p class=legend>{legend}</p>" if legend else ""
    return f"<figure><figcaption>{escape(chart.title)}</figcaption>{shown}{chart.svg}</figure>"
