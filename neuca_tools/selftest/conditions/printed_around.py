"""D09, D18, D19, D40: what the text around iperf's rows says, where the figures agree with it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import FAULT, LIMIT, MEDIUM, ORDERED, Hit, fact
from neuca_tools.selftest.conditions.printed import as_asked, link_filled, tcp_printed
from neuca_tools.selftest.conditions.session import Rule, Session
from neuca_tools.selftest.evidence.around import Around, around
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import printed

# Of a limiter's rate: encapsulation and headers take up to a fifth; what a bucket holds adds a bit.
OF_LIMITER = (0.8, 1.08)
LOST = 0.25  # of the loss that is emulated, at least, if it is what is seen
SLOW = 10e9  # bit/s


def said(session: Session) -> Around:
    """What the text around the results says; nothing if there is no text."""
    raws = [one.raw for one in session.evidence.phases if one.raw and one.run]
    return around(raws[0]) if raws else Around()


def _measured(session: Session) -> list[tuple[Look, float]]:
    """The runs that iperf alone counted, with their rates."""
    found = ((look, printed(look)) for look in session.looks)
    return [(look, one.rate) for look, one in found if one is not None]


def stated_limiter(session: Session) -> Optional[Hit]:
    """A limiter whose rate is what arrives."""
    lowest, highest = OF_LIMITER
    for look, rate in _measured(session):
        for limit in said(session).rates:
            if not lowest <= rate / max(limit, 1.0) <= highest or as_asked(look):
                continue
            return Hit(
                0.97,
                f"the text names a limit of {amounts.rate(limit)}, and {amounts.rate(rate)} arrive",
                (fact("limit, bit/s", round(limit)), fact("rate, bit/s", round(rate))),
                ORDERED,
                confidence=MEDIUM,
                direction=look.phase.direction,
            )
    return None


def stated_loss(session: Session) -> Optional[Hit]:
    """Loss that is emulated, and that iperf counted."""
    for look, _ in _measured(session):
        loss = said(session).loss
        if loss and (look.loss or 0.0) >= LOST * loss:
            return Hit(
                0.96,
                f"the text has netem drop {amounts.percent(loss)}, and iperf counted "
                f"{amounts.percent(look.loss or 0.0)}",
                (fact("loss of netem", loss), fact("lost", look.loss)),
                "test without it",
                confidence=MEDIUM,
                direction=look.phase.direction,
            )
    return None


def stated_duplex(session: Session) -> Optional[Hit]:
    """A link in half duplex."""
    if not _measured(session) or not said(session).is_half_duplex:
        return None
    return Hit(
        0.96,
        "the text names a link in half duplex: it collides with what comes back",
        (fact("duplex", "half"),),
        "let both ends negotiate (ethtool -s DEVICE autoneg on)",
        confidence=MEDIUM,
    )


def stated_cpu(session: Session) -> Optional[Hit]:
    """A CPU that the text says is full."""
    is_slow = any(rate < SLOW and _link_filled(look) is None for look, rate in _measured(session))
    if not is_slow or not said(session).is_cpu_full:
        return None
    return Hit(
        0.9,
        "the text says that a CPU is full meanwhile",
        (fact("CPU", "full"),),
        "see what it does (perf top); offloads (ethtool -k); several queues and streams",
        "both",
        confidence=MEDIUM,
    )


def _link_filled(look: Look) -> Optional[float]:
    one = tcp_printed(look)
    return link_filled(one) if one is not None else None


AROUND_SESSION = (
    Rule("D18", "path capacity reached", LIMIT, stated_limiter),
    Rule("D19", "random loss", FAULT, stated_loss),
    Rule("D40", "link degraded", FAULT, stated_duplex),
    Rule("D09", "CPU full", LIMIT, stated_cpu),
)
