"""The lines of several streams become the intervals of one flow."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest.evidence.run import Interval, Total
from neuca_tools.selftest.readers.lines import Row
from neuca_tools.selftest.readers.values import mean, total


def gather(parts: Sequence[tuple[Row, Interval]]) -> tuple[Interval, ...]:
    """One interval for each (start, end). A [SUM] line has the better rate, its streams' lines have the windows."""
    groups: dict[tuple[bool, int, int], list[tuple[Row, Interval]]] = {}
    for row, interval in parts:
        groups.setdefault((interval.omitted, round(row.start), round(row.end)), []).append(
            (row, interval)
        )
    return tuple(
        sorted(map(_together, groups.values()), key=lambda one: (not one.omitted, one.start))
    )


def _together(group: list[tuple[Row, Interval]]) -> Interval:
    streams = [interval for row, interval in group if row.id != "SUM"]
    summed = next((interval for row, interval in group if row.id == "SUM"), None)
    if summed is None and len(streams) == 1:
        return streams[0]
    base = summed or replace(
        streams[0],
        bytes=total(one.bytes for one in streams),
        rate=total(one.rate for one in streams),
    )
    return replace(
        base,
        retransmits=_count([base] if summed else streams, "retransmits"),
        cwnd=total(one.cwnd for one in streams),
        rtt=mean(one.rtt for one in streams),
        datagrams=_count([base] if summed else streams, "datagrams"),
        lost=_count([base] if summed else streams, "lost"),
        omitted=any(one.omitted for _, one in group),
    )


def _count(parts: Sequence[Interval], name: str) -> Optional[int]:
    found = total(getattr(one, name) for one in parts)
    return None if found is None else int(found)


def arrived(sent: Total, lost: Optional[int], datagrams: Optional[int]) -> Total:
    """The receiver's side, where a program prints the sender's amounts with the receiver's losses."""
    share = 1 - lost / datagrams if datagrams and lost is not None and lost <= datagrams else None
    return Total(
        sent.seconds,
        None if share is None or sent.bytes is None else sent.bytes * share,
        None if share is None or sent.rate is None else sent.rate * share,
        None,
        datagrams,
        lost,
        sent.out_of_order,
        sent.jitter,
    )
