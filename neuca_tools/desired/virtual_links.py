"""The virtual links that can be created, and why the others cannot.

A present virtual link that is requested and cannot be created as requested is left as it is, until
no complete document requests it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from typing import Optional

from neuca_tools.desired.roles import Scene
from neuca_tools.desired.routes import Networks
from neuca_tools.desired.routing_tables import VRF, TablesInUse, vrf_table
from neuca_tools.desired.safety import mac_reason, protected_mac
from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.stacking import all_lower_devices
from neuca_tools.model import (
    Address,
    Device,
    Link,
    LinkKey,
    LinkRequest,
    Problem,
    Record,
    Virtual,
    World,
)
from neuca_tools.model.provenance import ADMINISTRATOR, route_provenance, without_guesses
from neuca_tools.model.topology import routes_through


class VirtualLinks:
    """The virtual links that can be created, with their lower devices.

    `masters` has the master of each member or port, `barred` the members of those that cannot be
    created.
    """

    def __init__(self, scene: Scene, names: Mapping[LinkKey, str]) -> None:
        """Judge the requested virtual links, lowest first. `names` are the names of the NICs."""
        self.requests, self.world, self.roles, _, self.device_by_link = scene
        self.nic_names, requests = frozenset(names.values()), scene.requests
        # Those that are requested are judged with their requests.
        ours = {self.roles.made.devices.get(key.mac) for key in requests}
        self.macvlan_by_lower: dict[int, str] = {}
        self.device_by_name: dict[str, Device] = {}
        for device in self.world.devices.values():
            if device.kind == "macvlan" and device not in ours:
                self.macvlan_by_lower[device.lower] = f'"{device.name}"'
            self.device_by_name.update(dict.fromkeys((device.name, *device.altnames), device))
        self.networks = Networks(requests)
        # How many requested links have each name; none of several with the same name is made.
        made = [key for key in requests if key.kind == key.virtual_kind]
        self.count_by_name = Counter(key.virtual_name for key in made)
        self.tables = TablesInUse(scene)
        self.links: dict[LinkKey, Virtual] = {}
        self.masters: dict[LinkKey, LinkKey] = {}
        self.barred: dict[LinkKey, LinkKey] = {}
        self.problems: list[Problem] = []
        for key in sorted(made, key=lambda key: key.order):
            self._add(key, requests[key])
        for key in self.masters:
            self.barred.pop(key, None)

    def _add(self, key: LinkKey, request: LinkRequest) -> None:
        if request.state == "user" or self.roles.role(key.mac) == "unlisted":
            return
        if key.mac in self.roles.guard.carriers and not request.origins:
            return
        virtual = request.virtual and self._with_defaults(key, request.virtual)
        problem = self._creation_problem(key, virtual)
        if problem:
            self.problems.append(problem)
            self.barred.update(dict.fromkeys((request.virtual or Virtual()).members, key))
        elif virtual:
            self.links[key] = virtual
            self.masters.update(dict.fromkeys(virtual.members, key))

    def _with_defaults(self, key: LinkKey, virtual: Virtual) -> Virtual:
        """With default options; a VXLAN gets the link through which its addresses are reached."""
        options = {
            **link_kinds.default_options(key.kind, virtual),
            **self._default_mac(key, virtual),
            **dict(virtual.options),
        }
        parent = virtual.parent
        if key.kind == "vxlan" and parent is None:
            ends = (values.host(options[end]) for end in ("local", "remote") if end in options)
            parent = next(filter(None, map(self.networks.link_to, ends)), None)
        return virtual._replace(parent=parent, options=tuple(sorted(options.items())))

    def _default_mac(self, key: LinkKey, virtual: Virtual) -> dict[str, str]:
        """The MAC that it has, for a new one that of the first member, the kernel's default.

        It is set explicitly, since udev may otherwise generate a MAC (systemd.link(5),
        MACAddressPolicy=). A VRF has one of its own. With `fail-over-mac` it follows the active
        member.
        """
        fixed = virtual.option("fail-over-mac") in ("", "none")
        if not virtual.members or not fixed or virtual.option("table"):
            return {}
        first = virtual.members[0]
        its_mac = first.mac
        if first.virtual_kind:
            its_mac = self.links.get(first.nic, Virtual()).option("mac")
        mac = self._present_mac(key) or its_mac
        return {"mac": mac} if mac else {}

    def _present_mac(self, key: LinkKey) -> str:
        """The MAC that it has and keeps, even if that member leaves; empty if there is none.

        It may not keep that of a management or ignored NIC.
        """
        device = self.roles.made.devices.get(key.mac)
        if device is None or protected_mac(device.mac, self.world, self.roles):
            return ""
        return device.mac

    def _creation_problem(self, key: LinkKey, virtual: Optional[Virtual]) -> Optional[Problem]:
        """Why it cannot be created: refused, or absent if none of its lower devices is present."""
        reason = link_kinds.incomplete_reason(key, virtual, self._requested_names)
        if reason or virtual is None:
            return Problem("refused", reason or "", key)
        reason = self._made_of_reason(key, virtual) or self._name_reason(key)
        if reason is None and self._lacks_lower(key, virtual):
            lowers = ", ".join(map(str, virtual.lower))
            return Problem("absent", f"none of its lower devices is present: {lowers}", key)
        reason = reason or self._mac_reason(key, virtual)
        return Problem("refused", reason, key) if reason else None

    @cached_property
    def _requested_names(self) -> dict[LinkKey, str]:
        return {key: request.name for key, request in self.requests.items() if request.name}

    def _lacks_lower(self, key: LinkKey, virtual: Virtual) -> bool:
        """Whether all of its lower devices are absent. A present link goes on without members."""
        if not virtual.lower or (virtual.members and key.mac in self.roles.made.devices):
            return False
        nics = self.roles.nics
        return not any(lower.virtual_kind or lower.mac in nics for lower in virtual.lower)

    def _mac_reason(self, key: LinkKey, virtual: Virtual) -> Optional[str]:
        """Why it may not have its MAC.

        One that is not requested is its own or its first member's, which may have kept that of a
        former member.
        """
        requested = (self.requests[key].virtual or Virtual()).option("mac")
        if requested and requested != self._present_mac(key):
            made_of = all_lower_devices((key.mac,), self.requests)
            return mac_reason(requested, made_of, self.world, self.roles)
        mac = virtual.option("mac")
        return protected_mac(mac, self.world, self.roles) if mac else None

    def _made_of_reason(self, key: LinkKey, virtual: Virtual) -> Optional[str]:
        """Why it may not have its lower devices, members or ports."""
        if key.kind == "vxlan" and virtual.parent is None:
            return "no link has the network of its local or remote address: set its parent"
        wrong = self.tables.reason(key, vrf_table(virtual)) if key.kind == VRF else None
        reasons = (self._lower_reason(key, lower) for lower in virtual.lower)
        return wrong or next(filter(None, reasons), None)

    def _name_reason(self, key: LinkKey) -> Optional[str]:
        name, ours = key.virtual_name, self.roles.made.devices.get(key.mac)
        holder = self.device_by_name.get(name)
        if ours is not None and ours.index in self.roles.guard.devices:
            return f'"{ours.name}" depends on a management or ignored NIC'
        if holder is not None and (ours is None or holder.index != ours.index):
            if holder.kind == key.kind and holder.name == name:
                return f'"{name}" exists and was not created by neucad: it is left alone'
            return f'another interface is named "{name}": it is left alone'
        if name in self.nic_names or self.count_by_name[name] > 1:
            return f'another interface is to be named "{name}"'
        return None

    def _lower_reason(self, key: LinkKey, lower: LinkKey) -> Optional[str]:
        request = self.requests.get(lower)
        reason = self._role_reason(lower)
        if reason is not None:
            return reason
        if request is None:
            return f"{lower} is not requested"
        if lower.virtual_kind and lower.nic not in self.links:
            return f"{lower} cannot be created"
        if request.state in ("down", "user"):
            return f'{lower} is requested to be "{request.state}"'
        if key.kind == "ipoib" and lower.mac in self.roles.nics and not link_kinds.is_ipoib(lower):
            return f"{lower} is not an InfiniBand port"
        return self._member_reason(key, lower)

    def _member_reason(self, key: LinkKey, lower: LinkKey) -> Optional[str]:
        """Why the link may not be its member, or below it, because of another virtual link."""
        if lower in self.masters:
            return f"{lower} is in {self.masters[lower]} already"
        if lower not in (self.requests[key].virtual or Virtual()).members or key.kind == VRF:
            return None
        macvlan = self._macvlan_on(lower)
        if not macvlan:
            return None
        return f"{lower} has {macvlan} on top of it, so it cannot be in a bond or bridge"

    def _role_reason(self, lower: LinkKey) -> Optional[str]:
        role, device = self.roles.role(lower.mac), self.roles.links.get(lower.nic)
        if role == "management":
            reason = self.roles.reasons.get(lower.mac, "by its MAC address")
            return f"{lower} is on the management NIC: {reason}"
        if role == "ignored":
            return f"{lower} is ignored"
        if role != "dataplane":
            return f"{lower} is not a dataplane NIC"
        if device is not None and device.index in self.roles.guard.devices:
            return f"{lower} depends on a management or ignored NIC"
        return None

    def _macvlan_on(self, lower: LinkKey) -> str:
        """A macvlan on this link, present or requested; empty if there is none.

        The kernel refuses such a member.
        """
        device = self.device_by_link.get(lower)
        if device and device.index in self.macvlan_by_lower:
            return self.macvlan_by_lower[device.index]
        asked = (key for key, made in self.links.items() if made.parent == lower)
        return next((str(key) for key in asked if key.kind == "macvlan"), "")


def vlan_reason(request: LinkRequest, parent: Link, scene: Scene) -> Optional[str]:
    """Why there can be no such VLAN on its parent; empty or None if there can."""
    key = request.key
    if link_kinds.is_ipoib(key.nic):
        return link_kinds.no_ethernet(key.nic, message_subject(key))
    if parent.master and parent.master.kind == "bond":
        bond = parent.master.virtual_name
        return f'{message_subject(key)} is on a NIC that is in "{bond}": request it there'
    made_of = {key.mac} | all_lower_devices((key.mac,), scene.requests)
    own_mac = (request.virtual or Virtual()).option("mac")
    return mac_reason(own_mac, made_of, scene.world, scene.roles)


def message_subject(key: LinkKey) -> str:
    """The subject of a message about a link, which names the link itself."""
    return "it" if key.vlan_id is None else f"VLAN {key.vlan_id}"


def deletable_links(
    scene: Scene, virtual_links: Optional[VirtualLinks]
) -> tuple[frozenset[LinkKey], list[Problem]]:
    """The links that we created and may delete.

    A link that is requested but refused may not, nor one that somebody added something to. If the
    document is incomplete (`virtual_links` is None), only `copies` may: links with the MAC address
    of a management or ignored NIC.
    """
    owned, requests = scene.record.owned.vlans, scene.requests
    copies = frozenset(key for key in owned & scene.device_by_link.keys() if _is_copy(key, scene))
    kept = links_with_additions(scene, owned)
    if virtual_links is None:
        return copies - kept.keys(), []
    old = [key for key in kept if key not in requests]
    problems = [
        Problem("refused", f"it is no longer requested, but {kept[key]}", key) for key in old
    ]
    # A VLAN on a NIC is judged elsewhere.
    refused = {key for key in requests if key.virtual_kind and key.nic not in virtual_links.links}
    return (copies | owned - refused) - kept.keys(), problems


def _is_copy(key: LinkKey, scene: Scene) -> bool:
    device = scene.device_by_link[key]
    is_free = device.index not in scene.roles.guard.devices
    return is_free and protected_mac(device.mac, scene.world, scene.roles) is not None


def links_with_additions(scene: Scene, keys: Collection[LinkKey]) -> dict[LinkKey, str]:
    """Our links to which somebody else has added something, each with what that is.

    What was added to a link that is still requested counts only if it is another link.
    """
    devices = scene.device_by_link
    ours = {devices[key].index for key in _known_links(scene.record) & devices.keys()}
    above = {}
    for device in scene.world.devices.values():
        if device.index not in ours:
            above[device.lower] = f'"{device.name}" is on top of it'
            above[device.master] = f'somebody put "{device.name}" into it'
    reasons = {}
    for key in sorted({*keys} & devices.keys()):
        reason = above.get(devices[key].index, "")
        if not reason and key not in scene.requests:
            reason = _foreign_addition(key, scene, ours)
        if reason:
            reasons[key] = reason
    return reasons


def _known_links(record: Record) -> set[LinkKey]:
    """Our links, and the NICs that we may have put into them: those that were ever requested."""
    nics = {LinkKey(mac) for mac, nic in record.nics.items() if nic.role}
    return {key for key in nics | record.made.keys() if not key.rank} | record.owned.vlans


def _foreign_addition(key: LinkKey, scene: Scene, ours: Collection[int]) -> str:
    """What another program or user added to a link that we created; empty if nothing."""
    device, world, record = scene.device_by_link[key], scene.world, scene.record
    master = world.devices.get(device.master)
    if master and master.index not in ours:
        return f'somebody put it into "{master.name}"'
    automatic = world.leased_addresses | world.endless_leases | world.autoconfigured
    for address in world.addresses.get(device.index, ()):
        if address.is_link_local or (device.index, address) in automatic:
            continue
        if (key, address) not in record.owned.addresses:
            return f"somebody added the address {address} to it"
    certain = without_guesses(world)
    for route in routes_through(world, [device.index]):
        if route_provenance(route, certain) == ADMINISTRATOR:
            return f"somebody added the route to {route.to} to it"
    return ""


# --- Removal --------------------------------------------------------------------------------------


def remaining_scene(scene: Scene, trusted: Optional[Collection[LinkKey]]) -> Scene:
    """The scene as others find it once a pass has removed what is ours and not requested any more.

    What stands in the way of a request can be removed in the same pass: removal comes first. An
    incomplete document removes addresses of the `trusted` links, and nothing else.
    """
    gone: dict[int, Device] = {}
    if trusted is None:
        old = scene.record.owned.vlans - scene.requests.keys()
        old -= links_with_additions(scene, old).keys() if old else set()
        devices = scene.device_by_link
        gone = {devices[key].index: devices[key] for key in old & devices.keys()}
    removed = _removed_addresses(scene, gone, trusted)
    if gone or removed:
        return scene._replace(world=_world_without(gone, removed, scene.world))
    return scene


def _world_without(
    gone: Mapping[int, Device], removed: Collection[tuple[int, Address]], world: World
) -> World:
    # A VRF loses the routes of its members with its table; no other link has one.
    tables = {vrf_table(Virtual(options=device.options)) for device in gone.values()}
    routes = (route for route in world.other_routes if route.traits.table not in tables)
    return replace(
        world,
        devices={index: device for index, device in world.devices.items() if index not in gone},
        addresses={
            index: tuple(address for address in present if (index, address) not in removed)
            for index, present in world.addresses.items()
        },
        other_routes=tuple(routes),
    )


def _removed_addresses(
    scene: Scene, gone: Iterable[int], trusted: Optional[Collection[LinkKey]]
) -> set[tuple[int, Address]]:
    """Our addresses, with device indexes, that are not requested, or on links that are `gone`."""
    requests, devices = scene.requests, scene.device_by_link
    if trusted is not None:
        devices = {key: devices[key] for key in devices.keys() & trusted}
    asked = {(key, address) for key in requests for address in requests[key].addresses}
    stale = scene.record.owned.addresses - asked
    removed = {(devices[key].index, address) for key, address in stale if key in devices}
    return removed.union(*(zip(repeat(at), scene.world.addresses.get(at, ())) for at in gone))
