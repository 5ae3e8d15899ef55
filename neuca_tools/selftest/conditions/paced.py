"""D18 by BBR, which sends at the rate at which data arrives, and need not fill a queue."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.conditions.streams import is_bbr, is_mostly_idle
from neuca_tools.selftest.conditions.thresholds import carries_expected, passed
from neuca_tools.selftest.conditions.window import (
    SOMEWHAT,
    application,
    receiver_window,
    sender_buffer,
    slow_reader,
)
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import printed

# Coefficient of variation of the rate: BBR's own probes for more bandwidth average out in a second.
STEADY = 0.10
FEWEST = 3  # intervals
# Of the bytes: a policer drops more, and BBR then sends no more than it lets pass.
LOSSLESS = 1e-4
SHARE = 0.8  # of the lost time


def measured_by_bbr(look: Look) -> Optional[Hit]:
    """BBR keeps one rate, loses nothing, and no window, buffer, application or CPU holds it back.

    Its windows are twice of what the path holds, so that they never limit a steady flow (Cardwell
    et al., BBR: Congestion-Based Congestion Control, 2016).
    """
    if not _is_steady_bbr(look) or _is_held_back(look) or not look.rate:
        return None
    return Hit(
        SHARE * look.left,
        "BBR, which sends what the path delivers, stays within "
        f"{amounts.percent(_spread(look) or 0)} of {amounts.rate(look.rate)} without any loss, and "
        "nothing of the hosts limits it: this is the capacity of the path",
        (fact("rate, bit/s", round(look.rate)), fact("bytes_retrans / bytes_sent", look.loss)),
        "compare it with the rate that was ordered; no setting of the hosts makes it faster",
        confidence=MEDIUM,
        fixed=look.rate,
    )


def _is_steady_bbr(look: Look) -> bool:
    if look.protocol != "tcp" or printed(look) is not None or not is_bbr(look):
        return False
    if passed(look) is not False or look.loss is None or look.loss > LOSSLESS:
        return False
    spread = _spread(look)
    if len(look.throughput.rates) < FEWEST or spread is None:
        return False
    return spread < STEADY and not carries_expected(look)


def _spread(look: Look) -> Optional[float]:
    """Of iperf's or of the kernel's rates: each varies by when and in what pieces it counts."""
    known = (one for one in (look.spread, look.acked_spread) if one is not None)
    return min(known, default=None)


def _is_held_back(look: Look) -> bool:
    """Whether something of the hosts may limit the flow."""
    receiver, sender = look.windows.rwnd_limited or 0.0, look.windows.sndbuf_limited or 0.0
    if look.is_full or max(receiver, sender) >= SOMEWHAT or is_mostly_idle(look):
        return True
    rules = (receiver_window, sender_buffer, slow_reader, application)
    return any(rule(look) is not None for rule in rules)


PACED = (Rule("D18", "path capacity reached", LIMIT, measured_by_bbr),)
