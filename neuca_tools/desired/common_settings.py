"""The settings of every kind of link: addresses, queue length, sysctls and device settings.

Some of the last depend on other links: the MAC of a NIC, and its place in a bond or bridge.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Optional

from neuca_tools.desired.device_settings import DeviceResolver, flat_settings
from neuca_tools.desired.mtu import MIN_IPV6_MTU
from neuca_tools.desired.policy_routing import Gateways, addresses_in_management
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.router_advertisements import (
    advertisements_off,
    links_without_advertisements,
    manager_takes_advertisements,
    restored_sysctls,
)
from neuca_tools.desired.safety import RequestLimits, mac_reason
from neuca_tools.documents.neuca.link_settings import PRIMARY, place_of
from neuca_tools.documents.neuca.values import dotted_name
from neuca_tools.model import (
    ACCEPT_RA,
    IPV6_MTU,
    OWN,
    UNCHANGED,
    Address,
    Device,
    Host,
    Link,
    LinkKey,
    LinkRequest,
    OriginalValues,
    Problem,
    ProblemCode,
)
from neuca_tools.model.device_settings import Note
from neuca_tools.tuning import allowed_sysctls

IPV6 = "net/ipv6/"
MAC = "mac"
DISABLE_IPV6 = f"net/ipv6/conf/{OWN}/disable_ipv6"
OF_EACH_LINK = (ACCEPT_RA, DISABLE_IPV6)  # what every decision about a link depends on


@dataclass
class CommonSettings:
    """One resolution's common settings; `sysctls` collects those of the whole host,
    `without_ipv6` the reasons why links have no IPv6.

    `trusted`: see `merge.trusted_links`. `gateways` are the gateways of links with policy routing.
    `masters` has the requested bond or bridge of each link.
    """

    scene: Scene
    limits: RequestLimits
    masters: Mapping[LinkKey, LinkKey]
    sysctl_judge: allowed_sysctls.Judge
    gateways: Gateways
    trusted: Optional[Collection[LinkKey]]
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    sysctls: dict[str, str] = field(default_factory=dict)
    without_ipv6: dict[LinkKey, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.requests, self.world, self.roles, self.record, self.device_by_link = self.scene
        self._quiet = links_without_advertisements(
            self.requests, self.roles, self.world, self.sysctl_judge.advertised
        )

    def refuse(self, key: LinkKey, text: str, code: ProblemCode = "refused") -> None:
        self.problems.append(Problem(code, text, key))

    def originals_of(self, key: LinkKey) -> OriginalValues:
        """The link's original values; none if the document is too incomplete to restore them."""
        is_sure = self.trusted is None or key in self.trusted
        return self.record.originals.get(key, UNCHANGED) if is_sure else UNCHANGED

    def add(self, request: LinkRequest, link: Link, mtu: Optional[int], future_mtu: int) -> Link:
        """The link with the settings; those that are not requested get their original value.

        `mtu` is the MTU to set, in bytes, and `future_mtu` the one that the link will have: below
        1280 the kernel removes IPv6 from it (IPV6_MIN_MTU).
        """
        no_ipv6 = self._no_ipv6_reason(future_mtu)
        before = self.originals_of(request.key)
        queue = before.txqueuelen if request.txqueuelen is None else request.txqueuelen
        original = restored_sysctls(before.sysctls, link, self.world)
        if no_ipv6:
            original = {name: original[name] for name in original if not name.startswith(IPV6)}
        bare = addresses_in_management(request, self.gateways, self.limits)
        unrequested = original
        if request.key in self._quiet and not no_ipv6:
            by_manager = manager_takes_advertisements(request, self.roles)
            off = advertisements_off(link, self.world, future_mtu, by_manager=by_manager)
            unrequested = {**original, **off}
        reason = no_ipv6 or self._ipv6_disabled_reason(request, link, original)
        if reason:
            self.without_ipv6[request.key] = reason
        if self.world.fixed_sysctls:
            self._note_fixed(request.key, link, unrequested)
            unrequested = {}
        return link._replace(
            state=request.state,
            mtu=mtu,
            txqueuelen=queue,
            addresses=tuple(self._addresses(request, bare, reason)),
            sysctls={**unrequested, **self._sysctls(request, no_ipv6, future_mtu)},
            device=self._device(request, link.index, queue),
            bare=bare,
        )

    @property
    def without_advertisements(self) -> frozenset[LinkKey]:
        """The links on which the kernel ignores router advertisements because of us."""
        return frozenset() if self.world.fixed_sysctls else self._quiet

    @property
    def unset_hosts(self) -> frozenset[Host]:
        """The IPv6 addresses that are requested on links without IPv6."""
        addresses = chain.from_iterable(self.requests[key].addresses for key in self.without_ipv6)
        return frozenset(address.ip for address in addresses if address.version == 6)

    def _no_ipv6_reason(self, future_mtu: int) -> Optional[str]:
        if not self.world.has_ipv6:
            return "this kernel has no IPv6"
        if future_mtu < MIN_IPV6_MTU:
            return f"IPv6 needs an MTU of at least {MIN_IPV6_MTU}"
        return None

    def _ipv6_disabled_reason(
        self, request: LinkRequest, link: Link, original: Mapping[str, str]
    ) -> Optional[str]:
        """Why the link has no IPv6, although the kernel has; `original` are values to restore."""
        device = self.world.devices.get(link.index)
        path = DISABLE_IPV6.replace(OWN, device.name if device else "default")
        value = self.world.sysctls.get(path, "0")
        if not self.world.fixed_sysctls:
            value = {**original, **dict(request.sysctls)}.get(DISABLE_IPV6, value)
        return None if value == "0" else "IPv6 is disabled on this interface (disable_ipv6)"

    def _note_fixed(self, key: LinkKey, link: Link, values: Mapping[str, str]) -> None:
        """Note which sysctls that no document requests cannot be set."""
        device = self.world.devices.get(link.index)
        if device is None:
            return
        for template, value in values.items():
            now = self.world.sysctls.get(template.replace(OWN, device.name))
            if now not in (None, value):
                reason = f'it stays "{now}", because /proc/sys is read-only here'
                self.notes.append(Note(template, "not applicable", reason, key))

    def _addresses(
        self, request: LinkRequest, bare: Collection[Address], without_ipv6: Optional[str]
    ) -> list[Address]:
        """The addresses that are not refused; `bare` are those in the management network.

        `without_ipv6` is the reason why the link has no IPv6, if any.
        """
        granted, hosts, limits = list[Address](), set[Host](), self.limits
        for address in request.addresses:
            reason_of = limits.bare_address_reason if address in bare else limits.address_reason
            reason = reason_of(address)
            if reason is None and address.version == 6:
                reason = without_ipv6
                if address.ip in hosts:
                    reason = "the link has it with a different prefix length"  # ipv6_add_addr
            if reason is None:
                granted.append(address)
                hosts.add(address.ip)
            else:
                self.refuse(request.key, f"address {address}: {reason}")
        return granted

    def _device(self, request: LinkRequest, index: int, queue: Optional[int]) -> dict[str, str]:
        """The requested device settings that are possible; the original values of all others."""
        device = self.world.devices.get(index, Device(0, "", qdisc="noqueue"))
        observed, declined = self.world.settings.get(index), self.record.declined.get(request.key)
        asked = flat_settings(request.device)
        for setting, reason_of in ((MAC, self._mac_reason), (PRIMARY, self._primary_reason)):
            reason = reason_of(request.key, asked[setting]) if setting in asked else None
            if reason:
                self.refuse(request.key, f"{setting} {asked.pop(setting)}: {reason}")
        master, joined = self.master(request.key), self.is_joined(request.key)
        resolver = DeviceResolver(request.key, asked, observed, declined or {}, master, joined)
        resolver.resolve()
        resolver.queue(queue, request.txqueuelen is not None, device.qdisc, device.txqueuelen)
        self.notes += resolver.notes
        original = self.restorable(request.key, self.originals_of(request.key).device)
        kept = {name: original[name] for name in original if name not in asked}
        return {**kept, **resolver.wanted}

    def _sysctls(
        self, request: LinkRequest, no_ipv6: Optional[str], future_mtu: int
    ) -> dict[str, str]:
        """The link's own sysctls; those of the whole host are collected in `self.sysctls`."""
        own: dict[str, str] = {}
        for template, value in request.sysctls:
            reason = self._sysctl_reason(request.key, template, value, no_ipv6)
            if reason is None and template == IPV6_MTU and int(value) > future_mtu:
                reason = f"{value} is above the MTU of the link, {future_mtu}"
            if reason is not None:
                self.refuse(request.key, f"sysctl {dotted_name(template)}: {reason}")
            elif OWN in template:
                own[template] = value
            else:
                self.sysctls[template] = value
        return own

    def _sysctl_reason(
        self, key: LinkKey, template: str, value: str, no_ipv6: Optional[str]
    ) -> Optional[str]:
        reason = self.sysctl_judge.reason(key, template, value)
        if reason is not None:
            return reason
        if template.startswith(IPV6) and OWN in template:
            return no_ipv6
        other = self.sysctls.get(template, value)
        if OWN in template or other == value:
            return None
        return f'another link requests "{other}"'

    # --- settings that depend on other links ---

    def master(self, key: LinkKey) -> str:
        """The kind of the requested bond, bridge or VRF of the link; empty for none."""
        return self.masters[key].kind if key in self.masters else ""

    def is_joined(self, key: LinkKey) -> bool:
        """Whether the link is in its requested bond or bridge already."""
        device = self.device_by_link.get(key)
        master = self.device_by_link.get(self.masters[key]) if key in self.masters else None
        return device is not None and master is not None and device.master == master.index

    def restorable(self, key: LinkKey, original: Mapping[str, str]) -> dict[str, str]:
        """The original values that can be restored where the link is now.

        The bond sets the MAC of its members, and a port has its settings as long as it is one.
        """
        device = self.device_by_link.get(key)
        in_bond = device is not None and device.slave
        places = {"", self.master(key)} if self.is_joined(key) else {""}
        return {
            name: value
            for name, value in original.items()
            if not (name == MAC and in_bond) and place_of(name) in places
        }

    def _mac_reason(self, key: LinkKey, mac: str) -> Optional[str]:
        device = self.device_by_link.get(key)
        if self.master(key) == "bond" or (device is not None and device.slave):
            return "it is in a bond, which sets the MAC address of its members"
        if mac == key.mac:
            return None
        nics = (nic for nic in self.requests if not nic.rank)
        other = self._also_requested(key, nics, MAC, mac)
        if other:
            return f"it is requested for {other} too, so it is set on none of them"
        reason = mac_reason(mac, (key.mac,), self.world, self.roles)
        return reason or self._absent_owner_reason(mac)

    def _absent_owner_reason(self, mac: str) -> Optional[str]:
        """Whether it is the MAC of a NIC that is known and may be absent."""
        if mac in self.record.nics or LinkKey(mac) in self.requests:
            return f"the MAC address {mac} is that of another NIC"
        return None

    def _primary_reason(self, key: LinkKey, wanted: str) -> Optional[str]:
        """Why a member may not be the primary one: another one is requested to be that."""
        if wanted != "yes":
            return None
        members = (link for link in self.masters if self.masters[link] == self.masters.get(key))
        other = self._also_requested(key, members, PRIMARY, "yes")
        reason = f"{other} is requested as the primary member too, so none of them is"
        return reason if other else None

    def _also_requested(
        self, key: LinkKey, links: Iterable[LinkKey], setting: str, value: str
    ) -> Optional[LinkKey]:
        """Another one of these links for which the same value is requested."""
        others = (link for link in links if dict(self.requests[link].device).get(setting) == value)
        return next((link for link in others if link != key), None)
