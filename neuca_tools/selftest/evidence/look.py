"""A Look: one phase as the rules of the diagnosis see it, in numbers; None if one is not known."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, pstdev
from typing import NamedTuple, Optional, Union

from neuca_tools.selftest.evidence import Evidence, Host, Phase, Sample, Socket
from neuca_tools.selftest.evidence.load import Load, busiest_load
from neuca_tools.selftest.evidence.run import MSS, Flow, Interval, Run, slow_start, whole_intervals

HARMFUL_STEAL = 0.05  # of a CPU's time: a hypervisor that takes less does no harm (D10)
# How long a thread may wait for a CPU that is busy with another one (base_slice_ns of the
# scheduler), and how often in a round trip: on two hosts, with other threads in the queue.
SLICE_SECONDS, MAX_WAITS = 0.003, 3
# Algorithms whose rate varies by 0.2 if each interval has one loss by chance, and an eighth of it.
LOSS_BASED, EVEN_SPREAD = {"cubic", "reno"}, 0.2 / 8
# A test is long enough after the first, or after the second if it delivers so many bytes.
ENOUGH_SECONDS, MIN_SECONDS, MIN_BYTES = 5.0, 1.0, 1e6


@dataclass(frozen=True)
class Fact:
    """One piece of evidence: the value of a field before and after the test."""

    field: str
    before: Union[float, str, None] = None
    after: Union[float, str, None] = None


class Windows(NamedTuple):
    """What bounded the data in flight in the steady part of a phase. Sizes in bytes.

    `rwnd_limited` and `sndbuf_limited` are shares of the time in which data was in flight
    (tcpi_busy_time, linux/tcp.h), `idle_share` of all time. `flat`: the congestion window stayed
    the same, and is not that of BBR, which keeps it at twice what the path holds.
    """

    mss: Optional[float]
    cwnd: Optional[float]
    snd_wnd: Optional[float]
    in_flight: Optional[float]
    rwnd_limited: Optional[float]
    sndbuf_limited: Optional[float]
    idle_share: Optional[float]
    flat: bool


class End(NamedTuple):
    """The sender or the receiver of a phase."""

    name: str
    samples: tuple[Sample, ...]
    load: Load


@dataclass(frozen=True)
class Look:
    """A phase with its sender, its receiver, and the numbers derived from its samples.

    Of the part after slow start: iperf's intervals (`steady`), the rate as received and those of
    the intervals in bit/s, and in `acked` the rates at which the kernel saw TCP data acknowledged.
    `loss` is a share: of TCP the bytes that were sent twice, of UDP the datagrams that never
    arrived. Round-trip times are in seconds: `rtt` is their median during the phase, `shortest_rtt`
    the minimum with or without load, `low_rtt` the first decile under load.
    """

    evidence: Evidence
    phase: Phase
    steady: tuple[Interval, ...]
    rate: Optional[float]
    rates: tuple[float, ...]
    loss: Optional[float]
    acked: tuple[float, ...]
    windows: Windows
    rtt: Optional[float]
    shortest_rtt: Optional[float]
    low_rtt: Optional[float]

    @cached_property
    def flow(self) -> Flow:
        """The direction of iperf's run that this phase is about; empty if there is none."""
        return self.phase.flow or Flow()

    @cached_property
    def run(self) -> Run:
        """iperf's run; one without any number if there is none."""
        return self.phase.run or Run("iperf3")

    @cached_property
    def protocol(self) -> str:
        """ "tcp" or "udp"; by the name of the phase where iperf does not say."""
        if self.run.protocol:
            return self.run.protocol
        return "udp" if "udp" in self.phase.name else "tcp"

    @property
    def is_sampled(self) -> bool:
        """Whether the counters of either host are known."""
        return bool(self.phase.sender or self.phase.receiver)

    @property
    def is_unsampled(self) -> bool:
        """Whether iperf's figures are all that is known of this phase, a rate among them."""
        return not self.is_sampled and self.phase.flow is not None and bool(self.rate)

    @property
    def is_unsampled_tcp(self) -> bool:
        return self.is_unsampled and self.protocol == "tcp"

    @property
    def target(self) -> Optional[float]:
        """The bit/s that iperf was told to send (`-b`); None or 0 if it was not limited."""
        return self.phase.target or self.run.target

    @property
    def sender(self) -> Host:
        """The host that sends in this phase."""
        return self.evidence.local if self.phase.direction == "forward" else self.evidence.peer

    @property
    def receiver(self) -> Host:
        """The host that receives in this phase."""
        return self.evidence.peer if self.phase.direction == "forward" else self.evidence.local

    def samples_of(self, end: str) -> tuple[Sample, ...]:
        """The samples of the "local" or the "peer" host."""
        is_sender = (self.phase.direction == "forward") is (end == "local")
        return self.phase.sender if is_sender else self.phase.receiver

    @cached_property
    def sender_load(self) -> Load:
        """How busy the sender's CPUs were."""
        return self._load(self.phase.sender, self.phase.direction == "forward")

    @cached_property
    def receiver_load(self) -> Load:
        """How busy the receiver's CPUs were."""
        return self._load(self.phase.receiver, self.phase.direction != "forward")

    def _load(self, samples: Sequence[Sample], is_local: bool) -> Load:
        """With the share of a CPU that iperf used at this end, by its own count."""
        percent = self.run.cpu_local if is_local else self.run.cpu_remote
        return busiest_load(samples)._replace(own=None if percent is None else percent / 100)

    @property
    def ends(self) -> tuple[End, End]:
        """The receiver and the sender."""
        return (
            End("receiver", self.phase.receiver, self.receiver_load),
            End("sender", self.phase.sender, self.sender_load),
        )

    @property
    def known_rate(self) -> float:
        """bit/s; 0 if it is not known."""
        return self.rate or 0.0

    @property
    def known_loss(self) -> float:
        """The share that was lost; 0 if it is not known."""
        return self.loss or 0.0

    @property
    def is_too_short(self) -> bool:
        """Whether it took too little time for a verdict, or delivered too little in a short time.

        A total that is not known counts as enough. A longer test that delivers nothing says a lot.
        """
        ends = (self.flow.sent, self.flow.received)
        seconds = max((end.seconds for end in ends if end.seconds), default=math.inf)
        size = max((end.bytes for end in ends if end.bytes), default=math.inf)
        return seconds < MIN_SECONDS or (size < MIN_BYTES and seconds < ENOUGH_SECONDS)

    @property
    def is_unanswered(self) -> bool:
        """Whether it is UDP without the receiver's report: only what was sent is known."""
        return self.protocol == "udp" and self.loss is None

    @property
    def duplicated(self) -> float:
        """The share of the sent UDP data that arrived in duplicate; 0 if that is not known."""
        flow = self.flow
        if self.protocol != "udp" or not flow.sent.bytes:
            return 0.0
        return max(0.0, (flow.received.bytes or 0.0) / flow.sent.bytes - 1)

    @property
    def is_full(self) -> bool:
        """Whether a CPU of either host is full."""
        return self.sender_load.is_full or self.receiver_load.is_full

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs, or other guests, kept a CPU of either host busy."""
        return any(map(_is_disturbed, (self.sender_load, self.receiver_load)))

    @property
    def known_network_share(self) -> float:
        """The share of the time in which neither the receiver's window nor a buffer limited it.

        1 if that is not known.
        """
        receiver, sender = self.windows.rwnd_limited, self.windows.sndbuf_limited
        return 1.0 if receiver is None or sender is None else max(0.0, 1 - receiver - sender)

    @cached_property
    def all_intervals(self) -> tuple[Interval, ...]:
        """iperf's whole intervals, those of slow start included."""
        return whole_intervals(self.flow.intervals)

    @property
    def retransmits(self) -> Optional[int]:
        """Segments that were sent again, of the whole run."""
        return self.flow.retransmits

    @property
    def lossy_intervals(self) -> int:
        """In how many of `all_intervals` something was sent again."""
        return sum(1 for interval in self.all_intervals if interval.retransmits)

    @property
    def streams(self) -> int:
        return self.run.stream_count

    @property
    def mss(self) -> float:
        return self.windows.mss or MSS

    @property
    def cwnd(self) -> Optional[float]:
        """Bytes: the median of the congestion window."""
        return self.windows.cwnd

    @property
    def is_unused(self) -> bool:
        """Whether the congestion window never changed, neither for a loss nor for want of more."""
        return self.windows.flat and self.retransmits == 0

    @property
    def implied_rtt(self) -> float:
        """Seconds: the round trip at which the congestion window gives this rate; 0 if unknown."""
        return (self.cwnd or 0.0) * 8 / self.rate if self.rate else 0.0

    @property
    def spread(self) -> Optional[float]:
        """The coefficient of variation of the rate."""
        if not self.is_sampled and len(self.rates) < 3:
            return None
        return _coefficient_of_variation(self.rates)

    @property
    def known_spread(self) -> float:
        """The coefficient of variation of the rate; 0 if it is not known."""
        return self.spread or 0.0

    @property
    def acked_spread(self) -> Optional[float]:
        """The coefficient of variation of the rate that the kernel counts as acknowledged.

        iperf counts whole buffers, of which a slow path carries a few in a second.
        """
        return _coefficient_of_variation(self.acked)

    @property
    def queueing(self) -> Optional[float]:
        """The round-trip time under this load, without `noise`, divided by the shortest one.

        On a busy host the first decile tells more: those packets did not wait for a CPU.
        """
        shortest = self.shortest_rtt
        if not self.rtt or not shortest:
            return None
        usual = self.rtt - self.noise
        low = (self.low_rtt or 0.0) - SLICE_SECONDS / 2
        return max(usual, low if self.is_disturbed else 0.0, shortest) / shortest

    @property
    def is_even_despite_loss(self) -> bool:
        """Whether a rate that losses reduce varies much less than they make it vary by chance.

        The path is never idle then: a queue is what round trips wait for, whoever is busy.
        """
        losses = (self.retransmits or 0) / max(1, len(self.all_intervals))
        algorithms = {socket.congestion for socket in steady_sockets(self)}
        if losses < 1 or self.spread is None or not algorithms or not algorithms <= LOSS_BASED:
            return False
        return self.spread < EVEN_SPREAD / math.sqrt(losses)

    @property
    def noise(self) -> float:
        """Seconds that busy hosts, rather than a queue on the path, add to a round trip.

        The kernel's own samples are of acknowledgements, which wait for a CPU only. Without them,
        the round trips were measured with requests, which wait for a program on each host too.
        """
        if self.phase.sender:
            is_late = self.is_disturbed and not self.is_even_despite_loss
            return MAX_WAITS * SLICE_SECONDS if is_late else 0.0
        return max(0.0, (self.evidence.idle.p50 or 0.0) - (self.shortest_rtt or 0.0))

    @property
    def rate_fact(self) -> Fact:
        return Fact("rate, bit/s", after=round(self.known_rate))

    @property
    def loss_fact(self) -> Fact:
        """The share that was lost: of the datagrams, or of the bytes of TCP."""
        name = "lost / datagrams" if self.protocol == "udp" else "bytes_retrans / bytes_sent"
        return Fact(name, after=self.loss)

    @property
    def queueing_fact(self) -> Fact:
        return Fact("rtt / min_rtt", after=self.queueing)

    def sender_fact(self, name: str) -> Optional[Fact]:
        return counter_growth(self.phase.sender, name)

    def receiver_fact(self, name: str) -> Optional[Fact]:
        return counter_growth(self.phase.receiver, name)


