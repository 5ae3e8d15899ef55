"""OpenStack's network_data.json: links, the networks on them, their routes.

Reference: nova, doc/api_schemas/network_data.json; accepted beyond it is what cloud-init accepts (helpers/openstack.py).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Literal, Optional

from neuca_tools.documents.neuca import made, values
from neuca_tools.documents.neuca.link_kinds import READERS
from neuca_tools.documents.platform import dns
from neuca_tools.documents.platform.drafts import Draft, finish
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, PlatformDocument

NAME = "network_data.json"
# nova, network/model.py, LEGACY_EXPOSED_VIF_TYPES, and what other clouds write in their place.
_PHYSICAL = frozenset(
    "bridge dvs hw_veb hyperv ovs tap vhostuser vif phy ethernet bgpovs cascading macvtap hostdev_physical".split()
)
_STATIC = ("ipv4", "ipv6", "static", "static6")
_DHCP = ("ipv4_dhcp", "ipv6_dhcp", "ipv6_dhcpv6-stateful", "dhcp", "dhcp4", "dhcp6")
_INFORMATION = ("ipv6_slaac", "ipv6_dhcpv6-stateless", "manual")
_BOND = {
    f"bond_{name.replace('-', '_')}": name for name in READERS["bond"]
}  # the bonding driver's own names
KEYS = (
    frozenset(
        "id type ethernet_mac_address mtu name vlan_id vlan_link vlan_mac_address bond_links link ip_address netmask"
        " network gateway".split()
    )
    | _BOND.keys()
    | dns.KEYS
)


def read(root: Part) -> PlatformDocument:
    """What the document asks. `mtu: null` is not asked; addresses of DHCP and SLAAC entries are information."""
    links = {name: link for link in root.parts("links") for name in [link.text("id")] if name}
    drafts: dict[str, Draft] = {}
    for link in root.parts("links"):
        name, kind = link.text("id") or "", link.text("type") or "phy"
        if kind not in ("vlan", "bond"):
            _take(drafts, name, _physical(link, kind))
    bonds = [link for link in root.parts("links") if link.text("type") == "bond"]
    for number, link in enumerate(bonds):
        _take(drafts, link.text("id") or "", _bond(number, link, drafts))
    for link in root.parts("links"):
        if link.text("type") == "vlan":
            _take(drafts, link.text("id") or "", _vlan(link, links, drafts))
    for network in root.parts("networks"):
        _network(network, drafts, links)
    return finish(drafts.values(), root)


def _take(drafts: dict[str, Draft], name: str, draft: Optional[Draft]) -> None:
    if draft is not None:
        drafts[name if name not in drafts else draft.part.path] = draft


def _physical(link: Part, kind: str) -> Optional[Draft]:
    if kind not in _PHYSICAL:
        link.warn("type", "an unknown kind of link, taken for a NIC")
    if link.text("ethernet_mac_address") is None:
        severity: Literal["error", "warning"] = "error" if kind in _PHYSICAL else "warning"
        link.fault(
            "ethernet_mac_address", None, "a link without a MAC address, ignoring it", severity
        )
        return None
    mac = link.read("ethernet_mac_address", values.mac)
    return None if mac is None else _draft(link.about(mac), LinkKey(mac))


def _bond(number: int, link: Part, drafts: dict[str, Draft]) -> Optional[Draft]:
    """OpenStack has no names for them: they are counted, as cloud-init does. An id is nobody's name."""
    bond = made.draft("bond", link.text("name") or f"bond{number}", link)
    if bond is not None:
        made.options(bond, link, _BOND)
        made.put_in(bond, link, "bond_links", drafts)
        bond.mtu = link.read("mtu", values.mtu)
    return bond


def _vlan(link: Part, links: dict[str, Part], drafts: dict[str, Draft]) -> Optional[Draft]:
    below = link.text("vlan_link") or ""
    parent, number = drafts.get(below), link.read("vlan_id", values.vlan_id)
    if parent is None or parent.key.vlan_id is not None:
        reason = (
            "what it is on cannot be used, nor can it"
            if below in links
            else "no link has this id, ignoring the VLAN"
        )
        link.fault("vlan_link", below, reason, "warning" if below in links else "error")
        return None
    link = link.about(parent.key.mac)
    if number is None:
        if link.text("vlan_id") is None:
            link.fault("vlan_id", None, "a VLAN without its ID, ignoring it")
        return None
    draft = _draft(link, LinkKey(parent.key.mac, number))
    made.own_mac(draft, link, parent)
    return draft


def _draft(link: Part, key: LinkKey) -> Draft:
    return Draft(key, link, mtu=link.read("mtu", values.mtu))


def _network(network: Part, drafts: dict[str, Draft], links: dict[str, Part]) -> None:
    below, kind = network.text("link") or "", network.text("type") or ""
    draft = drafts.get(below)
    if draft is None:
        if below not in links:
            network.fault("link", below, "no link has this id, ignoring the network", "warning")
        return
    network = network.about(draft.key.mac)
    if kind in _DHCP:
        draft.manage("the platform's document has DHCP on it")
    elif kind in _STATIC:
        _static(network, draft)
    elif kind not in _INFORMATION:
        network.warn("type", "an unknown kind of network, ignoring it")


def _static(network: Part, draft: Draft) -> None:
    address = network.text("ip_address")
    if address is None:
        network.fault("ip_address", None, "a static network without its address", "warning")
    else:
        draft.add_address(network, "ip_address", address, network.text("netmask"))
    if network.text("gateway"):
        draft.manage("the platform's document gives it the default route")
    for route in network.parts("routes"):
        draft.add_route(
            route,
            "network",
            route.text("network") or "",
            route.text("netmask"),
            route.text("gateway"),
        )
