"""Version 1 of NoCloud's network-config, a list of links with their subnets.

Reference: cloud-init's manual, "Networking config Version 1", and config/schemas/schema-network-config-v1.json.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.documents.neuca import made, values
from neuca_tools.documents.neuca.link_kinds import MEMBERS, READERS
from neuca_tools.documents.platform import dns
from neuca_tools.documents.platform.drafts import Draft, by_name, finish
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, PlatformDocument

_BOND = {f"bond{sign}{name.replace('-', sign)}": name for name in READERS["bond"] for sign in "-_"}
_BRIDGE = {"bridge_stp": "stp", "bridge_fd": "forward-delay"}
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
_DHCP = ("dhcp", "dhcp4", "dhcp6", "ipv6_dhcpv6-stateful")
_INFORMATION = ("manual", "ipv6_slaac", "ipv6_dhcpv6-stateless")
_FOR_OTHERS = ("nameserver", "loopback")
_KINDS = ("physical", "bond", "bridge", "vlan", "route", *_FOR_OTHERS)


def read(top: Part) -> PlatformDocument:
    """What the document asks."""
    taken: set[str] = set()
    for link in top.parts("config"):
        if link.text("type") not in _KINDS:
            taken.add(link.text("name") or "")
            link.warn("type", "this kind of link is left to other programs, with all that is on it")
    drafts: dict[str, Draft] = {}
    for link in top.parts("config"):
        name = link.text("name") or ""
        kind = link.text("type") or ""
        draft = (
            _physical(name, link)
            if kind == "physical"
            else _made(kind, name, link)
            if kind in MEMBERS
            else None
        )
        if draft is not None:
            drafts[name] = draft
    for link in top.parts("config"):
        draft = _vlan(link, drafts, taken) if link.text("type") == "vlan" else None
        if draft is not None:
            drafts[link.text("name") or link.path] = draft
    _put_together(top, drafts)
    for link in top.parts("config"):
        if link.text("type") == "route":
            _loose_route(link, drafts)
    return finish(drafts.values(), top)


def _physical(name: str, link: Part) -> Optional[Draft]:
    """With a MAC address, `name` is what the NIC should be called; without one, it is what it is called."""
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


def _put_together(top: Part, drafts: dict[str, Draft]) -> None:
    for link in top.parts("config"):
        draft = drafts.get(link.text("name") or "")
        if link.text("type") in MEMBERS and draft is not None:
            made.put_in(draft, link, f"{link.text('type')}_interfaces", drafts)


def _made(kind: str, name: str, link: Part) -> Optional[Draft]:
    """A bond without its mode has the first one, as cloud-init's renderers leave it to the kernel."""
    draft = made.draft(kind, name, link)
    if draft is None:
        return None
    made.options(draft, link.child("params"), _BOND if kind == "bond" else _BRIDGE)
    if kind == "bond":
        made.default(draft, "mode", "balance-rr")
    return _common(draft, link)


def _vlan(link: Part, drafts: dict[str, Draft], taken: set[str]) -> Optional[Draft]:
    below = link.text("vlan_link") or ""
    parent, number = drafts.get(below), link.read("vlan_id", values.vlan_id)
    if parent is None or parent.key.vlan_id is not None:
        left = below in taken
        reason = (
            "its NIC is left to other programs, and so is it"
            if left
            else "no NIC has this name, ignoring the VLAN"
        )
        link.fault("vlan_link", below, reason, "warning" if left else "error")
        return None
    if number is None:
        if link.text("vlan_id") is None:
            link.fault("vlan_id", None, "a VLAN without its ID, ignoring it")
        return None
    link = link.about(parent.part.mac)
    draft = _common(
        Draft(LinkKey(parent.key.mac, number), link, link.read("name", values.link_name)), link
    )
    made.own_mac(draft, link, parent)
    return draft


def _common(draft: Draft, link: Part) -> Draft:
    draft.mtu = link.read("mtu", values.mtu)
    for subnet in link.parts("subnets"):
        kind = subnet.text("type") or ""
        if kind in _DHCP:
            draft.manage("the platform's document has DHCP on it")
        elif kind in _STATIC:
            _static(draft, subnet)
        elif kind not in _INFORMATION:
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
    key = "destination" if route.text("destination") else "network"
    draft.add_route(route, key, route.text(key) or "", route.text("netmask"), route.text("gateway"))


def _loose_route(route: Part, drafts: dict[str, Draft]) -> None:
    """A route that stands for itself goes through the link whose network its gateway is in."""
    gateway = route.read("gateway", values.host)
    owner = next(
        (
            draft
            for draft in drafts.values()
            for address in draft.addresses
            if gateway is not None
            and gateway.version == address.version
            and gateway in address.network
        ),
        None,
    )
    if owner is not None:
        _route(owner, route)
    elif gateway is not None:
        route.warn("gateway", "it is in the network of no link, ignoring the route")
