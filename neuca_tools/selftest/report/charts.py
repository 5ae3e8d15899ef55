"""The charts of a report beside its timeline: a title, a legend and an SVG each."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.compare import numbered
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence, Latency
from neuca_tools.selftest.evidence.derive import look
from neuca_tools.selftest.evidence.run import Flow
from neuca_tools.selftest.report.svg import Bar, Series, bars, lines
from neuca_tools.selftest.report.text import arrow


class Chart(NamedTuple):
    """One figure of the page; without data, its SVG is an empty text."""

    title: str
    legend: tuple[str, ...]
    svg: str


def charts(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis] = None
) -> list[Chart]:
    """All charts for which the evidence has data."""
    found = [_before_and_after(diagnosis, before), _latency(evidence), _udp(evidence)]
    return [chart for chart in found if chart.svg]


def _udp(evidence: Evidence) -> Chart:
    points = []
    for phase in evidence.phases:
        one, offered = look(evidence, phase), (phase.flow or Flow()).sent.rate
        if one.protocol == "udp" and offered is not None and one.loss is not None:
            points.append((offered, one.loss))
    series = [Series("lost", sorted(points))]
    picture = lines(series, amounts.percent, amounts.rate, dots=True)
    return Chart("UDP: datagrams lost, against the rate offered", (), picture)


def _latency(evidence: Evidence) -> Chart:
    names = ("median", "99 of 100", "longest")
    measured = {
        "idle": evidence.idle,
        "loaded": evidence.loaded,
        "broadcast": evidence.broadcast.times,
    }
    rows = [Bar(name, _times(one)) for name, one in measured.items() if _times(one)]
    return Chart("Latency, idle and under load", names, bars(rows, amounts.time, names))


def _times(one: Latency) -> tuple[float, ...]:
    return tuple(value for value in (one.p50, one.p99, one.maximum) if value is not None)


def _before_and_after(diagnosis: Diagnosis, before: Optional[Diagnosis]) -> Chart:
    earlier = dict(numbered(before.phases)) if before else {}
    rows = [
        Bar(arrow(one.name, one.direction), (earlier[key].rate or 0.0, one.rate or 0.0))
        for key, one in numbered(diagnosis.phases)
        if key in earlier
    ]
    names = ("before", "after")
    return Chart("Before and after", names, bars(rows, amounts.rate, names))
