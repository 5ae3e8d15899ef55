"""Which limits a phase has, as rates: what is left when one of them is lifted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import Hit, links_of, sysctl_max
from neuca_tools.selftest.conditions.causes import explains_loss
from neuca_tools.selftest.conditions.predict import Limit, goodput, mathis
from neuca_tools.selftest.conditions.window import LOSSY, RMEM, WMEM
from neuca_tools.selftest.evidence.look import Look

IN_FLIGHT = 0.9  # of tcp_wmem: 4 MB gave 3.8 MB in flight (facts, 3.1)


def limits(look: Look) -> list[Limit]:
    """Every limit that can be put into a number, the lowest first."""
    rtt = look.rtt or look.round_trip.shortest
    rmem, wmem = sysctl_max(look.receiver, RMEM), sysctl_max(look.sender, WMEM)
    speeds = [
        (link.speed, link.mtu or 1500)
        for host in (look.sender, look.receiver)
        for link in links_of(host)
        if link.speed
    ]
    found = (
        [Limit("the link", "D18", min(goodput(speed, mtu) for speed, mtu in speeds))]
        if speeds
        else []
    )
    if rtt and rmem:
        found.append(Limit("the receive window", "D01", rmem / 2 * 8 / rtt))
    if rtt and wmem:
        found.append(Limit("the send buffer", "D03", IN_FLIGHT * wmem * 8 / rtt))
    for end, load in (("sender", look.sender_load), ("receiver", look.receiver_load)):
        if look.rate and load.busy and load.busy > 0.05:
            found.append(Limit(f"the {end}'s CPU {load.cpu}", "D09", look.rate / load.busy))
    if rtt and look.loss and look.loss > LOSSY:
        found.append(Limit("loss", "D05", mathis(look.windows.mss or 1448, rtt, look.loss)))
    return sorted(found, key=lambda one: one.rate)


def next_after(condition: str, hit: Hit, look: Look) -> tuple[Optional[float], Optional[str]]:
    """The rate once `condition` is fixed, and what limits then.

    Nothing is known where no limit has a number, and where nothing got through: buffers alone promise what no path keeps.
    """
    left = [
        one for one in limits(look) if one.condition != condition and one.rate >= (look.rate or 0)
    ]
    if explains_loss(condition):  # the loss goes with its cause
        left = [one for one in left if one.condition != "D05"]
    if hit.end == "both":
        left = [one for one in left if one.condition not in ("D01", "D03")]
    own = (
        [Limit("the same again", condition, hit.fixed)]
        if hit.fixed and hit.fixed >= (look.rate or 0)
        else []
    )
    lowest = min([*left, *own], key=lambda one: one.rate, default=None)
    if lowest is None or look.protocol != "tcp" or not look.rate:
        return None, None
    if lowest in own:
        following = left[0] if left else None
        return (
            lowest.rate,
            f"{following.name}, {amounts.rate(following.rate)}"
            if following
            else "not known: measure again",
        )
    return lowest.rate, f"{lowest.name}, {amounts.rate(lowest.rate)}"
