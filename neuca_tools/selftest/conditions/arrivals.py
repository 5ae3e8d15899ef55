"""D18: datagrams that a path drops, where iperf's own figures are all that is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from statistics import mean, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import FAULT, MEDIUM, Hit, single_fact
from neuca_tools.selftest.conditions.datagrams import is_same_way
from neuca_tools.selftest.conditions.figures import STEADY
from neuca_tools.selftest.conditions.udp import (
    VERY_FEW,
    WHOLE,
    datagram_size,
    is_gentle,
    is_losing,
    is_one_of_several,
)
from neuca_tools.selftest.evidence import Phase, derive
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.run import known_rates

LOST = 0.02  # of the datagrams
FEWEST = 3  # intervals
FEW = 100_000  # datagrams in a second: fewer than any host receives
# Of few datagrams: more is lost than by chance, and less than if nothing got through.
MUCH, MOST = 0.05, 0.9
DATAGRAM = 1448  # bytes: iperf3's default, where the size is not known
MORE = 1.1  # times the rate of another test
SMALL = 512  # bytes of a datagram


def limited_arrival(look: Look) -> Optional[Hit]:
    """Of UDP: datagrams arrive at a rate that the path gives, whatever is sent."""
    phases = look.evidence.phases
    if not look.is_unsampled or any(_is_contradicted_by(look, phase) for phase in phases):
        return None
    return _constant_arrival(look) or _slow_path(look)


def _constant_arrival(look: Look) -> Optional[Hit]:
    """The same rate arrives all the time, however much is lost."""
    if look.known_loss < LOST or not is_losing(look):
        return None
    rates = known_rates(interval for interval in look.steady if interval.lost is not None)
    if len(rates) < FEWEST or pstdev(rates) >= STEADY * mean(rates):
        return None
    arrived = mean(rates)
    if not _are_few(look, arrived):
        return None
    return Hit(
        0.8,
        f"{amounts.rate(arrived)} arrive all the time, although {amounts.percent(look.known_loss)} "
        "more is sent: something on the path limits the rate, and the rest is dropped there",
        (
            single_fact("received, bit/s", round(arrived)),
            single_fact("lost / datagrams", look.loss),
        ),
        "offer less than that (-b); compare it with the rate that was ordered or scheduled",
        confidence=MEDIUM,
    )


def _is_contradicted_by(look: Look, phase: Phase) -> bool:
    """Whether more arrived in another test, or less did, of which datagrams were lost as well."""
    other = derive.look_at_phase(look.evidence, phase)
    if phase is look.phase or not is_same_way(other, look) or not other.rate:
        return False
    return other.rate > MORE * (look.rate or 0.0) or (
        other.known_loss >= LOST and other.rate < (look.rate or 0.0) / MORE
    )


def _slow_path(look: Look) -> Optional[Hit]:
    """UDP: much is lost of so few small datagrams that any receiver would have kept up."""
    loss, size = look.known_loss, datagram_size(look)
    if not 0 < size <= WHOLE or not MUCH <= loss <= MOST or look.run.is_loopback:
        return None
    if not is_gentle(look) or is_one_of_several(look):
        return None
    return Hit(
        0.76,
        f"only {amounts.rate(look.known_rate)} arrive, and {amounts.percent(loss)} of the "
        "datagrams are lost, although they are few and unfragmented: the path is slower than what "
        "was offered",
        (
            single_fact("received, bit/s", round(look.known_rate)),
            single_fact("lost / datagrams", look.loss),
        ),
        "offer less (-b) until nothing is lost: if that helps, it is the rate of the path, else "
        "it is loss at any rate (cable, radio)",
        confidence=MEDIUM,
        severity=FAULT,  # even if as much arrived as is enough of what was offered
    )


def _are_few(look: Look, arrived: float) -> bool:
    """Whether any host could have received these datagrams, so that the path lost the others.

    Small ones are sent to see how many a host takes, and a small host takes few.
    """
    size = datagram_size(look) or DATAGRAM
    return arrived / 8 / size < (FEW if size >= SMALL else VERY_FEW)
