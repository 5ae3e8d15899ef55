"""The desired state of each requested link on this host; what cannot be done becomes a problem."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Optional

from neuca_tools.desired.common_settings import CommonSettings
from neuca_tools.desired.dhcp_files import MANAGERS
from neuca_tools.desired.mtu import MtuResolver
from neuca_tools.desired.names import reserved_names, vlan_name
from neuca_tools.desired.policy_routing import Gateways
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.safety import RequestLimits
from neuca_tools.desired.virtual_links import (
    VirtualLinks,
    message_subject,
    remaining_scene,
    vlan_reason,
)
from neuca_tools.model import (
    UNCHANGED,
    UNRECORDED,
    Device,
    Link,
    LinkKey,
    LinkRequest,
    Problem,
    ProblemCode,
    Virtual,
)
from neuca_tools.tuning import allowed_sysctls

UNMANAGED = {"networkmanager": "unmanaged"}  # networkd has no such call, only its files
# Why a bond, bridge or VRF keeps its members.
GUARDED = "which depends on a management or ignored NIC"


class LinkResolver(CommonSettings):
    """One resolution in progress; problems are collected on the way."""

    def __init__(
        self,
        scene: Scene,
        limits: RequestLimits,
        names: Mapping[LinkKey, str],
        trusted: Optional[Collection[LinkKey]],
        sysctl_judge: allowed_sysctls.Judge,
        gateways: Gateways,
    ) -> None:
        taken = {**reserved_names(scene.roles, scene.record), **names}
        self.scene_after_removal = remaining_scene(scene, trusted)
        self.virtual_links = VirtualLinks(self.scene_after_removal, taken)
        masters = self.virtual_links.masters
        super().__init__(scene, limits, masters, sysctl_judge, gateways, trusted)
        self.names = dict(names)
        made = {key.virtual_name: key for key in self.virtual_links.links}
        self._key_by_name = {**{name: key for key, name in taken.items()}, **made}
        self.wanted: dict[LinkKey, Link] = {}
        self.mtus = MtuResolver(scene, self.wanted, self.problems)
        self.problems += self.virtual_links.problems

    def resolve(self) -> dict[LinkKey, Link]:
        """Every link that is to be configured, lower devices first (`wanted`)."""
        for key in sorted(self.requests, key=lambda key: key.order):
            link = self._link(key)
            if link is None:
                continue
            if key in self.masters:
                link = self._put_into(self.masters[key], link)
            elif key in self.virtual_links.barred:
                link = self._bar_link(self.virtual_links.barred[key], link)
            self.wanted[key] = link
        return self.wanted

    def _link(self, key: LinkKey) -> Optional[Link]:
        is_made = bool(key.virtual_kind) and key.mac not in self.roles.guard.carriers
        if not (self._may_make(key) if is_made else self._may_write(key)):
            return None
        resolve = self._resolve_virtual if key.virtual_kind else self._resolve_nic
        if key.vlan_id is not None:
            resolve = self._resolve_vlan
        return resolve(self.requests[key])

    def _may_make(self, key: LinkKey) -> bool:
        if key.vlan_id is not None:
            if key.nic not in self.wanted:
                self.refuse(key, f"{message_subject(key)} is on {key.nic}, which cannot be used")
            return key.nic in self.wanted
        device = self.roles.made.devices.get(key.mac)
        if device and self.requests[key].state == "user":
            return device.index not in self.roles.guard.devices
        return key in self.virtual_links.links

    def _put_into(self, master: LinkKey, link: Link) -> Link:
        """A member or port: its master has the addresses, and a bond sets its members' MTU.

        The member of a VRF keeps both.
        """
        if master.kind == "vrf":
            return link._replace(master=master)
        for address in link.addresses:
            self.refuse(
                link.key,
                f'address {address}: it is in "{master.virtual_name}", which can have the address',
            )
        if master.kind == "bond":
            link = link._replace(mtu=None)
        return link._replace(master=master, addresses=())

    def _bar_link(self, master: LinkKey, link: Link) -> Link:
        """A link that belongs into a bond, bridge or VRF that cannot be created.

        It keeps what it has, and gets nothing: its addresses would be reachable outside of a VRF.
        So they are removed with a VRF that is deleted.
        """
        device = self.device_by_link.get(link.key, Device(0, ""))
        present, owned = self.world.addresses.get(device.index, ()), self.record.owned.addresses
        kept = tuple(address for address in present if (link.key, address) in owned)
        vrf = self.world.devices.get(device.master, Device(0, ""))
        if vrf.kind == "vrf" and vrf.index not in self.scene_after_removal.world.devices:
            kept = ()  # it is to be deleted
        holders = {bond.index: mac for mac, bond in self.roles.made.devices.items()}
        holder = LinkKey(holders[device.master]) if device.master in holders else None
        for address in link.addresses:
            if address not in kept:
                kind = {"vrf": "VRF"}.get(master.kind, master.kind)
                text = f'it belongs to the {kind} "{master.virtual_name}"'
                self.refuse(link.key, f"address {address}: {text}, which cannot be created")
        barred = self._new_link(link.key, str(link.name), device)
        return barred._replace(addresses=kept, virtual=link.virtual, master=holder, bare=link.bare)

    def _may_write(self, key: LinkKey) -> bool:
        """Whether this is a present, free, unprotected dataplane NIC, or a VLAN on one."""
        role = self.roles.role_of(key)
        if role == "dataplane":
            return self._is_free(key)
        carries = key.mac in self.roles.guard.vlans and key.vlan_id is None
        # Such a NIC only has a VLAN next to the management VLAN on it.
        is_only_carrier = carries and not self.requests[key].origins
        if role == "management" and not is_only_carrier:
            reason = self.roles.reasons.get(key.mac, "by its MAC address")
            # While it is in doubt which NIC is management, the problem is contested: any change of
            # a link may decide it.
            code: ProblemCode = "refused"
            if key.mac in self.roles.choice.by_automatic_route_only:
                code = "contested"
            self.refuse(key, f"{message_subject(key)} is on the management NIC: {reason}", code)
        if role == "ignored" and key.vlan_id is None:
            text = "it is on the list of NICs to ignore"
            if self.record.nics.get(key.mac, UNRECORDED).released:
                text = "it was released"
            self.problems.append(Problem("ignored", text, key))
        return False

    def _is_free(self, key: LinkKey) -> bool:
        """Whether this dataplane link is present, and not tied to a protected one."""
        device = self.roles.links.get(key.nic)
        if device is None or key.mac in self.roles.guard.vlans:
            return device is not None
        if device.index in self.roles.guard.devices:
            self.refuse(key, f"{message_subject(key)} depends on a management or ignored NIC")
            return False
        return True

    def _new_link(self, key: LinkKey, name: str, device: Optional[Device]) -> Link:
        index = device.index if device else 0
        return Link(key, key.kind, "dataplane", name, index, managers=self._managers(key))

    def _managers(self, key: LinkKey) -> Mapping[str, str]:
        """What network managers should say of the link; nothing if DHCP is left to others."""
        if key.mac in self.roles.dhcp.left_to_others:
            return {}
        client = self.roles.dhcp.clients.get(key)
        return {**UNMANAGED, client: "managed"} if client in MANAGERS else UNMANAGED

    def _resolve_nic(self, request: LinkRequest) -> Optional[Link]:
        device = self.roles.nics[request.key.mac]
        link = self._new_link(request.key, self.names[request.key], device)
        if request.state == "user":
            return self._hands_off(link, device)
        asked = request.mtu or self.originals_of(request.key).mtu
        is_member = request.key in self.masters or request.key in self.virtual_links.barred
        if device.master in self.roles.guard.devices and not is_member:
            master = self.world.devices[device.master]
            self.refuse(request.key, f'it stays in "{master.name}", {GUARDED}')
            if master.kind == "bond":
                asked = None  # the bond sets it
        mtu = self.mtus.nic_mtu(request.key, asked, device)
        return self.add(request, link, mtu, mtu or device.mtu)

    def _hands_off(self, link: Link, device: Optional[Device]) -> Optional[Link]:
        """The link with `state = user`: only our own earlier changes are reverted."""
        return self._revert_link(link, device)._replace(state="user") if device else None

    def _revert_link(self, link: Link, device: Device) -> Link:
        before = self.originals_of(link.key)
        return link._replace(
            mtu=self.mtus.nic_mtu(link.key, before.mtu, device),
            txqueuelen=before.txqueuelen,
            sysctls=before.sysctls,
            device=self.restorable(link.key, before.device),
        )

    def _resolve_virtual(self, request: LinkRequest) -> Optional[Link]:
        """A virtual link of any kind but a VLAN."""
        key, virtual = request.key, self.virtual_links.links.get(request.key)
        device = self.device_by_link.get(key)
        self.names[key] = key.virtual_name
        link = self._new_link(key, key.virtual_name, device)
        if virtual is None:
            return self._hands_off(link, device)
        if virtual.parent and virtual.parent not in self.wanted:
            self.refuse(key, f"it is on {virtual.parent}, which cannot be used")
            return None
        link = self.wanted[key] = link._replace(virtual=virtual)
        size = self.mtus.virtual_mtu(key, virtual)
        return self.add(request, link, size, size or self.mtus.future_mtu(key))

    def _resolve_vlan(self, request: LinkRequest) -> Optional[Link]:
        """A VLAN; None if it is refused, or if it is left to the user and absent."""
        key, device = request.key, self.device_by_link.get(request.key)
        parent = self.wanted.get(key.nic)
        if parent is None:  # a link that is not written to, for a VLAN on it
            carrier = self.roles.links[key.nic]
            parent = Link(key.nic, key.nic.kind, "management", carrier.name, carrier.index)
        refusal = vlan_reason(request, parent, self.scene)
        if refusal:
            self.refuse(key, refusal)
            return None
        name = self._vlan_name(request, str(parent.name))
        if name is None:
            return None
        self.names[key] = name
        link = self._new_link(key, name, device)
        if request.state == "user":
            return self._hands_off(link, device)
        link = self._configured_vlan(request, link, parent)
        self._check_vlan_mac(request, device)
        if link.state == "up" and self._is_down(parent):
            lower = key.virtual_kind or "NIC"
            reason = f"requested to be {parent.state}" if parent.state else "down"
            self.refuse(key, f"{message_subject(key)} cannot be up: its {lower} is {reason}")
            return link._replace(state=None)
        return link

    def _configured_vlan(self, request: LinkRequest, link: Link, parent: Link) -> Link:
        """The VLAN with its MTU, which is at most that of its parent, and its other settings."""
        key, device = request.key, self.device_by_link.get(request.key)
        most = self.mtus.future_mtu(key.nic)
        mtu = request.mtu or self.originals_of(key).mtu
        if device and key in self.record.owned.vlans:
            mtu = request.mtu or most
        mtu = self.mtus.vlan_mtu(key, mtu, parent, most)
        future_mtu = mtu or most
        if device and not mtu:
            future_mtu = min(device.mtu, most)
        return self.add(request, link._replace(virtual=request.virtual), mtu, future_mtu)

    def _check_vlan_mac(self, request: LinkRequest, device: Optional[Device]) -> None:
        """Refuse a MAC for a VLAN that another program created: the MAC is set at creation only."""
        mac = (request.virtual or Virtual()).option("mac")
        if device is None or mac in ("", device.mac) or request.key in self.record.owned.vlans:
            return
        self.refuse(request.key, f'the MAC {mac} for "{device.name}": neucad did not create it')

    def _is_down(self, lower: Link) -> bool:
        """Whether the link is down, or is requested to be."""
        if lower.state in ("up", "down"):
            return lower.state == "down"
        device = self.device_by_link.get(lower.key)
        return device is None or not device.up

    def _vlan_name(self, request: LinkRequest, parent: str) -> Optional[str]:
        """The name to give a VLAN; None if no name is free.

        It is the requested one, else the present name of a VLAN that is not ours, else the default.
        """
        default, device = vlan_name(parent, request.key), self.device_by_link.get(request.key)
        if device and request.key not in self.record.owned.vlans:
            default = device.name
        name = request.name or default
        holder = self.virtual_links.device_by_name.get(name)
        free = holder is None or (device is not None and holder.index == device.index)
        if free and self._give_name(name, request.key):
            return name
        text = f'should be "{name}", but another interface has that name'
        self.refuse(request.key, f"{message_subject(request.key)} {text}", "name")
        if device and self._give_name(device.name, request.key):
            return device.name
        return None

    def _give_name(self, name: str, key: LinkKey) -> bool:
        """Reserve a name for this link; False if another link has it."""
        return self._key_by_name.setdefault(name, key) == key

    def leftovers(self) -> dict[LinkKey, Link]:
        """Links that are no longer requested, with the original values to restore."""
        left: dict[LinkKey, Link] = {}
        for key in self.record.originals:
            device = self.device_by_link.get(key)
            is_ours = key in self.requests or key in self.record.owned.vlans
            if device is None or is_ours or device.index in self.roles.guard.devices:
                continue
            if self.originals_of(key) != UNCHANGED:
                link = Link(key, key.kind, "unlisted", device.name, device.index)
                left[key] = self._revert_link(link, device)
        return left

    def shown_links(self) -> Iterable[Link]:
        """Every NIC, whatever its role, then all other links that are requested or have a problem.

        None: not ours to set.
        """
        for mac in sorted(self.roles.by_mac):
            key = LinkKey(mac)
            request = self.requests.get(key)
            name = request.name if request else None
            yield (self.wanted.get(key) or self._unresolved_link(key))._replace(name=name)
        upper = {problem.link for problem in self.problems if problem.link} | self.requests.keys()
        for key in sorted((key for key in upper if key.rank), key=lambda key: key.order):
            yield self.wanted.get(key) or self._unresolved_link(key)

    def _unresolved_link(self, key: LinkKey) -> Link:
        """What is known of a link that is not configured; of an absent NIC, what is requested."""
        request, role = self.requests.get(key), self.roles.role_of(key)
        name = (key.virtual_name if key == key.nic else "") or None
        if request is None:
            if key in self.device_by_link:
                name = self.device_by_link[key].name
            return Link(key, key.kind, role, name)
        link = Link(key, key.kind, role, name, virtual=request.virtual)
        if role != "dataplane" or key.mac in self.roles.nics:
            return link
        return link._replace(
            name=name or request.name,
            state=request.state,
            mtu=request.mtu,
            txqueuelen=request.txqueuelen,
            addresses=request.addresses,
        )
