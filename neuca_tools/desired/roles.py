"""The role of each NIC, and the devices that no pass may write to.

A NIC is management, dataplane, ignored or unlisted. It is identified by its permanent MAC, or by
its current MAC if the driver reports no permanent one. It must have no master, and must have a
parent device or be a veth or a tap. If several match, only one configured since the boot is meant.
"""

# SPDX-License-Identifier: MIT

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Optional

from neuca_tools.desired.management import NO_CHOICE, ManagementChoice, ManagementChooser
from neuca_tools.desired.management_vlans import management_ids
from neuca_tools.desired.policy import NOTHING, PlatformClaims, Policy
from neuca_tools.model import Device, LinkKey, Problem, Record, Requests, Role, World
from neuca_tools.model.links import KINDS
from neuca_tools.model.ports import short_guid
from neuca_tools.model.topology import identity, key_of, mac_in_key, nics_in, with_upper_devices

EMPTY = Record()


class Guard(NamedTuple):
    """What must not be changed.

    `management` are the indexes of management devices; `devices` are those of all protected ones,
    which are these, the ignored ones, and the upper and lower devices of both. `ignored` are the
    MACs to ignore, present or not. `vlans` maps management NICs, and bonds and bridges of other
    programs on them (`carriers`), to the IDs of the VLANs that are for management too; other VLANs
    on them can be dataplane links.
    """

    devices: frozenset[int] = frozenset()
    management: frozenset[int] = frozenset()
    ignored: frozenset[str] = frozenset()
    vlans: Mapping[str, frozenset[int]] = {}
    carriers: Mapping[str, Device] = {}


class Dhcp(NamedTuple):
    """What does DHCP on links (`dhcp_clients`); NICs without a client are `left_to_others`."""

    clients: Mapping[LinkKey, str] = {}
    left_to_others: frozenset[str] = frozenset()

    def links_of(self, clients: Collection[str]) -> frozenset[LinkKey]:
        """The links on which one of these clients does DHCP for us."""
        return frozenset(key for key, client in self.clients.items() if client in clients)


class Made(NamedTuple):
    """The virtual links that we created.

    `devices` are those on this host by `KIND NAME`, `indexes` the indexes of all of them, VLANs
    included. `roles` has the role of each virtual link that is requested.
    """

    devices: Mapping[str, Device] = {}
    roles: Mapping[str, Role] = {}
    indexes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Roles:
    """The role of every NIC, by MAC, with the reasons.

    `nics` are free and have a MAC of their own; `twins` have a master or share a MAC. The
    `waiting_nics` are unlisted for now although a document names them (see `merge`); network
    managers are also kept off those that are `marked_early`.
    """

    nics: Mapping[str, Device] = field(default_factory=dict)
    twins: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    by_mac: Mapping[str, Role] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    choice: ManagementChoice = NO_CHOICE
    waiting_nics: frozenset[str] = frozenset()
    marked_early: frozenset[str] = frozenset()
    guard: Guard = field(default_factory=Guard)
    dhcp: Dhcp = field(default_factory=Dhcp)
    made: Made = field(default_factory=Made)
    problems: tuple[Problem, ...] = ()

    @cached_property
    def links(self) -> Mapping[LinkKey, Device]:
        """The devices that VLANs can be created on: free NICs, our virtual links, and carriers."""
        every = {**self.nics, **self.made.devices, **self.guard.carriers}
        return {LinkKey(mac): device for mac, device in every.items()}

    @cached_property
    def macs(self) -> Mapping[int, str]:
        """The MAC, or kind and name, of each of these devices, by its index."""
        return {device.index: key.mac for key, device in self.links.items()}

    def role(self, mac: str) -> Role:
        return self.by_mac.get(mac) or self.made.roles.get(mac, "unlisted")

    def role_of(self, key: LinkKey) -> Role:
        """The role of a link: that of its NIC, unless only other VLANs on it are for management."""
        if key.vlan_id is not None and key.mac in self.guard.vlans:
            return "management" if key.vlan_id in self.guard.vlans[key.mac] else "dataplane"
        return self.role(key.mac)

    def reason_of(self, key: LinkKey) -> str:
        """Why the link has its role; empty if nothing particular gives it."""
        if self.role_of(key) != self.role(key.mac):
            if 0 in self.guard.vlans[key.mac]:
                return "a VLAN changes nothing of the management link that it is on"
            return "only another VLAN of its NIC is for management"
        return self.reasons.get(key.mac, "")

    def name(self, mac: str) -> str:
        """The name of the NIC with this MAC; of several the first by name; empty for none."""
        if mac in self.nics:
            return self.nics[mac].name
        return min((device.name for device in self.twins.get(mac, ())), default="")


