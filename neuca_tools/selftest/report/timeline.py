"""The timeline of a report: the values of all tests on one time axis."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.evidence import Evidence, Phase, Sample
from neuca_tools.selftest.evidence.derive import growth_over_samples
from neuca_tools.selftest.evidence.look import data_sockets
from neuca_tools.selftest.evidence.run import Interval
from neuca_tools.selftest.evidence.trace import Trace
from neuca_tools.selftest.report.panels import Band, Line, Panel, Points
from neuca_tools.selftest.report.text import name_with_arrow

CHRONOGRAPHS = ("busy_time", "rwnd_limited", "sndbuf_limited")
TIME_PARTS = ("receiver-limited", "sender-limited", "network", "nothing to send")
# The lines of the directions, with the numbers of their colors, and those of the ends.
WAYS = {"forward": (0, "to the peer"), "reverse": (1, "from the peer")}
ENDS = ("this host", "the peer")
WINDOWS = {"cwnd": "congestion window", "snd_wnd": "receiver's window", "in_flight": "in flight"}
# The receiver's window is shown up to this multiple of the largest congestion window.
HEADROOM = 1.5


class PhaseSpan(NamedTuple):
    """A phase, and when it began and ended in seconds since the first one began."""

    phase: Phase
    start: float
    end: float


Extract = Callable[[PhaseSpan], Points]


def timeline_panels(evidence: Evidence) -> tuple[list[Panel], list[Band]]:
    """The panels and the tests behind them."""
    spans = list(_phase_spans(evidence.phases))
    round_trips = _by_way(spans, partial(_sender_points, "rtt"))
    panels = [
        Panel("Rate (bit/s)", amounts.rate, _by_way(spans, _rate_points)),
        Panel("Round-trip time of the connections (s)", amounts.time, round_trips),
        Panel("Window (bytes)", amounts.size, _window_lines(spans), binary=True),
        Panel("Retransmits (segments per second)", _count_text, _by_way(spans, _retransmit_points)),
        Panel("Where the sender's time went", "{:.0%}".format, _time_lines(spans), top=1.0),
        Panel("Use of the busiest CPU", "{:.0%}".format, _cpu_lines(spans), top=1.0),
    ]
    return panels, _bands_of_runs(spans)


def _count_text(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:g}k"
    return amounts.three_digits(value) if 0 < value < 10 else f"{value:.0f}"


# --- When each phase was ---


def _phase_spans(phases: Sequence[Phase]) -> Iterator[PhaseSpan]:
    """By the local host's clock; one after the other if it took no samples."""
    clocks = [start for start in map(_start_time, phases) if start is not None]
    first, at = min(clocks, default=0.0), 0.0
    before: Optional[PhaseSpan] = None
    for phase in phases:
        clock = _start_time(phase)
        start = at if clock is None else clock - first
        if clock is None and before is not None and before.phase.run is phase.run:
            # The other direction of the same run.
            start = before.start
        before = PhaseSpan(phase, start, start + _duration(phase))
        at = max(at, before.end)
        yield before


def _local_and_remote(phase: Phase) -> list[tuple[tuple[Sample, ...], Trace]]:
    """The samples and the trace of this host, and those of the peer."""
    ends = [(phase.sender, phase.sender_trace), (phase.receiver, phase.receiver_trace)]
    return ends if phase.direction == "forward" else ends[::-1]


def _start_time(phase: Phase) -> Optional[float]:
    """When the local host began to look, by its clock."""
    return min((times[0] for times in _local_times(phase) if times), default=None)


def _duration(phase: Phase) -> float:
    """How long the phase took, as far as that is known."""
    lengths = [times[-1] - times[0] for times in _local_times(phase) if times]
    return max([0.0, *lengths, *[interval.end for interval in _steady_intervals(phase)]])


def _local_times(phase: Phase) -> tuple[Sequence[float], Sequence[float]]:
    """The times of the trace and of the samples of the local host."""
    samples, trace = _local_and_remote(phase)[0]
    return trace.time, [sample.time for sample in samples]


def _steady_intervals(phase: Phase) -> list[Interval]:
    """What iperf counted in this direction, without the slow start that its -O omits."""
    flow = phase.run and phase.run.flow(phase.direction)
    return [interval for interval in flow.intervals if not interval.omitted] if flow else []


def _bands_of_runs(spans: Sequence[PhaseSpan]) -> list[Band]:
    """One for each run: two directions at once are one band."""
    band_by_start: dict[float, Band] = {}
    for span in spans:
        name = name_with_arrow(span.phase.name, span.phase.direction) + _variant_text(span.phase)
        if span.start in band_by_start:
            name = band_by_start[span.start].name
        band_by_start[span.start] = Band(name, span.start, span.end)
    return list(band_by_start.values())


def _variant_text(phase: Phase) -> str:
    """What tells this phase from others of its name: its rate or its number of streams."""
    if phase.target:
        return f", {amounts.rate(phase.target)}"
    streams = (phase.run and phase.run.streams) or 1
    return f", {streams} streams" if streams > 1 else ""


