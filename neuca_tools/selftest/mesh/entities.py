"""What can be at fault in a mesh, and which tests in one direction each of these would affect."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Kinds: of a host what it sends, what it receives, both; of a group the same for what crosses its
# border, with all of that and what stays inside (any), or the latter alone (inside).
HOST_OUT, HOST_IN, HOST = "host-out", "host-in", "host"
GROUP_OUT, GROUP_IN, UPLINK = "group-out", "group-in", "group-uplink"
GROUP, INSIDE = "group", "group-inside"
# Between two groups, one way or both, and between two hosts.
ONE_WAY, BETWEEN, PAIR = "groups-one-way", "groups", "pair"


class Entity(NamedTuple):
    """One of them: the names are those of hosts or of groups, as its kind says."""

    kind: str
    names: tuple[str, ...]


class Place(NamedTuple):
    """A host with its group, which is empty if it has none."""

    host: str
    group: str


def affecting(sender: Place, receiver: Place) -> Sequence[Entity]:
    """Every entity that a test from `sender` to `receiver` passes."""
    found = [
        Entity(HOST_OUT, (sender.host,)),
        Entity(HOST_IN, (receiver.host,)),
        Entity(HOST, (sender.host,)),
        Entity(HOST, (receiver.host,)),
        Entity(PAIR, _ordered(sender.host, receiver.host)),
    ]
    if not sender.group or not receiver.group:
        return found
    if sender.group == receiver.group:
        found += [Entity(INSIDE, (sender.group,)), Entity(GROUP, (sender.group,))]
        return found
    found += [
        Entity(GROUP_OUT, (sender.group,)),
        Entity(GROUP_IN, (receiver.group,)),
        Entity(ONE_WAY, (sender.group, receiver.group)),
        Entity(BETWEEN, _ordered(sender.group, receiver.group)),
    ]
    for group in (sender.group, receiver.group):
        found += [Entity(UPLINK, (group,)), Entity(GROUP, (group,))]
    return found


def _ordered(one: str, two: str) -> tuple[str, str]:
    return (min(one, two), max(one, two))


def count_of(kind: str, hosts: int, groups: int) -> int:
    """How many entities of this kind there are; the more, the more evidence each needs."""
    if kind == PAIR:
        return hosts * max(1, hosts - 1) // 2
    if kind in (ONE_WAY, BETWEEN):
        return max(1, groups * (groups - 1))
    if kind in (HOST_OUT, HOST_IN, HOST):
        return hosts
    return max(1, groups)
