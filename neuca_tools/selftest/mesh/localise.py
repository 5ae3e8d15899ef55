"""The entities that explain the bad tests of a mesh best: a greedy cover by likelihood.

A test is bad or good in each of its symptoms. An entity at fault makes its tests bad with the
probability h (HIT, of a steady and of an intermittent fault), a healthy one with q (CHANCE). The
entity with the highest log-likelihood ratio is taken, its tests are removed, and so on while the
ratio exceeds ENOUGH after a penalty for the number of entities among which it was chosen.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from neuca_tools.selftest.mesh.entities import HOSTS, PAIR, Entity, Size, count_of
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
from neuca_tools.selftest.mesh.tally import Counted, Observation, Tally

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
LEAST_SCORE = 4.0
# The most that CHANCE_OF_BAD is raised to, for what varies more.
HIGHEST_CHANCE = {RATE: 0.2, LOSS: 0.4, DELAY: 0.4, JITTER: 0.4}
# What scores less than LEAST_SCORE, but more than this, is tested again. So is a single test in
# which two hosts answered for an address: few tests may have the right host as their server.
LEAST_SCORE_OF_RETEST = {symptom: -4.0 if symptom == IDENTITY else 0.0 for symptom in SYMPTOMS}
# Groups may be far from each other: a long time is only a fault of hosts and pairs.
TIME_SYMPTOMS = frozenset({DELAY, JITTER})
# The most entities that are named for one symptom.
MOST_SUSPECTS = 40
# Entities explain the same if they share this part of the bad tests, and are about as likely.
SAME_TESTS_SHARE, SIMILAR_SCORES = 0.9, 3.0


class Way(NamedTuple):
    """One bad test in one direction; `test` is its place in the rows."""

    test: int
    sender: str
    receiver: str

    @property
    def hosts(self) -> tuple[str, str]:
        return self.sender, self.receiver


@dataclass(frozen=True)
class Suspect:
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
    ways: tuple[Way, ...] = ()
    equivalent: tuple[Entity, ...] = ()

    @property
    def tests(self) -> tuple[int, ...]:
        """The places of its bad tests in the rows."""
        return tuple(sorted({way.test for way in self.ways}))


def likelihood_ratio(bad: int, good: int, hit: float, chance: float) -> float:
    """The log-likelihood ratio of a fault, for these numbers of tests."""
    return bad * log(hit / chance) + good * log((1 - hit) / (1 - chance))


class _Scored(NamedTuple):
    score: float
    counted: Counted
    hit: float


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


def _scored_entities(tally: Tally, chance: float, size: Size, only_hosts: bool) -> list[_Scored]:
    """Every entity with a bad test and its score, the best first."""
    scores = []
    for counted in tally.counted():
        if only_hosts and counted.entity.kind not in (*HOSTS, PAIR):
            continue
        score, hit = max(
            (likelihood_ratio(counted.bad, counted.good, hit, chance), hit)
            for hit in FAULT_PROBABILITIES
        )
        scores.append(_Scored(score - log(2 * count_of(counted.entity.kind, size)), counted, hit))
    return sorted(scores, key=lambda scored: (-scored.score, scored.counted.entity))


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
    while len(suspects) < MOST_SUSPECTS:
        scored = _scored_entities(tally, chance, size, symptom in TIME_SYMPTOMS)
        if not scored or scored[0].score <= LEAST_SCORE_OF_RETEST[symptom]:
            break
        suspects.append(_best_suspect(symptom, seen, tally, scored))
        tally.drop(scored[0].counted.entity)
    likely = tuple(suspect for suspect in suspects if suspect.score > LEAST_SCORE)
    doubtful = tuple(suspects[len(likely) :])
    return Suspicions(likely, doubtful, tuple(tally.odd_pairs())), tally.share_bad


def _best_suspect(
    symptom: str, seen: Sequence[Observation], tally: Tally, scored: Sequence[_Scored]
) -> Suspect:
    best, entity = scored[0], scored[0].counted.entity
    tests = tally.tests(entity)
    alike = [
        rival.counted.entity
        for rival in scored[1:MOST_SUSPECTS]
        if best.score - rival.score < SIMILAR_SCORES
        and _is_same(tests, tally.tests(rival.counted.entity))
    ]
    return Suspect(
        symptom,
        entity,
        best.score,
        best.counted.bad,
        best.counted.good,
        best.hit,
        tuple(_way_of(seen[number]) for number in sorted(tests)),
        tuple(alike),
    )


def _way_of(observation: Observation) -> Way:
    return Way(observation.test, observation.sender.host, observation.receiver.host)


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
