"""What one end saw of a phase many times a second: for charts, not for the diagnosis."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import NamedTuple, Optional

Column = tuple[Optional[float], ...]
# Seconds over which a CPU's use is taken: /proc/stat counts in ticks of 10 ms.
CPU_WINDOW = 0.25
# The decimal places of times, in seconds: no clock that is used here is better than 1 µs.
PLACES = 6


@dataclass(frozen=True)
class Trace:
    """Columns of one length; a value is of the interval that ends at its time, None if not known.

    `time` is in seconds of the local host's monotonic clock, for the peer's trace too. `sent` and
    `received` are the bit/s that were acknowledged by the peer and that arrived. Those after
    them are of the sending connections only: `rtt` is their mean in seconds, `cwnd`, `snd_wnd` and
    `in_flight` are sums in bytes, and `retransmits` counts segments. `cpu` is the use of the
    busiest CPU as a share of 1.
    """

    time: tuple[float, ...] = ()
    sent: Column = ()
    received: Column = ()
    rtt: Column = ()
    cwnd: Column = ()
    snd_wnd: Column = ()
    in_flight: Column = ()
    retransmits: Column = ()
    cpu: Column = ()

    def points(self, name: str) -> list[tuple[float, float]]:
        """The time and the value of each known value of a column."""
        both = zip(self.time, getattr(self, name))
        return [(time, value) for time, value in both if value is not None]


NO_TRACE = Trace()


class Connection(NamedTuple):
    """What is used of TCP_INFO (linux/tcp.h) of a connection, in bytes, segments and seconds."""

    ports: tuple[Optional[int], Optional[int]]
    acked: Optional[int] = None
    received: Optional[int] = None
    retransmits: Optional[int] = None
    rtt: Optional[float] = None
    cwnd: Optional[float] = None
    snd_wnd: Optional[float] = None
    in_flight: Optional[float] = None


class Point(NamedTuple):
    """One end at one time, in seconds; `cpus` has the busy and the whole seconds of each CPU."""

    time: float
    connections: Sequence[Connection] = ()
    cpus: Sequence[tuple[float, float]] = ()


def trace_of(points: Sequence[Point]) -> Trace:
    """The trace of one end, without iperf3's control connection."""
    last = {connection.ports: connection for point in points for connection in point.connections}
    control = _control_ports(points, last)
    data = {ports for ports in last if ports != control}
    sending = {ports for ports in data if (last[ports].acked or 0) >= (last[ports].received or 0)}
    kept, outward = _connections_with(points, data), _connections_with(points, sending)
    return Trace(
        time=tuple(round(point.time, PLACES) for point in points),
        sent=_rate_column(outward, lambda connection: connection.acked),
        received=_rate_column(kept, lambda connection: connection.received),
        rtt=_combined_column(outward, lambda connection: connection.rtt, mean),
        cwnd=_combined_column(outward, lambda connection: connection.cwnd, sum),
        snd_wnd=_combined_column(outward, lambda connection: connection.snd_wnd, sum),
        in_flight=_combined_column(outward, lambda connection: connection.in_flight, sum),
        retransmits=_growth_column(outward, lambda connection: connection.retransmits),
        cpu=tuple(_busiest_cpu(points, place) for place in range(len(points))),
    )


def trace_within(trace: Trace, first: float, last: float) -> Trace:
    """The part of a trace from `first` to `last`; rows that a column is too short for are cut."""
    columns = [getattr(trace, name) for name in Trace.__dataclass_fields__]
    rows = [row for row in zip(*columns) if first <= row[0] <= last]
    if not rows:
        return Trace()
    return Trace(*map(tuple, zip(*rows)))


def shifted_trace(trace: Trace, seconds: float) -> Trace:
    """The trace of another host, whose clock is `seconds` ahead of ours, by our clock."""
    return replace(trace, time=tuple(round(time - seconds, PLACES) for time in trace.time))


def _control_ports(
    points: Sequence[Point], last: dict[tuple[Optional[int], Optional[int]], Connection]
) -> Optional[tuple[Optional[int], Optional[int]]]:
    """iperf3 opens its control connection first, and little goes over it."""
    first = next((point.connections for point in points if point.connections), ())
    if len(last) < 2:
        return None
    return min(
        (connection.ports for connection in first),
        key=lambda ports: _transferred_bytes(last[ports]),
        default=None,
    )


def _transferred_bytes(connection: Connection) -> int:
    return max(connection.acked or 0, connection.received or 0)


Value = Callable[[Connection], Optional[float]]
Rows = Sequence[tuple[float, Sequence[Connection]]]


def _connections_with(
    points: Sequence[Point], ports: set[tuple[Optional[int], Optional[int]]]
) -> list[tuple[float, list[Connection]]]:
    return [
        (point.time, [connection for connection in point.connections if connection.ports in ports])
        for point in points
    ]


def _combined_column(rows: Rows, value: Value, together: Callable[[list[float]], float]) -> Column:
    """One value for all connections of each time; None where one is not known, or there is none."""
    column: list[Optional[float]] = []
    for _, connections in rows:
        values = [value(connection) for connection in connections]
        known = [known_value for known_value in values if known_value is not None]
        complete = bool(values) and len(known) == len(values)
        column.append(round(together(known), PLACES) if complete else None)
    return tuple(column)


def _growth_column(rows: Rows, value: Value) -> Column:
    """By how much a counter of all connections grew since the time before.

    A connection that was opened in between has grown by all that it counted.
    """
    column: list[Optional[float]] = [None] * len(rows)
    for place in range(1, len(rows)):
        before = {connection.ports: value(connection) for connection in rows[place - 1][1]}
        grown = [
            _growth_between(before.get(connection.ports, 0), value(connection))
            for connection in rows[place][1]
        ]
        known = [amount for amount in grown if amount is not None]
        if known and len(known) == len(grown):
            column[place] = sum(known)
    return tuple(column)


def _growth_between(before: Optional[float], after: Optional[float]) -> Optional[float]:
    if before is None or after is None:
        return None
    return max(0.0, after - before)


def _rate_column(rows: Rows, value: Value) -> Column:
    """bit/s, from a counter in bytes."""
    column: list[Optional[float]] = []
    for place, grown in enumerate(_growth_column(rows, value)):
        seconds = rows[place][0] - rows[max(0, place - 1)][0]
        rate = None if grown is None or seconds <= 0 else round(grown * 8 / seconds)
        column.append(rate)
    return tuple(column)


def _busiest_cpu(points: Sequence[Point], place: int) -> Optional[float]:
    """The use of the busiest CPU in the CPU_WINDOW before this point, or in a longer interval."""
    now = points[place]
    before = next(
        (point for point in reversed(points[:place]) if point.time <= now.time - CPU_WINDOW), None
    )
    if before is None or not now.cpus:
        return None
    shares = [
        (busy - busy_before) / (whole - whole_before)
        for (busy, whole), (busy_before, whole_before) in zip(now.cpus, before.cpus)
        if whole > whole_before
    ]
    return round(min(1.0, max(0.0, *shares)), 3) if shares else None
