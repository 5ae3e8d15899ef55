"""Which name every NIC and VLAN should have, and the steps that bring them there without a clash.

The name that a document asks for wins, then the recorded one, then the one in force. A name that somebody else holds is
never taken: that is a problem with its reason, and the link keeps the name it has.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple, Optional

from .model import LinkKey, LinkRequest, Problem, Record, World
from .roles import Roles

LONGEST_NAME = 15  # bytes: IFNAMSIZ less the closing zero, linux/if.h
TEMPORARY = "neuca-tmp"


class Step(NamedTuple):
    """One rename, in order."""

    key: LinkKey
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
    return name if len(name) <= LONGEST_NAME else f"n{key.mac.replace(':', '')[-6:]}.{key.vlan_id}"


def nic_names(requests: Mapping[LinkKey, LinkRequest], world: World, roles: Roles, record: Record,
              ) -> tuple[dict[LinkKey, str], list[Problem]]:
    """The name that each present NIC should have. Only dataplane NICs can move; the others keep what they have."""
    movable = {mac for mac, device in roles.nics.items()
               if roles.role(mac) == "dataplane" and device.index not in roles.protected}
    current = {LinkKey(mac): device.name for mac, device in roles.nics.items()}
    wishes = {key: wish for key in map(LinkKey, movable) for wish in [_wish(key, requests, record)] if wish}
    taken: dict[str, Optional[LinkKey]] = {device.name: None for device in world.devices.values()}
    for device in world.devices.values():  # alternative names share the space of names
        taken.update(dict.fromkeys(device.altnames))
    for mac in movable:
        own = (roles.nics[mac].name, *roles.nics[mac].altnames)
        taken.update(dict.fromkeys(own, LinkKey(mac)))
    names, problems = _settle(wishes, current, taken, {key for key in wishes if _is_asked(key, requests)})
    return {**current, **names}, [*problems, *_astray(roles, record, movable)]


def _astray(roles: Roles, record: Record, movable: Container[str]) -> Iterable[Problem]:
    """NICs that a pass may not rename, and that are not called what they were."""
    for mac, device in roles.nics.items():
        pinned = record.nics[mac].name if mac in record.nics else ""
        if pinned not in ("", device.name) and mac not in movable and roles.role(mac) != "ignored":
            yield Problem("name", f'"{device.name}" should be "{pinned}": it gets that name back at a boot', LinkKey(mac))


def _wish(key: LinkKey, requests: Mapping[LinkKey, LinkRequest], record: Record) -> Optional[str]:
    request, nic = requests.get(key), record.nics.get(key.mac)
    asked = request.name if request else None
    return asked or (nic.name if nic and nic.name else None)


def _settle(wishes: Mapping[LinkKey, str], current: Mapping[LinkKey, str], owners: Mapping[str, Optional[LinkKey]],
            asked: Container[LinkKey]) -> tuple[dict[LinkKey, str], list[Problem]]:
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


def boot_names(world: World, roles: Roles, requests: Mapping[LinkKey, LinkRequest], record: Record) -> dict[LinkKey, str]:
    """The name that every free NIC should have before the network starts, management NICs and strangers included.

    An ignored NIC keeps what it has, and so does whatever is no NIC: their names are given to nobody. A NIC that nobody
    knows moves to a free name if the one it has belongs to another NIC, absent ones included.
    """
    ignored = {device.name for mac, device in roles.nics.items() if roles.role(mac) == "ignored"}
    nics = {LinkKey(mac): device.name for mac, device in roles.nics.items() if device.name not in ignored}
    fixed = {device.name for device in world.devices.values()} - set(nics.values())
    wishes = {key: wish for key in {*nics, *(LinkKey(mac) for mac in record.nics)} for wish in [_wish(key, requests, record)]
              if wish and roles.role(key.mac) != "ignored"}
    granted: dict[LinkKey, str] = {}
    taken = set(fixed)
    for key in sorted(wishes, key=lambda key: (_is_asked(key, requests), key)):
        before = record.nics[key.mac].name if key.mac in record.nics else ""
        name = next((name for name in (wishes[key], before) if name and name not in taken), None)
        if name is not None:
            granted[key] = name
            taken.add(name)
    for key in sorted(nics):
        if key not in granted:
            granted[key] = nics[key] if nics[key] not in taken else _free_name(nics[key], {*taken, *nics.values()})
            taken.add(granted[key])
    return {key: name for key, name in granted.items() if key in nics}


def _is_asked(key: LinkKey, requests: Mapping[LinkKey, LinkRequest]) -> bool:
    return key in requests and bool(requests[key].name)


def _free_name(name: str, taken: Container[str]) -> str:
    """The same stem with the next number that nobody has."""
    stem = name.rstrip("0123456789")[:LONGEST_NAME - 4] or "eth"
    return next(f"{stem}{number}" for number in range(10000) if f"{stem}{number}" not in taken)


def rename_steps(current: Mapping[LinkKey, str], wanted: Mapping[LinkKey, str]) -> list[Step]:
    """Renames in an order that never meets a name in use; a cycle goes through one temporary name.

    >>> a, b = LinkKey("02:00:00:00:00:01"), LinkKey("02:00:00:00:00:02")
    >>> [(step.old, step.new) for step in rename_steps({a: "eth0", b: "eth1"}, {a: "eth1", b: "eth0"})]
    [('eth0', 'neuca-tmp0'), ('eth1', 'eth0'), ('neuca-tmp0', 'eth1')]
    """
    waiting = _possible(current, wanted)
    now = dict(current)
    steps: list[Step] = []
    while waiting:
        in_use = set(now.values())
        key = next((key for key, name in waiting.items() if name not in in_use), None)
        if key is None:
            key = next(iter(waiting))
            target = next(name for name in (f"{TEMPORARY}{number}" for number in range(len(now) + 1)) if name not in in_use)
        else:
            target = waiting.pop(key)
        steps.append(Step(key, now[key], target))
        now[key] = target
    return steps


def _possible(current: Mapping[LinkKey, str], wanted: Mapping[LinkKey, str]) -> dict[LinkKey, str]:
    """The renames whose new name is free, or held by a link that moves away itself."""
    waiting = {key: name for key, name in wanted.items() if key in current and current[key] != name}
    while True:
        kept = {name for key, name in current.items() if key not in waiting}
        possible = {key: name for key, name in waiting.items() if name not in kept}
        if len(possible) == len(waiting):
            return possible
        waiting = possible
