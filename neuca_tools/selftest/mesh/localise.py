"""The entities that explain the bad tests of a mesh best: a greedy cover by likelihood.

A test is bad or good in each of its symptoms. The tests of an entity at fault are bad with one of
FAULT_PROBABILITIES, those of a healthy one with CHANCE_OF_BAD. The entity with the highest
log-likelihood ratio is taken, its tests are removed, and so on while the ratio exceeds MIN_SCORE
after a penalty for the number of entities among which it was chosen.
"""

# SPDX-License-Identifier: MIT

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import log
from typing import NamedTuple

from neuca_tools.selftest.mesh import entities, observe
from neuca_tools.selftest.mesh.entities import Endpoint, Entity, Observation, Size
from neuca_tools.selftest.mesh.model import MeshPlan, Row

FAULT_PROBABILITIES = (0.95, 0.5)
# How often the test of a healthy path is bad: rates of busy hosts are, MACs are not.
CHANCE_OF_BAD = {
    **dict.fromkeys(observe.SYMPTOMS, 0.04),
    observe.IDENTITY: 0.002,
    observe.REACH: 0.03,
    observe.MTU: 0.01,
}
MIN_SCORE = 4.0
# The most that CHANCE_OF_BAD is raised to on a platform where a symptom varies more.
HIGHEST_CHANCE = {observe.RATE: 0.2, observe.LOSS: 0.4, observe.DELAY: 0.4, observe.JITTER: 0.4}
# What scores less than MIN_SCORE, but more than this, is tested again. So is a single test in
# which two hosts answered for an address: few tests may have the right host as their server.
MIN_SCORE_OF_RETEST = {
    symptom: -4.0 if symptom == observe.IDENTITY else 0.0 for symptom in observe.SYMPTOMS
}
# Groups may be far from each other: a long time is only a fault of hosts and pairs.
TIME_SYMPTOMS = frozenset({observe.DELAY, observe.JITTER})
# The most entities that are named for one symptom.
MAX_SUSPECTS = 40
# Entities explain the same if they share this part of the bad tests, and are about as likely.
SAME_TESTS_SHARE, SIMILAR_SCORES = 0.9, 3.0


class _Way(NamedTuple):
    """The tests from one host to another, by their indexes in the observations."""

    sender: Endpoint
    receiver: Endpoint
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

    def __init__(self, observations: Sequence[Observation]) -> None:
        ways: dict[tuple[str, str], _Way] = {}
        for number, observation in enumerate(observations):
            way = _Way(observation.sender, observation.receiver, [], [])
            way = ways.setdefault(observation.hosts, way)
            (way.bad if observation.is_bad else way.good).append(number)
        self._ways = list(ways.values())

    def counts(self) -> Iterator[tuple[Entity, int, int]]:
        """Every entity with a bad test, and how many of its tests are bad and good."""
        bad, good = self._pairs()
        for way in self._ways:
            (bad if way.is_bad else good).update(
                entities.entities_on_path(way.sender, way.receiver)
            )
        for entity, number in bad.items():
            if number:
                yield entity, number, good[entity]

    def _pairs(self) -> tuple[Counter[Entity], Counter[Entity]]:
        """How many tests of each pair, and of each of its directions, are bad, and good."""
        bad, good = Counter[Entity](), Counter[Entity]()
        for way in self._ways:
            hosts = (way.sender.host, way.receiver.host)
            for entity in (entities.pair_of(*hosts), Entity(entities.PATH, hosts)):
                bad[entity] += len(way.bad)
                good[entity] += len(way.good)
        return bad, good

    def drop(self, entity: Entity) -> None:
        """Remove the tests that this entity explains."""
        self._ways = [
            way for way in self._ways if not entities.is_on_path(entity, way.sender, way.receiver)
        ]

    def tests(self, entity: Entity) -> frozenset[int]:
        """The bad tests that are left of an entity, by their indexes in the observations."""
        return frozenset(
            number
            for way in self._ways
            if entities.is_on_path(entity, way.sender, way.receiver)
            for number in way.bad
        )

    @property
    def share_bad(self) -> float:
        """The share of the ways that are bad."""
        return sum(way.is_bad for way in self._ways) / max(1, len(self._ways))

    def pairs_without_good_test(self) -> list[Entity]:
        """The pairs without a good test, and then the directions (PATH) of others without one."""
        bad, good = self._pairs()
        never_good = {entity for entity, number in bad.items() if number and not good[entity]}
        return sorted(
            entity
            for entity in never_good
            if entity.kind == entities.PAIR or entities.pair_of(*entity.names) not in never_good
        )


