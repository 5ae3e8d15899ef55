"""The name that every NIC and VLAN should have, and the renames that lead there without a clash.

The name that a document requests takes precedence, then the recorded name, then the present one. If
another interface has the name, the link keeps the name it has, and that is reported as a problem.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from neuca_tools.desired.dhcp_files import MANAGERS
from neuca_tools.desired.roles import Roles
from neuca_tools.model import UNRECORDED, Device, LinkKey, Problem, Record, Requests, World
from neuca_tools.model.topology import identity

LONGEST_NAME = 15  # bytes: IFNAMSIZ less the closing zero, linux/if.h
TEMPORARY = "neuca-tmp"
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Step(Generic[Key]):
    """One rename of the link with this key."""

    key: Key
    old: str
    new: str


def vlan_name(parent: str, key: LinkKey) -> str:
    """`<parent>.<ID>`, or a short form with the end of the NIC's MAC if that is too long.

    >>> vlan_name("eth1", LinkKey("fe:16:3e:00:6d:af", 1445))
    'eth1.1445'
    >>> vlan_name("enp129s0f0np0", LinkKey("fe:16:3e:00:6d:af", 1445))
    'n006daf.1445'
    """
    name = f"{parent}.{key.vlan_id}"
    if len(_encoded(name)) <= LONGEST_NAME:
        return name
    stem = key.virtual_name[:10] or f"n{key.mac.replace(':', '')[-6:]}"
    return f"{stem}.{key.vlan_id}"


def _encoded(name: str) -> bytes:
    """The name as the kernel has it, which may be no valid UTF-8."""
    return name.encode(errors="surrogateescape")


def nic_names(
    requests: Requests, world: World, roles: Roles, record: Record
) -> tuple[dict[LinkKey, str], list[Problem]]:
    """The name that each present NIC should have.

    Only dataplane NICs are renamed, and none while another program does DHCP on it.
    """
    movable = _movable(roles)
    current = {LinkKey(mac): device.name for mac, device in roles.nics.items()}
    fallback = {key: current[key] for key in movable}
    holders = {name: key for key in movable for name in roles.nics[key.mac].altnames}
    own = {*fallback.values(), *holders}
    others = names_in_use(world, {roles.nics[key.mac].index for key in movable})
    pinned = _pinned_names(movable, roles, record)
    fixed = {*pinned.values(), *reserved_names(roles, record).values()} - own | others
    wishes = _wished_names(movable, requests, record, roles)
    free = {key: wish for key, wish in wishes.items() if holders.get(wish, key) == key}
    names = _grant_wishes({**fallback, **free}, fallback, fixed, requests)
    problems = []
    for key, wish in sorted(wishes.items()):
        if names[key] != wish:
            text = f'"{current[key]}" should be "{wish}", but another interface has that name'
            problems.append(Problem("name", text, key))
    problems += _astray_problems(pinned, requests, world, roles, record)
    return {**current, **names}, problems


def _movable(roles: Roles) -> set[LinkKey]:
    """The NICs that a pass may rename."""
    fixed = {key.mac for key in roles.dhcp.links_of(MANAGERS)} | roles.dhcp.left_to_others
    nics = roles.nics.items()
    free = (mac for mac, device in nics if device.index not in roles.guard.devices)
    return {LinkKey(mac) for mac in free if roles.role(mac) == "dataplane" and mac not in fixed}


def reserved_names(roles: Roles, record: Record) -> dict[LinkKey, str]:
    """The recorded name of each absent management NIC, which nothing else may get."""
    return {
        LinkKey(mac): nic.name
        for mac, nic in record.nics.items()
        if nic.role == "management" and nic.name and mac not in {*roles.nics, *roles.twins}
    }


def names_in_use(world: World, left_out: Container[int] = ()) -> set[str]:
    """The names, and the alternative names, which share one name space, of all other devices."""
    devices = [device for index, device in world.devices.items() if index not in left_out]
    return {name for device in devices for name in (device.name, *device.altnames)}


def _pinned_names(movable: Iterable[LinkKey], roles: Roles, record: Record) -> dict[str, str]:
    """The recorded names of the present NICs that get them back at the next boot only, by MAC."""
    macs = {*roles.nics, *roles.twins} - {key.mac for key in movable}
    kept = (mac for mac in sorted(macs & record.nics.keys()) if roles.role(mac) != "ignored")
    return {mac: record.nics[mac].name for mac in kept}


def _astray_problems(
    pinned: Mapping[str, str], requests: Requests, world: World, roles: Roles, record: Record
) -> Iterator[Problem]:
    """A problem for each of these NICs, which may not be renamed now, that has lost its name."""
    astray = {mac: name for mac, name in pinned.items() if name not in ("", roles.name(mac))}
    coming = boot_names(world, roles, requests, record) if astray else {}
    for mac, name in astray.items():
        text = "it will get that name at the next boot"
        if mac in roles.nics and coming.get(roles.nics[mac].index) != name:
            text = "that name belongs to another interface"
        yield Problem("name", f'"{roles.name(mac)}" should be "{name}": {text}', LinkKey(mac))


def _wished_names(
    keys: Iterable[LinkKey], requests: Requests, record: Record, roles: Roles
) -> dict[LinkKey, str]:
    """The requested names of NICs that are not for management, or else the recorded ones."""
    wishes = {key: record.nics.get(key.mac, UNRECORDED).name for key in keys}
    for key in wishes:
        if _is_asked(key, requests) and roles.role(key.mac) == "dataplane":
            wishes[key] = str(requests[key].name)
    return {key: wish for key, wish in wishes.items() if wish}


def _grant_wishes(
    wishes: Mapping[LinkKey, str],
    fallback: Mapping[LinkKey, str],
    fixed: Container[str],
    requests: Requests,
    managing: Container[str] = (),
) -> dict[LinkKey, str]:
    """Grant wishes until nothing changes; a NIC that is refused its wish gets its fallback.

    Another NIC may have wished for that name, so this repeats at most once for each NIC. No NIC
    gets a `fixed` name. A recorded name takes precedence over one that is asked for another NIC;
    if it is recorded for several, that of a management NIC (`managing`: MACs) does.
    """
    names = dict(wishes)

    def rank(key: LinkKey) -> tuple[object, ...]:
        is_other = key.mac not in managing
        return names[key] != fallback[key], _is_asked(key, requests), is_other, key

    while True:
        owners: dict[str, LinkKey] = {}
        for key in sorted(names, key=rank):
            if names[key] and names[key] not in fixed:
                owners.setdefault(names[key], key)
        granted = {key: name for name, key in owners.items()}
        refused = [key for key in names.keys() - granted if names[key] != fallback[key]]
        if not refused:
            return granted
        names.update((key, fallback[key]) for key in refused)


def boot_names(
    world: World, roles: Roles, requests: Requests, record: Record, in_use: Collection[int] = ()
) -> dict[int, str]:
    """The name that every NIC should have before the network starts, by index.

    Management and unknown NICs are included. Ignored NICs, those of `in_use` and other devices keep
    their names, which no NIC is given. An unknown NIC, or a NIC that shares its MAC, gets a free
    name if its own belongs to another NIC, even to an absent one.
    """
    free = _free_to_rename(world, roles, in_use)
    fixed = names_in_use(world, free)
    granted = _boot_wishes(fixed, roles, requests, record)
    owners = _owners(roles, record)
    names = {
        device.index: granted[LinkKey(mac)]
        for mac, device in owners.items()
        if device.index in free and LinkKey(mac) in granted
    }
    taken = {*fixed, *granted.values()}
    in_force = names_in_use(world)
    for device in sorted(free.values(), key=lambda device: (identity(device), device.index)):
        if device.index in names:
            continue
        name = device.name
        mac = identity(device)
        # A name may belong to a MAC that several devices have, and none of them is certain.
        is_twins_own = mac not in owners and granted.get(LinkKey(mac)) == name
        if name in taken and not is_twins_own:
            name = free_name(name, taken | in_force)
        names[device.index] = name
        taken.add(name)
    return names


def _owners(roles: Roles, record: Record) -> dict[str, Device]:
    """The device that the name of each MAC is for, unless that is uncertain.

    It may be in a bond or bridge of the initramfs. Of several devices with the MAC of a management
    NIC, it is the first in the order of the bus: a virtual function may not have its master yet.
    """
    managing = record.macs_of("management")
    shared = {
        mac: min(devices, key=lambda device: (device.slot, device.index))
        for mac, devices in roles.twins.items()
        if len(devices) == 1 or mac in managing
    }
    return {**shared, **roles.nics}


def _free_to_rename(world: World, roles: Roles, in_use: Collection[int]) -> dict[int, Device]:
    """The NICs that may get another name at boot, by index, and hardware without a MAC."""
    twins = (device for devices in roles.twins.values() for device in devices)
    hardware = (device for device in world.devices.values() if device.hardware)
    without_mac = (device for device in hardware if not identity(device).strip("0:"))
    return {
        device.index: device
        for device in (*roles.nics.values(), *twins, *without_mac)
        if roles.role(identity(device)) != "ignored" and device.index not in in_use
    }


def _boot_wishes(
    fixed: Container[str], roles: Roles, requests: Requests, record: Record
) -> dict[LinkKey, str]:
    """The name of each NIC, present or not. Recorded names take precedence over requested ones."""
    keys = {LinkKey(mac) for mac in (*roles.nics, *record.nics) if roles.role(mac) != "ignored"}
    wishes = _wished_names(keys, requests, record, roles)
    for absent, successor in _successors(roles, record):
        if absent in wishes:
            wishes[successor] = wishes.pop(absent)
    fallback = {key: record.nics.get(key.mac, UNRECORDED).name for key in wishes}
    return _grant_wishes(wishes, fallback, fixed, requests, record.macs_of("management"))


def _successors(roles: Roles, record: Record) -> Iterator[tuple[LinkKey, LinkKey]]:
    """Each absent management NIC, with the NIC that has taken its place and gets its name.

    That is a new NIC with this name, if no management NIC is present, or a NIC for which the name
    is recorded: network managers may know the link by its name only.
    """
    absent = reserved_names(roles, record)
    is_lost = not record.macs_of("management") & {*roles.nics, *roles.twins}
    for mac, device in roles.nics.items():
        name = record.nics.get(mac, UNRECORDED).name or (device.name if is_lost else "")
        if roles.role(mac) in ("management", "unlisted"):
            yield from ((key, LinkKey(mac)) for key, lost in absent.items() if lost == name)


def own_names(roles: Roles, requests: Requests, record: Record) -> dict[LinkKey, str]:
    """The name that each NIC should have, even if not possible now, without ignored NICs."""
    keys = [LinkKey(mac) for mac, role in roles.by_mac.items() if role != "ignored"]
    wishes = _wished_names(keys, requests, record, roles)
    names = {key: wishes.get(key) or roles.name(key.mac) for key in keys}
    return {key: name for key, name in names.items() if name}


def _is_asked(key: LinkKey, requests: Requests) -> bool:
    return key in requests and bool(requests[key].name)


def free_name(name: str, taken: Container[str]) -> str:
    """This name or, if it is `taken`, its stem with the lowest number possible."""
    if name not in taken:
        return name
    encoded = _encoded(name.rstrip("0123456789"))
    stem = encoded[: LONGEST_NAME - 4].decode(errors="ignore") or "eth"
    return next(f"{stem}{number}" for number in range(10000) if f"{stem}{number}" not in taken)


def rename_steps(current: Mapping[Key, str], wanted: Mapping[Key, str]) -> list[Step[Key]]:
    """Renames in an order in which every new name is free; a cycle needs one temporary name.

    >>> a, b = LinkKey("02:00:00:00:00:01"), LinkKey("02:00:00:00:00:02")
    >>> steps = rename_steps({a: "eth0", b: "eth1"}, {a: "eth1", b: "eth0"})
    >>> [(step.old, step.new) for step in steps]
    [('eth0', 'neuca-tmp0'), ('eth1', 'eth0'), ('neuca-tmp0', 'eth1')]
    """
    waiting = _possible_renames(current, wanted)
    now = dict(current)
    steps: list[Step[Key]] = []
    while waiting:
        in_use = set(now.values())
        key = next((key for key, name in waiting.items() if name not in in_use), None)
        if key is None:
            key = next(iter(waiting))
            temporary = (f"{TEMPORARY}{number}" for number in range(len(now) + 1))
            target = next(name for name in temporary if name not in in_use)
        else:
            target = waiting.pop(key)
        steps.append(Step(key, now[key], target))
        now[key] = target
    return steps


def _possible_renames(current: Mapping[Key, str], wanted: Mapping[Key, str]) -> dict[Key, str]:
    """The renames whose new name is free, or held by a link that moves away itself."""
    waiting = {key: name for key, name in wanted.items() if key in current and current[key] != name}
    while True:
        kept = {name for key, name in current.items() if key not in waiting}
        possible = {key: name for key, name in waiting.items() if name not in kept}
        if len(possible) == len(waiting):
            return possible
        waiting = possible
