"""D05: loss that limits the congestion window of TCP."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.application import is_lossy, loss_ceiling
from neuca_tools.selftest.conditions.base import HIGH, INFO, LOW, MEDIUM, Hit, single_fact
from neuca_tools.selftest.conditions.figures import LOSSY, loss_explains
from neuca_tools.selftest.conditions.overflow import overflows
from neuca_tools.selftest.conditions.predict import round_rate
from neuca_tools.selftest.conditions.streams import is_bbr
from neuca_tools.selftest.conditions.thresholds import (
    TOGETHER,
    carries_expected,
)
from neuca_tools.selftest.evidence.look import Look

# Of the bytes: "BBR v1 is agnostic to packet loss" below about 20%, and less where it is policed
# (Cardwell et al., draft-cardwell-iccrg-bbr-congestion-control).
IGNORED = 0.1
BESIDE_CPU = 0.5  # of the lost time: where a CPU is full as well (D09)
FIND = (
    "find where it is lost: nstat, tc -s qdisc and ethtool -S on both hosts; send a little less "
    "than the path carries (fq with maxrate, see tc-fq(8))"
)


def loss_limited(look: Look) -> Optional[Hit]:
    """A symptom: the conditions that say where packets are lost take precedence (see `causes`)."""
    if look.protocol != "tcp" or not look.rate:
        return None
    if look.is_unsampled:
        return _loss_unsampled(look)
    if not is_lossy(look) or _is_ignored(look):
        return None
    hit = _loss_sampled(look, look.rate)
    return _weighed_hit(look, hit) if hit else None


def _weighed_hit(look: Look, hit: Hit) -> Hit:
    """What the loss is worth where the path carries enough, or a CPU is full as well."""
    if _is_passing(look):
        return replace(hit, confidence=LOW, severity=INFO)
    if not look.is_full:
        return hit
    # A host that does not keep up loses packets too, and may not even end the test.
    is_unfinished = bool(look.phase.run and look.phase.run.error)
    severity = INFO if is_unfinished else None
    return replace(hit, share=BESIDE_CPU * hit.share, confidence=LOW, severity=severity)


def _is_passing(look: Look) -> bool:
    """Whether the path carries what is expected: it loses only what a full queue has to drop."""
    return (look.is_disturbed or overflows(look)) and carries_expected(look)


def _loss_sampled(look: Look, rate: float) -> Optional[Hit]:
    """Where hosts were sampled: this loss has to allow no more than twice the rate."""
    ceiling = loss_ceiling(look, look.rtt or look.implied_rtt, look.loss)
    if ceiling is not None and rate < ceiling / 2:
        # This little loss cannot hold the rate back so much.
        return None
    return Hit(
        look.left,
        f"{amounts.percent(look.known_loss)} of what was sent was lost and retransmitted, and the "
        f"congestion window follows the loss{_best_interval(look)}",
        (
            single_fact("bytes_retrans / bytes_sent", look.loss),
            single_fact("retransmits", look.retransmits),
            single_fact("Mathis limit, bit/s", ceiling),
        ),
        FIND,
        confidence=MEDIUM if look.network is None else HIGH,
    )


def _is_ignored(look: Look) -> bool:
    """Whether the sender's algorithm does not slow down for so little loss: BBR does not."""
    return is_bbr(look) and look.known_loss < IGNORED


def _loss_unsampled(look: Look) -> Optional[Hit]:
    """Where only iperf counted: the window has to follow the loss, and allow no more than it."""
    if not loss_explains(look) or (look.phase.name == TOGETHER and look.known_loss < LOSSY):
        return None  # of both directions, each is slowed down by the other
    known = bool(look.cwnd)
    follows = ", and the congestion window follows the loss" if known else ""
    return Hit(
        0.87,
        f"{look.retransmits} segments, {amounts.percent(look.known_loss)} of what was sent, were "
        f"lost and retransmitted{follows}{_best_interval(look)}",
        (
            single_fact("retransmits", look.retransmits),
            single_fact("intervals with loss", look.lossy_intervals or None),
            single_fact("cwnd", look.cwnd),
        ),
        FIND,
        confidence=MEDIUM,
    )


def _best_interval(look: Look) -> str:
    near = round_rate(max(look.rates, default=0.0))
    return f"; the best interval is just below {amounts.rate(near)}" if near else ""
