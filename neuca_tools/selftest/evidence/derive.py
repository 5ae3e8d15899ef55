"""A phase's samples become a `Look`: what is known of its rate, windows and round trips."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median
from typing import Optional

from neuca_tools.selftest.evidence import Evidence, Phase, Sample, Socket
from neuca_tools.selftest.evidence.look import (
    FLAT,
    Look,
    RoundTrip,
    Throughput,
    Windows,
    data_sockets,
    steady_intervals,
    steady_samples,
)
from neuca_tools.selftest.evidence.run import Flow, Interval


def look(evidence: Evidence, phase: Phase) -> Look:
    """Everything that is known of one phase."""
    run = phase.run
    flow = (run.flow(phase.direction) or next(iter(run.flows), None)) if run else None
    sockets = _sockets(phase)
    rough = _rtt(sockets, flow, evidence)
    samples = steady_samples(_with_all_streams(phase), rough)
    late = [data_sockets(sample, phase) for sample in samples]
    steady = steady_intervals(flow.intervals if flow else (), rough)
    under_load = _median(_seconds(late, "rtt")) or _interval_rtt(steady) or evidence.rtt
    return Look(
        evidence,
        phase,
        _throughput(phase, flow, steady, samples),
        _windows(phase, steady, samples),
        RoundTrip(under_load, _min_rtt(sockets, flow, evidence)),
    )


def _throughput(
    phase: Phase,
    flow: Optional[Flow],
    steady: tuple[Interval, ...],
    samples: Sequence[Sample],
) -> Throughput:
    run = phase.run
    late = [data_sockets(sample, phase) for sample in samples]
    rates = tuple(one.rate for one in steady if one.rate is not None)
    rates = rates or tuple(_rates(samples, phase))
    rate = _rate(flow, steady, rates)
    if run is not None and run.error and not rate:
        rate = None
    loss = _loss(late, flow, run.mss if run else None)
    return Throughput(steady, rate, rates, loss, _retransmits(steady, flow))


def _windows(phase: Phase, steady: tuple[Interval, ...], samples: Sequence[Sample]) -> Windows:
    late = [data_sockets(sample, phase) for sample in samples]
    busy = _growth(late, "busy_time")
    cwnds = [one.cwnd for one in steady if one.cwnd]
    cwnds = cwnds or [sum(map(_cwnd, one)) for one in late if one]
    windows = _sums(late, lambda one: one.snd_wnd)
    return Windows(
        mss=_median(_values(late, "mss")) or (phase.run.mss if phase.run else None),
        cwnd=_median(cwnds),
        snd_wnd=_median(windows) or _median([one.snd_wnd for one in steady]),
        in_flight=_median(_sums(late, _unacked)),
        rwnd_limited=_part(_growth(late, "rwnd_limited"), busy),
        sndbuf_limited=_part(_growth(late, "sndbuf_limited"), busy),
        idle_share=_idle_share(samples, late, busy),
        flat=_is_flat(cwnds),
    )


def _idle_share(
    samples: Sequence[Sample], late: Sequence[tuple[Socket, ...]], busy: Optional[float]
) -> Optional[float]:
    """The share of the time in which nothing was in flight."""
    seconds = samples[-1].time - samples[0].time if samples else 0.0
    streams = max((len(one) for one in late), default=0)
    if busy is None or seconds <= 0 or not streams:
        return None
    return max(0.0, 1 - busy / (seconds * 1e6 * streams))


def _is_flat(cwnds: Sequence[float]) -> bool:
    """Whether the congestion window stayed where it was."""
    if len(cwnds) < 2 or not max(cwnds):
        return False
    return max(cwnds) - min(cwnds) <= FLAT * max(cwnds)


def _with_all_streams(phase: Phase) -> tuple[Sample, ...]:
    """The looks at which every stream was there: before and after, some or all of them were not. All, if none was ever seen."""
    counts = [len(data_sockets(sample, phase)) for sample in phase.sender]
    return tuple(sample for sample, count in zip(phase.sender, counts) if count == max(counts))


def _sockets(phase: Phase) -> list[tuple[Socket, ...]]:
    return [data_sockets(sample, phase) for sample in phase.sender]


def _rtt(
    sockets: list[tuple[Socket, ...]], flow: Optional[Flow], evidence: Evidence
) -> Optional[float]:
    return (
        _median(_seconds(sockets, "rtt"))
        or _interval_rtt(flow.intervals if flow else ())
        or evidence.rtt
    )


def _interval_rtt(intervals: Iterable[Interval]) -> Optional[float]:
    return _median([one.rtt for one in intervals])


def _min_rtt(
    sockets: list[tuple[Socket, ...]], flow: Optional[Flow], evidence: Evidence
) -> Optional[float]:
    known = [
        *_seconds(sockets, "min_rtt"),
        *(one.rtt for one in (flow.intervals if flow else ()) if one.rtt),
    ]
    known += [value for value in (evidence.idle.p50, evidence.rtt) if value]
    return min(known, default=None)


def _rate(
    flow: Optional[Flow], steady: tuple[Interval, ...], rates: tuple[float, ...]
) -> Optional[float]:
    """What arrived in the steady part, where each interval is known; of UDP what arrived in all."""
    if (
        flow is not None
        and flow.received.rate is not None
        and (flow.received.lost is not None or len(rates) < 2)
    ):
        return flow.received.rate
    weights = [one.seconds for one in steady if one.rate is not None]
    if steady and sum(weights) > 0:
        return sum(rate * weight for rate, weight in zip(rates, weights)) / sum(weights)
    if rates:
        return mean(rates)
    return flow.sent.rate if flow else None


def _rates(samples: Sequence[Sample], phase: Phase) -> Iterable[float]:
    for before, after in zip(samples, samples[1:]):
        acked = _growth([data_sockets(before, phase), data_sockets(after, phase)], "bytes_acked")
        if acked is not None and after.time > before.time:
            yield acked * 8 / (after.time - before.time)


def _growth(looks: Sequence[tuple[Socket, ...]], name: str) -> Optional[float]:
    """Of all streams together; a counter of a socket only ever grows."""
    if len(looks) < 2:
        return None
    ends = [[getattr(one, name) for one in sockets] for sockets in (looks[0], looks[-1])]
    if any(value is None for values in ends for value in values) or not all(ends):
        return None
    return float(max(0, sum(ends[1]) - sum(ends[0])))


def _loss(
    late: Sequence[tuple[Socket, ...]], flow: Optional[Flow], mss: Optional[int]
) -> Optional[float]:
    again, sent = _growth(late, "bytes_retrans"), _growth(late, "bytes_sent")
    if again is not None and sent:
        return again / sent
    if flow is None:
        return None
    if flow.received.lost is not None and flow.received.datagrams:
        return min(1.0, flow.received.lost / flow.received.datagrams)
    if flow.sent.retransmits is not None and flow.sent.bytes:
        return min(1.0, flow.sent.retransmits * (mss or 1448) / flow.sent.bytes)
    return None


def _retransmits(steady: tuple[Interval, ...], flow: Optional[Flow]) -> Optional[int]:
    known = [one.retransmits for one in steady if one.retransmits is not None]
    if known:
        return sum(known)
    return flow.sent.retransmits if flow else None


def _cwnd(one: Socket) -> float:
    return float((one.snd_cwnd or 0) * (one.mss or 0))


def _unacked(one: Socket) -> Optional[float]:
    return None if one.unacked is None or one.mss is None else float(one.unacked * one.mss)


def _sums(
    looks: Sequence[tuple[Socket, ...]], value: Callable[[Socket], Optional[float]]
) -> list[Optional[float]]:
    found: list[Optional[float]] = []
    for sockets in looks:
        values = [value(one) for one in sockets]
        known = [one for one in values if one is not None]
        found.append(sum(known) if known and len(known) == len(values) else None)
    return found


def _values(looks: Sequence[tuple[Socket, ...]], name: str) -> list[float]:
    return [
        float(value)
        for sockets in looks
        for one in sockets
        if (value := getattr(one, name)) is not None
    ]


def _seconds(looks: Sequence[tuple[Socket, ...]], name: str) -> list[float]:
    return [value / 1e6 for value in _values(looks, name)]


def _median(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _part(share: Optional[float], busy: Optional[float]) -> Optional[float]:
    return None if share is None or not busy else min(1.0, share / busy)
