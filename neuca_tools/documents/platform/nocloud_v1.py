"""Read version 1 of NoCloud's network-config, a list of links with their subnets.

References: the cloud-init manual, "Networking config Version 1", and config/schemas/schema-network-config-v1.json.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from neuca_tools.documents.neuca import made, values
from neuca_tools.documents.neuca.link_kinds import MEMBERS, READERS
from neuca_tools.documents.platform import dns
from neuca_tools.documents.platform.drafts import Draft, by_name, finish
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import Address, Host, LinkKey, PlatformDocument

# Both spellings occur: `bond-miimon` and `bond_miimon`.
_BOND = {
    **{f"bond-{name}": name for name in READERS["bond"]},
    **{f"bond_{name.replace('-', '_')}": name for name in READERS["bond"]},
}
_BRIDGE = {"bridge_stp": "stp", "bridge_fd": "forward-delay"}
_OPTIONS = {"bond": _BOND, "bridge": _BRIDGE}
KEYS = (
    frozenset(
        "type mac_address subnets address netmask gateway network destination vlan_link vlan_id bond_interfaces"
        " bridge_interfaces params".split()
    )
    | _BOND.keys()
    | _BRIDGE.keys()
    | dns.KEYS
)
_STATIC = ("static", "static4", "static6")
# The family of each kind of subnet with DHCP.
_DHCP = {"dhcp": 4, "dhcp4": 4, "dhcp6": 6, "ipv6_dhcpv6-stateful": 6}
_ADVERTISED = ("ipv6_slaac", "ipv6_dhcpv6-stateless")
_FOR_OTHERS = ("nameserver", "loopback")
_KINDS = ("physical", "bond", "bridge", "vlan", "route", *_FOR_OTHERS)


def read(top: Part) -> PlatformDocument:
    """Read the document. VLANs come after the links they are on, and members after all of them."""
    taken = _left_to_others(top)
    drafts: dict[str, Draft] = {}
    for link in top.parts("config"):
        name = link.text("name") or ""
        draft = _base(name, link)
        if draft is not None:
            drafts[name] = draft
    for link in _of_kind(top, "vlan"):
        draft = _vlan(link, drafts, taken)
        if draft is not None:
            drafts[link.text("name") or link.path] = draft
    _set_members(top, drafts)
    for link in _of_kind(top, "route"):
        _unattached_route(link, drafts)
    return finish(drafts.values(), top)


def _of_kind(top: Part, kind: str) -> Iterator[Part]:
    return (link for link in top.parts("config") if link.text("type") == kind)


def _left_to_others(top: Part) -> set[str]:
    """The names of links of unsupported kinds."""
    names = set()
    for link in top.parts("config"):
        if link.text("type") not in _KINDS:
            names.add(link.text("name") or "")
            link.warn("type", "this kind of link is left to other programs, with all that is on it")
    return names


def _base(name: str, link: Part) -> Optional[Draft]:
    """A NIC, bond or bridge; None for everything else."""
    kind = link.text("type") or ""
    if kind == "physical":
        return _physical(name, link)
    if kind in MEMBERS:
        return _virtual(kind, name, link)
    return None


def _physical(name: str, link: Part) -> Optional[Draft]:
    """A NIC. With a MAC address, `name` is its future name; without one, it is its present name."""
    if not name:
        link.fault("name", None, "a link without a name, ignoring it")
        return None
    if link.text("mac_address") is None:
        return _common(Draft(by_name(name), link), link)
    mac = link.read("mac_address", values.mac)
    if mac is None:
        return None
    link = link.about(mac)
    return _common(Draft(LinkKey(mac), link, link.read("name", values.link_name)), link)


def _set_members(top: Part, drafts: dict[str, Draft]) -> None:
    for link in top.parts("config"):
        draft = drafts.get(link.text("name") or "")
        if link.text("type") in MEMBERS and draft is not None:
            made.set_members(draft, link, f"{link.text('type')}_interfaces", drafts)


def _virtual(kind: str, name: str, link: Part) -> Optional[Draft]:
    """A bond or bridge. A bond without a mode gets the kernel's default, as with cloud-init."""
    draft = made.draft(kind, name, link)
    if draft is None:
        return None
    made.options(draft, link.child("params"), _OPTIONS[kind])
    if kind == "bond":
        made.default(draft, "mode", "balance-rr")
    return _common(draft, link)


def _vlan(link: Part, drafts: dict[str, Draft], taken: set[str]) -> Optional[Draft]:
    below = link.text("vlan_link") or ""
    parent, number = drafts.get(below), link.read("vlan_id", values.vlan_id)
    if parent is None or parent.key.vlan_id is not None:
        if below in taken:
            reason = "its NIC is left to other programs, and so is it"
            link.fault("vlan_link", below, reason, "warning")
        else:
            link.fault("vlan_link", below, "no NIC has this name, ignoring the VLAN")
        return None
    if number is None:
        if link.text("vlan_id") is None:
            link.fault("vlan_id", None, "a VLAN without its ID, ignoring it")
        return None
    link = link.about(parent.part.mac)
    draft = Draft(LinkKey(parent.key.mac, number), link, link.read("name", values.link_name))
    _common(draft, link)
    made.own_mac(draft, link, parent)
    return draft


def _common(draft: Draft, link: Part) -> Draft:
    draft.mtu = link.read("mtu", values.mtu)
    for subnet in link.parts("subnets"):
        kind = subnet.text("type") or ""
        if kind in _DHCP:
            draft.lease(_DHCP[kind])
        elif kind in _STATIC:
            _static(draft, subnet)
        elif kind in _ADVERTISED:
            draft.listen()
        elif kind != "manual":
            subnet.warn("type", "an unknown kind of subnet, ignoring it")
    return draft


def _static(draft: Draft, subnet: Part) -> None:
    address = subnet.text("address")
    if address is None:
        subnet.fault("address", None, "a static subnet without its address")
    else:
        draft.add_address(subnet, "address", address, subnet.text("netmask"))
    if subnet.text("gateway"):
        draft.manage("the platform's document gives it the default route")
    for route in subnet.parts("routes"):
        _route(draft, route)


def _route(draft: Draft, route: Part) -> None:
    key = "network"
    if route.text("destination"):
        key = "destination"
    draft.add_route(route, key, route.text(key) or "", route.text("netmask"), route.text("gateway"))


def _unattached_route(route: Part, drafts: dict[str, Draft]) -> None:
    """Add a top-level route to the first link that has its gateway in one of its networks."""
    gateway = route.read("gateway", values.host)
    if gateway is None:
        return
    for draft in drafts.values():
        if _is_on_link(gateway, draft.addresses):
            _route(draft, route)
            return
    route.warn("gateway", "it is in the network of no link, ignoring the route")


def _is_on_link(host: Host, addresses: Iterable[Address]) -> bool:
    return any(host.version == address.version and host in address.network for address in addresses)
