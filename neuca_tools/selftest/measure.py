"""One phase as numbers: what the rules of the diagnosis compare. All of it is derived, and None where it is not known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median, pstdev
from typing import Optional, Union

from .evidence import Evidence, Host, Phase, Sample, Socket
from .load import Load, loads
from .run import Flow, Interval

START = 2.0  # seconds of slow start that are left out, or 20 round trips if that is more (facts, appendix B)
ROUND_TRIPS = 20
FLAT = (
    0.02  # a congestion window that moves less than so is at a cap; iperf3's text has three digits
)


@dataclass(frozen=True)
class Fact:
    """One piece of evidence: a field by its own name, before and after the test."""

    field: str
    before: Union[float, str, None] = None
    after: Union[float, str, None] = None


@dataclass(frozen=True)
class Look:
    """A phase, the hosts by their part in it, and what follows from the samples; see the functions below for the rules."""

    evidence: Evidence
    phase: Phase
    flow: Optional[Flow]
    sender: Host
    receiver: Host
    protocol: str
    steady: tuple[Interval, ...]
    rate: Optional[float]  # as received
    rates: tuple[float, ...]
    rtt: Optional[float]
    min_rtt: Optional[float]
    mss: Optional[float]
    cwnd: Optional[float]
    snd_wnd: Optional[float]
    in_flight: Optional[float]
    rwnd_limited: Optional[float]  # these three are shares of the time in which data was on its way
    sndbuf_limited: Optional[float]
    idle_share: Optional[float]  # of all time: nothing was on its way
    loss: Optional[float]  # of TCP: bytes that went twice; of UDP: datagrams that never came
    retransmits: Optional[int]
    flat: bool
    sender_load: Load
    receiver_load: Load

    @property
    def network(self) -> Optional[float]:
        """The share of the time that neither window nor buffer explains."""
        if self.rwnd_limited is None or self.sndbuf_limited is None:
            return None
        return max(0.0, 1 - self.rwnd_limited - self.sndbuf_limited)

    @property
    def is_full(self) -> bool:
        """Whether a CPU of either end is what everything waits for."""
        return self.sender_load.is_full or self.receiver_load.is_full

    @property
    def left(self) -> float:
        """As `network`; all of it where the kernel's clocks are not known."""
        return 1.0 if self.network is None else self.network

    @property
    def spread(self) -> Optional[float]:
        """The coefficient of variation of the rate."""
        return (
            pstdev(self.rates) / mean(self.rates)
            if len(self.rates) > 1 and mean(self.rates) > 0
            else None
        )

    @property
    def queueing(self) -> Optional[float]:
        """How many times the idle round-trip time it took under this load."""
        return self.rtt / self.min_rtt if self.rtt and self.min_rtt else None

    def sender_fact(self, name: str) -> Optional[Fact]:
        return delta(self.phase.sender, name)

    def receiver_fact(self, name: str) -> Optional[Fact]:
        return delta(self.phase.receiver, name)


def look(evidence: Evidence, phase: Phase) -> Look:
    """Everything that is known of one phase."""
    run = phase.run
    flow = (run.flow(phase.direction) or next(iter(run.flows), None)) if run else None
    forward = phase.direction == "forward"
    sockets = _sockets(phase)
    rough = _rtt(sockets, flow, evidence)
    samples = steady_samples(_with_all_streams(phase), rough)
    late = [data_sockets(sample, phase) for sample in samples]
    steady = steady_intervals(flow.intervals if flow else (), rough)
    rates = tuple(one.rate for one in steady if one.rate is not None) or tuple(
        _rates(samples, phase)
    )
    busy, gone = _growth(late, "busy_time"), samples[-1].time - samples[0].time if samples else 0.0
    streams = max((len(one) for one in late), default=0)
    rate = _rate(flow, steady, rates)
    cwnds = [one.cwnd for one in steady if one.cwnd] or [
        sum(map(_cwnd, one)) for one in late if one
    ]
    return Look(
        evidence,
        phase,
        flow,
        evidence.local if forward else evidence.peer,
        evidence.peer if forward else evidence.local,
        (run.protocol if run else None) or ("udp" if "udp" in phase.name else "tcp"),
        steady,
        None if run and run.error and not rate else rate,
        rates,
        _median(_seconds(late, "rtt")) or _interval_rtt(steady) or evidence.rtt,
        _min_rtt(sockets, flow, evidence),
        _median(_values(late, "mss")) or (run.mss if run else None),
        _median(cwnds),
        _median(_sums(late, lambda one: one.snd_wnd)) or _median([one.snd_wnd for one in steady]),
        _median(_sums(late, _unacked)),
        _part(_growth(late, "rwnd_limited"), busy),
        _part(_growth(late, "sndbuf_limited"), busy),
        max(0.0, 1 - busy / (gone * 1e6 * streams))
        if busy is not None and gone > 0 and streams
        else None,
        _loss(late, flow, run.mss if run else None),
        _retransmits(steady, flow),
        len(cwnds) > 1 and bool(max(cwnds)) and (max(cwnds) - min(cwnds)) <= FLAT * max(cwnds),
        loads(phase.sender),
        loads(phase.receiver),
    )


def delta(samples: Sequence[Sample], name: str) -> Optional[Fact]:
    """A counter's first and last value, if it grew."""
    known = [sample.counters[name] for sample in samples if name in sample.counters]
    return Fact(name, known[0], known[-1]) if len(known) > 1 and known[-1] > known[0] else None


def growth(fact: Optional[Fact]) -> float:
    if (
        fact is None
        or not isinstance(fact.after, (int, float))
        or not isinstance(fact.before, (int, float))
    ):
        return 0.0
    return max(0.0, fact.after - fact.before)


def steady_samples(samples: Sequence[Sample], rtt: Optional[float]) -> tuple[Sample, ...]:
    """Without slow start; the later half, where the test was too short for that."""
    if len(samples) < 2:
        return tuple(samples)
    begin = samples[0].time + max(START, ROUND_TRIPS * (rtt or 0))
    late = tuple(sample for sample in samples if sample.time >= begin)
    return late if len(late) > 1 else tuple(samples[(len(samples) - 1) // 2 :])


def steady_intervals(intervals: Sequence[Interval], rtt: Optional[float]) -> tuple[Interval, ...]:
    counted = [one for one in intervals if not one.omitted]
    warm = any(one.omitted for one in intervals)
    late = (
        counted
        if warm
        else [
            one
            for one in counted
            if one.start >= max(START, ROUND_TRIPS * (rtt or 0)) - 0.5
            or (one.start > 0 and one.seconds > START)
        ]
    )
    return tuple(late if len(late) > 1 else counted[1:] if len(counted) > 2 else counted)


def steady_sockets(look: Look) -> list[Socket]:
    """The sender's data connections at every look of the steady part."""
    return [
        one
        for sample in steady_samples(look.phase.sender, look.rtt)
        for one in data_sockets(sample, look.phase)
    ]


def data_sockets(sample: Sample, phase: Phase) -> tuple[Socket, ...]:
    """The data connections alone: the control connection looks the same, and says other things."""
    ports = (
        {one.local_port for one in phase.run.connections}
        | {one.remote_port for one in phase.run.connections}
        if phase.run
        else set()
    )
    chosen = tuple(
        one
        for one in sample.sockets
        if not ports
        or all(port is None or port in ports for port in (one.local_port, one.remote_port))
    )
    return chosen if ports else sample.sockets


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
    return mean(rates) if rates else flow.sent.rate if flow else None


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
    return sum(known) if known else flow.sent.retransmits if flow else None


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