# --- The lines of the panels ---


def _by_way(spans: Sequence[PhaseSpan], extract: Extract) -> list[Line]:
    """A line for each direction, with a part for each phase."""
    return [
        Line(name, place, [extract(span) for span in spans if span.phase.direction == way])
        for way, (place, name) in WAYS.items()
    ]


def _traced_points(span: PhaseSpan, trace: Trace, name: str) -> Points:
    """A column of a trace, on the axis of the page."""
    began = _start_time(span.phase)
    if began is None:
        began = trace.time[0] if trace.time else 0.0
    return [(span.start + time - began, value) for time, value in trace.points(name)]


def _interval_points(span: PhaseSpan, value: Callable[[Interval], Optional[float]]) -> Points:
    """What iperf reported, which is the same from the start of an interval to its end."""
    points: list[tuple[float, float]] = []
    for interval in _steady_intervals(span.phase):
        known = value(interval)
        if known is not None:
            points += [(span.start + time, known) for time in (interval.start, interval.end)]
    return points


def _is_udp(phase: Phase) -> bool:
    """Then the TCP connections are those that control iperf3."""
    return phase.run is not None and phase.run.protocol == "udp"


def _rate_points(span: PhaseSpan) -> Points:
    phase = span.phase
    traced = _traced_points(span, phase.receiver_trace, "received")
    traced = traced or _traced_points(span, phase.sender_trace, "sent")
    if traced and not _is_udp(phase):
        return traced
    return _interval_points(span, lambda interval: interval.rate)


def _sender_points(name: str, span: PhaseSpan) -> Points:
    """A column of the sender's trace, or else what iperf reported."""
    if _is_udp(span.phase):
        return []
    return _traced_points(span, span.phase.sender_trace, name) or _interval_points(
        span, lambda interval: getattr(interval, name, None)
    )


def _window_lines(spans: Sequence[PhaseSpan]) -> list[Line]:
    """The receiver's window is cut off where it is far above the others: it has no effect there."""
    parts = {name: [_sender_points(name, span) for span in spans] for name in WINDOWS}
    others = [value for name in ("cwnd", "in_flight") for part in parts[name] for _, value in part]
    most = HEADROOM * max(others, default=math.inf)
    parts["snd_wnd"] = [
        [(time, value) for time, value in part if value <= most] for part in parts["snd_wnd"]
    ]
    return [Line(WINDOWS[name], place, parts[name]) for place, name in enumerate(WINDOWS)]


def _retransmit_points(span: PhaseSpan) -> Points:
    """(seconds, segments per second)."""
    trace = span.phase.sender_trace
    steps = [after - before for before, after in zip(trace.time, trace.time[1:])]
    if not _is_udp(span.phase) and any(value is not None for value in trace.retransmits):
        rates = [
            value / step if value is not None and step > 0 else None
            for value, step in zip(trace.retransmits[1:], steps)
        ]
        return _traced_points(span, replace(trace, retransmits=(None, *rates)), "retransmits")
    return _interval_points(span, _retransmit_rate)


def _retransmit_rate(interval: Interval) -> Optional[float]:
    if interval.retransmits is None or not interval.seconds:
        return None
    return interval.retransmits / interval.seconds


def _cpu_lines(spans: Sequence[PhaseSpan]) -> list[Line]:
    lines = []
    for number, end in enumerate(ENDS):
        traces = [_local_and_remote(span.phase)[number][1] for span in spans]
        parts = [_traced_points(span, trace, "cpu") for span, trace in zip(spans, traces)]
        lines.append(Line(end, number, parts))
    return lines


def _time_lines(spans: Sequence[PhaseSpan]) -> list[Line]:
    """In the order of TIME_PARTS, from the samples of each sender."""
    shares = [list(_time_shares(span)) for span in spans if not _is_udp(span.phase)]
    return [
        Line(name, place, [[(time, parts[place]) for time, parts in part] for part in shares])
        for place, name in enumerate(TIME_PARTS)
    ]


def _time_shares(span: PhaseSpan) -> Iterator[tuple[float, tuple[float, ...]]]:
    """The end of each second, and the shares of it."""
    sender = span.phase.sender
    for before, after in zip(sender, sender[1:]):
        looks = [data_sockets(sample, span.phase) for sample in (before, after)]
        elapsed = (after.time - before.time) * 1e6 * max(1, len(looks[1]))
        clocks = [growth_over_samples(looks, name) for name in CHRONOGRAPHS]
        known = [clock for clock in clocks if clock is not None]
        if elapsed > 0 and len(known) == len(clocks):
            busy, receiver, out = (min(1.0, clock / elapsed) for clock in known)
            time = span.start + after.time - sender[0].time
            yield time, (receiver, out, max(0.0, busy - receiver - out), 1 - busy)
