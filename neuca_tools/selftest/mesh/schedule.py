"""The slots of a mesh, and those of its retests: disjoint pairs of hosts, in the order of a seed.

The circle method gives each host one partner in each round, and all of them in M-1 rounds, where M
is the number of hosts or, if that is odd, one more (R. Kirkman 1847).
"""

# SPDX-License-Identifier: MIT

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import NamedTuple, TypeVar

from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.model.printable import counted
from neuca_tools.selftest import amounts
from neuca_tools.selftest.mesh import model
from neuca_tools.selftest.mesh.model import MeshHost, MeshPlan, Pair

T = TypeVar("T")
# By default, all pairs of up to this number of hosts are tested; of more hosts, 8 random rounds.
# These find a steady fault of a host or a group among any number N of hosts: if a share f of its
# partners is faulty, ln(N/2.718)/ln(1/f) tests show that a host is not.
ALL_PAIRS_UP_TO, RANDOM_ROUNDS = 64, 8
# The share of these rounds that stays within groups, before uplinks are loaded.
SHARE_WITHIN_GROUPS = 0.25
HYPERVISOR = "hypervisor"  # the label whose hosts have one test at a time
# Seconds of a slot in addition to its transfers and a guard interval, on hosts that are not busy.
USUAL_SETTLE_SECONDS = 3.0
# How many of the last slots are searched for a place for a pair.
SLOTS_TO_SEARCH = 64


class Budget(NamedTuple):
    """The duration of a plan, and the data that all of it and one host send at most."""

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
    return sorted(items, key=lambda item: sha256(f"{seed}/{purpose}/{item}".encode()).digest())


def make_plan(draft: MeshPlan) -> MeshPlan:
    """The plan of a mesh with these hosts and settings, with a default for 0 rounds.

    It does not depend on the order of the hosts. Every host has at most one test in each round; a
    pair is tested once. Pairs within a group come first.
    """
    hosts = tuple(sorted(draft.hosts, key=lambda host: host.name))
    all_rounds = len(hosts) - 1 + len(hosts) % 2
    default = all_rounds if len(hosts) <= ALL_PAIRS_UP_TO else RANDOM_ROUNDS
    plan = replace(draft, hosts=hosts, rounds=min(draft.rounds or default, all_rounds))
    slots: list[tuple[Pair, ...]] = []
    planned: set[frozenset[int]] = set()
    for rounds in _rounds_of_plan(plan, all_rounds):
        pairs = [pair for pair in chain(*rounds) if frozenset(pair) not in planned]
        planned.update(map(frozenset, pairs))
        slots += packed_slots(plan, (_with_direction(pair, plan.seed) for pair in pairs))
    return replace(plan, slots=tuple(slots))


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
        max_rounds_within = all_rounds
        if plan.rounds < all_rounds:
            max_rounds_within = int(plan.rounds * SHARE_WITHIN_GROUPS)
        of_groups = [_drawn_rounds(members, plan.seed, max_rounds_within) for members in groups]
        # The groups test at the same time.
        inside = [list(chain(*rounds)) for rounds in zip_longest(*of_groups, fillvalue=())]
    rounds_left = plan.rounds
    if rounds_left < all_rounds:
        rounds_left -= len(inside)
    return inside, _drawn_rounds(list(range(len(plan.hosts))), plan.seed, rounds_left)


def _members_by_group(plan: MeshPlan) -> dict[str, list[int]]:
    """The indexes of the hosts by group; hosts without one are a group, too."""
    members: dict[str, list[int]] = {}
    for index in range(len(plan.hosts)):
        members.setdefault(plan.group_of(index), []).append(index)
    return dict(sorted(members.items()))


def _drawn_rounds(members: Sequence[int], seed: int, rounds: int) -> list[list[Pair]]:
    """Up to `rounds` rounds of the circle method among these hosts, in the order of the seed."""
    order = seeded_order(members, seed, "host")
    numbers = seeded_order(range(len(order) + len(order) % 2 - 1), seed, "round")[:rounds]
    chosen = set(numbers)
    pairs_by_round = {
        number: [(order[first], order[second]) for first, second in pairs]
        for number, pairs in enumerate(circle_rounds(len(order)))
        if number in chosen
    }
    return [pairs_by_round[number] for number in numbers]


class _Slot(NamedTuple):
    pairs: list[Pair]
    busy: set[int]
    load: Counter[str]


