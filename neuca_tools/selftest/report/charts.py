"""Which charts a report has: each of them a title, a legend and an SVG, left out where nothing of it is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.compare import numbered
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence, Latency, Phase, Sample
from neuca_tools.selftest.evidence.derive import look
from neuca_tools.selftest.evidence.load import busy_series
from neuca_tools.selftest.evidence.look import data_sockets
from neuca_tools.selftest.report.svg import Bar, Format, Series, bars, heat, lines, stacked

MOST_POINTS = 600  # of one line: more cannot be seen
TIME_PARTS = ("receiver-limited", "sender-limited", "network", "nothing to send")


class Chart(NamedTuple):
    """One figure of the page; those with one `group` stand together."""

    title: str
    legend: tuple[str, ...]
    svg: str
    group: str = ""


def charts(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis] = None
) -> list[Chart]:
    """All that the evidence has something for."""
    found = [
        *_before_and_after(diagnosis, before),
        _latency(evidence),
        _udp(evidence),
        *(chart for phase in evidence.phases for chart in _of_phase(phase)),
    ]
    return [chart for chart in found if chart is not None and chart.svg]


def _of_phase(phase: Phase) -> Iterator[Chart]:
    streams = phase.run.streams if phase.run else None
    asked = (
        f", {amounts.rate(phase.target)}"
        if phase.target
        else f", {streams} streams"
        if streams and streams > 1
        else ""
    )
    group = f"{_named(phase.name, phase.direction)}{asked}"
    yield from (chart._replace(group=group) for chart in _figures(phase))


def _figures(phase: Phase) -> Iterator[Chart]:
    yield _chart("Rate", [("rate", _rates(phase))], amounts.rate)
    windows = [
        ("congestion window", _window(phase, "cwnd")),
        ("receiver's window", _window(phase, "snd_wnd")),
        ("in flight", _window(phase, "in_flight")),
    ]
    if (
        phase.run.protocol if phase.run else None
    ) != "udp":  # its sockets are those of iperf3's control connection
        yield _chart("Window", windows, amounts.size)
        yield _chart("Round-trip time", [("round-trip time", _rtt(phase))], amounts.time)
        yield Chart(
            "Where the time went", TIME_PARTS, stacked(_time_parts(phase), TIME_PARTS, _second)
        )
    rows = [
        (f"{end} {number}", _thinned(values))
        for end, samples in (("send", phase.sender), ("recv", phase.receiver))
        for number, values in enumerate(busy_series(samples))
    ]
    yield Chart("CPUs of both ends", (), heat(rows, _second))


def _named(name: str, direction: str) -> str:
    return f"{name} ←" if direction == "reverse" else name


def _chart(
    title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], form: Format
) -> Chart:
    known = [Series(name, points) for name, points in series if points]
    legend = tuple(one.name for one in known) if len(known) > 1 else ()
    return Chart(title, legend, lines(known, form, _second, binary=form is amounts.size))


def _second(value: float) -> str:
    return f"{value:g} s"


def _thinned(values: Sequence[float]) -> Sequence[float]:
    return values[:: max(1, len(values) // MOST_POINTS)]


def _points(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return points[:: max(1, len(points) // MOST_POINTS)]


def _rates(phase: Phase) -> Sequence[tuple[float, float]]:
    flow = phase.run.flow(phase.direction) if phase.run else None
    if flow is not None and flow.intervals:
        return _points(
            [
                (one.end, one.rate)
                for one in flow.intervals
                if one.rate is not None and not one.omitted
            ]
        )
    found = []
    for before, after in zip(phase.sender, phase.sender[1:]):
        acked = _sum(after, phase, "bytes_acked"), _sum(before, phase, "bytes_acked")
        if acked[0] is not None and acked[1] is not None and after.time > before.time:
            found.append(
                (
                    after.time - phase.sender[0].time,
                    max(0.0, (acked[0] - acked[1]) * 8 / (after.time - before.time)),
                )
            )
    return _points(found)


def _sum(sample: Sample, phase: Phase, name: str) -> Optional[float]:
    values = [getattr(one, name) for one in data_sockets(sample, phase)]
    return float(sum(values)) if values and None not in values else None


def _window(phase: Phase, name: str) -> Sequence[tuple[float, float]]:
    found = []
    for sample in phase.sender:
        each = [
            {
                "cwnd": _product(one.snd_cwnd, one.mss),
                "snd_wnd": one.snd_wnd,
                "in_flight": _product(one.unacked, one.mss),
            }[name]
            for one in data_sockets(sample, phase)
        ]
        known = [value for value in each if value is not None]
        if known:
            found.append((sample.time - phase.sender[0].time, float(sum(known))))
    flow = phase.run.flow(phase.direction) if phase.run else None
    if not found and flow is not None and name != "in_flight":
        found = [
            (one.end, value)
            for one in flow.intervals
            if (value := getattr(one, name)) is not None and not one.omitted
        ]
    return _points(found)


def _product(segments: Optional[int], size: Optional[int]) -> Optional[int]:
    return None if segments is None or size is None else segments * size


def _rtt(phase: Phase) -> Sequence[tuple[float, float]]:
    found = [
        (sample.time - phase.sender[0].time, sum(known) / len(known) / 1e6)
        for sample in phase.sender
        if (known := [one.rtt for one in data_sockets(sample, phase) if one.rtt])
    ]
    flow = phase.run.flow(phase.direction) if phase.run else None
    if not found and flow is not None:
        found = [
            (one.end, one.rtt) for one in flow.intervals if one.rtt is not None and not one.omitted
        ]
    return _points(found)


def _time_parts(phase: Phase) -> Sequence[tuple[float, ...]]:
    """Of each interval: the three parts of the time in which data was on its way, and the rest."""
    found = []
    for before, after in zip(phase.sender, phase.sender[1:]):
        ends = [
            (_sum(after, phase, name), _sum(before, phase, name))
            for name in ("busy_time", "rwnd_limited", "sndbuf_limited")
        ]
        gone = (after.time - before.time) * 1e6 * max(1, len(data_sockets(after, phase)))
        if gone <= 0 or any(one is None for pair in ends for one in pair):
            continue
        busy, receiver, sender = (
            min(1.0, max(0.0, ((late or 0) - (early or 0)) / gone)) for late, early in ends
        )
        found.append((receiver, sender, max(0.0, busy - receiver - sender), 1 - busy))
    return found[:MOST_POINTS]


def _udp(evidence: Evidence) -> Optional[Chart]:
    looks = [look(evidence, phase) for phase in evidence.phases]
    points = sorted(
        (one.flow.sent.rate, one.loss)
        for one in looks
        if one.protocol == "udp"
        and one.flow
        and one.flow.sent.rate is not None
        and one.loss is not None
    )
    if not points:
        return None
    return Chart(
        "UDP: datagrams lost, against the rate offered",
        (),
        lines([Series("lost", points)], amounts.percent, amounts.rate, dots=True),
    )


def _latency(evidence: Evidence) -> Optional[Chart]:
    names = ("median", "99 of 100", "longest")
    measured = (
        ("idle", evidence.idle),
        ("loaded", evidence.loaded),
        ("broadcast", evidence.broadcast.times),
    )
    rows = [Bar(name, values) for name, one in measured if (values := _times(one))]
    return (
        Chart("Latency, idle and under load", names, bars(rows, amounts.time, names))
        if rows
        else None
    )


def _times(one: Latency) -> tuple[float, ...]:
    return tuple(value for value in (one.p50, one.p99, one.maximum) if value is not None)


def _before_and_after(diagnosis: Diagnosis, before: Optional[Diagnosis]) -> Iterator[Chart]:
    earlier = dict(numbered(before.phases)) if before else {}
    rows = [
        Bar(_named(one.name, one.direction), (earlier[key].rate or 0.0, one.rate or 0.0))
        for key, one in numbered(diagnosis.phases)
        if key in earlier
    ]
    if rows:
        yield Chart(
            "Before and after", ("before", "after"), bars(rows, amounts.rate, ("before", "after"))
        )
