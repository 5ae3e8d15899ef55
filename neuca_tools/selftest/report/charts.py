"""The charts of a report: a title, a legend and an SVG each, left out if there is no data."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import NamedTuple, Optional, TypeVar

from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.compare import numbered
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence, Latency, Phase
from neuca_tools.selftest.evidence.derive import grown, look, rates_of, total
from neuca_tools.selftest.evidence.load import busy_series
from neuca_tools.selftest.evidence.look import data_sockets
from neuca_tools.selftest.evidence.run import Flow, Interval
from neuca_tools.selftest.report.svg import Bar, Format, Series, bars, heat, lines, stacked
from neuca_tools.selftest.report.text import arrow

# The most points of one line; more cannot be seen.
MOST_POINTS = 600
CHRONOGRAPHS = ("busy_time", "rwnd_limited", "sndbuf_limited")
TIME_PARTS = ("receiver-limited", "sender-limited", "network", "nothing to send")


Points = Sequence[tuple[float, float]]
T = TypeVar("T")


class Chart(NamedTuple):
    """One figure of the page; those with one `group` stand together."""

    title: str
    legend: tuple[str, ...]
    svg: str
    group: str = ""


def charts(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis] = None
) -> list[Chart]:
    """All charts for which the evidence has data."""
    found = [
        _before_and_after(diagnosis, before),
        _latency(evidence),
        _udp(evidence),
        *(chart for phase in evidence.phases for chart in _of_phase(phase)),
    ]
    return [chart for chart in found if chart.svg]


def _of_phase(phase: Phase) -> Iterator[Chart]:
    group = f"{arrow(phase.name, phase.direction)}{_variant(phase)}"
    yield from (chart._replace(group=group) for chart in _figures(phase))


def _variant(phase: Phase) -> str:
    """What tells this phase from others of its name: its rate or its number of streams."""
    if phase.target:
        return f", {amounts.rate(phase.target)}"
    if phase.run is None or (phase.run.streams or 1) == 1:
        return ""
    return f", {phase.run.streams} streams"


def _figures(phase: Phase) -> Iterator[Chart]:
    yield _chart("Rate", [("rate", _rates(phase))], amounts.rate)
    if phase.run is None or phase.run.protocol != "udp":
        # The TCP sockets of a UDP test are iperf3's control connection.
        yield from _of_tcp(phase)
    rows = [
        (f"{end} {number}", _thinned(values))
        for end, samples in (("send", phase.sender), ("recv", phase.receiver))
        for number, values in enumerate(busy_series(samples))
    ]
    yield Chart("CPUs of both ends", (), heat(rows, _second))


def _of_tcp(phase: Phase) -> Iterator[Chart]:
    windows = [
        ("congestion window", _window(phase, "cwnd")),
        ("receiver's window", _window(phase, "snd_wnd")),
        ("in flight", _window(phase, "in_flight")),
    ]
    yield _chart("Window", windows, amounts.size)
    yield _chart("Round-trip time", [("round-trip time", _rtt(phase))], amounts.time)
    parts = stacked(_time_parts(phase), TIME_PARTS, _second)
    yield Chart("Where the time went", TIME_PARTS, parts)


def _chart(title: str, series: Sequence[tuple[str, Points]], form: Format) -> Chart:
    known = [Series(name, _thinned(points)) for name, points in series if points]
    legend = tuple(one.name for one in known) if len(known) > 1 else ()
    return Chart(title, legend, lines(known, form, _second, binary=form is amounts.size))


def _second(value: float) -> str:
    return f"{value:g} s"


def _thinned(values: Sequence[T]) -> Sequence[T]:
    return values[:: max(1, len(values) // MOST_POINTS)]


def _rates(phase: Phase) -> Points:
    """(seconds, bit/s) of every interval, by iperf or else by the sender's samples."""
    intervals = _intervals(phase)
    if intervals:
        return [(one.end, one.rate) for one in intervals if one.rate is not None]
    return [(time - phase.sender[0].time, rate) for time, rate in rates_of(phase.sender, phase)]


def _intervals(phase: Phase) -> list[Interval]:
    """What iperf counted in this direction, without slow start if it was told to omit that."""
    flow = phase.run and phase.run.flow(phase.direction)
    return [one for one in flow.intervals if not one.omitted] if flow else []


def _window(phase: Phase, name: str) -> Points:
    """(seconds, bytes) of "cwnd", "snd_wnd" or "in_flight", all streams together."""
    sums = [(one.time, total(data_sockets(one, phase), name)) for one in phase.sender]
    found = [(time - phase.sender[0].time, value) for time, value in sums if value is not None]
    if found or name == "in_flight":
        return found
    reported = [(one.end, getattr(one, name)) for one in _intervals(phase)]
    return [(end, value) for end, value in reported if value is not None]


def _rtt(phase: Phase) -> Points:
    """(seconds, seconds): the mean round trip of all streams."""
    found = []
    for sample in phase.sender:
        known = [one.rtt for one in data_sockets(sample, phase) if one.rtt]
        if known:
            found.append((sample.time - phase.sender[0].time, mean(known) / 1e6))
    return found or [(one.end, one.rtt) for one in _intervals(phase) if one.rtt is not None]


def _time_parts(phase: Phase) -> Sequence[tuple[float, ...]]:
    """Shares of each interval, in the order of TIME_PARTS."""
    found = []
    for before, after in zip(phase.sender, phase.sender[1:]):
        looks = [data_sockets(sample, phase) for sample in (before, after)]
        elapsed = (after.time - before.time) * 1e6 * max(1, len(looks[1]))
        clocks = [grown(looks, name) for name in CHRONOGRAPHS]
        if elapsed <= 0 or None in clocks:
            continue
        busy, receiver, sender = (
            min(1.0, clock / elapsed) for clock in clocks if clock is not None
        )
        found.append((receiver, sender, max(0.0, busy - receiver - sender), 1 - busy))
    return found[:MOST_POINTS]


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
