"""Which name every NIC and VLAN should have, and the steps that bring them there without a clash.

The name that a document asks for wins, then the recorded one, then the one in force. A name that somebody else holds is
never taken: that is a problem with its reason, and the link keeps the name it has.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Optional, TypeVar

from neuca_tools.desired.roles import Roles
from neuca_tools.model import Device, LinkKey, LinkRequest, Problem, Record, World
from neuca_tools.model.topology import identity

LONGEST_NAME = 15  # bytes: IFNAMSIZ less the closing zero, linux/if.h
TEMPORARY = "neuca-tmp"
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Step(Generic[Key]):
    """One rename, in order, of whatever the key stands for."""

    key: Key
    old: str
    new: str


def vlan_name(parent: str, key: LinkKey) -> str:
    """`<parent>.<ID>`, or a short form from the end of the NIC's MAC where that is too long for the kernel.

    >>> vlan_name("eth1", LinkKey("fe:16:3e:00:6d:af", 1445))
    'eth1.1445'
    >>> vlan_name("enp129s0f0np0", LinkKey("fe:16:3e:00:6d:af", 1445))
    'n006daf.1445'
    """
    name = f"{parent}.{key.vlan_id}"
    stem = key.given_name[:10] or f"n{key.mac.replace(':', '')[-6:]}"
    return name if len(name) <= LONGEST_NAME else f"{stem}.{key.vlan_id}"


def nic_names(
    requests: Mapping[LinkKey, LinkRequest],
    world: World,
    roles: Roles,
    record: Record,
) -> tuple[dict[LinkKey, str], list[Problem]]:
    """The name that each present NIC should have. Only dataplane NICs can move; the others keep what they have."""
    movable = {
        mac
        for mac, device in roles.nics.items()
        if roles.role(mac) == "dataplane" and device.index not in roles.protected
    }
    current = {LinkKey(mac): device.name for mac, device in roles.nics.items()}
    wishes = {
        key: wish
        for key in map(LinkKey, movable)
        for wish in [_wish(key, requests, record, roles)]
        if wish
    }
    taken: dict[str, Optional[LinkKey]] = {device.name: None for device in world.devices.values()}
    for device in world.devices.values():  # alternative names share the space of names
        taken.update(dict.fromkeys(device.altnames))
    for mac in movable:
        own = (roles.nics[mac].name, *roles.nics[mac].altnames)
        taken.update(dict.fromkeys(own, LinkKey(mac)))
    names, problems = _settle(
        wishes, current, taken, {key for key in wishes if _is_asked(key, requests)}
    )
    return {**current, **names}, [*problems, *_astray(roles, record, movable)]


def _astray(roles: Roles, record: Record, movable: Container[str]) -> Iterable[Problem]:
    """NICs that a pass may not rename, and that are not called what they were."""
    for mac in sorted(
        {*roles.nics, *roles.twins} - {mac for mac in roles.by_mac if roles.role(mac) == "ignored"}
    ):
        pinned, name = record.nics[mac].name if mac in record.nics else "", roles.name(mac)
        if pinned not in ("", name) and mac not in movable:
            yield Problem(
                "name",
                f'"{name}" should be "{pinned}": it gets that name back at a boot',
                LinkKey(mac),
            )


def _wish(
    key: LinkKey, requests: Mapping[LinkKey, LinkRequest], record: Record, roles: Roles
) -> Optional[str]:
    """The name that is asked for, else the recorded one. No document has a say in what a management NIC is called."""
    request, nic = requests.get(key), record.nics.get(key.mac)
    asked = request.name if request and roles.role(key.mac) == "dataplane" else None
    return asked or (nic.name if nic and nic.name else None)


def _settle(
    wishes: Mapping[LinkKey, str],
    current: Mapping[LinkKey, str],
    owners: Mapping[str, Optional[LinkKey]],
    asked: Container[LinkKey],
) -> tuple[dict[LinkKey, str], list[Problem]]:
    """Grant wishes until nothing changes: a refused NIC keeps its name, which may cost another NIC its wish.

    `owners` tells whose each name is now, None: nobody's who could give it up. A name that a NIC has kept from before goes
    before one that is asked for another NIC.
    """
    order = sorted(wishes, key=lambda key: (key in asked, key))
    refused: dict[LinkKey, Problem] = {}
    while True:
        stays = {current[key]: key for key in current if key not in wishes or key in refused}
        names: dict[LinkKey, str] = {}
        given: dict[str, LinkKey] = dict(stays)
        for key in (key for key in order if key not in refused):
            wish = wishes[key]
            theirs = owners.get(wish, key) is None and current[key] != wish
            if theirs or given.setdefault(wish, key) != key:
                text = f'"{current[key]}" should be "{wish}", but another interface has that name'
                refused[key] = Problem("name", text, key)
                break
            names[key] = wish
        else:
            return names, list(refused.values())


def boot_names(
    world: World,
    roles: Roles,
    requests: Mapping[LinkKey, LinkRequest],
    record: Record,
    in_use: Collection[int] = (),
) -> dict[int, str]:
    """The name that every NIC should have before the network starts, by its index: management NICs and strangers included.

    An ignored NIC keeps what it has, and so does one of `in_use` and whatever is no NIC: their names are given to nobody. A
    NIC that nobody knows, and a twin, moves to a free name if the one it has belongs to another NIC, absent ones included.
    """
    twins = (device for devices in roles.twins.values() for device in devices)
    free = {
        device.index: device
        for device in (*roles.nics.values(), *twins)
        if roles.role(identity(device)) != "ignored" and device.index not in in_use
    }
    fixed = {
        name
        for device in world.devices.values()
        if device.index not in free
        for name in (device.name, *device.altnames)
    }
    granted = _reserved(fixed, roles, requests, record)
    owner = {device.index: LinkKey(mac) for mac, device in roles.nics.items()}
    names = {index: granted[owner[index]] for index in free if owner.get(index) in granted}
    taken = {*fixed, *granted.values()}
    everybody = {
        name for device in world.devices.values() for name in (device.name, *device.altnames)
    }
    for index in sorted(
        free.keys() - names.keys(), key=lambda index: (identity(free[index]), index)
    ):
        name = free[index].name
        if name in taken and not _is_twins_own(free[index], granted, roles):
            name = free_name(name, {*taken, *everybody})
        names[index] = name
        taken.add(name)
    return names


def _reserved(
    fixed: Container[str], roles: Roles, requests: Mapping[LinkKey, LinkRequest], record: Record
) -> dict[LinkKey, str]:
    """Whose each name is, present or not: the one that is asked for goes after those of before."""
    keys = {LinkKey(mac) for mac in (*roles.nics, *record.nics) if roles.role(mac) != "ignored"}
    wishes = {key: wish for key in keys for wish in [_wish(key, requests, record, roles)] if wish}
    before = {key: record.nics[key.mac].name for key in keys if key.mac in record.nics}
    asking, refused = {key for key in wishes if _is_asked(key, requests)}, set[LinkKey]()
    while True:  # at most once for each NIC: one whose wish is refused keeps its name, which may be the wish of another
        granted: dict[LinkKey, str] = {}
        taken = set[str]()
        for key in sorted(wishes, key=lambda key: (key in asking - refused, key)):
            name = before.get(key, "") if key in refused else wishes[key]
            if name and name not in taken and name not in fixed:
                granted[key] = name
                taken.add(name)
        again = {key for key in asking - refused if key not in granted}
        if not again:
            return granted
        refused |= again


def _is_twins_own(device: Device, granted: Mapping[LinkKey, str], roles: Roles) -> bool:
    """The name is that of its MAC, and no other device with this MAC is the NIC that it is meant for."""
    mac = identity(device)
    return mac not in roles.nics and granted.get(LinkKey(mac)) == device.name


def own_names(
    roles: Roles, requests: Mapping[LinkKey, LinkRequest], record: Record
) -> dict[LinkKey, str]:
    """The name that each NIC should have, whether it can be given now or not; none for one that is ignored."""
    keys = [LinkKey(mac) for mac, role in roles.by_mac.items() if role != "ignored"]
    found = {key: _wish(key, requests, record, roles) or roles.name(key.mac) for key in keys}
    return {key: name for key, name in found.items() if name}


def _is_asked(key: LinkKey, requests: Mapping[LinkKey, LinkRequest]) -> bool:
    return key in requests and bool(requests[key].name)


def free_name(name: str, taken: Container[str]) -> str:
    """The same stem with the next number that nobody has."""
    stem = name.rstrip("0123456789")[: LONGEST_NAME - 4] or "eth"
    return next(f"{stem}{number}" for number in range(10000) if f"{stem}{number}" not in taken)


def rename_steps(current: Mapping[Key, str], wanted: Mapping[Key, str]) -> list[Step[Key]]:
    """Renames in an order that never meets a name in use; a cycle goes through one temporary name.

    >>> a, b = LinkKey("02:00:00:00:00:01"), LinkKey("02:00:00:00:00:02")
    >>> [(step.old, step.new) for step in rename_steps({a: "eth0", b: "eth1"}, {a: "eth1", b: "eth0"})]
    [('eth0', 'neuca-tmp0'), ('eth1', 'eth0'), ('neuca-tmp0', 'eth1')]
    """
    waiting = _possible(current, wanted)
    now = dict(current)
    steps: list[Step[Key]] = []
    while waiting:
        in_use = set(now.values())
        key = next((key for key, name in waiting.items() if name not in in_use), None)
        if key is None:
            key = next(iter(waiting))
            target = next(
                name
                for name in (f"{TEMPORARY}{number}" for number in range(len(now) + 1))
                if name not in in_use
            )
        else:
            target = waiting.pop(key)
        steps.append(Step(key, now[key], target))
        now[key] = target
    return steps


def _possible(current: Mapping[Key, str], wanted: Mapping[Key, str]) -> dict[Key, str]:
    """The renames whose new name is free, or held by a link that moves away itself."""
    waiting = {key: name for key, name in wanted.items() if key in current and current[key] != name}
    while True:
        kept = {name for key, name in current.items() if key not in waiting}
        possible = {key: name for key, name in waiting.items() if name not in kept}
        if len(possible) == len(waiting):
            return possible
        waiting = possible
