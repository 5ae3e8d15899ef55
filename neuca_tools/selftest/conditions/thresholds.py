"""Whether a phase reached what was expected of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from neuca_tools.selftest.evidence.intervals import slow_start
from neuca_tools.selftest.evidence.look import Look

TOGETHER = "tcp-bidir"  # the phase in which both directions send at once
# Of what is expected: TCP, UDP (facts, section 6). Not 0.95 for many streams: on a link of
# 10 Gbit/s they get 9.41 at most, with packets of 1500 bytes.
THROUGHPUT, DATAGRAMS = 0.90, 0.80
# Of each direction where both send at once, and of the sum of what each gets alone (D28):
# acknowledgements wait behind the data of the other direction, and with buffers of one round trip
# two-way TCP leaves a good part of the path unused (Zhang, Shenker and Clark, SIGCOMM 1991; 0.72 in
# a healthy case of tests/machine/faults).
BOTH_WAYS = 0.70
# Seconds; acknowledgements of less arrive in bursts.
WHILE = 0.5
# Of the rate that was asked for: iperf3 did not keep to it.
EXCEEDED = 1.5


def passed(one: Look) -> Optional[bool]:
    """Whether the rate is close enough to the expected one; None if either is not known."""
    run = one.phase.run
    if run is not None and run.error:
        return False
    if one.phase.search or one.rate is None or one.is_unanswered:
        return None
    enough, wanted = _share_expected(one), _rate_expected(one)
    if wanted is not None:
        return (_mean_of_directions(one) or one.rate) >= enough * wanted
    if one.asked and enough * one.asked <= one.rate <= EXCEEDED * one.asked:
        # Nothing is expected, but the test was as fast as it was allowed to be.
        return True
    return None


def reached_for_a_while(one: Look) -> bool:
    """Whether TCP had the expected rate for a moment, after slow start, on a busy host.

    Loss at random or a policer would have prevented it. A host that other programs keep busy sends
    in bursts, which overflow a queue now and then, and is too slow at other times.
    """
    return one.is_disturbed and _reached(one, slow_start(one.round_trip.shortest))


def carries_expected(one: Look) -> bool:
    """Whether TCP had the expected rate for a moment, in slow start or later: the path has it.

    Where it is slower for the rest of the test, its window may not have grown back: by a segment in
    each round trip (RFC 5681, section 3.1).
    """
    return _reached(one, 0.0)


def _reached(one: Look, after: float) -> bool:
    """Whether there was a WHILE with the expected rate, so many seconds after the begin."""
    if not one.evidence.expect:
        return False
    points = one.phase.sender_trace.points("sent")
    begin = points[0][0] + after if points else 0.0
    late = [point for point in points if point[0] >= begin]
    return any(rate >= one.evidence.expect for rate in _means(late))


def _means(points: Sequence[tuple[float, float]]) -> Iterator[float]:
    """The mean of each WHILE; a value is of the time since the point before it."""
    for first, (began, _) in enumerate(points):
        amount, before = 0.0, began
        for time, value in points[first + 1 :]:
            amount, before = amount + value * (time - before), time
            if before - began >= WHILE:
                yield amount / (before - began)
                break


def _share_expected(one: Look) -> float:
    """The share of the expected rate that is enough."""
    if one.protocol == "udp":
        return DATAGRAMS
    return BOTH_WAYS if one.phase.name == TOGETHER else THROUGHPUT


def _rate_expected(one: Look) -> Optional[float]:
    """bit/s: for TCP what is expected of the path, for UDP what was asked for."""
    if one.protocol == "udp":
        return one.asked or None
    if one.evidence.expect and one.asked:
        return min(one.evidence.expect, one.asked)
    return one.evidence.expect


def _mean_of_directions(one: Look) -> Optional[float]:
    """bit/s: where both directions send at once, it is chance which of them gets more (see D28)."""
    if one.phase.name != TOGETHER or one.phase.run is None:
        return None
    rates = [flow.rate for flow in one.phase.run.flows if flow.rate]
    if len(rates) < 2:
        return None
    return sum(rates) / len(rates)
