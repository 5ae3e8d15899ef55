"""Whether a set-up was what it says: its fault was in effect while it was played, by what the box saw. Pure.

A host that gets no processor sends too little for a shaper to shape, and a box that gets none delays what it should only forward.
Such a set-up was not played: it counts neither as right nor as wrong. Nothing here depends on what the self-test said of it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping

from middlebox import Tally, Way
from setups import Setup

Tallies = Mapping[str, Tally]
LATE = 0.05  # of the frames: the box was a fault of its own
FULL = 0.8  # of a shaper's rate, of a healthy path's expected one: it carried about that in some second
SOME = 10  # frames: fewer may be lost without a consequence
DEEP = 0.1  # seconds
WINDOW = 0.5  # of the rate that a window allows, which counts what the kernel adds to each packet as well
# Faults that may cost nothing: such a set-up is healthy if the path was as fast as expected all the same.
HARMLESS = frozenset({"own-queue", "reordering"})


def missing(setup: Setup, tallies: Tallies, rate: float | None, drops: int) -> str:
    """Why this was not the set-up that was drawn; empty if it was.

    `rate` is that of the first test, as iperf measured it, in bit/s, `drops` are those of the near host's own queue.
    """
    if not setup.listens:
        return ""
    for name, tally in tallies.items():
        if tally.late > LATE * max(tally.frames, SOME):
            return f"the box was late with {tally.late} of {tally.frames} frames {name}"
    if setup.name in HARMLESS and (rate or 0.0) >= 0.9 * setup.expect:
        return "the fault cost nothing"
    found = [*_of_ways(setup, tallies), *_of_hosts(setup, tallies, drops)]
    return found[0] if found else ""


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


def _of_hosts(setup: Setup, tallies: Tallies, drops: int) -> Iterator[str]:
    """What the hosts' own settings did not do."""
    if setup.own and drops < SOME:
        yield "the sender's own queue dropped nothing"
    for name, settings in (
        ("there", _windows(setup.near, "wmem") + _windows(setup.far, "rmem")),
        ("back", _windows(setup.far, "wmem") + _windows(setup.near, "rmem")),
    ):
        allowed = min((8 * size / setup.rtt for size in settings), default=0.0)
        if tallies[name].offered < WINDOW * allowed:
            yield f"at most {tallies[name].offered / 1e6:.3g} Mbit/s came from a window {name}"


def _windows(settings: tuple[str, ...], name: str) -> list[float]:
    """Bytes that the largest buffers of this name hold of data: half of a receive buffer is overhead."""
    share = 0.5 if name == "rmem" else 1.0
    return [share * int(one.split()[-1]) for one in settings if f"tcp_{name}" in one]
