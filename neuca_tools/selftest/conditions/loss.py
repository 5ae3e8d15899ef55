"""D05: loss that limits the congestion window of TCP."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.predict import round_rate
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.conditions.window import is_lossy, loss_ceiling
from neuca_tools.selftest.evidence.look import Look, Windows


def loss_limited(look: Look) -> Optional[Hit]:
    """A symptom: the conditions that say where packets are lost take precedence (see `causes`)."""
    if look.protocol != "tcp" or not look.rate or look.is_full or not is_lossy(look):
        return None
    ceiling = loss_ceiling(look, look.rtt or _rtt_of_window(look.windows, look.rate), look.loss)
    if ceiling is not None and look.rate < ceiling / 2:
        # This little loss cannot hold the rate back so much.
        return None
    return Hit(
        look.left,
        f"{amounts.percent(look.loss or 0)} of what was sent was lost and retransmitted, and the "
        f"congestion window follows the loss{_best_interval(look)}",
        (
            fact("bytes_retrans / bytes_sent", look.loss),
            fact("retransmits", look.throughput.retransmits),
            fact("Mathis limit, bit/s", ceiling),
        ),
        "find where it is lost: nstat, tc -s qdisc and ethtool -S on both ends; pace below the "
        "rate of the path: tc qdisc replace dev DEV root fq maxrate RATE",
        confidence=MEDIUM if look.network is None else HIGH,
    )


def _rtt_of_window(windows: Windows, rate: float) -> float:
    """Seconds; 0 if the window is not known."""
    return (windows.cwnd or 0.0) * 8 / rate


def _best_interval(look: Look) -> str:
    near = round_rate(max(look.throughput.rates, default=0.0))
    return f"; the best interval is just below {amounts.rate(near)}" if near else ""


LOSS = (Rule("D05", "limited by loss", LIMIT, loss_limited),)
