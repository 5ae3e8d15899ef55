"""How many tests of a mesh are bad and good, for each host, group and pair that they pass."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from neuca_tools.selftest.mesh.entities import (
    HOST,
    HOST_IN,
    HOST_OUT,
    Entity,
    Place,
    is_passed,
    of_groups,
    pair_of,
)


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


class _Counts:
    """How many ways hosts and groups have, and how many tests a pair has.

    However often a way was tested, it counts once: a further test of the same pair is no further
    evidence against one of its hosts.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.groups: Counter[tuple[str, str]] = Counter()
        self.pairs: Counter[Entity] = Counter()

    def add(self, way: _Way, number: int) -> None:
        self.sent[way.sender.host] += number
        self.received[way.receiver.host] += number
        self.groups[way.sender.group, way.receiver.group] += number

    def of_hosts(self) -> Counter[Entity]:
        total: Counter[Entity] = Counter()
        for counts, kind in ((self.sent, HOST_OUT), (self.received, HOST_IN)):
            for name, number in counts.items():
                total[Entity(kind, (name,))] = number
                total[Entity(HOST, (name,))] += number
        return total

    def of_groups(self) -> Counter[Entity]:
        total: Counter[Entity] = Counter()
        for way, number in self.groups.items():
            for entity in of_groups(*way):
                total[entity] += number
        return total


class Tally:
    """The tests that nothing found so far explains."""

    def __init__(self, seen: Sequence[Observation]) -> None:
        ways: dict[tuple[str, str], _Way] = {}
        self._bad, self._good = _Counts(), _Counts()
        for number, observation in enumerate(seen):
            key = (observation.sender.host, observation.receiver.host)
            if key not in ways:
                ways[key] = _Way(observation.sender, observation.receiver, [], [])
            (ways[key].bad if observation.bad else ways[key].good).append(number)
        self._ways = list(ways.values())
        for way in self._ways:
            self._count(way, 1)

    def _count(self, way: _Way, sign: int) -> None:
        (self._bad if way.is_bad else self._good).add(way, sign)
        pair = pair_of(way.sender.host, way.receiver.host)
        self._bad.pairs[pair] += sign * len(way.bad)
        self._good.pairs[pair] += sign * len(way.good)

    def counted(self) -> Iterator[Counted]:
        """Every entity with something bad."""
        for bad, good in (
            (self._bad.of_hosts(), self._good.of_hosts()),
            (self._bad.of_groups(), self._good.of_groups()),
            (self._bad.pairs, self._good.pairs),
        ):
            for entity, number in bad.items():
                if number:
                    yield Counted(entity, number, good[entity])

    def drop(self, entity: Entity) -> None:
        """Remove the tests that this entity explains."""
        remaining = []
        for way in self._ways:
            if is_passed(entity, way.sender, way.receiver):
                self._count(way, -1)
            else:
                remaining.append(way)
        self._ways = remaining

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
        pairs = self._bad.pairs.items()
        return sorted(pair for pair, bad in pairs if bad and not self._good.pairs[pair])
