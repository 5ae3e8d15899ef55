"""D01, D26 to D28: one test against another: of a window, of streams, of directions."""

# SPDX-License-Identifier: MIT

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import Hit, Session, Severity
from neuca_tools.selftest.conditions.capacity import path_capacity, path_rate
from neuca_tools.selftest.conditions.thresholds import BIDIRECTIONAL, BOTH_WAYS, carries_expected
from neuca_tools.selftest.evidence.look import Fact, Look

STREAMS_RATIO = 1.5  # rate of many streams over that of one (D26)
ASYMMETRY = 1.3  # rate of the faster direction over that of the slower one (D27)
ASYMMETRY_OF_TOTALS = 1.15  # the same with slow start, which takes as long at any rate
# The same where both send at once: it is partly chance which of them gets more.
ASYMMETRY_TOGETHER = 1.5


def per_flow(session: Session) -> Optional[Hit]:
    single, many = session.named("tcp"), session.named("tcp-parallel")
    if single is None or many is None or not single.rate or not many.rate:
        return None
    if many.rate <= STREAMS_RATIO * single.rate or single.is_full:
        return None
    return Hit(
        0.4 * (1 - single.rate / many.rate),
        f"many streams carry {many.rate / single.rate:.1f} times as much as one: each flow is "
        "limited, by its window, or by a policer or a hash over links on the path",
        (Fact("one and many streams, bit/s", single.rate, many.rate),),
        "raise tcp_rmem and tcp_wmem on both hosts; compare a few source ports",
        confidence="medium",
        direction="forward",
        severity="info" if carries_expected(single) else None,
    )


def asymmetric_directions(session: Session) -> Optional[Hit]:
    rates, ratio = _rates_alone(session), ASYMMETRY
    if rates is None:
        rates, ratio = _rates_together(session), ASYMMETRY_TOGETHER
    if rates is None:
        return None
    there, back = rates
    fast, slow = max(rates), min(rates)
    direction = "forward" if there < back else "reverse"
    if fast <= ratio * slow or not _totals_differ(session):
        return None
    slower = session.named("tcp", direction)
    limit = slower and (path_capacity(slower) or path_rate(slower))
    if limit and limit.severity != "info":
        return None  # the path limits this direction, which is the finding (D18)
    return Hit(
        1 - slow / fast,
        f"the {direction} direction carries {amounts.rate(slow)}, the other {amounts.rate(fast)}",
        (Fact("forward and back, bit/s", there, back),),
        "compare ip route get, ethtool -k and sysctls of both hosts",
        confidence="medium",
        severity=_severity_of_slower(slower),
    )


def _severity_of_slower(look: Optional[Look]) -> Optional[Severity]:
    """Information if it is chance: this direction had the expected rate for a moment, too."""
    return "info" if look is not None and carries_expected(look) else None


def _totals_differ(session: Session) -> bool:
    """Whether the totals of both tests differ as well, as far as they are known.

    On a long path, few intervals are left after slow start, and chance decides on their rates.
    """
    ways = (session.named("tcp", way) for way in ("forward", "reverse"))
    totals = [look.flow.rate for look in ways if look is not None and look.flow.rate]
    return len(totals) < 2 or max(totals) > ASYMMETRY_OF_TOTALS * min(totals)


def worse_direction(session: Session) -> Optional[str]:
    """The direction that is clearly slower than the other, each measured alone; None if neither."""
    rates = _rates_alone(session)
    if rates is None or max(rates) <= ASYMMETRY * min(rates):
        return None
    return "forward" if rates[0] < rates[1] else "reverse"


def slow_together(session: Session) -> Optional[Hit]:
    both, rates = session.named(BIDIRECTIONAL), _rates_alone(session)
    if both is None or both.is_full or rates is None:
        return None
    alone, flows = sum(rates), both.run.flows
    together = sum(flow.rate or 0.0 for flow in flows)
    if len(flows) < 2 or not together or together >= BOTH_WAYS * alone:
        return None
    command = f"ethtool {session.evidence.local.planned or ''}".strip()
    return Hit(
        0.5 * (1 - together / alone),
        f"both directions at once carry {amounts.rate(together)}, {_alone_clause(session, rates)}: "
        "half duplex, one shaper for both, or delayed acknowledgements",
        (Fact("alone and together, bit/s", alone, together),),
        f"compare the duplex setting of both hosts ({command}); fq on both hosts",
        confidence="medium",
    )


def _alone_clause(session: Session, rates: tuple[float, float]) -> str:
    if session.named("tcp", "reverse") is None:
        return f"one direction alone {amounts.rate(rates[0])}"
    return f"one after the other {amounts.rate(sum(rates))} in total"


def _rates_alone(session: Session) -> Optional[tuple[float, float]]:
    """bit/s forward and back, each measured alone; without a test of the way back, both alike."""
    there, back = session.named("tcp"), session.named("tcp", "reverse")
    if there is None or not there.rate:
        return None
    if back is None or not back.rate:
        return there.rate, there.rate
    return there.rate, back.rate


def _rates_together(session: Session) -> Optional[tuple[float, float]]:
    """bit/s of both directions of a run with --bidir, where nothing else was measured."""
    there, back = session.named(BIDIRECTIONAL), session.named(BIDIRECTIONAL, "reverse")
    if len(session.looks) != 2 or there is None or back is None:
        return None
    if not there.is_unsampled or there.run.is_loopback or not there.rate or not back.rate:
        return None
    return there.rate, back.rate
