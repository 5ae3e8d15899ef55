"""Whether a set-up was what it says: its fault was in effect while it was played, by what the box and the kernels saw. Pure.

A host that gets no processor sends too little for a shaper to shape, and a box that gets none delays what it should only forward.
Such a set-up was not played: it counts neither as right nor as wrong. Nothing here depends on what the self-test said of it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1]))

from limited import Limits
from middlebox import Tally, Way
from setups import FORWARD, Setup

Tallies = Mapping[str, Tally]
LATE = 0.05  # of the frames: the box was a fault of its own
FULL = 0.8  # of a shaper's rate, of a healthy path's expected one: it carried about that in some second
SOME = 10  # frames: fewer may be lost without a consequence
DEEP = 0.1  # seconds
HALF = 0.5  # of what a window or buffer allows: in a guest, a flow that is slower is limited by the processor
# Of the time of a flow. In earlier seeds, windows and buffers that limited it did so for at least 24%, the others for up to 10%.
LIMITED = 0.15
# Faults that may cost nothing: such a set-up is healthy if the path was as fast as expected all the same.
HARMLESS = frozenset({"own-queue", "reordering"})


class Seen(NamedTuple):
    """What happened: in the box, by direction, in the near host's own queue (drops), and to one flow in each direction.

    `rates` are bit/s, as iperf measured them, and `limits` are what the sender's kernel says.
    """

    tallies: Tallies
    drops: int = 0
    rates: Mapping[str, float | None] = {}
    limits: Mapping[str, Limits] = {}


def missing(setup: Setup, seen: Seen) -> str:
    """Why this was not the set-up that was drawn; empty if it was."""
    if not setup.listens:
        return ""
    for name, tally in seen.tallies.items():
        if tally.late > LATE * max(tally.frames, SOME):
            return f"the box was late with {tally.late} of {tally.frames} frames {name}"
    if setup.name in HARMLESS and (seen.rates.get(FORWARD) or 0.0) >= 0.9 * setup.expect:
        return "the fault cost nothing"
    if setup.own and seen.drops < SOME:
        return "the sender's own queue dropped nothing"
    return next(iter((*_of_ways(setup, seen.tallies), *_of_windows(setup, seen))), "")


def _of_windows(setup: Setup, seen: Seen) -> Iterator[str]:
    for direction, (kind, _) in setup.buffers.items():
        limits = seen.limits.get(direction, Limits())
        if (limits.window if kind == "rmem" else limits.buffer) < LIMITED:
            yield f"no window limited a flow {direction}, by the sender's kernel"
    if setup.is_for_namespaces:
        return
    for direction, allowed in setup.allowed.items():
        if (seen.rates.get(direction) or 0.0) < HALF * allowed:
            yield f"less than half of what a window allows {direction}"


def _of_ways(setup: Setup, tallies: Tallies) -> Iterator[str]:
    for name, way in (("there", setup.there), ("back", setup.back)):
        for what in _of_way(setup, way, tallies[name]):
            yield f"{what} {name}"


def _of_way(setup: Setup, way: Way, tally: Tally) -> Iterator[str]:
    """What did not happen in one direction."""
    slower = way.rate < setup.rate or "shaper-both" in setup.name
    if slower and tally.passed < FULL * way.rate and not (way.police or way.loss):
        yield f"at most {tally.passed / 1e6:.3g} Mbit/s passed a shaper"
    if way.police and tally.policed < SOME:
        yield "nothing was policed"
    if way.loss and tally.lost < SOME:
        yield "nothing was lost"
    if way.largest and not tally.vanished:
        yield "nothing was too large"
    if way.jitter and tally.overtook < SOME:
        yield "nothing was overtaken"
    if "deep-queue" in setup.name and way is setup.there and tally.waited < DEEP:
        yield "nothing waited"
    if not setup.wanted and tally.passed < FULL * setup.expect:
        yield f"at most {tally.passed / 1e6:.3g} Mbit/s passed a healthy path"
