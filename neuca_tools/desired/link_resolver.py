"""The desired state of each requested link on this host; what cannot be done becomes a problem."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Optional

from neuca_tools.desired.device_settings import Wish, flat
from neuca_tools.desired.mtu import LEAST_IPV6_MTU, Sizes
from neuca_tools.desired.names import vlan_name
from neuca_tools.desired.policy_routing import Gateways, bare
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
    """One resolution in progress; problems and notes are collected on the way."""

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
        routed: Gateways,
    ) -> None:
        self.requests, self.world, self.roles, self.record = requests, world, roles, record
        self.limits, self.names, self.sure, self.rules = limits, names, sure, rules
        self.routed = routed
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

    def refuse(self, key: LinkKey, text: str, code: ProblemCode = "refused") -> None:
        self.problems.append(Problem(code, text, key))

    def links(self) -> dict[LinkKey, Link]:
        """Every wanted link, lower devices first."""
        links: dict[LinkKey, Link] = {}
        for key in sorted(self.requests, key=lambda key: key.order):
            link = self._link(key, links)
            if link is None:
                continue
            master = self.stacks.masters.get(key)
            links[key] = self._put_into(master, link) if master else link
        return links

    def _link(self, key: LinkKey, links: Mapping[LinkKey, Link]) -> Optional[Link]:
        """One wanted link, or None; `links` are those below it."""
        allowed = self._may_make(key, links) if key.made else self._may_write(key)
        if not allowed:
            return None
        if key.vlan_id is not None:
            return self._vlan(self.requests[key], links)
        if key.made:
            return self._made(self.requests[key], links)
        return self._nic(self.requests[key])

    def _may_make(self, key: LinkKey, links: Mapping[LinkKey, Link]) -> bool:
        """Whether this is a virtual link that can be created, or a VLAN on one; `stacks` has reported why not."""
        if key.vlan_id is not None:
            if key.nic not in links:
                self.refuse(key, f"{_subject(key)} is on {key.nic}, which cannot be used")
            return key.nic in links
        found = self.roles.stacked.get(key.mac)
        if found and self.requests[key].state == "user":
            return found.index not in self.roles.protected
        return key in self.stacks.links

    def _put_into(self, master: LinkKey, link: Link) -> Link:
        """A member or port: its master has the addresses, and a bond sets the MTU of its members."""
        for address in link.addresses:
            self.refuse(
                link.key, f'address {address}: it is in "{master.given_name}", which can have it'
            )
        return replace(
            link, master=master, addresses=(), mtu=None if master.kind == "bond" else link.mtu
        )

    def _may_write(self, key: LinkKey) -> bool:
        """Whether this is a dataplane NIC that is present, free and unprotected, or a VLAN on one."""
        role, device = self.roles.role(key.mac), self.roles.nics.get(key.mac)
        if role == "management":
            text = f"{_subject(key)} is on the management NIC: {self.roles.reasons.get(key.mac, 'its MAC says so')}"
            # While it is in doubt which NIC is management, the problem is contested: any change of a
            # link may decide it.
            self.refuse(key, text, "contested" if key.mac in self.roles.doubtful else "refused")
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

    def _nic(self, request: LinkRequest) -> Link:
        device = self.roles.nics[request.key.mac]
        name = self.names[request.key]
        link = Link(request.key, "physical", "dataplane", name, device.index, managers=UNMANAGED)
        if request.state == "user":
            return self._hands_off(request.key, link, device)
        mtu = self.sizes.nic(request.key, request.mtu or self._before(request.key).mtu, device)
        return self._common(request, replace(link, mtu=mtu), mtu or device.mtu)

    def _hands_off(self, key: LinkKey, link: Link, device: Device) -> Link:
        """A link with `state = user`: our own earlier changes are reverted, nothing else is touched."""
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
        index = found.index if found else 0
        link = Link(key, key.kind, "dataplane", key.given_name, index, managers=UNMANAGED)
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
        """A VLAN; None if it is refused, or if it is left to the user and absent."""
        parent, key = links[request.key.nic], request.key
        found = self.found_keys.get(key)
        refusal = self._vlan_refusal(request, parent)
        if refusal:
            self.refuse(key, refusal)
        name = None if refusal else self._vlan_name(request, parent.name or "", found)
        if name is None:
            return None
        self.vlan_names[key] = name
        index = found.index if found else 0
        link = Link(key, "vlan", "dataplane", name, index, managers=UNMANAGED)
        if request.state == "user":
            return self._hands_off(key, link, found) if found else None
        most = self.sizes.of(key.nic, links)
        mtu = self.sizes.vlan(key, request.mtu or self._before(key).mtu, parent, most)
        room = mtu or min(found.mtu if found else most, most)
        link = self._common(request, replace(link, mtu=mtu, virtual=request.virtual), room)
        self._check_vlan_mac(request, found)
        if link.state == "up" and self._is_down(parent):
            lower = key.made or "NIC"
            text = f"{_subject(key)} cannot be up: its {lower} is asked to be {parent.state}"
            self.refuse(key, text)
            link = replace(link, state=None)
        return link

    def _vlan_refusal(self, request: LinkRequest, parent: Link) -> Optional[str]:
        """Why there can be no such VLAN; empty or None if there can."""
        key = request.key
        if parent.master and parent.master.kind == "bond":
            bond = parent.master.given_name
            return f'{_subject(key)} is on a NIC that is in "{bond}": ask for it there'
        made_of = {key.mac} | carriers((key.mac,), self.requests)
        return mac_reason(_own_mac(request), made_of, self.world, self.roles)

    def _check_vlan_mac(self, request: LinkRequest, found: Optional[Device]) -> None:
        """Refuse a MAC for a VLAN that somebody else created: the MAC is set at creation only."""
        mac = _own_mac(request)
        if found is None or mac in ("", found.mac) or request.key in self.record.owned.vlans:
            return
        self.refuse(request.key, f'the MAC {mac} for "{found.name}": somebody else has made it')

    def _is_down(self, lower: Link) -> bool:
        """Whether the link is down, or is asked to be."""
        if lower.state in ("up", "down"):
            return lower.state == "down"
        device = self.found_keys.get(lower.key)
        return device is None or not device.up

    def _vlan_name(
        self, request: LinkRequest, parent: str, found: Optional[Device]
    ) -> Optional[str]:
        """The name asked for, the present name of a VLAN that is not ours, or the default; None if it is taken."""
        ours = request.key in self.record.owned.vlans
        default = found.name if found and not ours else vlan_name(parent, request.key)
        name = request.name or default
        holder = self.by_name.get(name)
        free = holder is None or (found is not None and holder.index == found.index)
        if free and self._give(name, request.key):
            return name
        self.refuse(
            request.key,
            f'{_subject(request.key)} should be "{name}", but another interface has that name',
            "name",
        )
        return found.name if found and self._give(found.name, request.key) else None

    def _give(self, name: str, key: LinkKey) -> bool:
        """Whether the name goes to this link; no two links are given the same."""
        return self.given.setdefault(name, key) == key

    def _common(self, request: LinkRequest, link: Link, room: int) -> Link:
        """The link with the settings that all kinds share; those that are not asked for get their original value.

        `room` is the MTU in bytes that the link will have: below 1280 the kernel removes IPv6 from it
        (IPV6_MIN_MTU).
        """
        small = f"IPv6 needs an MTU of at least {LEAST_IPV6_MTU}" if room < LEAST_IPV6_MTU else None
        addresses = []
        near = bare(request, self.routed, self.limits)
        for address in request.addresses:
            allowed = self.limits.bare_address if address in near else self.limits.address
            reason = allowed(address) or (small if address.version == 6 else None)
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
            bare=near,
        )

    def _device(self, request: LinkRequest, index: int, queue: Optional[int]) -> dict[str, str]:
        """The device settings that are asked for and possible, and the original values of all others."""
        device, declined = self.world.devices.get(index), self.record.declined.get(request.key, {})
        asked = flat(request.device)
        found = self.world.settings.get(index) if device else None
        wish = Wish(request.key, asked, found, declined)
        wish.resolve()
        qdisc, txqueuelen = (device.qdisc, device.txqueuelen) if device else ("noqueue", 0)
        wish.queue(queue, request.txqueuelen is not None, qdisc, txqueuelen)
        self.notes += wish.notes
        kept = {
            name: value
            for name, value in self._before(request.key).device.items()
            if name not in asked
        }
        return {**kept, **wish.wanted}

    def _sysctls(self, request: LinkRequest, small: Optional[str]) -> dict[str, str]:
        """The link's own sysctls; those of the whole host are collected in `self.sysctls`.

        `small` is the reason why the link has no IPv6, if it has none.
        """
        own: dict[str, str] = {}
        for template, value in request.sysctls:
            reason = self.rules.reason(template, value)
            if reason is None and OWN in template:
                reason = small if template.startswith(IPV6) else None
            elif reason is None and self.sysctls.get(template, value) != value:
                reason = f'another link asks for "{self.sysctls[template]}"'
            if reason is not None:
                self.refuse(request.key, f"sysctl {template}: {reason}")
            elif OWN in template:
                own[template] = value
            else:
                self.sysctls[template] = value
        return own

    def leftovers(self) -> dict[LinkKey, Link]:
        """Links that are no longer asked for, with the original values to restore."""
        left: dict[LinkKey, Link] = {}
        for key in self.record.originals:
            device, original = self.found_keys.get(key), self._before(key)
            if device is None or device.index in self.roles.protected:
                continue
            if key in self.requests or key in self.record.owned.vlans or original == Original():
                continue
            left[key] = Link(
                key,
                key.kind,
                "unlisted",
                device.name,
                device.index,
                mtu=self.sizes.nic(key, original.mtu, device),
                txqueuelen=original.txqueuelen,
                sysctls=original.sysctls,
                device=original.device,
            )
        return left

    def deletable(self, complete: bool) -> frozenset[LinkKey]:
        """The links that we created and may delete; see `virtual_links.deletable`."""
        free, problems = deletable(
            self.requests, self.world, self.roles, self.record, self.stacks if complete else None
        )
        self.problems += problems
        return free

    def _before(self, key: LinkKey) -> Original:
        """The link's original values; none if the document is too incomplete to restore them."""
        sure = self.sure is None or key in self.sure
        return self.record.originals.get(key, Original()) if sure else Original()

    def shown(self, links: Mapping[LinkKey, Link]) -> Iterable[Link]:
        """Every NIC, whatever its role, then all other links that are asked for. None: not ours to set."""
        for mac in sorted(self.roles.by_mac):
            key = LinkKey(mac)
            request = self.requests.get(key)
            name = request.name if request else None
            yield replace(links.get(key) or self._unresolved(key), name=name)
        upper = (key for key in self.requests if key.rank)
        for key in sorted(upper, key=lambda key: key.order):
            yield links.get(key) or self._unresolved(key)

    def _unresolved(self, key: LinkKey) -> Link:
        """A link that is not set, as far as it is known; of an absent dataplane NIC, what is asked for."""
        request, role = self.requests.get(key), self.roles.role(key.mac)
        name = (key.given_name if key == key.nic else "") or None
        if request is None:
            return Link(key, key.kind, role, name)
        link = Link(key, key.kind, role, name, virtual=request.virtual)
        if role != "dataplane" or key.mac in self.roles.nics:
            return link
        return replace(
            link,
            name=name or request.name,
            state=request.state,
            mtu=request.mtu,
            txqueuelen=request.txqueuelen,
            addresses=request.addresses,
        )


def _own_mac(request: LinkRequest) -> str:
    """The MAC that is asked for, empty if none is."""
    return request.virtual.option("mac") if request.virtual else ""


def _subject(key: LinkKey) -> str:
    return "it" if key.vlan_id is None else f"VLAN {key.vlan_id}"
