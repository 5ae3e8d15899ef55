"""A phase's samples become a `Look`: what is known of its rate, windows and round trips."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, median
from typing import Optional

from neuca_tools.selftest.evidence import Evidence, Phase, Sample, Socket
from neuca_tools.selftest.evidence.look import Look, Windows, data_sockets, steady_samples
from neuca_tools.selftest.evidence.run import (
    BBR,
    MSS,
    Connection,
    Flow,
    Interval,
    Run,
    is_flat,
    known_rates,
    known_windows,
    steady_intervals,
    usual_intervals,
)

# The data connections in each of several samples.
Sockets = Sequence[tuple[Socket, ...]]
DEFAULT_PORTS = (5001, 5201, 45678)  # of iperf 2, iperf3 and the self-test
BUFFERED = 4 / 3  # of what arrived: the sender counts what its buffer took
FEW_SAMPLES = 3  # for a quantile


def is_server(run: Run) -> bool:
    """Whether the port that all connections share is its own: the client has one for each."""
    return any(map(is_server_end, run.connections))


def is_of_receiver(phase: Phase) -> bool:
    """Whether the end that wrote the run receives in this phase, as far as its ports tell."""
    if phase.run is None or not phase.run.connections:
        return False
    return is_server(phase.run) is (phase.direction == "forward")


def is_server_end(connection: Connection) -> bool:
    """Whether the local port is the server's: a default one, or the lower of the two.

    A client's port is the higher one, but of Windows before Vista (1025 to 5000).
    """
    local, remote = connection.local_port, connection.remote_port
    return remote not in DEFAULT_PORTS and (local in DEFAULT_PORTS or local < remote)


def look_at_phase(evidence: Evidence, phase: Phase) -> Look:
    """Derive what the samples, the intervals and the totals of one phase show."""
    run, flow = phase.run or Run("iperf3"), phase.flow or Flow()
    sockets = [data_sockets(sample, phase) for sample in phase.sender]
    rough = _median_rtt(sockets, flow.intervals, evidence)
    samples = steady_samples(_with_all_streams(phase.sender, sockets), rough)
    late = [data_sockets(sample, phase) for sample in samples]
    steady = _steady_part(phase, flow, rough)
    acked = tuple(rate for _, rate in rates_of(samples, phase))
    rates = known_rates(steady) or list(acked)
    rate = _steady_rate(flow, steady, rates, acked)
    return Look(
        evidence,
        phase,
        steady=steady,
        rate=(rate or None) if run.error else rate,
        rates=tuple(rates),
        loss=_lost_share(late, flow, run.mss),
        acked=acked if len(acked) >= FEW_SAMPLES else (),
        windows=_windows_of(run, steady, samples, late),
        rtt=_median_rtt(late, steady, evidence),
        shortest_rtt=_min_rtt(sockets, flow, evidence),
        low_rtt=_low_rtt(late),
    )


def _steady_part(phase: Phase, flow: Flow, rtt: Optional[float]) -> tuple[Interval, ...]:
    if phase.sender or phase.receiver:
        return steady_intervals(flow.intervals, rtt)
    return usual_intervals(flow.intervals, rtt)


def _median_rtt(
    sockets: Sockets, intervals: Sequence[Interval], evidence: Evidence
) -> Optional[float]:
    """The median round-trip time in seconds, from the best source that has one; None if unknown."""
    by_kernel = _median_of_known(_values_in_seconds(sockets, "rtt"))
    return by_kernel or _median_of_known(each.rtt for each in intervals) or evidence.rtt


def _low_rtt(late: Sockets) -> Optional[float]:
    """Seconds: the first decile, or the least of fewer than ten values."""
    values = sorted(_values_in_seconds(late, "rtt"))
    return values[len(values) // 10] if len(values) >= FEW_SAMPLES else None


def growths_of(
    samples: Sequence[Sample], phase: Phase, name: str
) -> Iterator[tuple[float, float, float]]:
    """By how much a counter of all streams grew between two samples, where it is known.

    Before it are the time of the later one and the seconds since the earlier one. A stream that was
    opened in between has grown by all that it counted.
    """
    for earlier, later in zip(samples, samples[1:]):
        before, after = data_sockets(earlier, phase), data_sockets(later, phase)
        first = sum_over_sockets(before, name) if before else 0.0
        last = sum_over_sockets(after, name)
        if first is not None and last is not None and later.time > earlier.time:
            yield later.time, later.time - earlier.time, max(0.0, last - first)


def rates_of(samples: Sequence[Sample], phase: Phase) -> Iterator[tuple[float, float]]:
    """The time of each sample but the first, and the bit/s acknowledged since the one before."""
    for time, seconds, acked in growths_of(samples, phase, "bytes_acked"):
        yield time, acked * 8 / seconds


def totals_of(samples: Sequence[Sample], phase: Phase, name: str) -> Iterator[tuple[float, float]]:
    """The time of each sample, and the sum of a value of all streams, where it is known."""
    for sample in samples:
        total = sum_over_sockets(data_sockets(sample, phase), name)
        if total is not None:
            yield sample.time, total


def round_trips_of(samples: Sequence[Sample], phase: Phase) -> Iterator[tuple[float, float]]:
    """The time of each sample, and the mean round-trip time of all streams in seconds."""
    for sample in samples:
        known = _values_in_seconds([data_sockets(sample, phase)], "rtt")
        if known:
            yield sample.time, mean(known)


def sum_over_sockets(sockets: Sequence[Socket], name: str) -> Optional[float]:
    """The sum of a field over all sockets; None without sockets, or if one lacks the field."""
    values = [getattr(socket, name) for socket in sockets]
    if not values or None in values:
        return None
    amount: float = sum(values)
    return amount


def growth_over_samples(looks: Sockets, name: str) -> Optional[float]:
    """How much a counter of all streams grew from first to last sample; None if not known."""
    if len(looks) < 2:
        return None
    first, last = sum_over_sockets(looks[0], name), sum_over_sockets(looks[-1], name)
    if first is None or last is None:
        return None
    return max(0.0, last - first)


def _windows_of(
    run: Run, steady: Sequence[Interval], samples: Sequence[Sample], late: Sockets
) -> Windows:
    busy = growth_over_samples(late, "busy_time")
    cwnds = known_windows(steady) or _known_totals(late, "cwnd")
    return Windows(
        mss=_median_of_known(_known_values(late, "mss")) or run.mss,
        cwnd=_median_of_known(cwnds),
        snd_wnd=_median_of_known(_known_totals(late, "snd_wnd"))
        or _median_of_known(interval.snd_wnd for interval in steady),
        in_flight=_median_of_known(_known_totals(late, "in_flight")),
        rwnd_limited=_share_of_busy(growth_over_samples(late, "rwnd_limited"), busy),
        sndbuf_limited=_share_of_busy(growth_over_samples(late, "sndbuf_limited"), busy),
        idle_share=_idle_share(samples, late, busy),
        flat=run.congestion != BBR and is_flat(cwnds),
    )


def _idle_share(samples: Sequence[Sample], late: Sockets, busy: Optional[float]) -> Optional[float]:
    """The share of the time with nothing in flight, from 0 to 1; None if it is not known."""
    streams = max(map(len, late), default=0)
    if busy is None or not streams or samples[-1].time <= samples[0].time:
        return None
    return max(0.0, 1 - busy / ((samples[-1].time - samples[0].time) * 1e6 * streams))


def _with_all_streams(samples: Sequence[Sample], sockets: Sockets) -> list[Sample]:
    """The samples with the most streams: those before and after the test have fewer.

    Of a connection that is being closed the kernel knows only that it exists.
    """
    counts = [sum(socket.mss is not None for socket in of_sample) for of_sample in sockets]
    if not any(counts):
        counts = list(map(len, sockets))
    most = max(counts, default=0)
    return [sample for sample, count in zip(samples, counts) if count == most]


def _min_rtt(sockets: Sockets, flow: Flow, evidence: Evidence) -> Optional[float]:
    others = [*(interval.rtt for interval in flow.intervals), evidence.idle.p50, evidence.rtt]
    return min([*_values_in_seconds(sockets, "min_rtt"), *filter(None, others)], default=None)


def _steady_rate(
    flow: Flow, steady: Sequence[Interval], rates: Sequence[float], acked: Sequence[float]
) -> Optional[float]:
    """The rate in the steady part if each interval is known; else that of the whole test."""
    if flow.is_lost:
        return 0.0
    if _is_of_whole_test(flow, rates, acked):
        return flow.received.rate
    weights = [interval.seconds for interval in steady if interval.rate is not None]
    if sum(weights) > 0:
        return sum(rate * weight for rate, weight in zip(rates, weights)) / sum(weights)
    if rates:
        return mean(rates)
    return flow.sent.rate


def _is_of_whole_test(flow: Flow, rates: Sequence[float], acked: Sequence[float]) -> bool:
    """Whether the receiver's total says more: with UDP, or if a sender counts what it buffers."""
    received = flow.received
    if received.rate is None:
        return False
    if received.lost is not None or len(rates) < 2:
        return True
    return not acked and (flow.sent.rate or 0.0) > BUFFERED * received.rate


