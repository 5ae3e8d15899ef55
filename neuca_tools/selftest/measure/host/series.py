"""What one end sees of a test: samples for the diagnosis, and a trace for the charts."""

# SPDX-License-Identifier: MIT

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import mean
from typing import NamedTuple, Optional

from neuca_tools.selftest.evidence import Sample, Socket
from neuca_tools.selftest.evidence.load import busy_share
from neuca_tools.selftest.evidence.trace import PLACES, Column, Trace
from neuca_tools.selftest.measure.host import counters, tcp_info

SAMPLE_SECONDS = 1.0  # between two samples
# The most connections in all samples of a test, beyond which they are further apart: one has about
# 550 bytes in a message, which has LONGEST_MESSAGE at most.
MAX_CONNECTIONS = 40_000
# A last sample sooner than this, in seconds, after the one before is merged with that.
SHORTEST_SECONDS = 0.3

# Seconds between two points, and the most points of a test: a longer one has them further apart. So
# has one with many connections, by these seconds for each.
POINT_SECONDS, MAX_POINTS, CONNECTION_SECONDS = 0.1, 600, 0.006
# Seconds by which a point or a sample may be early, so that one look serves for both.
EARLY_SECONDS = POINT_SECONDS / 2
# A point is followed by a pause of this many times the CPU time that it took, so that a host with
# many CPUs spends at most 5% of a CPU on it. The elapsed time does not count, because a busy host
# spends most of it waiting for a CPU.
PAUSE_FACTOR = 20
CPU_WINDOW = 0.25  # seconds over which a CPU's use is taken: /proc/stat counts in ticks of 10 ms


class EndObservations(NamedTuple):
    """What one end saw of a test."""

    samples: tuple[Sample, ...] = ()
    trace: Trace = Trace()


class SampleSeries:
    """What this end sees of a test of `seconds`, from now on.

    Each look has the CPUs, and the sockets with this local or remote port; none if both are 0. Once
    a second it is a sample, which has the counters as well. More frequent looks are points of the
    trace. Long tests of many connections have fewer of both.
    """

    def __init__(
        self, version: int, seconds: float, local_port: int = 0, remote_port: int = 0
    ) -> None:
        self._reader: Optional[tcp_info.SocketReader] = None
        if local_port or remote_port:
            self._reader = tcp_info.SocketReader(version, local_port, remote_port)
        self._seconds, self._point_seconds = seconds, max(POINT_SECONDS, seconds / MAX_POINTS)
        self._points: list[Sample] = []
        self._samples: list[Sample] = []
        self._point_due = self._sample_due = time.monotonic()
        self.turn()

    def due(self) -> float:
        """When the next `turn` is needed, by the monotonic clock in seconds."""
        return min(self._point_due, self._sample_due)

    def turn(self) -> None:
        """Look at this end if that is due."""
        now, used = time.monotonic(), time.thread_time()
        if now < self.due():
            return
        is_sample = self._sample_due <= now + EARLY_SECONDS
        look = self._look(search=is_sample)
        if self._point_due <= now + EARLY_SECONDS:
            self._points.append(look)
            self._point_due = self._next_point(look, time.thread_time() - used)
        if is_sample:
            self._add_sample(look)
            spread = self._seconds * len(look.sockets) / MAX_CONNECTIONS
            self._sample_due = look.time + max(SAMPLE_SECONDS, spread)

    def end(self) -> EndObservations:
        """Take a last sample and return everything.

        The connections of the test no longer exist then, so a merged sample keeps those before.
        """
        self._add_sample(self._look())
        *earlier, before, last = self._samples
        if last.time - before.time < SHORTEST_SECONDS and earlier:
            self._samples = [*earlier, replace(before, counters=last.counters)]
        return EndObservations(tuple(self._samples), trace_of(self._points))

    def _next_point(self, look: Sample, used: float) -> float:
        """When the next point is due, after one that took `used` seconds of a CPU."""
        if len(self._points) >= 2 * MAX_POINTS:
            return math.inf
        interval = max(self._point_seconds, CONNECTION_SECONDS * len(look.sockets))
        return max(look.time + interval, time.monotonic() + PAUSE_FACTOR * used)

    def _add_sample(self, look: Sample) -> None:
        """Without counters that are the same as in the first sample: an hour of them is kept."""
        first = self._samples[0].counters if self._samples else {}
        values = _changed_counters(first, counters.read_counters())
        self._samples.append(replace(look, counters=values))

    def _look(self, search: bool = True) -> Sample:
        now, sockets = time.monotonic(), tuple[Socket, ...]()
        if self._reader is not None:
            try:
                sockets = self._reader.read(search)
            except OSError:
                # A kernel without inet_diag still has everything else. It is not asked again,
                # because it runs modprobe for each request.
                self._reader = None
        return Sample(now, sockets, counters.read_cpus())


