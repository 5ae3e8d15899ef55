"""Whether a phase reached what was expected of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from neuca_tools.selftest.evidence.look import Look

TOGETHER = "tcp-bidir"  # the phase in which both directions send at once
# Of what is expected: TCP, UDP; bounds of our own. Not 0.95 for many streams: on a link of
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


def has_passed(look: Look) -> Optional[bool]:
    """Whether the rate is close enough to the expected one; None if either is not known."""
    run = look.phase.run
    if run is not None and run.error:
        return False
    if look.phase.search or look.rate is None or look.is_unanswered:
        return None
    enough, wanted = _share_expected(look), _rate_expected(look)
    if wanted is not None:
        return (_mean_of_directions(look) or look.rate) >= enough * wanted
    if look.asked and enough * look.asked <= look.rate <= EXCEEDED * look.asked:
        # Nothing is expected, but the test was as fast as it was allowed to be.
        return True
    return None


def carries_expected(look: Look) -> bool:
    """Whether TCP had the expected rate for a moment, in slow start or later: the path has it.

    Where it is slower for the rest of the test, its window may not have grown back: by a segment in
    each round trip (RFC 5681, section 3.1).
    """
    points = look.phase.sender_trace.points("sent")
    expect = look.evidence.expect
    return bool(expect) and any(rate >= (expect or 0.0) for rate in _means_over_time(points))


def _means_over_time(points: Sequence[tuple[float, float]]) -> Iterator[float]:
    """The mean of each WHILE; a value is of the time since the point before it."""
    for first, (began, _) in enumerate(points):
        amount, before = 0.0, began
        for time, value in points[first + 1 :]:
            amount, before = amount + value * (time - before), time
            if before - began >= WHILE:
                yield amount / (before - began)
                break


def _share_expected(look: Look) -> float:
    """The share of the expected rate that is enough."""
    if look.protocol == "udp":
        return DATAGRAMS
    return BOTH_WAYS if look.phase.name == TOGETHER else THROUGHPUT


def _rate_expected(look: Look) -> Optional[float]:
    """bit/s: for TCP what is expected of the path, for UDP what was asked for."""
    if look.protocol == "udp":
        return look.asked or None
    if look.evidence.expect and look.asked:
        return min(look.evidence.expect, look.asked)
    return look.evidence.expect


def _mean_of_directions(look: Look) -> Optional[float]:
    """bit/s: where both directions send at once, it is chance which of them gets more (see D28)."""
    if look.phase.name != TOGETHER or look.phase.run is None:
        return None
    rates = [flow.rate for flow in look.phase.run.flows if flow.rate]
    if len(rates) < 2:
        return None
    return sum(rates) / len(rates)
