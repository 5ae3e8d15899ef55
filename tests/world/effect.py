"""Whether a set-up was what it says: its fault was in effect while it was played, by what the box saw. Pure.

A host that gets no processor sends too little for a shaper to shape, and a box that gets none delays what it should only forward.
Such a set-up was not played: it counts neither as right nor as wrong. Nothing here depends on what the self-test said of it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from middlebox import Tally, Way
from setups import FORWARD, Setup

Tallies = Mapping[str, Tally]
LATE = 0.05  # of the frames: the box was a fault of its own
FULL = 0.8  # of a shaper's rate, of a healthy path's expected one: it carried about that in some second
SOME = 10  # frames: fewer may be lost without a consequence
DEEP = 0.1  # seconds
HALF = 0.5  # of what a window or buffer allows: in a guest, a flow that is slower is limited by the processor
# Faults that may cost nothing: such a set-up is healthy if the path was as fast as expected all the same.
HARMLESS = frozenset({"own-queue", "reordering"})


def missing(setup: Setup, tallies: Tallies, rates: Mapping[str, float | None], drops: int) -> str:
    """Why this was not the set-up that was drawn; empty if it was.

    `rates` are those of one flow in each direction, as iperf measured them, in bit/s, `drops` are those of the near host's own queue.
    """
    if not setup.listens:
        return ""
    for name, tally in tallies.items():
        if tally.late > LATE * max(tally.frames, SOME):
            return f"the box was late with {tally.late} of {tally.frames} frames {name}"
    if setup.name in HARMLESS and (rates.get(FORWARD) or 0.0) >= 0.9 * setup.expect:
        return "the fault cost nothing"
    if setup.own and drops < SOME:
        return "the sender's own queue dropped nothing"
    return next(iter((*_of_ways(setup, tallies), *_of_windows(setup, rates))), "")


def _of_windows(setup: Setup, rates: Mapping[str, float | None]) -> Iterator[str]:
    """Not between namespaces, where windows are small: one of fewer than four packets waits for delayed acknowledgements."""
    if setup.is_for_namespaces:
        return
    for direction, allowed in setup.allowed.items():
        if (rates.get(direction) or 0.0) < HALF * allowed:
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
