"""How many tests of a mesh are bad and good, for each host, group and pair that they pass."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from neuca_tools.selftest.mesh.entities import Entity, Place, entities_passed, is_passed, pair_of


class Observation(NamedTuple):
    """One test in one direction: whether it is bad. `test` is its place in the rows."""

    test: int
    sender: Place
    receiver: Place
    bad: bool


class Counted(NamedTuple):
    """An entity with the numbers of its tests that are bad and good."""

    entity: Entity
    bad: int
    good: int


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
            key = (observation.sender.host, observation.receiver.host)
            if key not in ways:
                ways[key] = _Way(observation.sender, observation.receiver, [], [])
            (ways[key].bad if observation.bad else ways[key].good).append(number)
        self._ways = list(ways.values())

    def counted(self) -> Iterator[Counted]:
        """Every entity with something bad."""
        bad, good = self._pairs()
        for way in self._ways:
            (bad if way.is_bad else good).update(entities_passed(way.sender, way.receiver))
        for entity, number in bad.items():
            if number:
                yield Counted(entity, number, good[entity])

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
