"""Combine the rows of several streams into the intervals and totals of one flow."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Optional, Union

from neuca_tools.selftest.evidence.run import Interval, Total
from neuca_tools.selftest.readers.lines import SUM, Rest, Row
from neuca_tools.selftest.readers.values import known_mean, known_sum, parse_whole, scaled

Line = tuple[Row, Rest]
SHORTEST = 0.1  # seconds, of -i
OMITTED = "(omitted)"
# The receiver counts gaps between datagrams, and so misses those lost after the last one that it
# received. This share of them may still be in flight when the test ends.
MAX_IN_FLIGHT = 0.1


def gather_intervals(lines: Sequence[Line]) -> tuple[Interval, ...]:
    """One interval for each (start, end), omitted ones first.

    The streams' clocks differ by some hundredths of a second.
    """
    groups: dict[tuple[bool, int, int], list[Line]] = {}
    unit = usual_length([row for row, _ in lines])
    for row, rest in lines:
        key = (OMITTED in row.rest, round(row.start / unit), round(row.end / unit))
        groups.setdefault(key, []).append((row, rest))
    intervals = map(_interval_of, groups.values())
    return tuple(sorted(intervals, key=lambda interval: (not interval.omitted, interval.start)))


def usual_length(intervals: Iterable[Union[Row, Interval]]) -> float:
    """Seconds, at most 1 (-i)."""
    lengths = [each.end - each.start for each in intervals if each.end > each.start]
    return min(1.0, max(SHORTEST, median(lengths or [1.0])))


def _interval_of(group: list[Line]) -> Interval:
    """Amounts of the [SUM] row, which are rounded only once; windows of the streams' rows."""
    sums = [line for line in group if line[0].id == SUM]
    streams = [line for line in group if line[0].id != SUM]
    # Two rows of one stream are those of both ends, of which a sender's says more.
    streams.sort(key=lambda line: line[1].retransmits is not None)
    streams = list({line[0].id: line for line in streams}.values())
    counted = sums[:1] or streams
    row, amounts = counted[0][0], total_of(counted)
    return Interval(
        row.start,
        row.end,
        bytes=amounts.bytes,
        rate=amounts.rate,
        retransmits=amounts.retransmits,
        cwnd=known_sum(rest.cwnd for _, rest in streams),
        rtt=known_mean(rest.rtt for _, rest in streams),
        datagrams=amounts.datagrams,
        lost=amounts.lost,
        omitted=OMITTED in row.rest,
    )


def total_of(lines: Sequence[Line]) -> Total:
    """The [SUM] row, or the sum of the streams' rows."""
    chosen = [line for line in lines if line[0].id == SUM] or lines
    if not chosen:
        return Total()
    first, rests = chosen[0][0], [rest for _, rest in chosen]
    return Total(
        seconds=first.end - first.start,
        bytes=sum(row.bytes for row, _ in chosen),
        rate=sum(row.rate for row, _ in chosen),
        retransmits=_total_count(rests, "retransmits"),
        datagrams=_total_count(rests, "datagrams"),
        lost=_total_count(rests, "lost"),
    )


def total_of_intervals(intervals: Iterable[Interval]) -> Total:
    """Where the totals are missing, or are not those of the receiver."""
    counted = [interval for interval in intervals if not interval.omitted]
    seconds = sum(interval.seconds for interval in counted)
    size = known_sum(interval.bytes for interval in counted)
    return Total(
        seconds or None,
        size,
        rate=8 * size / seconds if size is not None and seconds else None,
        datagrams=parse_whole(known_sum(interval.datagrams for interval in counted)),
        lost=parse_whole(known_sum(interval.lost for interval in counted)),
    )


def _total_count(rests: Sequence[Rest], name: str) -> Optional[int]:
    return parse_whole(known_sum(getattr(rest, name) for rest in rests))


def received_total(sent: Total, lost: Optional[int], datagrams: Optional[int]) -> Total:
    """The receiver's totals, if a program prints the sender's amounts and the receiver's losses."""
    received = replace(sent, retransmits=None, datagrams=datagrams, lost=lost)
    if not datagrams or lost is None or lost > datagrams:
        return replace(received, bytes=None, rate=None)
    share = 1 - lost / datagrams
    return replace(received, bytes=scaled(sent.bytes, share), rate=scaled(sent.rate, share))


def with_missing_tail(received: Total, sent: Optional[int]) -> Total:
    """Count the datagrams that were lost after the last one that was received, if there was any."""
    if not sent or received.datagrams is None or received.lost is None:
        return received
    missing = sent - received.datagrams
    if missing <= MAX_IN_FLIGHT * sent:
        return received
    return replace(received, datagrams=sent, lost=received.lost + missing)


def without_zeros(total: Total, intervals: Sequence[Interval]) -> Total:
    """Without the zeros that an end writes for what only the other end counts."""
    if total.bytes or not any(interval.bytes for interval in intervals):
        return total
    return replace(total, bytes=None, rate=None, datagrams=total.datagrams or None)
