"""Which NIC is which: management, dataplane, ignored or unlisted, and what no pass may ever write to.

The rule for identity (vm-tested): a NIC is a candidate for a MAC if it has that permanent MAC (its current one where the
driver reports none), no master, and a parent device, or is a veth or a tap. None or several candidates: hands off.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Optional

from neuca_tools.model import Device, LinkKey, Problem, Record, Role, Route, World
from neuca_tools.model.topology import (
    above,
    automatic,
    base,
    below,
    best_default_routes,
    identity,
    is_nic,
)


@dataclass(frozen=True)
class Policy:
    """The administrator's word on roles: MACs to ignore, and MACs that are management whatever is seen."""

    ignored: frozenset[str] = frozenset()
    management: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Roles:
    """The outcome. `nics` are free and unique; `twins` are the other NICs: with a master, or one MAC with another NIC.

    `protected` and `management` are device indexes, with all that is stacked on or below them. `doubtful` are NICs that are
    management for automatic default routes alone, with their families (4, 6); `declared` those for a document's word alone.
    `held` are unlisted for now, though a document names them (see `layers`); managers are kept off those that are `ahead` too.
    `stacked` are the bonds and their like that we made and that are there (`bond bond0`), `stacked_roles` the roles of all that
    are asked for. `ours`: device indexes of the virtual links that we made, VLANs included.
    `hands_off`: the MACs to ignore, there or not.
    """

    nics: Mapping[str, Device] = field(default_factory=dict)
    twins: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    by_mac: Mapping[str, Role] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    protected: frozenset[int] = frozenset()
    management: frozenset[int] = frozenset()
    problems: tuple[Problem, ...] = ()
    doubtful: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    ahead: frozenset[str] = frozenset()
    stacked: Mapping[str, Device] = field(default_factory=dict)
    stacked_roles: Mapping[str, Role] = field(default_factory=dict)
    ours: frozenset[int] = frozenset()
    hands_off: frozenset[str] = frozenset()

    def role(self, mac: str) -> Role:
        return self.by_mac.get(mac) or self.stacked_roles.get(mac, "unlisted")

    def device(self, mac: str) -> Optional[Device]:
        """The NIC, or what we made, that VLANs can be on."""
        return self.nics.get(mac) or self.stacked.get(mac)

    def name(self, mac: str) -> str:
        """The name that the NIC with this MAC has; of several the first one's, empty for none."""
        devices = (self.nics[mac],) if mac in self.nics else self.twins.get(mac, ())
        return min((device.name for device in devices), default="")


def made(world: World, record: Record) -> dict[str, Device]:
    """The bonds and their like that are there, and that we made since the boot."""
    ours = (
        {key.mac for key in record.owned.vlans if key.made}
        if record.boot_id == world.boot_id
        else set()
    )
    return {base(device): device for device in world.devices.values() if base(device) in ours}


def made_indexes(world: World, record: Record) -> frozenset[int]:
    """The virtual links that we made since the boot, VLANs included: by the record, not by MAC."""
    owned = record.owned.vlans if record.boot_id == world.boot_id else ()
    return frozenset(
        device.index for device in world.devices.values() if _made_key(device, world) in owned
    )


def _made_key(device: Device, world: World) -> LinkKey:
    lower = device if device.vlan_id is None else world.devices.get(device.lower, device)
    return LinkKey(base(lower), device.vlan_id)


def find_nics(
    world: World, named: Collection[str], ours: Collection[int] = ()
) -> tuple[dict[str, Device], list[Problem]]:
    """Every NIC that is free and unique, by MAC; a problem for each named one that is not.

    `ours` are the devices that we made: a NIC in a bond of ours is as free as one in none.
    """
    candidates: dict[str, list[Device]] = defaultdict(list)
    held: dict[str, Device] = {}
    for device in world.devices.values():
        if is_nic(device) and (device.master or device.slave) and device.master not in ours:
            held[identity(device)] = device
        elif is_nic(device):
            candidates[identity(device)].append(device)
    problems = [
        _unusable(mac, candidates.get(mac, []), held.get(mac), world) for mac in sorted(named)
    ]
    unique = {mac: devices[0] for mac, devices in candidates.items() if len(devices) == 1}
    return unique, [problem for problem in problems if problem]


def _twins(world: World, nics: Mapping[str, Device]) -> dict[str, tuple[Device, ...]]:
    """Every NIC but these, by MAC."""
    found: dict[str, tuple[Device, ...]] = {}
    for device in world.devices.values():
        if is_nic(device) and nics.get(identity(device)) is not device:
            found[identity(device)] = (*found.get(identity(device), ()), device)
    return found


