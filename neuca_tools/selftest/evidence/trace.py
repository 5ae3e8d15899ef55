"""What one end saw of a phase many times a second: for charts, not for the diagnosis."""

# SPDX-License-Identifier: MIT

from dataclasses import dataclass, replace
from typing import Optional

Column = tuple[Optional[float], ...]
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
