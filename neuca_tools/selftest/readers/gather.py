"""The lines of several streams become the intervals of one flow."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest.evidence.run import Interval, Total
from neuca_tools.selftest.readers.lines import Row
from neuca_tools.selftest.readers.values import mean, total, whole


def gather(parts: Sequence[tuple[Row, Interval]]) -> tuple[Interval, ...]:
    """One interval for each (start, end): a [SUM] line has the better rate, its streams' lines have the windows."""
    groups: dict[tuple[bool, int, int], list[tuple[Row, Interval]]] = {}
    for row, interval in parts:
        key = (interval.omitted, round(row.start), round(row.end))
        groups.setdefault(key, []).append((row, interval))
    merged = map(_together, groups.values())
    return tuple(sorted(merged, key=lambda one: (not one.omitted, one.start)))


def _together(group: list[tuple[Row, Interval]]) -> Interval:
    streams = [interval for row, interval in group if row.id != "SUM"]
    sums = [interval for row, interval in group if row.id == "SUM"]
    if not sums and len(streams) == 1:
        return streams[0]
    counted = sums[:1] or streams
    base = counted[0]
    if not sums:
        base = replace(base, bytes=_total(streams, "bytes"), rate=_total(streams, "rate"))
    return replace(
        base,
        retransmits=whole(_total(counted, "retransmits")),
        cwnd=_total(streams, "cwnd"),
        rtt=mean(one.rtt for one in streams),
        datagrams=whole(_total(counted, "datagrams")),
        lost=whole(_total(counted, "lost")),
        omitted=any(one.omitted for _, one in group),
    )


def _total(parts: Sequence[Interval], name: str) -> Optional[float]:
    return total(getattr(one, name) for one in parts)


def arrived(sent: Total, lost: Optional[int], datagrams: Optional[int]) -> Total:
    """The receiver's totals, where a program prints the sender's amounts with the receiver's losses."""
    share: Optional[float] = None
    if datagrams and lost is not None and lost <= datagrams:
        share = 1 - lost / datagrams
    return Total(
        seconds=sent.seconds,
        bytes=_scaled(sent.bytes, share),
        rate=_scaled(sent.rate, share),
        datagrams=datagrams,
        lost=lost,
        out_of_order=sent.out_of_order,
        jitter=sent.jitter,
    )


def _scaled(value: Optional[float], share: Optional[float]) -> Optional[float]:
    return None if value is None or share is None else value * share