def _unusable(
    mac: str, found: list[Device], held: Optional[Device], world: World
) -> Optional[Problem]:
    key = LinkKey(mac)
    if len(found) > 1:
        names = ", ".join(sorted(device.name for device in found))
        return Problem(
            "contested",
            f'{len(found)} devices have the MAC "{mac}" ({names}): none is touched',
            key,
        )
    if not found and held:
        master = world.devices.get(held.master)
        holder = f'"{master.name}"' if master else "another device"
        return Problem("contested", f'"{held.name}" belongs to {holder}: it is not touched', key)
    if not found:
        return Problem("absent", f'no NIC has the MAC "{mac}"', key)
    return None


def assign(
    world: World,
    named: Collection[str],
    policy: Policy,
    record: Record,
    declared: Mapping[str, str] = MappingProxyType({}),
) -> Roles:
    """Give every NIC its role.

    The management role is recorded and sticky. A NIC that is recorded as dataplane does not lose that to a default route that
    somebody adds; with `[network] management-macs` the record of other management NICs is not consulted. `declared` has the
    NICs that are management for a reason outside this host: what is seen goes before it, and it is not recorded.
    """
    ours = made_indexes(world, record)
    record = _without_false_management(record, world, ours)
    ignored = policy.ignored | {mac for mac, nic in record.nics.items() if nic.released}
    named = {mac for mac in named if not LinkKey(mac).made}
    stacked = made(world, record)
    nics, problems = find_nics(
        world, named - ignored, {device.index for device in stacked.values()}
    )
    seen, doubtful = _management(world, policy, record)
    declared = {mac: reason for mac, reason in declared.items() if not LinkKey(mac).made}
    reasons = {**declared, **seen}
    roles = _by_mac(world, named, ignored, reasons, ours)
    management = _indexes(
        world, {mac for mac, role in roles.items() if role == "management"}, ours, vlans=False
    )
    hands_off = _indexes(world, ignored, ours)
    return Roles(
        nics,
        _twins(world, nics),
        roles,
        reasons,
        above(world, management | hands_off),
        above(world, management),
        tuple(problems),
        doubtful,
        frozenset(declared.keys() - seen.keys()),
        stacked=stacked,
        ours=ours,
        hands_off=ignored,
    )


def _by_mac(
    world: World,
    named: Collection[str],
    ignored: Collection[str],
    reasons: Collection[str],
    ours: Collection[int],
) -> dict[str, Role]:
    """The role of every NIC that is there, and of every MAC that is named or has a reason."""
    known = {identity(device): device for device in world.devices.values() if is_nic(device)}
    roles: dict[str, Role] = {}
    for mac in sorted({*known, *named, *reasons}):
        both = {mac, _own_mac(known[mac], ours) if mac in known else mac}
        if both & {*ignored}:
            roles[mac] = "ignored"
        elif both & {*reasons}:
            roles[mac] = "management"
        else:
            roles[mac] = "dataplane" if mac in named else "unlisted"
    for mac, device in known.items():  # a document may name it by the MAC that it has now
        if _own_mac(device, ours) in named and roles[mac] in ("ignored", "management"):
            roles[_own_mac(device, ours)] = roles[mac]
    return roles


def _own_mac(device: Device, ours: Collection[int]) -> str:
    """The MAC that it has of its own: a member of a bond of ours currently has the bond's."""
    return identity(device) if device.master in ours else device.mac


def _without_false_management(record: Record, world: World, ours: Collection[int]) -> Record:
    """The record, without the management role of NICs that are members of a link of ours.

    Only dataplane NICs become members. Versions up to 2.0 recorded the role for members of a bond
    that had the MAC address of the management NIC.
    """
    members = {
        identity(device) for device in world.devices.values() if device.master in ours
    } & record.nics.keys()
    false = {mac for mac in members if record.nics[mac].role == "management"}
    nics = {mac: replace(record.nics[mac], role="dataplane", doubtful=()) for mac in false}
    return replace(record, nics={**record.nics, **nics}) if false else record


