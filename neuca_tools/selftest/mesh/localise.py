"""The entities that explain the bad tests of a mesh best: a greedy cover by likelihood.

A test is bad or good in each of its symptoms. An entity at fault makes its tests bad with the
probability h (FAULT_PROBABILITIES), a healthy one with q (CHANCE_OF_BAD). The
entity with the highest log-likelihood ratio is taken, its tests are removed, and so on while the
ratio exceeds MIN_SCORE after a penalty for the number of entities among which it was chosen.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from math import log
from typing import NamedTuple

from neuca_tools.selftest.mesh.entities import (
    HOSTS,
    PAIR,
    Entity,
    Observation,
    Place,
    Size,
    count_of,
    entities_passed,
    is_passed,
    pair_of,
)
from neuca_tools.selftest.mesh.model import MeshPlan, Row
from neuca_tools.selftest.mesh.observe import (
    DELAY,
    IDENTITY,
    JITTER,
    LOSS,
    MTU,
    RATE,
    REACH,
    SYMPTOMS,
    observe_tests,
)

FAULT_PROBABILITIES = (0.95, 0.5)
# How often a healthy path looks bad: a rate on a busy host does, two MACs for an address do not.
CHANCE_OF_BAD = {
    IDENTITY: 0.002,
    REACH: 0.03,
    MTU: 0.01,
    RATE: 0.04,
    LOSS: 0.04,
    DELAY: 0.04,
    JITTER: 0.04,
}
MIN_SCORE = 4.0
# The most that CHANCE_OF_BAD is raised to, for what varies more.
HIGHEST_CHANCE = {RATE: 0.2, LOSS: 0.4, DELAY: 0.4, JITTER: 0.4}
# What scores less than MIN_SCORE, but more than this, is tested again. So is a single test in
# which two hosts answered for an address: few tests may have the right host as their server.
MIN_SCORE_OF_RETEST = {symptom: -4.0 if symptom == IDENTITY else 0.0 for symptom in SYMPTOMS}
# Groups may be far from each other: a long time is only a fault of hosts and pairs.
TIME_SYMPTOMS = frozenset({DELAY, JITTER})
# The most entities that are named for one symptom.
MAX_SUSPECTS = 40
# Entities explain the same if they share this part of the bad tests, and are about as likely.
SAME_TESTS_SHARE, SIMILAR_SCORES = 0.9, 3.0


class _Way(NamedTuple):
    """The tests from one host to another, by their places in the observations."""

    sender: Place
    receiver: Place
    bad: list[int]
    good: list[int]

    @property
    def is_bad(self) -> bool:
        """Whether at least half of the tests are bad."""
        return len(self.bad) >= len(self.good)


class Tally:
    """The tests that no suspect explains yet.

    However often a way was tested, it counts once: a further test of the same pair is no further
    evidence against one of its hosts.
    """

    def __init__(self, seen: Sequence[Observation]) -> None:
        ways: dict[tuple[str, str], _Way] = {}
        for number, observation in enumerate(seen):
            way = _Way(observation.sender, observation.receiver, [], [])
            way = ways.setdefault(observation.hosts, way)
            (way.bad if observation.bad else way.good).append(number)
        self._ways = list(ways.values())

    def counted(self) -> Iterator[tuple[Entity, int, int]]:
        """Every entity with something bad, and the numbers of its tests that are bad and good."""
        bad, good = self._pairs()
        for way in self._ways:
            (bad if way.is_bad else good).update(entities_passed(way.sender, way.receiver))
        for entity, number in bad.items():
            if number:
                yield entity, number, good[entity]

    def _pairs(self) -> tuple[Counter[Entity], Counter[Entity]]:
        """How many tests of each pair are bad, and good."""
        bad, good = Counter[Entity](), Counter[Entity]()
        for way in self._ways:
            pair = pair_of(way.sender.host, way.receiver.host)
            bad[pair] += len(way.bad)
            good[pair] += len(way.good)
        return bad, good

    def drop(self, entity: Entity) -> None:
        """Remove the tests that this entity explains."""
        ways = self._ways
        self._ways = [way for way in ways if not is_passed(entity, way.sender, way.receiver)]

    def tests(self, entity: Entity) -> frozenset[int]:
        """The bad tests that are left of an entity, by their places in the observations."""
        return frozenset(
            number
            for way in self._ways
            if way.bad and is_passed(entity, way.sender, way.receiver)
            for number in way.bad
        )

    @property
    def share_bad(self) -> float:
        """The share of the ways that is bad."""
        bad = sum(way.is_bad for way in self._ways)
        return bad / max(1, len(self._ways))

    def odd_pairs(self) -> list[Entity]:
        """Pairs with bad tests only."""
        bad, good = self._pairs()
        return sorted(pair for pair, number in bad.items() if number and not good[pair])


class Suspect(NamedTuple):
    """An entity, how likely it is at fault, and the tests that say so.

    `hit` is the share of its tests that the fault was assumed to make bad. `equivalent`: entities
    that explain the same. `ways` are its bad tests, in the order of the rows.
    """

    symptom: str
    entity: Entity
    score: float
    bad: int
    good: int
    hit: float
    ways: tuple[Observation, ...] = ()
    equivalent: tuple[Entity, ...] = ()

    @property
    def tests(self) -> tuple[int, ...]:
        """The places of its bad tests in the rows."""
        return tuple(sorted({way.test for way in self.ways}))


def likelihood_ratio(bad: int, good: int, hit: float, chance: float) -> float:
    """The log-likelihood ratio of a fault, for these numbers of tests."""
    return bad * log(hit / chance) + good * log((1 - hit) / (1 - chance))


class Suspicions(NamedTuple):
    """Suspects, the most likely first; less likely ones; and pairs without a good test.

    `doubtful` and `pairs` are worth a retest, and nothing else.
    """

    suspects: tuple[Suspect, ...] = ()
    doubtful: tuple[Suspect, ...] = ()
    pairs: tuple[Entity, ...] = ()

    @property
    def entities(self) -> tuple[Entity, ...]:
        """What is suspected, on whatever grounds, without the pairs."""
        return tuple(suspect.entity for suspect in (*self.suspects, *self.doubtful))

    @property
    def names(self) -> set[str]:
        """The hosts and groups of these."""
        return {name for entity in self.entities for name in entity.names}


def _scored_entities(tally: Tally, symptom: str, chance: float, size: Size) -> list[Suspect]:
    """Every entity with a bad test and its score, the best first."""
    suspects = []
    for entity, bad, good in tally.counted():
        if symptom in TIME_SYMPTOMS and entity.kind not in (*HOSTS, PAIR):
            continue
        score, hit = max(
            (likelihood_ratio(bad, good, hit, chance), hit) for hit in FAULT_PROBABILITIES
        )
        score -= log(2 * count_of(entity.kind, size))
        suspects.append(Suspect(symptom, entity, score, bad, good, hit))
    return sorted(suspects, key=lambda suspect: (-suspect.score, suspect.entity))


def explain_symptom(symptom: str, seen: Sequence[Observation], size: Size) -> Suspicions:
    """What explains the bad tests of one symptom.

    Rates, losses and times vary more on some platforms than on others. If more of them are bad
    without explanation than CHANCE_OF_BAD says, their share becomes the chance that a healthy path
    looks bad.
    """
    if not any(observation.bad for observation in seen):
        return Suspicions()
    suspicions, noise = _explain_with_chance(symptom, seen, size, CHANCE_OF_BAD[symptom])
    if symptom in HIGHEST_CHANCE and noise > CHANCE_OF_BAD[symptom]:
        if symptom != RATE and noise > HIGHEST_CHANCE[symptom]:
            # So much varies here that nothing stands out.
            return Suspicions()
        suspicions, _ = _explain_with_chance(
            symptom, seen, size, min(noise, HIGHEST_CHANCE[symptom])
        )
    return suspicions


def _explain_with_chance(
    symptom: str, seen: Sequence[Observation], size: Size, chance: float
) -> tuple[Suspicions, float]:
    """What was found, and the share of the other tests that are bad."""
    tally, suspects = Tally(seen), list[Suspect]()
    while len(suspects) < MAX_SUSPECTS:
        scored = _scored_entities(tally, symptom, chance, size)
        if not scored or scored[0].score <= MIN_SCORE_OF_RETEST[symptom]:
            break
        tests = tally.tests(scored[0].entity)
        suspects.append(
            scored[0]._replace(
                ways=tuple(seen[number] for number in sorted(tests)),
                equivalent=tuple(_equivalent_entities(tests, tally, scored)),
            )
        )
        tally.drop(scored[0].entity)
    likely = tuple(suspect for suspect in suspects if suspect.score > MIN_SCORE)
    # Suspects become more likely when good tests of theirs are removed with those of another one.
    doubtful = tuple(suspect for suspect in suspects if suspect.score <= MIN_SCORE)
    return Suspicions(likely, doubtful, tuple(tally.odd_pairs())), tally.share_bad


def _equivalent_entities(
    tests: frozenset[int], tally: Tally, scored: Sequence[Suspect]
) -> Iterator[Entity]:
    """What explains the same tests as the first suspect, and is about as likely."""
    for rival in scored[1:MAX_SUSPECTS]:
        is_likely = scored[0].score - rival.score < SIMILAR_SCORES
        if is_likely and _is_same(tests, tally.tests(rival.entity)):
            yield rival.entity


def _is_same(tests: frozenset[int], others: frozenset[int]) -> bool:
    return len(tests & others) >= SAME_TESTS_SHARE * len(tests | others)


def find_suspects(plan: MeshPlan, rows: Sequence[Row]) -> Suspicions:
    """The suspects of all symptoms.

    A bad test that an earlier symptom explains is left out of the later ones; of a host whose
    address another host has too, all tests are. What is at fault is named once.
    """
    groups = set(plan.group_by_host.values()) - {""}
    pairs = {frozenset((row.client, row.server)) for row in rows}
    size = Size(len(plan.hosts), len(groups), len(pairs))
    seen, parts = observe_tests(plan, rows), list[Suspicions]()
    explained: set[int] = set()
    shared: set[str] = set()
    for symptom in SYMPTOMS:
        suspicions = explain_symptom(
            symptom, _unexplained_observations(seen[symptom], explained, shared), size
        )
        named = {suspect.entity for part in parts for suspect in part.suspects}
        once = tuple(suspect for suspect in suspicions.suspects if suspect.entity not in named)
        parts.append(suspicions._replace(suspects=once))
        explained.update(*(suspect.tests for suspect in suspicions.suspects))
        if symptom == IDENTITY:
            shared.update(*(suspect.entity.names for suspect in suspicions.suspects))
    return _joined_suspicions(parts)


def _unexplained_observations(
    every: Sequence[Observation], explained: Collection[int], shared: Collection[str]
) -> list[Observation]:
    """Without the bad tests in `explained`, and without all tests of the hosts in `shared`."""
    unexplained = (
        observation
        for observation in every
        if not (observation.bad and observation.test in explained)
    )
    return [
        observation
        for observation in unexplained
        if observation.sender.host not in shared and observation.receiver.host not in shared
    ]


def _joined_suspicions(parts: Sequence[Suspicions]) -> Suspicions:
    return Suspicions(
        tuple(suspect for part in parts for suspect in part.suspects),
        tuple(suspect for part in parts for suspect in part.doubtful),
        tuple(dict.fromkeys(pair for part in parts for pair in part.pairs)),
    )