class Scene(NamedTuple):
    """What links are resolved from. `device_by_link` has each link that is present."""

    requests: Requests
    world: World
    roles: Roles
    record: Record
    device_by_link: Mapping[LinkKey, Device]


def _created_links(world: World, record: Record) -> tuple[frozenset[int], dict[str, Device]]:
    """What we created in this boot, by the record, not by MAC.

    The indexes of all virtual links, VLANs included, and the others by "KIND NAME".
    """
    owned = record.owned.vlans
    if record.boot_id != world.boot_id or not owned:
        return frozenset(), {}
    keys = ((key_of(device, world), device) for device in world.devices.values())
    ours = [(key, device) for key, device in keys if key in owned]
    stacked = {key.mac: device for key, device in ours if key.virtual_kind and key == key.nic}
    return frozenset(device.index for _, device in ours), stacked


def find_nics(
    world: World, named: Collection[str], ours: Collection[int] = (), record: Record = EMPTY
) -> tuple[dict[str, Device], list[Problem]]:
    """Every free NIC with a MAC of its own, by MAC; and a problem for each other NIC that is named.

    A NIC is free if it has no master, or if its master is one of `ours`, the devices that we
    created. Of several NICs with a MAC, the one that is configured already is meant: a virtual
    function appears beside it before its master is set.
    """
    configured = _configured_nics(world, record)
    candidates: dict[str, list[Device]] = defaultdict(list)
    held: dict[str, Device] = {}
    for device in nics_in(world):
        if (device.master or device.slave) and device.master not in ours:
            held[identity(device)] = device
        else:
            candidates[identity(device)].append(device)
    known = {
        mac: device
        for mac, devices in candidates.items()
        for device in devices
        if len(devices) == 1 or (mac, device.index) in configured
    }
    problems = (
        _nic_problem(mac, known.get(mac), candidates.get(mac, []), held.get(mac), world)
        for mac in sorted(named)
    )
    return known, [*filter(None, problems)]


def _nic_problem(
    mac: str, nic: Optional[Device], free: list[Device], held: Optional[Device], world: World
) -> Optional[Problem]:
    """What is wrong with a NIC that is named, out of the `free` devices with its MAC."""
    names = ", ".join(sorted(device.name for device in free if device is not nic))
    if nic and not names:
        return None
    if nic:
        text = f'another device has the MAC of "{nic.name}" too, and is left alone: {names}'
    elif names:
        text = f'{len(free)} devices have the MAC "{mac}" ({names}): they are left alone'
    elif held:
        master = world.devices.get(held.master)
        holder = f'"{master.name}"' if master else "another device"
        text = f'"{held.name}" belongs to {holder}: it is left alone'
    else:
        return _absent_problem(mac, world)
    return Problem("contested", text, LinkKey(mac))


def _configured_nics(world: World, record: Record) -> frozenset[tuple[str, int]]:
    """MAC and index of each NIC that has been configured since the boot."""
    seen = [(mac, nic.incarnation) for mac, nic in record.nics.items() if nic.applied]
    return frozenset((mac, at.ifindex) for mac, at in seen if at and at.boot_id == world.boot_id)


def _twin_nics(world: World, nics: Mapping[str, Device]) -> dict[str, tuple[Device, ...]]:
    """All other NICs, by MAC."""
    twins: dict[str, tuple[Device, ...]] = {}
    for device in nics_in(world):
        mac = identity(device)
        if nics.get(mac) is not device:
            twins[mac] = (*twins.get(mac, ()), device)
    return twins


def _absent_problem(mac: str, world: World) -> Problem:
    key = LinkKey(mac)
    ports = [device.name for device in nics_in(world) if short_guid(identity(device)) == mac]
    if len(ports) > 1:
        names = ", ".join(sorted(ports))
        text = f'"{mac}" may be any of {len(ports)} InfiniBand ports ({names}): they are left alone'
        return Problem("contested", f"{text}; their GUIDs tell them apart", key)
    return Problem("absent", f'no NIC has the MAC "{mac}"', key)


