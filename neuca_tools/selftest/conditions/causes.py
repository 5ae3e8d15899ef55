"""What explains what: which finding is the cause of which other one, each with the reason.

A finding that another one explains is still reported, but as information, and after its cause.
Conditions go by their id, or by their title where several share an id.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Optional

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.conditions.thresholds import TOGETHER

ASYMMETRIC = "D27"
ALONE = "tcp"  # the phase of one stream in one direction
DROPS, BLOAT = "queue drops", "bufferbloat"  # both are D14


class Explanation(NamedTuple):
    """Any of `causes` explains any of `symptoms`, for this reason; `phase`: in that phase alone."""

    symptoms: tuple[str, ...]
    causes: tuple[str, ...]
    reason: str
    phase: Optional[str] = None


class Doubt(NamedTuple):
    """Two conditions that the same evidence may allow, and the test that tells which it is."""

    conditions: frozenset[str]
    test: str


class Outcome(NamedTuple):
    """A fault of one of these conditions decides the exit code.

    `unmeasured`: only if no rate was measured; `untested`: only if no phase ran at all.
    """

    conditions: frozenset[str]
    exit_code: ExitCode
    unmeasured: bool = False
    untested: bool = False


EXPLANATIONS = (
    Explanation(("D05",), ("D11", "D13", "D14"), "a queue dropped the packets that TCP lost"),
    Explanation(("D05",), ("D17", "D18"), "a full or policed path drops what exceeds its rate"),
    Explanation(("D05",), ("D19",), "the path loses at any rate"),
    Explanation(("D05", "D17"), ("D40",), "a link that is down loses all, without a queue"),
    Explanation(("D05",), ("D21",), "retransmitted segments larger than the path MTU are lost too"),
    Explanation(
        ("D05", "D17"), ("D39",), "packets that overtake others look like loss to the sender"
    ),
    Explanation(("D27",), ("D39",), "it slows down the direction that it is in"),
    Explanation(
        ("D18",), ("D39",), "round trips of packets that overtake others vary like a queue"
    ),
    Explanation(
        ("D26", "D27", "D28"),
        ("D01", "D02", "D03", "D09", "D11", "D13", DROPS, "D17", "D21", "D29"),
        "what holds one stream back makes it slower than several, or than the other direction",
    ),
    Explanation(("D20",), ("D09",), "a CPU that is full offers no more datagrams"),
    Explanation(("D09",), ("D06", "D24"), "small packets take more CPU time for each byte"),
    Explanation(("D04",), ("D21",), "full-size segments vanish, and nothing else is in flight"),
    Explanation(("D17",), ("D21",), "like a policer, a black hole loses packets without a queue"),
    Explanation(("D42",), ("D21",), "a connection whose first large segment vanishes is rejected"),
    Explanation(
        ("D18",),
        ("D21", "D27"),
        "what the other direction exceeds is not the capacity of the path",
    ),
    Explanation(
        ("D18",), ("D26",), "what several streams exceed is not the capacity of the path", ALONE
    ),
    Explanation((BLOAT,), ("D26",), "a queue that only one stream fills does not delay the others"),
    Explanation(
        ("D29", "D33", "D35"),
        ("D43",),
        "the other host with this address responds, refuses, or has another secret",
    ),
    Explanation(("D33",), ("D16", "D30"), "a response that is dropped looks like a filter"),
    Explanation(
        ("D04", "D05", "D14", "D18"),
        ("D28",),
        "in this phase both directions share what each had alone",
        TOGETHER,
    ),
)
# What acknowledgements suffer from as well: it is a cause in both directions.
ACROSS = frozenset({"D39"})
DOUBTS = (
    Doubt(
        frozenset({"D09", "D18"}),
        "several streams (--only tcp,tcp-parallel): more in total means the CPU, the same the path",
    ),
    Doubt(
        frozenset({"D09", "D05"}),
        "the same with --rate at half of this rate: loss that stays is that of the path",
    ),
    Doubt(
        frozenset({"D05", "D17"}),
        "UDP (--only udp --rate): nothing lost up to some rate means a policer, loss at a tenth of "
        "it the path",
    ),
    Doubt(
        frozenset({"D17", "D19"}),
        "UDP at a hundredth of this rate for a minute (--only udp --rate --time 60): loss that "
        "stays is at random",
    ),
    Doubt(
        frozenset({"D01", "D18"}),
        "larger buffers (--only tcp again): the same rate means the path, a higher one the window",
    ),
    Doubt(
        frozenset({"D03", "D18"}),
        "larger buffers (--only tcp again): the same rate means the path, a higher one the buffer",
    ),
    Doubt(
        frozenset({"D17", "D26"}),
        "several streams (--only tcp,tcp-parallel --parallel 1,8): a policer of all of them gives "
        "the same in total",
    ),
)
"""Each is named where both are found, see `tell_apart`."""
OUTCOMES = (
    Outcome(frozenset({"D34"}), ExitCode.BUSY),
    Outcome(frozenset({"D16", "D30", "D31", "D32", "D33"}), ExitCode.UNREACHABLE, unmeasured=True),
    Outcome(frozenset({"D29"}), ExitCode.NOT_AS_PLANNED, untested=True),
)
"""In the order in which they are asked; before the verdict that a test is inconclusive."""
NOT_AS_PLANNED = frozenset({"D37", "D38", "D46"})
"""Faults of the host's own configuration: they come before a rate that is below the threshold."""
UNFINISHED = frozenset({"D21", "D30", "D31", "D32", "D33", "D34", "D35", "D43"})
"""Why a test did not end, or did not run with the host it was meant for."""


def causes_of(symptom: str) -> frozenset[str]:
    """Every condition that explains this one in any phase."""
    rows = [row for row in EXPLANATIONS if symptom in row.symptoms and row.phase is None]
    return frozenset(cause for row in rows for cause in row.causes)


def tell_apart(condition: str, other: str) -> Optional[str]:
    """The test that tells one condition from the other; None if both may be true at once."""
    rows = (row.test for row in DOUBTS if row.conditions == {condition, other})
    test = next(rows, None)
    return None if test is None else f"{condition} or {other}: {test}"


def explains_loss(condition: str) -> bool:
    """Whether fixing this condition removes the loss that limits TCP (D05)."""
    return condition in causes_of("D05")


def is_explained(names: Collection[str], phase: Optional[str], met: Collection[str]) -> bool:
    """Whether a finding with these names (its id, its title) has its cause among those `met`."""
    return any(_row_explains(row, names, phase, met) for row in EXPLANATIONS)


def _row_explains(
    row: Explanation, names: Collection[str], phase: Optional[str], met: Collection[str]
) -> bool:
    """A cause within one phase explains nothing there if it is a symptom itself."""
    if row.phase not in (None, phase) or not set(row.symptoms) & set(names):
        return False
    causes = set(row.causes) & set(met)
    if row.phase is not None:
        causes = {cause for cause in causes if not causes_of(cause) & set(met)}
    return bool(causes)