def _changed_counters(first: Mapping[str, int], values: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in values.items() if first.get(name) != value}


# --- The trace ------------------------------------------------------------------------------------

Ports = tuple[Optional[int], Optional[int]]
Value = Callable[[Socket], Optional[float]]
# The time of each look, and some of its connections.
Rows = Sequence[tuple[float, Sequence[Socket]]]


def trace_of(looks: Sequence[Sample]) -> Trace:
    """The trace of one end, without iperf3's control connection."""
    last = {_ports_of(socket): socket for look in looks for socket in look.sockets}
    data = last.keys() - {_control_ports(looks, last)}
    sending = {
        ports
        for ports in data
        if (last[ports].bytes_acked or 0) >= (last[ports].bytes_received or 0)
    }
    kept, outward = _connections_with(looks, data), _connections_with(looks, sending)
    return Trace(
        time=tuple(round(look.time, PLACES) for look in looks),
        sent=_rate_column(outward, attrgetter("bytes_acked")),
        received=_rate_column(kept, attrgetter("bytes_received")),
        rtt=_combined_column(
            outward, lambda socket: socket.rtt / 1e6 if socket.rtt else None, mean
        ),
        cwnd=_combined_column(outward, attrgetter("cwnd"), sum),
        snd_wnd=_combined_column(outward, attrgetter("snd_wnd"), sum),
        in_flight=_combined_column(outward, attrgetter("in_flight"), sum),
        retransmits=_growth_column(outward, attrgetter("total_retrans")),
        cpu=tuple(_busiest_cpu(looks, place) for place in range(len(looks))),
    )


def _ports_of(socket: Socket) -> Ports:
    return socket.local_port, socket.remote_port


def _control_ports(looks: Sequence[Sample], last: Mapping[Ports, Socket]) -> Optional[Ports]:
    """iperf3 opens its control connection first, and little goes over it."""

    def transferred_bytes(ports: Ports) -> int:
        return max(last[ports].bytes_acked or 0, last[ports].bytes_received or 0)

    first = next((look.sockets for look in looks if look.sockets), ())
    if len(last) < 2:
        return None
    return min(map(_ports_of, first), key=transferred_bytes, default=None)


def _connections_with(looks: Sequence[Sample], ports: set[Ports]) -> Rows:
    return [
        (look.time, [socket for socket in look.sockets if _ports_of(socket) in ports])
        for look in looks
    ]


def _combined_column(rows: Rows, value: Value, together: Callable[[list[float]], float]) -> Column:
    """One value for all connections of each time; None where one is not known, or there is none."""
    column: list[Optional[float]] = []
    for _, sockets in rows:
        known = [amount for amount in map(value, sockets) if amount is not None]
        complete = bool(sockets) and len(known) == len(sockets)
        column.append(round(together(known), PLACES) if complete else None)
    return tuple(column)


def _growth_column(rows: Rows, value: Value) -> Column:
    """By how much a counter of all connections grew since the time before.

    A connection that was opened in between has grown by all that it counted.
    """
    column: list[Optional[float]] = [None] * len(rows)
    for place in range(1, len(rows)):
        before = {_ports_of(socket): value(socket) for socket in rows[place - 1][1]}
        counts = [(before.get(_ports_of(socket), 0), value(socket)) for socket in rows[place][1]]
        grown = [
            max(0.0, now - earlier)
            for earlier, now in counts
            if earlier is not None and now is not None
        ]
        if grown and len(grown) == len(counts):
            column[place] = sum(grown)
    return tuple(column)


def _rate_column(rows: Rows, value: Value) -> Column:
    """bit/s, from a counter in bytes."""
    times = [time for time, _ in rows]
    steps = [after - before for before, after in zip([*times[:1], *times], times)]
    return tuple(
        None if grown is None or seconds <= 0 else round(grown * 8 / seconds)
        for grown, seconds in zip(_growth_column(rows, value), steps)
    )


def _busiest_cpu(looks: Sequence[Sample], place: int) -> Optional[float]:
    """The use of the busiest CPU in the CPU_WINDOW before this look, or in a longer interval."""
    now = looks[place]
    before = next(
        (look for look in reversed(looks[:place]) if look.time <= now.time - CPU_WINDOW), None
    )
    if before is None or not now.cpus:
        return None
    return round(max(map(busy_share, before.cpus, now.cpus), default=0.0), 3)
