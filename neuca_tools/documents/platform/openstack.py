"""Read OpenStack's network_data.json: links, the networks on them, and their routes.

Reference: nova, doc/api_schemas/network_data.json. Beyond this schema, everything is accepted that
cloud-init accepts (sources/helpers/openstack.py).
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
# LEGACY_EXPOSED_VIF_TYPES of nova (network/model.py), and what other clouds write instead.
_PHYSICAL = frozenset(
    "bridge dvs hw_veb hyperv ovs tap vhostuser vif phy ethernet bgpovs cascading macvtap hostdev_physical".split()
)
_STATIC = ("ipv4", "ipv6", "static", "static6")
# The family of each kind of network with DHCP.
_DHCP = {
    "ipv4_dhcp": 4,
    "dhcp": 4,
    "dhcp4": 4,
    "ipv6_dhcp": 6,
    "ipv6_dhcpv6-stateful": 6,
    "dhcp6": 6,
}
_ADVERTISED = ("ipv6_slaac", "ipv6_dhcpv6-stateless")
# The names that the bonding driver uses.
_BOND = {f"bond_{name.replace('-', '_')}": name for name in READERS["bond"]}
KEYS = (
    frozenset(
        "id type ethernet_mac_address mtu name vlan_id vlan_link vlan_mac_address bond_links link ip_address netmask"
        " network gateway".split()
    )
    | _BOND.keys()
    | dns.KEYS
)


def read(root: Part) -> PlatformDocument:
    """Read the document: NICs, then the bonds of NICs, then the VLANs on both, then networks.

    `mtu: null` requests no MTU. The addresses of DHCP and SLAAC networks are not configured.
    """
    kinds: dict[str, list[Part]] = {"physical": [], "bond": [], "vlan": []}
    for link in root.parts("links"):
        kinds.get(link.text("type") or "", kinds["physical"]).append(link)
    ids = {link.text("id") or "" for link in root.parts("links")} - {""}
    drafts: dict[str, Draft] = {}
    for link in kinds["physical"]:
        _add(drafts, link, _physical(link))
    for number, link in enumerate(kinds["bond"]):
        _add(drafts, link, _bond(number, link, drafts))
    for link in kinds["vlan"]:
        _add(drafts, link, _vlan(link, ids, drafts))
    for network in root.parts("networks"):
        _network(network, drafts, ids)
    return finish(drafts.values(), root)


def _add(drafts: dict[str, Draft], link: Part, draft: Optional[Draft]) -> None:
    """Add a draft by the id of its link, or by its path where another link has that id."""
    if draft is None:
        return
    name = link.text("id") or ""
    if name in drafts:
        name = draft.part.path
    drafts[name] = draft


def _physical(link: Part) -> Optional[Draft]:
    severity: Literal["error", "warning"] = "error"
    if (link.text("type") or "phy") not in _PHYSICAL:
        link.warn("type", "an unknown kind of link, taken for a NIC")
        severity = "warning"
    if link.text("ethernet_mac_address") is None:
        link.fault(
            "ethernet_mac_address", None, "a link without a MAC address, ignoring it", severity
        )
        return None
    mac = link.read("ethernet_mac_address", values.mac)
    return None if mac is None else _draft(link.about(mac), LinkKey(mac))


def _bond(number: int, link: Part, drafts: dict[str, Draft]) -> Optional[Draft]:
    """A bond. OpenStack gives it no name, so bonds are numbered, as cloud-init does; an id is no name."""
    bond = made.draft("bond", link.text("name") or f"bond{number}", link)
    if bond is not None:
        made.options(bond, link, _BOND)
        made.set_members(bond, link, "bond_links", drafts)
        bond.mtu = link.read("mtu", values.mtu)
    return bond


def _vlan(link: Part, ids: set[str], drafts: dict[str, Draft]) -> Optional[Draft]:
    below = link.text("vlan_link") or ""
    parent, number = drafts.get(below), link.read("vlan_id", values.vlan_id)
    if parent is None or parent.key.vlan_id is not None:
        if below in ids:
            link.fault("vlan_link", below, "what it is on cannot be used, nor can it", "warning")
        else:
            link.fault("vlan_link", below, "no link has this id, ignoring the VLAN")
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


def _network(network: Part, drafts: dict[str, Draft], ids: set[str]) -> None:
    below, kind = network.text("link") or "", network.text("type") or ""
    draft = drafts.get(below)
    if draft is None:
        if below not in ids:
            network.fault("link", below, "no link has this id, ignoring the network", "warning")
        return
    network = network.about(draft.key.mac)
    if kind in _DHCP:
        draft.lease(_DHCP[kind])
    elif kind in _STATIC:
        _static(network, draft)
    elif kind in _ADVERTISED:
        draft.listen()
    elif kind != "manual":
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
