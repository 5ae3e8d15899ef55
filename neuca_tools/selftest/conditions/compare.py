"""D26 to D28: one stream against many, one direction against the other, both against each alone."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import LIMIT, MEDIUM, Hit, Session, SessionRule
from neuca_tools.selftest.conditions.thresholds import BOTH_WAYS, TOGETHER
from neuca_tools.selftest.evidence.look import Fact

GAP = 1.5  # rate of many streams over that of one (D26)
ASYMMETRY = 1.3  # (D27)


def per_flow(session: Session) -> Optional[Hit]:
    one = session.named("tcp")
    many = session.named("tcp-parallel")
    if one is None or many is None or not one.rate or not many.rate or many.rate <= GAP * one.rate:
        return None
    if one.is_full:
        return None
    text = (
        f"many streams carry {many.rate / one.rate:.1f} times as much as one: a limit of each flow (its window, or a policer "
        "or a hash of links on the way)"
    )
    return Hit(
        0.4 * (1 - one.rate / many.rate),
        text,
        (Fact("one and many streams, bit/s", one.rate, many.rate),),
        "raise tcp_rmem and tcp_wmem at both ends; compare a few source ports",
        "path",
        MEDIUM,
        many.rate,
    )


def asymmetric(session: Session) -> Optional[Hit]:
    there, back = session.named("tcp"), session.named("tcp", "reverse")
    if there is None or back is None or not there.rate or not back.rate:
        return None
    fast, slow = max(there.rate, back.rate), min(there.rate, back.rate)
    if fast <= ASYMMETRY * slow:
        return None
    way = "forward" if there.rate < back.rate else "back"
    text = f"the way {way} carries {amounts.rate(slow)}, the other {amounts.rate(fast)}: the two directions are not alike"
    return Hit(
        0.5 * (1 - slow / fast),
        text,
        (Fact("forward and back, bit/s", there.rate, back.rate),),
        "compare ip route get, ethtool -k and sysctls of both ends",
        "path",
        MEDIUM,
        fast,
    )


def collapse(session: Session) -> Optional[Hit]:
    there, back, both = (
        session.named("tcp"),
        session.named("tcp", "reverse"),
        session.named(TOGETHER),
    )
    if there is None or both is None or not there.rate or both.phase.run is None:
        return None
    rates = [flow.rate for flow in both.phase.run.flows]
    alone = there.rate + ((back.rate if back else None) or there.rate)
    together = sum(rate for rate in rates if rate)
    if len(rates) < 2 or not together or together >= BOTH_WAYS * alone or both.is_full:
        return None
    text = (
        f"both ways at once carry {amounts.rate(together)}, each alone {amounts.rate(alone)} in all: half duplex, one shaper "
        "for both, or acknowledgements that starve"
    )
    facts = (Fact("alone and together, bit/s", alone, together),)
    return Hit(
        0.5 * (1 - together / alone),
        text,
        facts,
        "ethtool DEV (duplex); fq on both ends",
        "path",
        MEDIUM,
    )


COMPARE_SESSION = (
    SessionRule("D26", "one stream gets less than many", LIMIT, per_flow),
    SessionRule("D27", "the two directions differ", LIMIT, asymmetric),
    SessionRule("D28", "both ways at once are slow", LIMIT, collapse),
)