def packed_slots(plan: MeshPlan, pairs: Iterable[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """Slots for these pairs, each of them where both hosts are free and no cap is exceeded.

    That is the first of the last SLOTS_TO_SEARCH slots, or a new one.
    """
    slots = list[_Slot]()
    for pair in pairs:
        caps = _caps_of_pair(plan, pair)
        for slot in slots[-SLOTS_TO_SEARCH:]:
            is_free = slot.busy.isdisjoint(pair)
            if is_free and all(slot.load[name] < cap for name, cap in caps):
                break
        else:
            slot = _Slot([], set(), Counter())
            slots.append(slot)
        slot.pairs.append(pair)
        slot.busy.update(pair)
        slot.load.update(name for name, _ in caps)
    return tuple(tuple(slot.pairs) for slot in slots)


def _caps_of_pair(plan: MeshPlan, pair: Pair) -> list[tuple[str, int]]:
    """The hypervisors and uplinks of a pair, with how many tests each may carry at once."""
    labels = [plan.hosts[host].labels for host in pair]
    caps = [(f"h/{name}", 1) for name in {label.get(HYPERVISOR) for label in labels} if name]
    groups = set(map(plan.group_of, pair))
    if len(groups) > 1:
        caps += [(f"u/{name}", plan.per_uplink) for name in groups if name]
    return caps


def plan_among(plan: MeshPlan, names: Collection[str]) -> MeshPlan:
    """The plan made anew with tests between these hosts only, so that each has partners."""
    index_by_name = {host.name: number for number, host in enumerate(plan.hosts)}
    present = tuple(host for host in plan.hosts if host.name in names)
    smaller = make_plan(replace(plan, hosts=present))
    numbers = [index_by_name[host.name] for host in smaller.hosts]
    slots = [
        tuple((numbers[client], numbers[server]) for client, server in slot)
        for slot in smaller.slots
    ]
    return replace(plan, slots=tuple(slots), origin=model.plan_identity(plan))


def plan_budget(plan: MeshPlan) -> Budget:
    """Both directions of each test at the highest rate."""
    pairs = list(chain.from_iterable(plan.slots))
    tests_by_host = Counter(chain.from_iterable(pairs))
    bytes_of_a_test = 2 * plan.seconds * plan.rate / 8
    # A slot begins a guard interval after the last client of the one before has reported.
    usual = plan.slot_seconds - plan.guard - model.SETTLE_SECONDS + USUAL_SETTLE_SECONDS
    return Budget(
        usual_seconds=len(plan.slots) * usual,
        max_seconds=len(plan.slots) * plan.slot_seconds,
        max_bytes=len(pairs) * bytes_of_a_test,
        max_bytes_of_a_host=max(tests_by_host.values(), default=0) * bytes_of_a_test,
    )


def duration_words(plan: MeshPlan) -> str:
    """How long the slots take: "about 1.3 min, at most 3.1 min"."""
    budget = plan_budget(plan)
    return f"about {budget.usual_seconds / 60:.1f} min, at most {budget.max_seconds / 60:.1f} min"


def budget_line(plan: MeshPlan) -> str:
    """The size, the duration and the data of a plan."""
    budget, tests = plan_budget(plan), sum(map(len, plan.slots))
    return (
        f"{len(plan.hosts)} hosts, {counted(tests, 'test')} in {counted(len(plan.slots), 'slot')}:"
        f" {duration_words(plan)}, and retests of what is found;"
        f" at most {amounts.size(budget.max_bytes)},"
        f" {amounts.size(budget.max_bytes_of_a_host)} of one host"
    )


def read_hosts(text: str) -> tuple[MeshHost, ...]:
    """The hosts in a text such as "node1 172.16.0.1 rack=r1", one on each line.

    Empty lines and what follows a # are ignored. Raises UsageError.
    """
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    hosts = tuple(_read_host(words, number) for number, words in enumerate(lines, 1) if words)
    try:
        model.check_hosts(hosts)
    except SelftestError as error:
        raise UsageError(f"read the hosts: {error.text.partition(': ')[2]}") from None
    return hosts


def _read_host(words: list[str], number: int) -> MeshHost:
    if len(words) < 2:
        raise _line_error(number, "it is not NAME ADDRESS [LABEL=VALUE …]")
    labels = dict(word.partition("=")[::2] for word in words[2:])
    if len(labels) < len(words) - 2:
        raise _line_error(number, "a label is given twice")
    host = MeshHost(words[0], words[1], labels)
    try:
        model.check_host(host)
    except SelftestError as error:
        raise _line_error(number, error.text.partition(": ")[2]) from None
    return replace(host, address=str(ip_address(host.address)))


def _line_error(number: int, reason: str) -> UsageError:
    return UsageError(f"read the hosts, line {number}: {reason}")
