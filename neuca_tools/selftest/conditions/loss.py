"""D05: loss that limits the congestion window of TCP."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, LIMIT, MEDIUM, Hit, PhaseRule, fact
from neuca_tools.selftest.conditions.predict import mathis, round_rate
from neuca_tools.selftest.conditions.window import DEFAULT_MSS, LOSSY, NETWORK, sender_buffer
from neuca_tools.selftest.evidence.look import Fact, Look


def loss_limited(look: Look) -> Optional[Hit]:
    """A symptom: the conditions that say where packets are lost take precedence (see `causes`)."""
    if look.protocol != "tcp" or look.left < NETWORK or not look.rate:
        return None
    if not look.loss or look.loss <= LOSSY:
        return None
    if look.is_full or sender_buffer(look) is not None:
        # What is sent in bursts overflows queues, and the bursts have another cause.
        return None
    facts = [
        fact("bytes_retrans / bytes_sent", look.loss),
        Fact("retransmits", after=look.throughput.retransmits),
    ]
    ceiling = _loss_ceiling(look)
    if ceiling is not None:
        if look.rate < ceiling / 2:
            # This little loss cannot hold the rate back so much.
            return None
        facts.append(fact("Mathis limit, bit/s", round(ceiling)))
    near = round_rate(max(look.throughput.rates, default=0.0))
    best = f"; the best interval is just below {amounts.rate(near)}" if near else ""
    return Hit(
        look.left,
        f"{amounts.percent(look.loss)} of what was sent was lost and retransmitted, and the "
        f"congestion window follows the loss{best}",
        tuple(facts),
        "find where it is lost: nstat, tc -s qdisc and ethtool -S on both ends; pace below the rate "
        "of the path: tc qdisc replace dev DEV root fq maxrate RATE",
        confidence=MEDIUM if look.network is None else HIGH,
    )


def _loss_ceiling(look: Look) -> Optional[float]:
    """bit/s that this loss allows (see `mathis`); None if no round trip is known."""
    rtt = look.rtt
    if not rtt and look.windows.cwnd and look.rate:
        rtt = look.windows.cwnd * 8 / look.rate
    return mathis(look.windows.mss or DEFAULT_MSS, rtt, look.loss) if rtt and look.loss else None


LOSS = (PhaseRule("D05", "limited by loss", LIMIT, loss_limited),)
