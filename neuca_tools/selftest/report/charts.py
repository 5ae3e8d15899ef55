"""The charts of a report: a title, a legend and an SVG each, left out if there is no data."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.compare import numbered
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence, Latency, Phase, Sample, Socket
from neuca_tools.selftest.evidence.derive import look
from neuca_tools.selftest.evidence.load import busy_series
from neuca_tools.selftest.evidence.look import data_sockets
from neuca_tools.selftest.evidence.run import Interval
from neuca_tools.selftest.report.svg import Bar, Format, Series, bars, heat, lines, stacked
from neuca_tools.selftest.report.text import arrow

# Of one line: more cannot be seen.
MOST_POINTS = 600
CHRONOGRAPHS = ("busy_time", "rwnd_limited", "sndbuf_limited")
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
    """All charts for which the evidence has data."""
    found = [
        *_before_and_after(diagnosis, before),
        _latency(evidence),
        _udp(evidence),
        *(chart for phase in evidence.phases for chart in _of_phase(phase)),
    ]
    return [chart for chart in found if chart is not None and chart.svg]


def _of_phase(phase: Phase) -> Iterator[Chart]:
    group = f"{arrow(phase.name, phase.direction)}{_variant(phase)}"
    yield from (chart._replace(group=group) for chart in _figures(phase))


def _variant(phase: Phase) -> str:
    """What tells this phase from others of its name: its rate or its number of streams."""
    if phase.target:
        return f", {amounts.rate(phase.target)}"
    streams = phase.run.streams if phase.run else None
    return f", {streams} streams" if streams and streams > 1 else ""


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
    """(seconds, bit/s) of every interval, by iperf or else by the sender's samples."""
    intervals = _intervals(phase)
    if intervals:
        return _points([(one.end, one.rate) for one in intervals if one.rate is not None])
    found = []
    for before, after in zip(phase.sender, phase.sender[1:]):
        first, last = _sum(before, phase, "bytes_acked"), _sum(after, phase, "bytes_acked")
        seconds = after.time - before.time
        if first is not None and last is not None and seconds > 0:
            rate = max(0.0, (last - first) * 8 / seconds)
            found.append((after.time - phase.sender[0].time, rate))
    return _points(found)


def _intervals(phase: Phase) -> list[Interval]:
    """What iperf counted in this direction, without slow start if it was told to omit that."""
    flow = phase.run.flow(phase.direction) if phase.run else None
    return [one for one in flow.intervals if not one.omitted] if flow else []


def _sum(sample: Sample, phase: Phase, name: str) -> Optional[float]:
    values = [getattr(one, name) for one in data_sockets(sample, phase)]
    return float(sum(values)) if values and None not in values else None


def _window(phase: Phase, name: str) -> Sequence[tuple[float, float]]:
    """(seconds, bytes) of "cwnd", "snd_wnd" or "in_flight", all streams together."""
    found = []
    for sample in phase.sender:
        each = [_bytes_of(one, name) for one in data_sockets(sample, phase)]
        known = [value for value in each if value is not None]
        if known:
            found.append((sample.time - phase.sender[0].time, float(sum(known))))
    if found or name == "in_flight":
        return _points(found)
    told = [(one.end, getattr(one, name)) for one in _intervals(phase)]
    return _points([(end, value) for end, value in told if value is not None])


def _bytes_of(socket: Socket, name: str) -> Optional[int]:
    if name == "snd_wnd":
        return socket.snd_wnd
    segments = socket.snd_cwnd if name == "cwnd" else socket.unacked
    return None if segments is None or socket.mss is None else segments * socket.mss


def _rtt(phase: Phase) -> Sequence[tuple[float, float]]:
    """(seconds, seconds): the mean round trip of all streams."""
    found = []
    for sample in phase.sender:
        known = [one.rtt for one in data_sockets(sample, phase) if one.rtt]
        if known:
            found.append((sample.time - phase.sender[0].time, sum(known) / len(known) / 1e6))
    told = [(one.end, one.rtt) for one in _intervals(phase) if one.rtt is not None]
    return _points(found or told)


def _time_parts(phase: Phase) -> Sequence[tuple[float, ...]]:
    """Shares of each interval, in the order of TIME_PARTS."""
    found = []
    for before, after in zip(phase.sender, phase.sender[1:]):
        streams = max(1, len(data_sockets(after, phase)))
        elapsed = (after.time - before.time) * 1e6 * streams
        grown = [_grown(before, after, phase, name) for name in CHRONOGRAPHS]
        shares = [min(1.0, max(0.0, one / elapsed)) for one in grown if one is not None and elapsed]
        if elapsed <= 0 or len(shares) < len(CHRONOGRAPHS):
            continue
        busy, receiver, sender = shares
        found.append((receiver, sender, max(0.0, busy - receiver - sender), 1 - busy))
    return found[:MOST_POINTS]


def _grown(before: Sample, after: Sample, phase: Phase, name: str) -> Optional[float]:
    first, last = _sum(before, phase, name), _sum(after, phase, name)
    return None if first is None or last is None else last - first


def _udp(evidence: Evidence) -> Optional[Chart]:
    points = []
    for phase in evidence.phases:
        one = look(evidence, phase)
        offered = one.flow.sent.rate if one.flow else None
        if one.protocol == "udp" and offered is not None and one.loss is not None:
            points.append((offered, one.loss))
    if not points:
        return None
    series = [Series("lost", sorted(points))]
    return Chart(
        "UDP: datagrams lost, against the rate offered",
        (),
        lines(series, amounts.percent, amounts.rate, dots=True),
    )


def _latency(evidence: Evidence) -> Optional[Chart]:
    names = ("median", "99 of 100", "longest")
    measured = (
        ("idle", evidence.idle),
        ("loaded", evidence.loaded),
        ("broadcast", evidence.broadcast.times),
    )
    rows = [Bar(name, _times(one)) for name, one in measured if _times(one)]
    if not rows:
        return None
    return Chart("Latency, idle and under load", names, bars(rows, amounts.time, names))


def _times(one: Latency) -> tuple[float, ...]:
    return tuple(value for value in (one.p50, one.p99, one.maximum) if value is not None)


def _before_and_after(diagnosis: Diagnosis, before: Optional[Diagnosis]) -> Iterator[Chart]:
    earlier = dict(numbered(before.phases)) if before else {}
    rows = [
        Bar(arrow(one.name, one.direction), (earlier[key].rate or 0.0, one.rate or 0.0))
        for key, one in numbered(diagnosis.phases)
        if key in earlier
    ]
    names = ("before", "after")
    if rows:
        yield Chart("Before and after", names, bars(rows, amounts.rate, names))
