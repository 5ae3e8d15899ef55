"""What can be at fault in a mesh, and which tests in one direction each of these would affect."""

# SPDX-License-Identifier: MIT

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

# Kinds of entities, by the traffic that each affects. Of a host: what it sends, what it receives,
# or both. Of a group: the same for what crosses its border; all of that together with what stays
# inside; or only what stays inside.
HOST_OUT, HOST_IN, HOST = "host-out", "host-in", "host"
HOSTS = (HOST_OUT, HOST_IN, HOST)
GROUP_OUT, GROUP_IN, UPLINK = "group-out", "group-in", "group-uplink"
GROUP, INSIDE = "group", "group-inside"
# Between two groups, one way or both, and between two hosts, both ways or one.
ONE_WAY, BETWEEN = "groups-one-way", "groups"
PAIR, PATH = PAIRS = "pair", "path"


class Entity(NamedTuple):
    """What can be at fault: a host, a group, or two of them, as its kind says."""

    kind: str
    names: tuple[str, ...]


class Endpoint(NamedTuple):
    """A host with its group, which is empty if it has none."""

    host: str
    group: str


class Observation(NamedTuple):
    """Whether a test is bad in one direction. `test` is its index in the rows."""

    test: int
    sender: Endpoint
    receiver: Endpoint
    is_bad: bool

    @property
    def hosts(self) -> tuple[str, str]:
        return self.sender.host, self.receiver.host


def pair_of(host: str, other: str) -> Entity:
    """The entity of two hosts."""
    return Entity(PAIR, _in_order(host, other))


def entities_on_path(sender: Endpoint, receiver: Endpoint) -> Sequence[Entity]:
    """Every entity but those of PAIRS on the path of a test from `sender` to `receiver`."""
    out, into = (sender.host,), (receiver.host,)
    hosts = (Entity(HOST_OUT, out), Entity(HOST_IN, into), Entity(HOST, out), Entity(HOST, into))
    return (*hosts, *_groups_on_path(sender.group, receiver.group))


@lru_cache(maxsize=4096)
def _groups_on_path(sender: str, receiver: str) -> Sequence[Entity]:
    """The entities of groups on the path of a test between these groups, or within one."""
    if not sender or not receiver:
        return ()
    if sender == receiver:
        return (Entity(INSIDE, (sender,)), Entity(GROUP, (sender,)))
    entities = (
        Entity(GROUP_OUT, (sender,)),
        Entity(GROUP_IN, (receiver,)),
        Entity(ONE_WAY, (sender, receiver)),
        Entity(BETWEEN, _in_order(sender, receiver)),
    )
    ends = ((UPLINK, sender), (UPLINK, receiver), (GROUP, sender), (GROUP, receiver))
    return (*entities, *(Entity(kind, (group,)) for kind, group in ends))


def is_on_path(entity: Entity, sender: Endpoint, receiver: Endpoint) -> bool:
    """Whether this entity is on the path of a test from `sender` to `receiver`."""
    if entity.kind == PAIR:
        return entity == pair_of(sender.host, receiver.host)
    if entity.kind == PATH:
        return entity.names == (sender.host, receiver.host)
    return entity in entities_on_path(sender, receiver)


def _in_order(name: str, other: str) -> tuple[str, str]:
    return (min(name, other), max(name, other))


class Size(NamedTuple):
    """How many hosts and groups a mesh has, and how many of its pairs were tested."""

    hosts: int
    groups: int
    pairs: int


def count_of(kind: str, size: Size) -> int:
    """How many entities of this kind there are; the more, the more evidence each needs."""
    if kind in PAIRS:
        return max(1, size.pairs) * (1 if kind == PAIR else 2)
    if kind in (ONE_WAY, BETWEEN):
        return max(1, size.groups * (size.groups - 1))
    if kind in HOSTS:
        return size.hosts
    return max(1, size.groups)