def _coefficient_of_variation(rates: Sequence[float]) -> Optional[float]:
    if len(rates) < 2 or mean(rates) <= 0:
        return None
    return pstdev(rates) / mean(rates)


def _is_disturbed(load: Load) -> bool:
    return (load.has_full_cpu and load.is_busy_with_others) or (load.steal or 0.0) > HARMFUL_STEAL


def counter_growth(samples: Sequence[Sample], name: str) -> Optional[Fact]:
    """The first and last value of a counter; None if it did not grow."""
    known = [sample.counters[name] for sample in samples if name in sample.counters]
    if not known or known[-1] <= known[0]:
        return None
    return Fact(name, known[0], known[-1])


def growth_of_fact(fact: Optional[Fact]) -> float:
    """By how much a counter grew; 0 if that is not known."""
    if fact and isinstance(fact.before, (int, float)) and isinstance(fact.after, (int, float)):
        return max(0.0, fact.after - fact.before)
    return 0.0


def steady_samples(samples: Sequence[Sample], rtt: Optional[float]) -> tuple[Sample, ...]:
    """The samples after slow start; the later half of a test that was too short for that."""
    if not samples:
        return ()
    begin = samples[0].time + slow_start(rtt)
    late = tuple(sample for sample in samples if sample.time >= begin)
    if len(late) > 1:
        return late
    return tuple(samples[(len(samples) - 1) // 2 :])


def steady_sockets(look: Look) -> list[Socket]:
    """The sender's data connections in every sample of the steady part."""
    return sockets_in_all(steady_samples(look.phase.sender, look.rtt), look.phase)


def sockets_in_all(samples: Sequence[Sample], phase: Phase) -> list[Socket]:
    """The data connections of iperf3 in every one of these samples."""
    return [socket for sample in samples for socket in data_sockets(sample, phase)]


def data_sockets(sample: Sample, phase: Phase) -> tuple[Socket, ...]:
    """The data connections of iperf3; all sockets if their ports are not known."""
    if phase.run is None or not phase.run.connections:
        return sample.sockets
    known: set[Optional[int]] = {None}
    for connection in phase.run.connections:
        known |= {connection.local_port, connection.remote_port}
    return tuple(
        socket for socket in sample.sockets if {socket.local_port, socket.remote_port} <= known
    )
