"""Hosts and a seed become slots of disjoint pairs: the schedule of a mesh, and that of its retests.

The circle method gives each host one partner in each round, and all of them in M-1 rounds, where M
is the number of hosts or, if that is odd, one more (R. Kirkman 1847).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from ipaddress import ip_address
from itertools import chain
from typing import NamedTuple, TypeVar

from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.selftest import amounts
from neuca_tools.selftest.mesh.model import (
    MAX_HOSTS,
    SETTLE_SECONDS,
    MeshHost,
    MeshPlan,
    Pair,
    check_host,
    plan_identity,
)

T = TypeVar("T")
# Up to this number of hosts, all pairs are tested by default; of more, this number of rounds.
# 8 random rounds find a fault of a host or a group that lasts, among any number of hosts N: if a
# share f of its partners is faulty, ln(N/2.718)/ln(1/f) tests show that a host is not.
ALL_PAIRS_UP_TO, RANDOM_ROUNDS = 64, 8
# The part of these rounds that stays within groups, before uplinks are loaded.
SHARE_WITHIN_GROUPS = 0.25
UPLINK, HYPERVISOR = "uplink", "hypervisor"
# Seconds of a slot in addition to its transfers and a guard interval, on hosts that are not busy.
USUAL_SETTLE_SECONDS = 3.0
# How many of the last slots a pair may still be put into.
SLOTS_TO_SEARCH = 64


class Budget(NamedTuple):
    """What a plan takes: seconds, usually and at most, and bytes in all and of one host."""

    usual_seconds: float
    max_seconds: float
    max_bytes: float
    max_bytes_of_a_host: float


def circle_rounds(count: int) -> Iterator[list[Pair]]:
    """The rounds of the circle method for hosts 0 to count-1."""
    even = count + count % 2
    last = even - 1
    for turn in range(last):
        steps = range(1, even // 2)
        pairs = [(last, turn), *(((turn + step) % last, (turn - step) % last) for step in steps)]
        yield [(first, second) for first, second in pairs if first < count and second < count]


def seeded_order(items: Iterable[T], seed: int, purpose: str) -> list[T]:
    """The items in an order that depends on nothing but the items, the seed and the purpose."""

    def key(item: T) -> bytes:
        return sha256(f"{seed}/{purpose}/{item}".encode()).digest()

    return sorted(items, key=key)


def make_plan(draft: MeshPlan) -> MeshPlan:
    """The plan of a mesh with these hosts and settings; without rounds, as ALL_PAIRS_UP_TO says.

    It does not depend on the order of the hosts. Every host has at most one test in each round; a
    pair is tested once. Pairs within a group come first.
    """
    hosts = tuple(sorted(draft.hosts, key=lambda host: host.name))
    all_rounds = len(hosts) - 1 + len(hosts) % 2
    default = all_rounds if len(hosts) <= ALL_PAIRS_UP_TO else RANDOM_ROUNDS
    plan = replace(draft, hosts=hosts, rounds=min(draft.rounds or default, all_rounds))
    slots = _Slots(plan)
    met: set[frozenset[int]] = set()
    for rounds in _rounds_of_plan(plan, all_rounds):
        slots.start_after_present()
        for pair in chain.from_iterable(rounds):
            if frozenset(pair) not in met:
                met.add(frozenset(pair))
                slots.add(_with_direction(pair, plan.seed))
    return replace(plan, slots=slots.pairs())


def _with_direction(pair: Pair, seed: int) -> Pair:
    """The pair as (client, server), by the seed: a client starts later, and reports."""
    low, high = sorted(pair)
    if sha256(f"{seed}/client/{low}/{high}".encode()).digest()[0] % 2:
        return (low, high)
    return (high, low)


def _rounds_of_plan(plan: MeshPlan, all_rounds: int) -> tuple[list[list[Pair]], list[list[Pair]]]:
    """The rounds within groups, and those of all hosts."""
    groups = _members_by_group(plan).values()
    inside: list[list[Pair]] = []
    if len(groups) > 1:
        max_rounds_within = (
            all_rounds if plan.rounds == all_rounds else int(plan.rounds * SHARE_WITHIN_GROUPS)
        )
        inside = _joined_rounds(
            [_drawn_rounds(members, plan.seed, max_rounds_within) for members in groups]
        )
    rounds_left = plan.rounds
    if rounds_left < all_rounds:
        rounds_left -= len(inside)
    return inside, _drawn_rounds(list(range(len(plan.hosts))), plan.seed, rounds_left)


def _members_by_group(plan: MeshPlan) -> dict[str, list[int]]:
    """The places of the hosts by their group; hosts without one are a group, too."""
    members: dict[str, list[int]] = {}
    for place in range(len(plan.hosts)):
        members.setdefault(plan.group_of(place), []).append(place)
    return dict(sorted(members.items()))


def _drawn_rounds(members: Sequence[int], seed: int, rounds: int) -> list[list[Pair]]:
    """Some rounds of the circle method among these hosts, in the order that the seed gives."""
    order = seeded_order(members, seed, "host")
    chosen = set(seeded_order(range(len(order) + len(order) % 2 - 1), seed, "round")[:rounds])
    pairs_by_round = {
        number: [(order[first], order[second]) for first, second in pairs]
        for number, pairs in enumerate(circle_rounds(len(order)))
        if number in chosen
    }
    return [pairs_by_round[number] for number in seeded_order(pairs_by_round, seed, "round")]


def _joined_rounds(groups: Sequence[Sequence[list[Pair]]]) -> list[list[Pair]]:
    """The rounds of all groups at the same time."""
    longest = max((len(rounds) for rounds in groups), default=0)
    return [
        [pair for rounds in groups if number < len(rounds) for pair in rounds[number]]
        for number in range(longest)
    ]


class _Slot(NamedTuple):
    pairs: list[Pair]
    busy: set[int]
    load: Counter[str]


class _Slots:
    """Puts each pair into a slot in which both hosts are free and no cap is exceeded.

    It is the first of the last SLOTS_TO_SEARCH slots, or a new one.
    """

    def __init__(self, plan: MeshPlan) -> None:
        self._plan, self._slots = plan, list[_Slot]()
        self._from = 0
        uplink = UPLINK
        if plan.group and not any(UPLINK in host.labels for host in plan.hosts):
            uplink = plan.group
        self._uplinks = [host.labels.get(uplink) for host in plan.hosts]
        self._hypervisors = [host.labels.get(HYPERVISOR) for host in plan.hosts]

    def start_after_present(self) -> None:
        """Put what follows after all slots so far."""
        self._from = len(self._slots)

    def add(self, pair: Pair) -> None:
        caps = self._caps_of_pair(pair)
        for slot in self._slots[max(self._from, len(self._slots) - SLOTS_TO_SEARCH) :]:
            free = slot.busy.isdisjoint(pair)
            if free and all(slot.load[name] < cap for name, cap in caps):
                break
        else:
            slot = _Slot([], set(), Counter())
            self._slots.append(slot)
        slot.pairs.append(pair)
        slot.busy.update(pair)
        slot.load.update(name for name, _ in caps)

    def _caps_of_pair(self, pair: Pair) -> list[tuple[str, int]]:
        """What a test of this pair loads, with the number of tests that each may carry at once."""
        uplinks = {self._uplinks[host] for host in pair}
        hypervisors = {self._hypervisors[host] for host in pair} - {None}
        caps = [(f"h/{name}", self._plan.per_hypervisor) for name in sorted(map(str, hypervisors))]
        if len(uplinks) > 1:
            caps += [(f"u/{name}", self._plan.per_uplink) for name in sorted(filter(None, uplinks))]
        return caps

    def pairs(self) -> tuple[tuple[Pair, ...], ...]:
        return tuple(tuple(slot.pairs) for slot in self._slots)


def plan_among(plan: MeshPlan, names: Collection[str]) -> MeshPlan:
    """The plan with tests between these hosts only: it is made anew, since each needs partners."""
    places = {host.name: number for number, host in enumerate(plan.hosts)}
    present = tuple(host for host in plan.hosts if host.name in names)
    smaller = make_plan(replace(plan, hosts=present))
    numbers = [places[host.name] for host in smaller.hosts]
    slots = [
        tuple((numbers[client], numbers[server]) for client, server in slot)
        for slot in smaller.slots
    ]
    return replace(plan, slots=tuple(slots), origin=plan_identity(plan))


def packed_slots(plan: MeshPlan, pairs: Iterable[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """Slots for these pairs, under the caps of the plan."""
    slots = _Slots(plan)
    for pair in pairs:
        slots.add(pair)
    return slots.pairs()


def plan_budget(plan: MeshPlan) -> Budget:
    """The most that the plan takes: both directions of each test at the highest rate."""
    tests = Counter(host for slot in plan.slots for pair in slot for host in pair)
    bytes_of_a_test = 2 * plan.seconds * plan.rate / 8
    total = sum(map(len, plan.slots)) * bytes_of_a_test
    longest = plan.slot_seconds
    # A slot begins a guard interval after the last client of the one before has reported.
    usual = longest - plan.guard - SETTLE_SECONDS + USUAL_SETTLE_SECONDS
    slots = len(plan.slots)
    return Budget(
        slots * usual, slots * longest, total, max(tests.values(), default=0) * bytes_of_a_test
    )


def duration_words(plan: MeshPlan) -> str:
    """How long the slots take, in words."""
    cost = plan_budget(plan)
    return f"about {cost.usual_seconds / 60:.1f} min, at most {cost.max_seconds / 60:.1f} min"


def budget_line(plan: MeshPlan) -> str:
    """What a plan takes, in one line."""
    cost, tests = plan_budget(plan), sum(map(len, plan.slots))
    return (
        f"{len(plan.hosts)} hosts, {tests} tests in {len(plan.slots)} slots:"
        f" {duration_words(plan)}, and retests of what is found;"
        f" at most {amounts.size(cost.max_bytes)},"
        f" {amounts.size(cost.max_bytes_of_a_host)} of one host"
    )


def read_hosts(text: str) -> tuple[MeshHost, ...]:
    """The hosts in a text such as "node1 172.16.0.1 rack=r1", one on each line.

    Empty lines and what follows a # are ignored. Raises UsageError with the number of the line.
    """
    hosts: list[MeshHost] = []
    names: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        host = _read_host(words, number)
        for key in (f'the name "{host.name}"', f"the address {host.address}"):
            if key in names:
                raise _line_error(number, f"{key} is on line {names[key]} too")
            names[key] = number
        hosts.append(host)
        if len(hosts) > MAX_HOSTS:
            raise _line_error(number, f"there are more than {MAX_HOSTS} hosts")
    if len(hosts) < 2:
        raise UsageError("read the hosts: a mesh needs at least two, as NAME ADDRESS on each line")
    return tuple(hosts)


def _read_host(words: list[str], number: int) -> MeshHost:
    if len(words) < 2:
        raise _line_error(number, "it is not NAME ADDRESS [LABEL=VALUE …]")
    labels = dict(word.partition("=")[::2] for word in words[2:])
    host = MeshHost(words[0], words[1], labels)
    try:
        check_host(host)
    except SelftestError as error:
        raise _line_error(number, error.text.partition(": ")[2]) from None
    return replace(host, address=str(ip_address(host.address)))


def _line_error(number: int, reason: str) -> UsageError:
    return UsageError(f"read the hosts, line {number}: {reason}")