class Suspect(NamedTuple):
    """An entity, how likely it is at fault, and the tests that are evidence of it.

    `bad` and `good` are numbers of tests. `fault_probability` is that of FAULT_PROBABILITIES with
    which it is most likely. `bad_observations` are its bad tests, in the order of the rows.
    `equivalent` are entities that explain the same tests.
    """

    symptom: str
    entity: Entity
    score: float
    bad: int
    good: int
    fault_probability: float
    bad_observations: tuple[Observation, ...] = ()
    equivalent: tuple[Entity, ...] = ()

    @property
    def tests(self) -> tuple[int, ...]:
        """The indexes of its bad tests in the rows."""
        return tuple(sorted({observation.test for observation in self.bad_observations}))


def likelihood_ratio(bad: int, good: int, fault: float, chance: float) -> float:
    """The log-likelihood ratio of a fault for these numbers of tests.

    A test is bad with the probability `fault` if there is one, and with `chance` if there is none.
    """
    return bad * log(fault / chance) + good * log((1 - fault) / (1 - chance))


class Suspicions(NamedTuple):
    """Suspects, the most likely first; less likely ones; and other pairs without a good test.

    `doubtful` and `pairs` are worth a retest, and nothing else.
    """

    suspects: tuple[Suspect, ...] = ()
    doubtful: tuple[Suspect, ...] = ()
    pairs: tuple[Entity, ...] = ()

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities of all suspects, likely or not."""
        return tuple(suspect.entity for suspect in (*self.suspects, *self.doubtful))

    @property
    def names(self) -> set[str]:
        """The hosts and groups of these."""
        return {name for entity in self.entities for name in entity.names}


def _scored_entities(tally: Tally, symptom: str, chance: float, size: Size) -> list[Suspect]:
    """Every entity with a bad test and its score, the highest first."""
    suspects = []
    for entity, bad, good in tally.counts():
        if symptom in TIME_SYMPTOMS and entity.kind not in (*entities.HOSTS, entities.PAIR):
            continue
        if symptom in (observe.IDENTITY, observe.REACH) and entity.kind == entities.PATH:
            continue  # they are those of a connection, which needs both directions
        score, fault = max(
            (likelihood_ratio(bad, good, fault, chance), fault) for fault in FAULT_PROBABILITIES
        )
        score -= log(2 * entities.count_of(entity.kind, size))
        suspects.append(Suspect(symptom, entity, score, bad, good, fault))
    return sorted(suspects, key=lambda suspect: (-suspect.score, suspect.entity))


def explain_symptom(symptom: str, observations: Sequence[Observation], size: Size) -> Suspicions:
    """What explains the bad tests of one symptom.

    Rates, losses and times vary more on some platforms than on others. If more of them are bad
    without explanation than CHANCE_OF_BAD says, their share is taken for it.
    """
    chance = CHANCE_OF_BAD[symptom]
    suspicions, noise = _explain_with_chance(symptom, observations, size, chance)
    if symptom not in HIGHEST_CHANCE or noise <= chance:
        return suspicions
    if symptom != observe.RATE and noise > HIGHEST_CHANCE[symptom]:
        # So much varies here that nothing stands out.
        return Suspicions()
    chance = min(noise, HIGHEST_CHANCE[symptom])
    return _explain_with_chance(symptom, observations, size, chance)[0]


def _explain_with_chance(
    symptom: str, observations: Sequence[Observation], size: Size, chance: float
) -> tuple[Suspicions, float]:
    """What is suspected, and the share of the other tests that are bad."""
    tally = Tally(observations)
    never_good = tally.pairs_without_good_test()
    suspects = list(_greedy_cover(tally, symptom, observations, size, chance))
    likely = tuple(suspect for suspect in suspects if suspect.score > MIN_SCORE)
    # Suspects become more likely when good tests of theirs are removed with those of another one.
    doubtful = tuple(suspect for suspect in suspects if suspect.score <= MIN_SCORE)
    # Who answers for an address does not depend on the partner: a retest of the host tells.
    named = suspects if symptom == observe.IDENTITY else likely
    explained = {
        entities.pair_of(*observation.hosts)
        for suspect in named
        for observation in suspect.bad_observations
    }
    pairs = tuple(pair for pair in never_good if entities.pair_of(*pair.names) not in explained)
    return Suspicions(likely, doubtful, pairs), tally.share_bad


def _greedy_cover(
    tally: Tally, symptom: str, observations: Sequence[Observation], size: Size, chance: float
) -> Iterator[Suspect]:
    """The best suspect of the tests that are left in `tally`, again and again."""
    for _ in range(MAX_SUSPECTS):
        scored = _scored_entities(tally, symptom, chance, size)
        if not scored or scored[0].score <= MIN_SCORE_OF_RETEST[symptom]:
            return
        tests = tally.tests(scored[0].entity)
        yield scored[0]._replace(
            bad_observations=tuple(observations[number] for number in sorted(tests)),
            equivalent=tuple(_equivalent_entities(tests, tally, scored)),
        )
        tally.drop(scored[0].entity)


def _equivalent_entities(
    tests: frozenset[int], tally: Tally, scored: Sequence[Suspect]
) -> Iterator[Entity]:
    """What explains the same tests as the first suspect, and is about as likely."""
    for rival in scored[1:MAX_SUSPECTS]:
        if scored[0].score - rival.score >= SIMILAR_SCORES:
            return
        others = tally.tests(rival.entity)
        if len(tests & others) >= SAME_TESTS_SHARE * len(tests | others):
            yield rival.entity


def find_suspects(plan: MeshPlan, rows: Sequence[Row]) -> Suspicions:
    """The suspects of all symptoms.

    A bad test that an earlier symptom explains is left out of the later ones; of a host whose
    address another host has too, all tests are. What is at fault is named once.
    """
    groups = set(plan.group_by_host.values()) - {""}
    tested = {frozenset((row.client, row.server)) for row in rows}
    size = Size(len(plan.hosts), len(groups), len(tested))
    suspects, doubtful, pairs_to_retest = list[Suspect](), list[Suspect](), list[Entity]()
    explained, shared = set[int](), set[str]()
    for symptom, observations in observe.observe_tests(plan, rows).items():
        unexplained = [*_unexplained_observations(observations, explained, shared)]
        suspicions = explain_symptom(symptom, unexplained, size)
        named = {suspect.entity for suspect in suspects}
        suspects += [suspect for suspect in suspicions.suspects if suspect.entity not in named]
        doubtful += suspicions.doubtful
        pairs_to_retest += suspicions.pairs
        for suspect in suspicions.suspects:
            explained.update(suspect.tests)
            if symptom == observe.IDENTITY:
                shared.update(seen.receiver.host for seen in suspect.bad_observations)
    # In one direction, many are bad by chance: they leave the retests to the others.
    pairs = sorted(dict.fromkeys(pairs_to_retest), key=lambda pair: pair.kind)
    return Suspicions(tuple(suspects), tuple(doubtful), tuple(pairs))


def _unexplained_observations(
    observations: Iterable[Observation], explained: set[int], shared: set[str]
) -> Iterator[Observation]:
    """Without the bad tests in `explained`, and without all tests of the hosts in `shared`."""
    for observation in observations:
        is_explained = observation.is_bad and observation.test in explained
        if not is_explained and shared.isdisjoint(observation.hosts):
            yield observation
