"""Which bonds, bridges, VXLANs and macvlans can be made, of what, and why the others cannot.

One that is asked for and cannot be made is left as it is: what is there stays until no complete document asks for it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from neuca_tools.desired.roles import Roles, find_links
from neuca_tools.desired.routes import Networks
from neuca_tools.desired.safety import mac_reason, protected_mac
from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.stacking import carriers
from neuca_tools.model import Device, LinkKey, LinkRequest, Problem, Record, Virtual, World


@dataclass(frozen=True)
class Stacks:
    """`links` can be made, and of this; `masters` says which bond or bridge a link is to be in."""

    links: Mapping[LinkKey, Virtual] = field(default_factory=dict)
    masters: Mapping[LinkKey, LinkKey] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def judge(
    requests: Mapping[LinkKey, LinkRequest],
    world: World,
    roles: Roles,
    names: Mapping[LinkKey, str],
) -> Stacks:
    """Go through them, the lowest first. `names` are those of the NICs."""
    judge_ = _Judge(requests, world, roles, frozenset(names.values()))
    for key in sorted((key for key in requests if key.kind == key.made), key=lambda key: key.order):
        judge_.take(key, requests[key])
    return Stacks(judge_.links, judge_.masters, tuple(judge_.problems))


class _Judge:
    def __init__(
        self,
        requests: Mapping[LinkKey, LinkRequest],
        world: World,
        roles: Roles,
        taken: frozenset[str],
    ) -> None:
        self.requests, self.world, self.roles, self.taken = requests, world, roles, taken
        self.found = find_links(world, roles)
        ours = {device.index for device in roles.stacked.values()}
        self.macvlans = {
            device.lower: f'"{device.name}"'
            for device in world.devices.values()
            if device.kind == "macvlan" and device.index not in ours
        }
        self.networks = Networks({key: request.addresses for key, request in requests.items()})
        self.holders = {
            name: device
            for device in world.devices.values()
            for name in (device.name, *device.altnames)
        }
        self.links: dict[LinkKey, Virtual] = {}
        self.masters: dict[LinkKey, LinkKey] = {}
        self.problems: list[Problem] = []

    def take(self, key: LinkKey, request: LinkRequest) -> None:
        """Make it one of those that can be, or say why not."""
        if request.state == "user" or self.roles.role(key.mac) == "unlisted":
            return
        virtual = request.virtual and self._whole(key, request.virtual)
        found = self._reason(key, virtual)
        if found:
            self.problems.append(
                Problem("absent" if found.startswith("none of") else "refused", found, key)
            )
        elif virtual:
            self.links[key] = virtual
            self.masters.update(dict.fromkeys(virtual.members, key))

    def _whole(self, key: LinkKey, virtual: Virtual) -> Virtual:
        """With what is the default, and a VXLAN with the link that its ends are reached through."""
        options = {**link_kinds.DEFAULTS[key.kind], **self._mac(virtual), **dict(virtual.options)}
        parent = virtual.parent
        for end in ("local", "remote") if key.kind == "vxlan" else ():
            parent = parent or (
                self.networks.link(values.host(options[end])) if end in options else None
            )
        return replace(virtual, parent=parent, options=tuple(sorted(options.items())))

    def _mac(self, virtual: Virtual) -> dict[str, str]:
        """The MAC of its first member: what the kernel gives a bond, unless udev is faster to make one up (systemd.link(5)).

        With `fail-over-mac` it is that of the member in use.
        """
        first = next(iter(virtual.members), None)
        below = self.links.get(first.nic) if first else None
        mac = below.option("mac") if below else first.mac if first and not first.made else ""
        return {"mac": mac} if mac and virtual.option("fail-over-mac") in ("", "none") else {}

    def _reason(self, key: LinkKey, virtual: Optional[Virtual]) -> Optional[str]:
        wrong = link_kinds.fault(key, virtual)
        if wrong or virtual is None:
            return wrong or "no text says what it is made of"
        if key.kind == "vxlan" and virtual.parent is None:
            return "no link here has the network of its local or remote address: say which parent it is on"
        forbidden = next(
            filter(None, (self._forbidden(key, lower) for lower in virtual.lower)), None
        )
        there = [lower for lower in virtual.lower if self._is_there(lower)]
        if forbidden or (virtual.lower and not there):
            return (
                forbidden
                or f"none of what it is made of is there: {', '.join(map(str, virtual.lower))}"
            )
        made_of = carriers((key.mac,), self.requests)
        copied = mac_reason(virtual.option("mac"), made_of, self.world, self.roles)
        if copied:
            return copied
        holder, ours = self.holders.get(key.given_name), self.roles.stacked.get(key.mac)
        if holder is None or (ours is not None and holder.index == ours.index):
            wanted = key.given_name in self.taken
            return f'another interface is to be called "{key.given_name}"' if wanted else None
        return f'another interface is called "{key.given_name}": it is not touched'

    def _forbidden(self, key: LinkKey, lower: LinkKey) -> Optional[str]:
        """Why it may not be made of this one."""
        role, request = self.roles.role(lower.mac), self.requests.get(lower)
        device = self.roles.device(lower.mac)
        if role == "management":
            return f"{lower} is on the management NIC: {self.roles.reasons.get(lower.mac, 'its MAC says so')}"
        if role != "dataplane":
            return f"{lower} is {'to be ignored' if role == 'ignored' else 'no dataplane NIC'}"
        if device is not None and device.index in self.roles.protected:
            return f"{lower} is tied to a management or ignored NIC"
        if request is None or (lower.made and lower.nic not in self.links):
            return f"{lower} is not asked for" if request is None else f"{lower} cannot be made"
        if request.state in ("down", "user"):
            return f'{lower} is asked to be "{request.state}"'
        other = self.masters.get(lower)
        if other or lower not in request_members(self.requests[key]):
            return f"{lower} is in {other} already" if other else None
        on_it = self.macvlans.get(self.found[lower].index) if lower in self.found else None
        asked = next(
            (
                key
                for key, made in self.links.items()
                if key.kind == "macvlan" and made.parent == lower
            ),
            None,
        )
        return (
            f"{lower} has {on_it or asked} on it: it can be in no bond or bridge"
            if on_it or asked
            else None
        )

    def _is_there(self, lower: LinkKey) -> bool:
        return bool(lower.made) or lower.mac in self.roles.nics


def request_members(request: LinkRequest) -> tuple[LinkKey, ...]:
    return request.virtual.members if request.virtual else ()


def deletable(
    requests: Mapping[LinkKey, LinkRequest],
    world: World,
    roles: Roles,
    record: Record,
    stacks: Optional[Stacks],
) -> tuple[frozenset[LinkKey], list[Problem]]:
    """What we made, unless it is asked for and cannot be made, or a foreign link is on it.

    `stacks` None: the document is incomplete. Then only links with a MAC address that is refused are
    deleted.
    """
    found, owned = find_links(world, roles), record.owned.vlans
    known = {key for key in found if not key.rank and key.mac in record.nics}
    ours = {found[key].index for key in found if key in owned | known}
    copies = _copies(requests, world, roles, record)
    free, problems = set(), []
    for key in sorted(owned | copies):
        holder = foreign_on(found[key], world, ours) if key in found else None
        if holder and key not in requests and stacks:
            text = f'it is no longer asked for, but "{holder.name}" is stacked on it'
            problems.append(Problem("refused", text, key))
        elif not holder and (key in copies or (stacks and not _is_refused(key, requests, stacks))):
            free.add(key)
    return frozenset(free), problems


def _is_refused(key: LinkKey, requests: Mapping[LinkKey, LinkRequest], stacks: Stacks) -> bool:
    """Whether it is asked for and cannot be made; a VLAN on a NIC is judged elsewhere."""
    return bool(key.made) and key in requests and key.nic not in stacks.links


def _copies(
    requests: Mapping[LinkKey, LinkRequest], world: World, roles: Roles, record: Record
) -> frozenset[LinkKey]:
    """What we made with the MAC address of a management or ignored NIC, as versions up to 2.0 did.

    They did not remember such a VLAN. It is ours if the document asks for exactly that VLAN.
    """
    copies = set()
    for key, device in find_links(world, roles).items():
        virtual = requests[key].virtual if key in requests else None
        asked = virtual is not None and virtual.option("mac") == device.mac
        free = key.rank and device.index not in roles.protected
        if free and (asked or key in record.owned.vlans):
            copies |= {key} if protected_mac(device.mac, world, roles) else set()
    return frozenset(copies)


def foreign_on(device: Device, world: World, ours: Collection[int]) -> Optional[Device]:
    """A device that is on this one, or in it, and that is none of `ours`."""
    return next(
        (
            one
            for one in world.devices.values()
            if device.index in (one.lower, one.master) and one.index not in ours
        ),
        None,
    )
