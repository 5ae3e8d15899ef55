"""The limits of a phase as rates, and which of them is next once one is lifted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import Hit
from neuca_tools.selftest.conditions.causes import explains_loss
from neuca_tools.selftest.conditions.predict import Limit, goodput, mathis
from neuca_tools.selftest.conditions.session import links_of, sysctl_max
from neuca_tools.selftest.conditions.window import DEFAULT_MSS, LOSSY, RMEM, WMEM
from neuca_tools.selftest.evidence.look import Look

# Of tcp_wmem: 4 MB allowed 3.8 MB in flight (facts, 3.1).
IN_FLIGHT = 0.9
# Of a CPU's time: below it, the rate that would fill the CPU is a guess.
NOTICEABLE = 0.05


def limits(look: Look) -> list[Limit]:
    """Every limit that can be computed as a rate, the lowest first."""
    found = [*_of_links(look), *_of_buffers(look)]
    for end, load in (("sender", look.sender_load), ("receiver", look.receiver_load)):
        if look.rate and load.busy and load.busy > NOTICEABLE:
            found.append(Limit(f"the {end}'s CPU {load.cpu}", "D09", look.rate / load.busy))
    return sorted(found, key=lambda one: one.rate)


def _of_links(look: Look) -> list[Limit]:
    links = (*links_of(look.sender), *links_of(look.receiver))
    rates = [goodput(link.speed, link.mtu or 1500) for link in links if link.speed]
    return [Limit("the link", "D18", min(rates))] if rates else []


def _of_buffers(look: Look) -> Iterator[Limit]:
    """What buffers and loss allow at the round trip of this phase; nothing if that is not known."""
    rtt = look.rtt or look.round_trip.shortest
    if not rtt:
        return
    rmem, wmem = sysctl_max(look.receiver, RMEM), sysctl_max(look.sender, WMEM)
    if rmem:
        yield Limit("the receive window", "D01", rmem / 2 * 8 / rtt)
    if wmem:
        yield Limit("the send buffer", "D03", IN_FLIGHT * wmem * 8 / rtt)
    if look.loss and look.loss > LOSSY:
        mss = look.windows.mss or DEFAULT_MSS
        yield Limit("loss", "D05", mathis(mss, rtt, look.loss))


def next_after(condition: str, hit: Hit, look: Look) -> tuple[Optional[float], Optional[str]]:
    """The rate in bit/s once `condition` is fixed, and what limits then, in words.

    (None, None) if no limit can be computed, or if no data got through: buffers alone would
    promise a rate that no path reaches.
    """
    if look.protocol != "tcp" or not look.rate:
        return None, None
    lifted = _lifted_with(condition, hit)
    left = [one for one in limits(look) if one.condition not in lifted and one.rate >= look.rate]
    following = left[0] if left else None
    if hit.fixed and hit.fixed >= look.rate and (not following or hit.fixed < following.rate):
        return hit.fixed, _in_words(following) if following else "not known: measure again"
    return (following.rate, _in_words(following)) if following else (None, None)


def _lifted_with(condition: str, hit: Hit) -> set[str]:
    """The conditions that no longer limit once this one is fixed."""
    lifted = {condition}
    if explains_loss(condition):
        lifted.add("D05")
    if hit.end == "both":
        lifted |= {"D01", "D03"}
    return lifted


def _in_words(limit: Limit) -> str:
    return f"{limit.name}, {amounts.rate(limit.rate)}"