def _lost_share(late: Sockets, flow: Flow, mss: Optional[int]) -> Optional[float]:
    again = growth_over_samples(late, "bytes_retrans")
    sent = growth_over_samples(late, "bytes_sent")
    if again is not None and sent:
        return again / sent
    lost, datagrams = _lost_datagrams(flow)
    if datagrams:
        # Datagrams that arrived twice make iperf3's count of losses meaningless.
        is_duplicated = (flow.received.bytes or 0.0) > (flow.sent.bytes or math.inf)
        return 0.0 if is_duplicated else min(1.0, lost / datagrams)
    if flow.retransmits is not None and flow.size:
        return min(1.0, flow.retransmits * (mss or MSS) / flow.size)
    return None


def _lost_datagrams(flow: Flow) -> tuple[int, int]:
    """How many were lost, and of how many; the sums of the intervals where totals are missing."""
    if flow.received.lost is not None and flow.received.datagrams:
        return flow.received.lost, flow.received.datagrams
    counted = [interval for interval in flow.intervals if interval.lost is not None]
    datagrams = sum(interval.datagrams or 0 for interval in counted)
    return sum(interval.lost or 0 for interval in counted), datagrams


def _known_totals(looks: Sockets, name: str) -> list[float]:
    totals = [sum_over_sockets(sockets, name) for sockets in looks]
    return [value for value in totals if value is not None]


def _known_values(looks: Sockets, name: str) -> list[float]:
    values = [getattr(socket, name) for sockets in looks for socket in sockets]
    return [float(value) for value in values if value is not None]


def _values_in_seconds(looks: Sockets, name: str) -> list[float]:
    return [value / 1e6 for value in _known_values(looks, name)]


def _median_of_known(values: Iterable[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _share_of_busy(share: Optional[float], busy: Optional[float]) -> Optional[float]:
    if share is None or not busy:
        return None
    return min(1.0, share / busy)
