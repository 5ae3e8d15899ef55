"""D18: a local network so slow that a queue holds all of the window, by iperf's own figures."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.printed import HEAVY, differs_by_blocks
from neuca_tools.selftest.evidence.printed import Printed

SLOWEST = 30e6  # bit/s: every host of today sends and receives faster
LONGEST_TRIP = 0.04  # seconds: more than any local network has without a queue
BLOCKS = 4.1  # by which intervals may differ: a radio varies more


def queue_in_subnet(one: Printed) -> Optional[Hit]:
    """What is under way takes far longer than the network, at a rate that only blocks vary."""
    if not one.is_local_network or one.rate >= SLOWEST or one.share >= HEAVY:
        return None
    # Frequent loss, and not a queue, may be what the window depends on.
    if one.implied_rtt < LONGEST_TRIP or 2 * one.events >= len(one.every):
        return None
    if not differs_by_blocks(one, BLOCKS):
        return None
    return Hit(
        0.85,
        f"in a local network {amounts.size(one.cwnd or 0)} under way take "
        f"{amounts.time(one.implied_rtt)} at {amounts.rate(one.rate)}: they wait in a queue, "
        "before something that lets no more through",
        (
            fact("rate, bit/s", round(one.rate)),
            fact("cwnd", one.cwnd),
            fact("cwnd / rate, seconds", round(one.implied_rtt, 5)),
        ),
        "look for a limiter (tc -s qdisc; a switch's port; a quota), or a link that fell back to "
        "10 Mbit/s (ethtool)",
        confidence=MEDIUM,
    )
