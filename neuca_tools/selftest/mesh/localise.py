"""The entities that explain the bad tests of a mesh best: a greedy cover by likelihood.

A test is bad or good in each of its symptoms. An entity at fault makes its tests bad with the
probability h (HIT, of a steady and of an intermittent fault), a healthy one with q (CHANCE). The
entity with the highest log-likelihood ratio is taken, its tests are removed, and so on while the
ratio exceeds ENOUGH after a penalty for the number of entities among which it was chosen.

The reference for a rate is what is expected or a high quantile. The median would be wrong where
most tests are bad, as with one bad link between two groups.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple, Optional

from neuca_tools.selftest.mesh.entities import Entity, Place, Size, count_of
from neuca_tools.selftest.mesh.model import MeshPlan, Row
from neuca_tools.selftest.mesh.tally import Counted, Observation, Tally

REACH, IDENTITY, MTU, RATE = "reach", "identity", "mtu", "rate"
# In this order: what an earlier one explains is not held against a path again.
SYMPTOMS = (IDENTITY, REACH, MTU, RATE)
# The part of the reference below which a rate is bad; the quantile that is the reference.
BAD, QUANTILE = 0.8, 0.8
HIT = (0.95, 0.5)
# How often a healthy path looks bad: a rate on a busy host does, two MACs for an address do not.
CHANCE = {REACH: 0.03, IDENTITY: 0.002, MTU: 0.01, RATE: 0.04}
ENOUGH = 4.0
# The most that CHANCE is raised to, for rates that vary more.
NOISIEST = 0.2
# What scores less than ENOUGH, but more than this, is worth a retest. So is one test in which two
# hosts answered for an address: few tests may have the right host as their server.
DOUBTFUL = {REACH: 0.0, IDENTITY: -4.0, MTU: 0.0, RATE: 0.0}
# The most entities that are named for one symptom.
MOST = 40
# Entities explain the same if they share this part of the bad tests, and are about as likely.
SAME, CLOSE = 0.9, 3.0
# Errors that say nothing of the path.
NEITHER = frozenset({"local", "failed", "late"})
FOREIGN = frozenset({"wrong-peer"})
ELSEWHERE = frozenset({"wrong-interface", "reserved"})


@dataclass(frozen=True)
class Suspect:
    """An entity, how likely it is at fault, and the tests that say so.

    `hit` is the share of its tests that the fault was assumed to make bad. `equivalent`: entities
    that explain the same. `tests` are the places in the rows of its bad tests.
    """

    symptom: str
    entity: Entity
    score: float
    bad: int
    good: int
    hit: float
    tests: tuple[int, ...] = ()
    ways: tuple[tuple[str, str], ...] = ()
    equivalent: tuple[Entity, ...] = ()


def quantile(values: Iterable[float], part: float) -> Optional[float]:
    """The nearest rank."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def references(rows: Sequence[Row], expect: Optional[float]) -> dict[str, Optional[float]]:
    """What a test should have of each symptom that is a number: a rate in bit/s, bytes of MTU."""
    rates = [one for row in rows for one in (row.rate_out, row.rate_back) if one is not None]
    sizes = [float(one) for row in rows for one in (row.mtu_out, row.mtu_back) if one is not None]
    return {RATE: expect or quantile(rates, QUANTILE), MTU: quantile(sizes, QUANTILE)}


def observations(plan: MeshPlan, rows: Sequence[Row]) -> dict[str, list[Observation]]:
    """What each test says of each symptom, in both directions; nothing for what is not known."""
    places = {
        host.name: Place(host.name, plan.group_of(number)) for number, host in enumerate(plan.hosts)
    }
    wanted = references(rows, plan.expect)
    found: dict[str, list[Observation]] = {one: [] for one in SYMPTOMS}
    for number, row in enumerate(rows):
        client, server = places[row.client], places[row.server]
        for symptom, out, back in _judged(row, wanted):
            for sender, receiver, bad in ((client, server, out), (server, client, back)):
                if bad is not None:
                    found[symptom].append(Observation(number, sender, receiver, bad))
    return found


Judged = tuple[str, Optional[bool], Optional[bool]]


def _judged(row: Row, wanted: dict[str, Optional[float]]) -> Iterator[Judged]:
    """Each symptom with whether the test is bad, out and back; None for not known."""
    # These two are about what the client sends, and say nothing of the way back.
    if row.macs or row.error in FOREIGN:
        yield IDENTITY, len(row.macs) > 1 or row.error in FOREIGN, None
    if row.error not in NEITHER:
        yield REACH, row.error is not None and row.error not in FOREIGN | ELSEWHERE, None
    yield MTU, _below(row.mtu_out, wanted[MTU], 1.0), _below(row.mtu_back, wanted[MTU], 1.0)
    if row.error in ELSEWHERE:
        yield RATE, True, True
    else:
        yield (
            RATE,
            _below(row.rate_out, wanted[RATE], BAD),
            _below(row.rate_back, wanted[RATE], BAD),
        )


