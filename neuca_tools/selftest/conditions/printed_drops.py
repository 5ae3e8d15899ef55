"""D17, D18: what drops what exceeds its rate, where iperf's own figures are all that is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import LIMIT, LOW, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.printed import FAST_LINE, RENO, is_shared, tcp_printed
from neuca_tools.selftest.conditions.printed_path import UNEVEN
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import Printed

# Of the segments: policers drop many more than full queues, which let TCP slow down first (Flach et
# al.: An Internet-Wide Analysis of Traffic Policing, SIGCOMM 2016).
POLICED = 0.05
BURSTS = 2  # times the average window that as much loss leaves if each segment is lost by chance
INTERVALS = 5


def policed(look: Look) -> Optional[Hit]:
    """So much is lost that it must be lost together: the window would be smaller otherwise."""
    one = tcp_printed(look)
    if one is None or one.is_loopback or not _is_in_bursts(one):
        return None
    return Hit(
        0.9,
        f"{amounts.percent(one.share)} of the segments are lost, at a rate that hardly varies, and "
        f"the window of {amounts.size(one.cwnd or 0)} shows that many are lost together: a policer "
        "drops what exceeds its rate, or a queue is very short",
        (
            fact("retransmits", one.retransmits),
            fact("cwnd", one.cwnd),
            fact("rate, bit/s", round(one.rate)),
        ),
        "find the loss-free rate with UDP (iperf3 -u -b, twice as much each time), then ask for a "
        "shaper, or pace below it (--fq-rate)",
        confidence=MEDIUM,
    )


def _is_in_bursts(one: Printed) -> bool:
    if one.cwnd is None or one.spread is None or len(one.late) < INTERVALS:
        return False
    if one.late_share < POLICED or one.spread > UNEVEN or not all(e.retransmits for e in one.late):
        return False
    by_chance = one.streams * RENO / math.sqrt(one.late_share) * one.mss
    return one.cwnd >= BURSTS * by_chance


def full_by_many(look: Look) -> Optional[Hit]:
    """Many streams fill something together, of which only their loss is known."""
    one = tcp_printed(look)
    if one is None or not is_shared(one) or one.rate >= FAST_LINE or one.is_loopback:
        return None
    return Hit(
        0.5,
        f"{one.streams} streams carry {amounts.rate(one.rate)} together and lose "
        f"{amounts.percent(one.share)} of their segments: they fill something that drops the rest, "
        "which may be a limiter, or the CPU of a host or of a tunnel",
        (fact("rate, bit/s", round(one.rate)), fact("retransmits", one.retransmits)),
        "one stream alone: as fast without loss means the path, slower means the hosts",
        confidence=LOW,
    )


PRINTED_DROPS = (
    Rule("D17", "policed", LIMIT, policed),
    Rule("D18", "path capacity reached", LIMIT, full_by_many),
)