def assign_roles(
    world: World,
    named: Collection[str],
    policy: Policy,
    record: Record,
    claims: PlatformClaims = NOTHING,
) -> Roles:
    """Give every NIC its role; recorded ones stay, unless `[network] management-macs` is set."""
    ours, stacked = _created_links(world, record)
    ignored = policy.ignored | record.released
    named = {mac for mac in named if not LinkKey(mac).virtual_kind}
    choice = ManagementChooser(world, policy, record, claims).outcome()
    ports = {identity(device) for device in world.devices.values() if device.master}
    free = named - ignored - choice.by_document_only - (ports & choice.reason_by_mac.keys())
    nics, problems = find_nics(world, free, {device.index for device in stacked.values()}, record)
    roles = _by_mac(world, named, ignored, choice.reason_by_mac, ours)
    managing = {mac for mac, role in roles.items() if role == "management"}
    wanted = claims.vlans | _made_beside(record)
    vlans, management = management_ids(
        world, _device_indexes(world, managing, ours, vlans=False), ours, wanted
    )
    if not named:
        # Before any document is known, every default route but one is in question.
        choice = choice._replace(by_document_only=choice.by_document_only | choice.not_chosen)
    return Roles(
        nics,
        _twin_nics(world, nics),
        roles,
        choice.reason_by_mac,
        choice,
        guard=Guard(
            management | with_upper_devices(world, _device_indexes(world, ignored, ours)),
            management,
            ignored,
            vlans,
            _foreign_carriers(world, management - ours, vlans),
        ),
        made=Made(stacked, indexes=ours),
        problems=tuple(problems),
    )


def _made_beside(record: Record) -> set[LinkKey]:
    """The VLANs that we have made on links that were not dataplane links."""
    dataplane = record.macs_of("dataplane")
    return {key for key in record.owned.vlans if key.mac not in dataplane}


def _foreign_carriers(
    world: World, management: Collection[int], vlans: Collection[str]
) -> dict[str, Device]:
    """The bonds and bridges of other programs that VLANs can be created on."""
    devices = (world.devices[index] for index in management)
    carriers = {mac_in_key(device): device for device in devices if device.kind in KINDS}
    return {mac: carriers[mac] for mac in carriers.keys() & vlans}


def _by_mac(
    world: World,
    named: Collection[str],
    ignored: Collection[str],
    reasons: Collection[str],
    ours: Collection[int],
) -> dict[str, Role]:
    """The role of every NIC that is present, and of every MAC that is named or has a reason."""
    known = {identity(device): device for device in nics_in(world)}
    present = {mac: own_mac(device, ours) for mac, device in known.items()}
    roles: dict[str, Role] = {}
    barred, chosen = {*ignored}, {*reasons}
    for mac in sorted({*known, *named, *reasons}):
        both = {mac, present.get(mac, mac)}
        if both & barred:
            roles[mac] = "ignored"
        elif both & chosen:
            roles[mac] = "management"
        else:
            roles[mac] = "dataplane" if mac in named else "unlisted"
    # A document may name a NIC by its current MAC.
    for mac, own in present.items():
        if own in named and roles[mac] in ("ignored", "management"):
            roles[own] = roles[mac]
    return roles


def own_mac(device: Device, ours: Collection[int]) -> str:
    """The current MAC, but the permanent one of a member of our bonds, which have the bond's."""
    return identity(device) if device.master in ours else device.mac


def _device_indexes(
    world: World, macs: Collection[str], ours: Collection[int], vlans: bool = True
) -> frozenset[int]:
    """The indexes of devices with one of these MACs, permanent or current, that we did not create.

    `vlans` False: a VLAN belongs to its lower device, whatever its own MAC is.
    """
    return frozenset(
        device.index
        for device in world.devices.values()
        if (device.permanent_mac in macs or own_mac(device, ours) in macs)
        and device.index not in ours
        and (vlans or device.kind != "vlan" or device.lower not in world.devices)
    )


def find_links(world: World, roles: Roles) -> dict[LinkKey, Device]:
    """The device of each key: free NICs, our virtual links on them, and every VLAN on either."""
    device_by_link, macs = dict(roles.links), roles.macs
    for device in world.devices.values():
        if device.kind == "vlan" and device.vlan_id is not None and device.lower in macs:
            device_by_link[LinkKey(macs[device.lower], device.vlan_id)] = device
    return device_by_link
