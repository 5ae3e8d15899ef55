"""Responsiveness: round trips per minute (RPM) under load, and a grade.

After draft-ietf-ippm-responsiveness-09, "Responsiveness under Working Conditions":

implemented      the formula for connections without TLS, with single-sided means of 95% (TMP); both
                 directions one after the other, each with its own score; the confidence, from the
                 moving averages of 4 intervals (MAD) within 5% (SDT); the four grades
a substitute     self probes are the kernel's smoothed round trip of the connections with the load,
                 which the draft permits where a request cannot be multiplexed on them
not implemented  HTTP/2 and TLS: a foreign probe is a TCP handshake and a request and answer of one
                 byte on that connection. Load is a fixed number of iperf3 streams for a fixed time,
                 not one more in each interval until goodput is stable; an interval is 1 s, not 5.
                 Thus the values are not comparable with those of HTTP-based tools.
"""

# SPDX-License-Identifier: MIT

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, pstdev
from typing import Optional

from neuca_tools.selftest.evidence.run import Direction

# The draft's TMP, MAD and SDT.
TRIMMED, DISTANCE, TOLERANCE = 0.95, 4, 0.05
INTERVAL = 1.0  # seconds; 5 in the draft
# Seconds: the kernel has no shorter round trips, and a report that was tampered with has.
SHORTEST = 1e-6
# RPM at which each grade begins: section "Round-Trips per Minute (RPM)" of the draft.
GRADES = ((6000.0, "excellent"), (1000.0, "good"), (300.0, "fair"), (0.0, "poor"))
SOURCE = "draft-ietf-ippm-responsiveness-09, without TLS and HTTP"


@dataclass(frozen=True)
class Probes:
    """What was measured under load in one direction ("forward" is to the peer), in seconds.

    Of each foreign probe `begun` is when it began, since the load began, `connected` how long the
    handshake took and `answered` the request; `own` are round trips of the connections that
    generate the load, at the times `own_times`. `failed` probes had no answer. `rate` is in bit/s,
    `idle` the median round trip over TCP without load, `streams` the connections of the load.
    """

    direction: Direction = "forward"
    begun: tuple[float, ...] = ()
    connected: tuple[float, ...] = ()
    answered: tuple[float, ...] = ()
    own_times: tuple[float, ...] = ()
    own: tuple[float, ...] = ()
    failed: int = 0
    streams: int = 0
    rate: Optional[float] = None
    idle: Optional[float] = None


@dataclass(frozen=True)
class Responsiveness:
    """The result of one direction: RPM, and seconds under load.

    `handshake`, `answer` and `own` are trimmed means. `increase` is how much longer the answer took
    than without load. `confidence` is low, medium or high.
    """

    direction: str
    rpm: float
    foreign_rpm: float
    own_rpm: Optional[float]
    grade: str
    confidence: str
    handshake: float
    answer: float
    own: Optional[float]
    idle: Optional[float]
    increase: Optional[float]
    probes: int
    failed: int
    streams: int
    rate: Optional[float]
    source: str = SOURCE


def trimmed_mean(values: Sequence[float], part: float = TRIMMED) -> Optional[float]:
    """The mean of the lowest `part` of the values: at least one of them; None without any."""
    if not values:
        return None
    return mean(sorted(values)[: max(1, int(len(values) * part))])


def grade(rpm: float) -> str:
    """The draft's category."""
    return next(word for least, word in GRADES if rpm >= least)


def responsiveness(measured: Probes) -> Optional[Responsiveness]:
    """The score of the last DISTANCE intervals; None if no foreign probe was answered in them."""
    first = max(measured.begun, default=0.0) - DISTANCE * INTERVAL
    late = [
        [value for begun, value in zip(measured.begun, values) if begun >= first]
        for values in (measured.connected, measured.answered)
    ]
    handshake, answer = map(trimmed_mean, late)
    if not handshake or not answer or min(handshake, answer) < SHORTEST:
        return None
    own = trimmed_mean(_late_own(measured))
    foreign_rpm = 60 / mean((handshake, answer))
    own_rpm = 60 / own if own else None
    rpm = foreign_rpm if own_rpm is None else mean((foreign_rpm, own_rpm))
    increase = None if measured.idle is None else max(0.0, answer - measured.idle)
    return Responsiveness(
        direction=measured.direction,
        rpm=rpm,
        foreign_rpm=foreign_rpm,
        own_rpm=own_rpm,
        grade=grade(rpm),
        confidence=confidence(measured),
        handshake=handshake,
        answer=answer,
        own=own,
        idle=measured.idle,
        increase=increase,
        probes=len(late[0]),
        failed=measured.failed,
        streams=measured.streams,
        rate=measured.rate,
    )


def _late_own(measured: Probes) -> list[float]:
    first = max(measured.own_times, default=0.0) - DISTANCE * INTERVAL
    both = zip(measured.own_times, measured.own)
    return [value for time, value in both if time >= first and value >= SHORTEST]


def known_scores(measured: Sequence[Probes]) -> tuple[Responsiveness, ...]:
    """The responsiveness of each measurement for which it is known."""
    return tuple(score for score in map(responsiveness, measured) if score is not None)


def confidence(measured: Probes) -> str:
    """The confidence in the responsiveness: "low", "medium" or "high".

    It follows the draft's section "Confidence of Test-Results": "low" if there were not enough
    intervals for an average, "high" if the averages were stable.
    """
    times_by_interval: dict[int, list[float]] = defaultdict(list)
    for begun, connected, answered in zip(measured.begun, measured.connected, measured.answered):
        times_by_interval[int(begun / INTERVAL)].append(mean((connected, answered)))
    # RPM of the foreign probes of each interval in which there was one.
    rates = [60 / max(SHORTEST, mean(times)) for _, times in sorted(times_by_interval.items())]
    places = range(len(rates) - DISTANCE + 1)
    averages = [mean(rates[place : place + DISTANCE]) for place in places]
    if not averages:
        return "low"
    last = averages[-DISTANCE:]
    if len(last) == DISTANCE and pstdev(last) <= TOLERANCE * last[-1]:
        return "high"
    return "medium"
