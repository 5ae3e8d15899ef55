"""What each requested link should be, resolved against what is there; problems are gathered on the way."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Optional

from neuca_tools.desired.device_settings import Wish, flat
from neuca_tools.desired.mtu import LEAST_IPV6_MTU, Sizes
from neuca_tools.desired.names import vlan_name
from neuca_tools.desired.roles import Roles, find_links
from neuca_tools.desired.router_advertisements import quieted
from neuca_tools.desired.safety import Fence, mac_reason
from neuca_tools.desired.virtual_links import deletable, judge
from neuca_tools.documents.stacking import carriers
from neuca_tools.model import (
    OWN,
    Device,
    Link,
    LinkKey,
    LinkRequest,
    Original,
    Problem,
    ProblemCode,
    Record,
    World,
)
from neuca_tools.model.effects import Note
from neuca_tools.tuning import allowed_sysctls as sysctls

IPV6 = "net/ipv6/"
UNMANAGED = {"networkmanager": "unmanaged"}  # networkd has no such call, only its files


class LinkResolver:
    """One resolution under way: it gathers problems while it goes through the requests."""

    def __init__(
        self,
        requests: Mapping[LinkKey, LinkRequest],
        world: World,
        roles: Roles,
        record: Record,
        limits: Fence,
        names: Mapping[LinkKey, str],
        sure: Optional[Collection[LinkKey]],
        rules: sysctls.Judge,
    ) -> None:
        self.requests, self.world, self.roles, self.record = requests, world, roles, record
        self.limits, self.names, self.sure, self.rules = limits, names, sure, rules
        self.problems: list[Problem] = []
        self.notes: list[Note] = []
        self.sysctls: dict[str, str] = {}
        self.vlan_names: dict[LinkKey, str] = {}
        self.given = {name: key for key, name in names.items()}
        self.found_keys = find_links(world, roles)
        self.by_name = {
            name: device
            for device in world.devices.values()
            for name in (*device.altnames, device.name)
        }
        self.sizes = Sizes(requests, world, record, self.found_keys, self.refuse)
        self.stacks = judge(requests, world, roles, names)
        self.problems += self.stacks.problems
        self.given.update((key.given_name, key) for key in self.stacks.links)

    def refuse(self, key: LinkKey, text: str, code: str = "refused") -> None:
        word: ProblemCode = "mtu" if code == "mtu" else "name" if code == "name" else "refused"
        self.problems.append(Problem(word, text, key))

    def links(self) -> dict[LinkKey, Link]:
        """Every wanted link, what is below first."""
        links: dict[LinkKey, Link] = {}
        for key in sorted(self.requests, key=lambda key: key.order):
            if not (self._may_make(key, links) if key.made else self._may_write(key)):
                continue
            make = self._vlan if key.vlan_id is not None else self._made if key.made else self._nic
            link = make(self.requests[key], links)
            if link is not None:
                master = self.stacks.masters.get(key)
                links[key] = self._put_into(master, link) if master else link
        return links

    def _may_make(self, key: LinkKey, links: Mapping[LinkKey, Link]) -> bool:
        """Whether this is a bond or its like that can be made, or a VLAN on one; `stacks` has said why not."""
        if key.vlan_id is not None and key.nic not in links:
            self.refuse(key, f"{_subject(key)} is on {key.nic}, which cannot be used")
        found = self.roles.stacked.get(key.mac)
        if key.vlan_id is None and found and self.requests[key].state == "user":
            return found.index not in self.roles.protected
        return key.nic in links if key.vlan_id is not None else key in self.stacks.links

    def _put_into(self, master: LinkKey, link: Link) -> Link:
        """A member: addresses are its master's, and a bond sets the MTU too."""
        for address in link.addresses:
            self.refuse(
                link.key, f'address {address}: it is in "{master.given_name}", which can have it'
            )
        return replace(
            link, master=master, addresses=(), mtu=None if master.kind == "bond" else link.mtu
        )

    def _may_write(self, key: LinkKey) -> bool:
        """Whether this is a dataplane NIC that is there, free and unprotected, or a VLAN on one."""
        role, device = self.roles.role(key.mac), self.roles.nics.get(key.mac)
        if role == "management":
            text = f"{_subject(key)} is on the management NIC: {self.roles.reasons.get(key.mac, 'its MAC says so')}"
            # In doubt, any change of a link may matter: the NIC that is management beyond doubt has no default route yet.
            self.problems.append(
                Problem("contested" if key.mac in self.roles.doubtful else "refused", text, key)
            )
        elif role == "ignored" and key.vlan_id is None:
            nic = self.record.nics.get(key.mac)
            released = nic is not None and nic.released
            text = "it was released" if released else "it is on the list of NICs to ignore"
            self.problems.append(Problem("ignored", text, key))
        elif role == "dataplane" and device and device.index in self.roles.protected:
            self.refuse(key, f"{_subject(key)} is tied to a management or ignored NIC")
        else:
            return role == "dataplane" and device is not None
        return False

    def _nic(self, request: LinkRequest, _: Mapping[LinkKey, Link]) -> Link:
        device = self.roles.nics[request.key.mac]
        name = self.names[request.key]
        if request.state == "user":
            return self._hands_off(
                request.key, Link(request.key, "physical", "dataplane", name, device.index), device
            )
        mtu = self.sizes.nic(request.key, request.mtu or self._before(request.key).mtu, device)
        link = Link(
            request.key, "physical", "dataplane", name, device.index, mtu=mtu, managers=UNMANAGED
        )
        return self._common(request, link, mtu or device.mtu)

    def _hands_off(self, key: LinkKey, link: Link, device: Device) -> Link:
        """State `user`: nothing but what puts back our own earlier changes."""
        before = self._before(key)
        return replace(
            link,
            state="user",
            mtu=self.sizes.nic(key, before.mtu, device),
            txqueuelen=before.txqueuelen,
            sysctls=before.sysctls,
            device=before.device,
            managers=UNMANAGED,
        )

    def _made(self, request: LinkRequest, links: Mapping[LinkKey, Link]) -> Optional[Link]:
        """A bond, bridge, VXLAN or macvlan."""
        key, virtual = request.key, self.stacks.links.get(request.key)
        found = self.found_keys.get(key)
        self.vlan_names[key] = key.given_name
        link = Link(
            key,
            key.kind,
            "dataplane",
            key.given_name,
            found.index if found else 0,
            managers=UNMANAGED,
        )
        if virtual is None:
            return self._hands_off(key, link, found) if found else None
        if virtual.parent and virtual.parent not in links:
            self.refuse(key, f"it is on {virtual.parent}, which cannot be used")
            return None
        link = replace(link, virtual=virtual)
        size = self.sizes.made(key, virtual, links)
        return self._common(
            request, replace(link, mtu=size), size or self.sizes.of(key, {**links, key: link})
        )

    def _vlan(self, request: LinkRequest, links: Mapping[LinkKey, Link]) -> Optional[Link]:
        parent, key = links[request.key.nic], request.key
        found, below = self.found_keys.get(key), self.found_keys.get(key.nic)
        if parent.master and parent.master.kind == "bond":
            self.refuse(
                key,
                f'{_subject(key)} is on a NIC that is in "{parent.master.given_name}": ask for it there',
            )
            return None
        own = request.virtual.option("mac") if request.virtual else ""
        made_of = {key.mac} | carriers((key.mac,), self.requests)
        copied = mac_reason(own, made_of, self.world, self.roles)
        if copied:
            self.refuse(key, copied)
            return None
        name = self._vlan_name(request, parent.name or "", found)
        if name is None:
            return None
        self.vlan_names[key] = name
        link = Link(key, "vlan", "dataplane", name, found.index if found else 0, managers=UNMANAGED)
        if request.state == "user":
            return self._hands_off(key, link, found) if found else None
        most = self.sizes.of(key.nic, links)
        mtu = self.sizes.vlan(key, request.mtu or self._before(key).mtu, parent, most)
        room = mtu or min(found.mtu if found else most, most)
        link = self._common(request, replace(link, mtu=mtu, virtual=request.virtual), room)
        if found and own not in ("", found.mac) and key not in self.record.owned.vlans:
            self.refuse(key, f'the MAC {own} for "{found.name}": somebody else has made it')
        lies_down = parent.state == "down" or (parent.state != "up" and not (below and below.up))
        if link.state == "up" and lies_down:
            self.refuse(
                key,
                f"{_subject(key)} cannot be up: its {key.made or 'NIC'} is asked to be {parent.state}",
            )
            link = replace(link, state=None)
        return link

    def _vlan_name(
        self, request: LinkRequest, parent: str, found: Optional[Device]
    ) -> Optional[str]:
        ours = request.key in self.record.owned.vlans
        default = found.name if found and not ours else vlan_name(parent, request.key)
        name = request.name or default
        holder = self.by_name.get(name)
        free = holder is None or (found is not None and holder.index == found.index)
        if free and self.given.setdefault(name, request.key) == request.key:
            return name
        self.refuse(
            request.key,
            f'{_subject(request.key)} should be "{name}", but another interface has that name',
            "name",
        )
        return (
            found.name
            if found and self.given.setdefault(found.name, request.key) == request.key
            else None
        )

    def _common(self, request: LinkRequest, link: Link, room: int) -> Link:
        """The settings that a NIC and a VLAN share, less those that are refused; what is not asked for goes back.

        `room` is the MTU that the link will have: below 1280 the kernel takes IPv6 off it altogether.
        """
        small = f"IPv6 needs an MTU of at least {LEAST_IPV6_MTU}" if room < LEAST_IPV6_MTU else None
        addresses = []
        for address in request.addresses:
            reason = self.limits.address(address) or (small if address.version == 6 else None)
            if reason is None:
                addresses.append(address)
            else:
                self.refuse(request.key, f"address {address}: {reason}")
        before = self._before(request.key)
        queue = before.txqueuelen if request.txqueuelen is None else request.txqueuelen
        sysctls = {
            template: value
            for template, value in before.sysctls.items()
            if not (small and template.startswith(IPV6))
        }
        return replace(
            link,
            state=request.state,
            txqueuelen=queue,
            addresses=tuple(addresses),
            sysctls={
                **sysctls,
                **quieted(link, self.world, small),
                **self._sysctls(request, small),
            },
            device=self._device(request, link.index, queue),
        )

    def _device(self, request: LinkRequest, index: int, queue: Optional[int]) -> dict[str, str]:
        """What is asked of the device and possible, and what nobody asks for any more as it was before."""
        device, declined = self.world.devices.get(index), self.record.declined.get(request.key, {})
        asked = flat(request.device)
        wish = Wish(
            request.key, asked, self.world.settings.get(index) if device else None, declined
        )
        wish.resolve()
        wish.queue(
            queue,
            request.txqueuelen is not None,
            device.qdisc if device else "noqueue",
            device.txqueuelen if device else 0,
        )
        self.notes += wish.notes
        kept = {
            name: value
            for name, value in self._before(request.key).device.items()
            if name not in asked
        }
        return {**kept, **wish.wanted}

    def _sysctls(self, request: LinkRequest, small: Optional[str]) -> dict[str, str]:
        own: dict[str, str] = {}
        for template, value in request.sysctls:
            reason = self.rules.reason(template, value) or (
                small if template.startswith(IPV6) and OWN in template else None
            )
            if (
                reason is None
                and OWN not in template
                and self.sysctls.get(template, value) != value
            ):
                reason = f'another link asks for "{self.sysctls[template]}"'
            if reason is not None:
                self.refuse(request.key, f"sysctl {template}: {reason}")
            elif OWN in template:
                own[template] = value
            else:
                self.sysctls[template] = value
        return own

    def leftovers(self) -> dict[LinkKey, Link]:
        """Links that nobody asks for any more, on their way back to what they were before the agent."""
        left: dict[LinkKey, Link] = {}
        for key in self.record.originals:
            device, original = self.found_keys.get(key), self._before(key)
            if (
                device is None
                or device.index in self.roles.protected
                or key in self.requests
                or original == Original()
            ):
                continue
            if key not in self.record.owned.vlans:
                link = Link(
                    key,
                    key.kind,
                    "unlisted",
                    device.name,
                    device.index,
                    txqueuelen=original.txqueuelen,
                    sysctls=original.sysctls,
                    device=original.device,
                )
                left[key] = replace(link, mtu=self.sizes.nic(key, original.mtu, device))
        return left

    def deletable(self, complete: bool) -> frozenset[LinkKey]:
        """What we made and may delete; see `stacks.deletable`."""
        free, problems = deletable(
            self.requests, self.world, self.roles, self.record, self.stacks if complete else None
        )
        self.problems += problems
        return free

    def _before(self, key: LinkKey) -> Original:
        """What the link was like before the agent, if the document is sure enough to go back to it."""
        sure = self.sure is None or key in self.sure
        return self.record.originals.get(key, Original()) if sure else Original()

    def shown(self, links: Mapping[LinkKey, Link]) -> Iterable[Link]:
        """Every NIC, whatever its role, then all else that is asked for; what is not ours to set is None."""
        nics = [LinkKey(mac) for mac in sorted(self.roles.by_mac)]
        for key in (
            *nics,
            *sorted((key for key in self.requests if key.rank), key=lambda key: key.order),
        ):
            request = self.requests.get(key)
            link = links.get(key)
            if link is None:
                name = key.given_name if key == key.nic else None
                role, virtual = self.roles.role(key.mac), request.virtual if request else None
                link = Link(key, key.kind, role, name or None, virtual=virtual)
                if request and link.role == "dataplane" and key.mac not in self.roles.nics:
                    link = replace(
                        link,
                        name=name or request.name,
                        state=request.state,
                        mtu=request.mtu,
                        txqueuelen=request.txqueuelen,
                        addresses=request.addresses,
                    )
            yield link if key.rank else replace(link, name=request.name if request else None)


def _subject(key: LinkKey) -> str:
    return "it" if key.vlan_id is None else f"VLAN {key.vlan_id}"
