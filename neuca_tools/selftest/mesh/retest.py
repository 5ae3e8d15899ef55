"""Which pairs to test again: suspects against hosts that are cleared, in two more rounds.

What has no result is tested again too, in the first of them.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Optional

from neuca_tools.selftest.mesh.entities import (
    BETWEEN,
    HOSTS,
    INSIDE,
    ONE_WAY,
    PAIR,
    Entity,
    pair_of,
)
from neuca_tools.selftest.mesh.localise import Suspicions
from neuca_tools.selftest.mesh.model import MeshPlan, Pair, Row, plan_identity
from neuca_tools.selftest.mesh.observe import ERRORS_WITHOUT_RESULT, observe_tests, untested_pairs
from neuca_tools.selftest.mesh.schedule import packed_slots, seeded_order

ROUNDS = 2  # of tests of what is suspected
# Tests of a suspected group in each round.
TESTS_OF_A_GROUP = 4
# Tests of a host in one round, if it is in several pairs that were only bad.
TESTS_OF_A_HOST = 2
# The part of its tests that a cleared host may have bad ones in.
LARGEST_BAD_SHARE = 0.25


def with_retests(plan: MeshPlan, rows: Sequence[Row], suspicions: Suspicions) -> MeshPlan:
    """The plan with slots for the retests of what was found; the same plan if that is nothing."""
    chosen = _Chosen(plan, rows, suspicions)
    slots = list(plan.slots)
    for turn in range(ROUNDS):
        slots += packed_slots(plan, chosen.pairs_of_round(turn))
    if len(slots) == len(plan.slots):
        return plan
    return replace(plan, slots=tuple(slots), retests=len(plan.slots), origin=plan_identity(plan))


def cleared_hosts(plan: MeshPlan, rows: Sequence[Row], suspicions: Suspicions) -> set[str]:
    """The hosts that were tested, that no suspect includes, and whose tests are mostly good."""
    bad: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for seen in observe_tests(plan, rows).values():
        for observation in seen:
            for name in (observation.sender.host, observation.receiver.host):
                every[name] += 1
                bad[name] += observation.bad
    suspected = suspicions.names
    return {
        name
        for name in every
        if name not in suspected and bad[name] <= LARGEST_BAD_SHARE * every[name]
    }


class _Chosen:
    """Chooses the pairs of each round; a host is in two of them at most."""

    def __init__(self, plan: MeshPlan, rows: Sequence[Row], suspicions: Suspicions) -> None:
        self._plan, self._suspicions = plan, suspicions
        self._numbers = {host.name: number for number, host in enumerate(plan.hosts)}
        good = cleared_hosts(plan, rows, suspicions)
        names = [host.name for host in plan.hosts if host.name in good]
        self._good = seeded_order(names, plan.seed, "retest")
        self._suspected = suspicions.names
        self._met = {frozenset((row.client, row.server)) for row in rows}
        self._untested = untested_pairs(plan, rows)
        # A connection may fail in one direction only, which is the one to repeat.
        errors = {None, *ERRORS_WITHOUT_RESULT}
        failed = [row for row in rows if row.error not in errors]
        self._failed = {pair_of(row.client, row.server): (row.client, row.server) for row in failed}

    def pairs_of_round(self, turn: int) -> list[Pair]:
        """The pairs of one round: of the suspects first, then of pairs that were only bad."""
        self._busy: Counter[str] = Counter()
        pairs: list[Pair] = []
        for entity in dict.fromkeys((*self._suspicions.entities, *self._suspicions.pairs)):
            pairs += self._pairs(entity, turn)
        if turn == 0:
            pairs += self._first(self._untested, len(self._untested), TESTS_OF_A_HOST)
        return pairs

    def _pairs(self, entity: Entity, turn: int) -> list[Pair]:
        if entity.kind in HOSTS:
            return self._first(
                ((good, entity.names[0]) for good in self._cleared_partners(entity, turn)), 1
            )
        if entity.kind == PAIR:
            host, other = entity.names
            way = self._failed.get(entity, [(other, host), (host, other)][turn % 2])
            return self._first([way], 1, TESTS_OF_A_HOST)
        return self._first(self._of_groups(entity, turn), TESTS_OF_A_GROUP)

    def _cleared_partners(self, entity: Entity, turn: int) -> Iterator[str]:
        """Cleared hosts, in another order each round, those first that were not met yet."""
        around = self._good[turn * 7 :] + self._good[: turn * 7]
        name = entity.names[0]
        yield from (partner for partner in around if frozenset((partner, name)) not in self._met)
        yield from around

    def _of_groups(self, entity: Entity, turn: int) -> Iterable[tuple[str, str]]:
        """Pairs that pass a suspected group, in the order of the round."""
        if entity.kind == INSIDE:
            members = self._members(entity.names[0])
            pairs = list(combinations(members, 2))
        elif entity.kind in (ONE_WAY, BETWEEN):
            members, others = map(self._members, entity.names)
            pairs = list(product(members, others))
        else:
            members = self._members(entity.names[0])
            others = [host for host in self._good if host not in set(members)]
            pairs = [
                (others[place % len(others)], member)
                for place, member in enumerate(members)
                if others
            ]
        return seeded_order(pairs, self._plan.seed, f"retest {turn}")

    def _members(self, group: str) -> list[str]:
        """The members of a group that are not suspected themselves."""
        groups = self._plan.group_by_host
        return [name for name in groups if groups[name] == group and name not in self._suspected]

    def _first(self, pairs: Iterable[tuple[str, str]], most: int, each: int = 1) -> list[Pair]:
        """The first pairs whose hosts both have less than `each` tests in this round."""
        chosen: list[Pair] = []
        for client, server in pairs:
            if len(chosen) == most:
                break
            if client != server and max(self._busy[client], self._busy[server]) < each:
                self._busy.update((client, server))
                chosen.append((self._numbers[client], self._numbers[server]))
        return chosen


def is_retest(plan: MeshPlan, row: Row) -> bool:
    first: Optional[int] = plan.retests
    return first is not None and row.slot >= first