def _below(value: Optional[float], reference: Optional[float], part: float) -> Optional[bool]:
    if value is None or reference is None:
        return None
    return value < part * reference


def ratio(bad: int, good: int, hit: float, chance: float) -> float:
    """The log-likelihood ratio of a fault, for these numbers of tests."""
    return bad * log(hit / chance) + good * log((1 - hit) / (1 - chance))


class _Scored(NamedTuple):
    score: float
    counted: Counted
    hit: float


@dataclass(frozen=True)
class Found:
    """Suspects, the likeliest first; what is not likely enough; and pairs that were bad only.

    `doubtful` and `pairs` are worth a retest, and nothing else.
    """

    suspects: tuple[Suspect, ...] = ()
    doubtful: tuple[Suspect, ...] = ()
    pairs: tuple[Entity, ...] = ()


def _scored(tally: Tally, chance: float, size: Size) -> list[_Scored]:
    """Every entity with a bad test and its score, the best first."""
    found = []
    for one in tally.counted():
        score, hit = max((ratio(one.bad, one.good, hit, chance), hit) for hit in HIT)
        found.append(_Scored(score - log(2 * count_of(one.entity.kind, size)), one, hit))
    return sorted(found, key=lambda one: (-one.score, one.counted.entity))


def cover(symptom: str, seen: Sequence[Observation], size: Size) -> Found:
    """What explains the bad tests of one symptom.

    Rates vary more on some platforms than on others. If more of them are bad without explanation
    than CHANCE says, healthy paths look bad that often, and that is taken into account.
    """
    if not any(one.bad for one in seen):
        return Found()
    found, noise = _covered(symptom, seen, size, CHANCE[symptom])
    if symptom == RATE and noise > CHANCE[RATE]:
        found, _ = _covered(symptom, seen, size, min(noise, NOISIEST))
    return found


def _covered(
    symptom: str, seen: Sequence[Observation], size: Size, chance: float
) -> tuple[Found, float]:
    """What was found, and the share of the other tests that are bad."""
    tally, found = Tally(seen), list[Suspect]()
    while len(found) < MOST:
        scored = _scored(tally, chance, size)
        if not scored or scored[0].score <= DOUBTFUL[symptom]:
            break
        found.append(_suspect(symptom, seen, tally, scored))
        tally.drop(scored[0].counted.entity)
    likely = tuple(one for one in found if one.score > ENOUGH)
    doubtful = tuple(found[len(likely) :])
    return Found(likely, doubtful, tuple(tally.odd_pairs())), tally.share_bad


def _suspect(
    symptom: str, seen: Sequence[Observation], tally: Tally, scored: Sequence[_Scored]
) -> Suspect:
    best, entity = scored[0], scored[0].counted.entity
    tests = tally.tests(entity)
    alike = [
        one.counted.entity
        for one in scored[1:MOST]
        if best.score - one.score < CLOSE and _is_same(tests, tally.tests(one.counted.entity))
    ]
    return Suspect(
        symptom,
        entity,
        best.score,
        best.counted.bad,
        best.counted.good,
        best.hit,
        tuple(sorted({seen[one].test for one in tests})),
        tuple((seen[one].sender.host, seen[one].receiver.host) for one in sorted(tests)),
        tuple(alike),
    )


def _is_same(one: frozenset[int], two: frozenset[int]) -> bool:
    return len(one & two) >= SAME * len(one | two)


def localise(plan: MeshPlan, rows: Sequence[Row]) -> Found:
    """The suspects of all symptoms.

    A bad test that an earlier symptom explains is left out of the later ones; of a host whose
    address another host has too, all tests are.
    """
    groups = {plan.group_of(number) for number in range(len(plan.hosts))} - {""}
    pairs = {frozenset((row.client, row.server)) for row in rows}
    size = Size(len(plan.hosts), len(groups), len(pairs))
    seen, parts = observations(plan, rows), list[Found]()
    explained: set[int] = set()
    shared: set[str] = set()
    for symptom in SYMPTOMS:
        found = cover(symptom, _left(seen[symptom], explained, shared), size)
        parts.append(found)
        explained.update(*(suspect.tests for suspect in found.suspects))
        if symptom == IDENTITY:
            shared.update(*(suspect.entity.names for suspect in found.suspects))
    return _joined(parts)


def _left(
    every: Sequence[Observation], explained: Collection[int], shared: Collection[str]
) -> list[Observation]:
    """Those not of a bad test in `explained`, and not of a host in `shared`."""
    unexplained = (one for one in every if not (one.bad and one.test in explained))
    return [
        one
        for one in unexplained
        if one.sender.host not in shared and one.receiver.host not in shared
    ]


def _joined(parts: Sequence[Found]) -> Found:
    return Found(
        tuple(one for part in parts for one in part.suspects),
        tuple(one for part in parts for one in part.doubtful),
        tuple(dict.fromkeys(pair for part in parts for pair in part.pairs)),
    )