def _management(
    world: World, policy: Policy, record: Record
) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """MAC to reason, for every NIC that is management; and the families of those that are it for automatic routes alone.

    Before a document is known, a network manager gives every NIC that has a DHCP server a default route, and any of them may
    be the best one. While a NIC that is management beyond doubt has a default route of its own, those of its family tell nothing.
    """
    dataplane = {mac for mac, nic in record.nics.items() if nic.role == "dataplane"}
    metadata = _nics(world, [world.metadata_index]) - dataplane
    sure = metadata | policy.management
    best = best_default_routes(world.routes)
    anchored = _anchored(world, sure, record, dataplane)
    decided = [route for route in best if not automatic(route)]
    telling = [route for route in best if not automatic(route) or route.to.version not in anchored]
    carriers = _nics(world, (route.index for route in best)) & (
        sure | _nics(world, (route.index for route in telling))
    )
    reasons: dict[str, str] = {}
    if not policy.management:
        recorded = {
            mac
            for mac, nic in record.nics.items()
            if nic.role == "management" and not _ended(nic.doubtful, anchored)
        }
        reasons.update((mac, "it is recorded as the management NIC") for mac in recorded)
    reasons.update((mac, "it carries the route to the metadata service") for mac in metadata)
    reasons.update((mac, "it carries the default route") for mac in carriers - dataplane)
    reasons.update((mac, "[network] management-macs names it") for mac in policy.management)
    firm = {
        mac for mac, nic in record.nics.items() if nic.role == "management" and not nic.doubtful
    }
    doubtful = frozenset(reasons) - firm - sure - _nics(world, (route.index for route in decided))
    return reasons, {mac: _families(mac, telling, anchored, world, record) for mac in doubtful}


def _anchored(
    world: World, sure: Collection[str], record: Record, dataplane: Collection[str]
) -> set[int]:
    """The families of which automatic default routes tell nothing.

    Those of IPv6 are the word of a router, which any host on the link can be.
    """
    found = {
        route.to.version
        for route in world.routes
        if route.to.prefixlen == 0 and _nics(world, [route.index]) & set(sure)
    }
    return found | ({6} if sure or _other_signs(world, record, dataplane) else set())


def _other_signs(world: World, record: Record, dataplane: Collection[str]) -> bool:
    """Whether something else than a router advertisement shows a management NIC that is there."""
    known = {
        mac for mac, nic in record.nics.items() if nic.role == "management" and not nic.doubtful
    }
    present = {identity(device) for device in world.devices.values() if is_nic(device)}
    meant = (
        route.index
        for route in world.routes
        if route.to.prefixlen == 0 and (route.to.version == 4 or not automatic(route))
    )
    return bool(known & present or _nics(world, meant) - set(dataplane))


def _ended(doubt: Collection[int], anchored: Collection[int]) -> bool:
    """A doubt ends once every family that it came from has an anchor."""
    return bool(doubt) and set(doubt) <= set(anchored)


def _families(
    mac: str, telling: Iterable[Route], anchored: Collection[int], world: World, record: Record
) -> tuple[int, ...]:
    """Those in which the NIC has an automatic default route that tells, or had one when it was recorded."""
    now = {route.to.version for route in telling if mac in _nics(world, [route.index])}
    before = record.nics[mac].doubtful if mac in record.nics else ()
    return tuple(sorted(now | (set(before) - set(anchored))))


def _nics(world: World, indexes: Iterable[int]) -> frozenset[str]:
    """The MACs of the NICs that are among these devices, or carry them."""
    carriers = (world.devices[index] for index in below(world, indexes) if index in world.devices)
    return frozenset(identity(device) for device in carriers if is_nic(device))


def _indexes(
    world: World, macs: Collection[str], ours: Collection[int], vlans: bool = True
) -> frozenset[int]:
    """Every device that somebody else made and that has one of these MACs, permanent or current.

    `vlans` False: a VLAN belongs to its lower device, whatever its own MAC is.
    """
    return frozenset(
        device.index
        for device in world.devices.values()
        if (device.permanent_mac in macs or _own_mac(device, ours) in macs)
        and device.index not in ours
        and (vlans or device.kind != "vlan" or device.lower not in world.devices)
    )


def find_links(world: World, roles: Roles) -> dict[LinkKey, Device]:
    """The devices behind the keys: free NICs, what we made of them, and every VLAN on both."""
    found = {LinkKey(mac): device for mac, device in (*roles.nics.items(), *roles.stacked.items())}
    macs = {device.index: key.mac for key, device in found.items()}
    for device in world.devices.values():
        if device.kind == "vlan" and device.vlan_id is not None and device.lower in macs:
            found[LinkKey(macs[device.lower], device.vlan_id)] = device
    return found
