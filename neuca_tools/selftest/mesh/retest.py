"""Which pairs to test again: suspects with other hosts, and bad pairs twice, in two more rounds.

Pairs without a result are tested again in the first of these.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, combinations, cycle, product

from neuca_tools.selftest.mesh.entities import HOST, HOST_OUT, HOSTS, INSIDE, PAIRS, Entity, pair_of
from neuca_tools.selftest.mesh.localise import Suspicions
from neuca_tools.selftest.mesh.model import MeshPlan, Pair, Row, plan_identity
from neuca_tools.selftest.mesh.observe import ERRORS_WITHOUT_RESULT, untested_pairs
from neuca_tools.selftest.mesh.schedule import packed_slots, seeded_order

ROUNDS = 2  # of tests of what is suspected
# The most tests in each round of a suspected group, and of a host as part of pairs that are
# suspected or have no result.
MAX_TESTS = 4


def with_retests(plan: MeshPlan, rows: Sequence[Row], suspicions: Suspicions) -> MeshPlan:
    """The plan with slots for the retests; the same plan if there is nothing to test again."""
    retests = _Retests(plan, rows, suspicions)
    slots = list(plan.slots)
    for turn in range(ROUNDS):
        slots += packed_slots(plan, retests.pairs_of_round(turn))
    if len(slots) == len(plan.slots):
        return plan
    return replace(plan, slots=tuple(slots), retests=len(plan.slots), origin=plan_identity(plan))


def cleared_hosts(rows: Sequence[Row], suspicions: Suspicions) -> set[str]:
    """The hosts with a result that are not suspects."""
    rows_with_result = (row for row in rows if row.error not in ERRORS_WITHOUT_RESULT)
    tested = chain.from_iterable((row.client, row.server) for row in rows_with_result)
    return set(tested) - suspicions.names


class _Retests:
    """Chooses the pairs of each round."""

    def __init__(self, plan: MeshPlan, rows: Sequence[Row], suspicions: Suspicions) -> None:
        self._plan, self._suspicions = plan, suspicions
        self._numbers = {host.name: number for number, host in enumerate(plan.hosts)}
        self._cleared = seeded_order(cleared_hosts(rows, suspicions), plan.seed, "retest")
        self._suspected = suspicions.names
        self._tested = {frozenset((row.client, row.server)) for row in rows}
        self._untested = untested_pairs(plan, rows)
        # A connection may fail in one direction only, which is the one to repeat.
        errors = {None, *ERRORS_WITHOUT_RESULT}
        failed = [(row.client, row.server) for row in rows if row.error not in errors]
        self._failed_way = {pair_of(*way): way for way in failed}

    def pairs_of_round(self, turn: int) -> list[Pair]:
        """The pairs of one round: those of the suspects first, and of pairs without a good test."""
        self._busy: Counter[str] = Counter()
        pairs: list[Pair] = []
        for entity in dict.fromkeys((*self._suspicions.entities, *self._suspicions.pairs)):
            pairs += self._pairs(entity, turn)
        if turn == 0:
            pairs += self._first(self._untested, len(self._untested), MAX_TESTS)
        return pairs

    def _pairs(self, entity: Entity, turn: int) -> list[Pair]:
        if entity.kind in HOSTS:
            (name,) = entity.names
            partners = self._cleared_partners(name, turn)
            if entity.kind == HOST_OUT or (entity.kind == HOST and turn % 2):
                # Only a client knows its own NIC, and whether it can connect.
                return self._first(((name, partner) for partner in partners), 1)
            return self._first(((partner, name) for partner in partners), 1)
        if entity.kind in PAIRS:
            host, other = entity.names
            ways = (self._failed_way.get(entity, way) for way in ((host, other), (other, host)))
            return self._first(ways, 2, 2 * MAX_TESTS)
        return self._first(self._of_groups(entity, turn), MAX_TESTS)

    def _cleared_partners(self, name: str, turn: int) -> list[str]:
        """Cleared hosts, in another order each round; first those without a test with this host."""
        start = turn * min(7, len(self._cleared) // 2)
        partners = self._cleared[start:] + self._cleared[:start]
        return sorted(partners, key=lambda partner: frozenset((partner, name)) in self._tested)

    def _of_groups(self, entity: Entity, turn: int) -> Iterable[tuple[str, str]]:
        """Pairs whose tests pass a suspected group, in the order of the round."""
        members, *other_groups = map(self._members, entity.names)
        pairs: Iterable[tuple[str, str]]
        if entity.kind == INSIDE:
            pairs = combinations(members, 2)
        elif other_groups:
            pairs = product(members, other_groups[0])
        else:
            others = [host for host in self._cleared if host not in set(members)]
            pairs = zip(cycle(others), members)
        return seeded_order(pairs, self._plan.seed, f"retest {turn}")

    def _members(self, group: str) -> list[str]:
        """The members of a group that are not suspected themselves."""
        groups = self._plan.group_by_host
        return [name for name in groups if groups[name] == group and name not in self._suspected]

    def _first(self, pairs: Iterable[tuple[str, str]], most: int, each: int = 1) -> list[Pair]:
        """Up to `most` of the pairs, of which no host has more than `each` tests in this round."""
        chosen: list[Pair] = []
        for client, server in pairs:
            if len(chosen) == most:
                break
            if client != server and max(self._busy[client], self._busy[server]) < each:
                self._busy.update((client, server))
                chosen.append((self._numbers[client], self._numbers[server]))
        return chosen


def is_retest(plan: MeshPlan, row: Row) -> bool:
    return plan.retests is not None and row.slot >= plan.retests
