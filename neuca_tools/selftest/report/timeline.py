"""The timeline of a report: the values of all tests on one time axis."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.evidence import Evidence, Phase, Sample
from neuca_tools.selftest.evidence.derive import (
    growth_over_samples,
    growths_of,
    round_trips_of,
    totals_of,
)
from neuca_tools.selftest.evidence.load import busy_share
from neuca_tools.selftest.evidence.look import data_sockets
from neuca_tools.selftest.evidence.run import Interval
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
Samples = tuple[Sample, ...]


def timeline_panels(evidence: Evidence) -> tuple[list[Panel], list[Band]]:
    """The panels and the tests behind them."""
    spans = list(_phase_spans(evidence.phases))
    panels = [
        Panel("Rate (bit/s)", amounts.rate, _by_way(spans, _rate_points)),
        Panel("Round-trip time of the connections (s)", amounts.time, _by_way(spans, _rtt_points)),
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


def _local_and_remote(phase: Phase) -> tuple[Samples, Samples]:
    """The samples of this host, and those of the peer, each by its own clock."""
    ends = (phase.sender, phase.receiver)
    return ends if phase.direction == "forward" else ends[::-1]


def _start_time(phase: Phase) -> Optional[float]:
    """When the local host took its first sample, by its clock."""
    local, _ = _local_and_remote(phase)
    return local[0].time if local else None


def _duration(phase: Phase) -> float:
    """How long the phase took, as far as that is known."""
    local, _ = _local_and_remote(phase)
    length = local[-1].time - local[0].time if local else 0.0
    return max([length, *[interval.end for interval in _steady_intervals(phase)]])


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


def _on_axis(span: PhaseSpan, samples: Samples, points: Iterable[tuple[float, float]]) -> Points:
    """Points of these samples, on the axis of the page: the first sample is at the start."""
    return [(span.start + time - samples[0].time, value) for time, value in points]


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
    return _interval_points(span, lambda interval: interval.rate)


def _sender_points(
    span: PhaseSpan,
    points: Iterable[tuple[float, float]],
    reported: Callable[[Interval], Optional[float]],
) -> Points:
    """From the samples of the sender, or else what iperf reported."""
    if not _is_udp(span.phase):
        sampled = _on_axis(span, span.phase.sender, points)
        if sampled:
            return sampled
    return _interval_points(span, reported)


def _rtt_points(span: PhaseSpan) -> Points:
    points = round_trips_of(span.phase.sender, span.phase)
    return _sender_points(span, points, lambda interval: interval.rtt)


def _window_points(name: str, span: PhaseSpan) -> Points:
    points = totals_of(span.phase.sender, span.phase, name)
    return _sender_points(span, points, lambda interval: getattr(interval, name, None))


def _window_lines(spans: Sequence[PhaseSpan]) -> list[Line]:
    """The receiver's window is cut off where it is far above the others: it has no effect there."""
    parts = {name: [_window_points(name, span) for span in spans] for name in WINDOWS}
    others = [value for name in ("cwnd", "in_flight") for part in parts[name] for _, value in part]
    most = HEADROOM * max(others, default=math.inf)
    parts["snd_wnd"] = [
        [(time, value) for time, value in part if value <= most] for part in parts["snd_wnd"]
    ]
    return [Line(WINDOWS[name], place, parts[name]) for place, name in enumerate(WINDOWS)]


def _retransmit_points(span: PhaseSpan) -> Points:
    """(seconds, segments per second)."""
    growths = growths_of(span.phase.sender, span.phase, "total_retrans")
    rates = ((time, count / seconds) for time, seconds, count in growths)
    return _sender_points(span, rates, _retransmit_rate)


def _retransmit_rate(interval: Interval) -> Optional[float]:
    if interval.retransmits is None or not interval.seconds:
        return None
    return interval.retransmits / interval.seconds


def _cpu_lines(spans: Sequence[PhaseSpan]) -> list[Line]:
    ends = zip(*[_local_and_remote(span.phase) for span in spans])
    return [
        Line(ENDS[number], number, list(map(_cpu_points, spans, samples)))
        for number, samples in enumerate(ends)
    ]


def _cpu_points(span: PhaseSpan, samples: Samples) -> Points:
    """The use of the busiest CPU since the sample before."""
    uses = [
        (later.time, max(map(busy_share, earlier.cpus, later.cpus), default=0.0))
        for earlier, later in zip(samples, samples[1:])
        if later.cpus
    ]
    return _on_axis(span, samples, uses)


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
