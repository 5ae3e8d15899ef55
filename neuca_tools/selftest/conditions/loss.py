"""D05: loss that limits the congestion window of TCP."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.predict import round_rate
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.conditions.window import LOSSY, NETWORK, loss_ceiling, sender_buffer
from neuca_tools.selftest.evidence.look import Look


def loss_limited(look: Look) -> Optional[Hit]:
    """A symptom: the conditions that say where packets are lost take precedence (see `causes`)."""
    if not _is_losing(look):
        return None
    rtt = look.rtt
    if not rtt and look.windows.cwnd and look.rate:
        rtt = look.windows.cwnd * 8 / look.rate
    ceiling = loss_ceiling(look, rtt, look.loss)
    if ceiling is not None and (look.rate or 0) < ceiling / 2:
        # This little loss cannot hold the rate back so much.
        return None
    near = round_rate(max(look.throughput.rates, default=0.0))
    best = f"; the best interval is just below {amounts.rate(near)}" if near else ""
    return Hit(
        look.left,
        f"{amounts.percent(look.loss or 0)} of what was sent was lost and retransmitted, and the "
        f"congestion window follows the loss{best}",
        (
            fact("bytes_retrans / bytes_sent", look.loss),
            fact("retransmits", look.throughput.retransmits),
            fact("Mathis limit, bit/s", ceiling and round(ceiling)),
        ),
        "find where it is lost: nstat, tc -s qdisc and ethtool -S on both ends; pace below the rate "
        "of the path: tc qdisc replace dev DEV root fq maxrate RATE",
        confidence=MEDIUM if look.network is None else HIGH,
    )


def _is_losing(look: Look) -> bool:
    """Whether TCP loses packets, and not only in its own bursts, which have another cause."""
    if look.protocol != "tcp" or look.left < NETWORK or not look.rate:
        return False
    return (look.loss or 0) > LOSSY and not look.is_full and sender_buffer(look) is None


LOSS = (Rule("D05", "limited by loss", LIMIT, loss_limited),)
