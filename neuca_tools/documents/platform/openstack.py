"""Read OpenStack's network_data.json: links, the networks on them, and their routes.

Reference: nova, doc/api_schemas/network_data.json. Beyond this schema, everything is accepted that
cloud-init accepts (sources/helpers/openstack.py).
"""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable
from functools import partial
from typing import Optional

from neuca_tools.documents.neuca.link_kinds import OPTIONS
from neuca_tools.documents.platform import automatic, dns, virtual_links
from neuca_tools.documents.platform.drafts import QINQ, Draft, finish_document, nic_draft
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.virtual_links import LinkDrafts, SkippedLinks, Upper
from neuca_tools.model import PlatformDocument
from neuca_tools.model.rows import Severity

NAME = "network_data.json"
# LEGACY_EXPOSED_VIF_TYPES of nova (network/model.py), and what other clouds write instead.
PHYSICAL = frozenset(
    "bridge dvs hw_veb hyperv ovs tap vhostuser vif phy ethernet bgpovs cascading macvtap"
    " hostdev_physical ib_hostdev infiniband physical".split()
)
_STATIC = ("ipv4", "ipv6", "static", "static6")
_UNUSABLE = "it cannot be used, because its lower device cannot be used"
# Keys that only other programs use, or that are read elsewhere (DNS): no warning about them.
_LINK_KEYS_OF_OTHERS = ("id", "vif_id")
_NETWORK_KEYS_OF_OTHERS = ("id", "network_id", "dns_nameservers", "dns_search")
# Keys that nova writes for networks with automatic addresses too (virt/netutils.py).
_KEYS_WITHOUT_EFFECT = ("ip_address", "netmask")
_DEFAULT_ROUTES = (("0.0.0.0", "0.0.0.0"), ("::", "::"))
# Our names of bond options by their keys: those of the bonding driver after `bond_`.
_BOND = {f"bond_{name.replace('-', '_')}": name for name in OPTIONS["bond"]}
KEYS = (
    frozenset(
        "id type ethernet_mac_address mtu name vlan_id vlan_link vlan_mac_address bond_links link"
        " ip_address netmask network gateway prefix metric".split()
    )
    | _BOND.keys()
    | {"bond_primary"}
    | dns.KEYS
)


def read(root: Part) -> PlatformDocument:
    """Read the document: NICs, then the bonds of NICs, then the VLANs on both, then networks.

    `mtu: null` requests no MTU. The addresses of DHCP and SLAAC networks are not configured.
    """
    root.warn_besides("links", "networks", "services")
    kinds = _links_by_kind(root)
    drafts = LinkDrafts()
    reasons = drafts.no_vlan_reasons
    reasons.update((link.text("id") or "", _UNUSABLE) for link in root.parts("links"))
    reasons.update((link.text("id") or "", QINQ) for link in kinds["vlan"])
    reasons.pop("", None)
    for link in kinds["physical"]:
        _add_draft(drafts, link, _nic_draft(link))
    for number, link in enumerate(kinds["bond"]):
        _add_draft(drafts, link, _bond_draft(number, link))
    _set_members(kinds["physical"], drafts)
    for link in kinds["vlan"]:
        unknown = "no link has this id, ignoring the VLAN"
        _add_draft(drafts, link, drafts.vlan_draft(link, ("vlan_link", "vlan_id"), unknown))
    unknown = _severity_of_unknown_ids(drafts)
    for network in root.parts("networks"):
        _add_network(network, drafts, unknown)
    return finish_document(drafts.values(), root, by_hand=True)


def _links_by_kind(root: Part) -> dict[str, list[Part]]:
    """The links, each of an unknown kind as a NIC."""
    links_by_kind: dict[str, list[Part]] = {"physical": [], "bond": [], "vlan": []}
    for link in root.parts("links"):
        links_by_kind.get(link.text("type") or "", links_by_kind["physical"]).append(link)
    return links_by_kind


def _add_draft(drafts: LinkDrafts, link: Part, draft: Optional[Draft]) -> None:
    """Add a draft by the id of its link, or by its path if it has no id or that of another link."""
    if draft is None:
        return
    link.use(*_LINK_KEYS_OF_OTHERS)
    draft.mtu = draft.part.mtu()
    name = link.text("id") or link.path
    if name in drafts:
        link.fault("id", name, "an earlier link has this id, so no network is on this one")
        name = link.path
    drafts[name] = draft


def _nic_draft(link: Part) -> Optional[Draft]:
    """A NIC; without a MAC address, it is identified by its name, as by Metal3 and Airship."""
    severity: Severity = "error"
    if (link.text("type") or "phy") not in PHYSICAL:
        link.warn("type", "an unknown kind of link, treated as a NIC")
        severity = "warning"
    if link.text("ethernet_mac_address") is None and link.text("name") is None:
        reason = "a link without a MAC address or a name, ignoring it"
        link.fault("ethernet_mac_address", None, reason, severity)
        return None
    return nic_draft(link, "ethernet_mac_address")


def _set_members(physical: Iterable[Part], drafts: LinkDrafts) -> None:
    """Set the members of the bonds, and skip the bonds of which a member is unusable."""
    named = LinkDrafts()
    named.update((draft.name, draft) for draft in drafts.values() if draft.name)
    of_bonds = ((name, draft.part) for name, draft in drafts.items() if draft.key.kind == "bond")
    bonds = {name: Upper(part, "bond", "bond_links") for name, part in of_bonds}
    skipped = SkippedLinks((), bonds, drafts)
    ids = (link.text("id") for link in physical)
    skipped.add_unusable(name for name in ids if name and name not in drafts)
    skipped.connect_others(partial(_set_lower_devices, drafts, named))


def _bond_draft(number: int, link: Part) -> Optional[Draft]:
    """A bond. OpenStack gives it an id but no name, so it is `bond<number>`, as in cloud-init."""
    bond = virtual_links.virtual_draft("bond", link.text("name") or f"bond{number}", link)
    return bond if bond and virtual_links.set_options(bond, link, _BOND) else None


def _set_lower_devices(drafts: LinkDrafts, named: LinkDrafts, bond: Draft, upper: Upper) -> None:
    """Set the members of a bond, and the primary one, which is given by link id or by name."""
    drafts.set_members(bond, upper.part, upper.key)
    known = drafts if (bond.part.text("bond_primary") or "") in drafts else named
    known.set_primary(bond, bond.part, "bond_primary")


def _severity_of_unknown_ids(drafts: LinkDrafts) -> Severity:
    """An error if the link may be one without an id, or if there are no links at all."""
    have_ids = all(draft.part.text("id") for draft in drafts.values())
    return "warning" if drafts and have_ids else "error"


def _add_network(network: Part, drafts: LinkDrafts, unknown: Severity) -> None:
    kind, draft = network.text("type") or "", _draft_below(network, drafts, unknown)
    if draft is None:
        return
    network = network.for_nic(draft.key.mac)
    network.use(*_NETWORK_KEYS_OF_OTHERS)
    _take_dns(network, draft)
    draft.other_parts.append(network)
    first = len(draft.routes)
    if kind in _STATIC:
        _add_static(network, draft)
    elif kind in automatic.DHCP or kind in automatic.ADVERTISED:
        _add_automatic(network, draft, automatic.DHCP.get(kind))
    else:
        if kind != "manual":
            network.warn_of_type("an unknown kind of network, ignoring it")
        network.close()
    automatic.set_metric(draft, network, first)


def _draft_below(network: Part, drafts: LinkDrafts, unknown: Severity) -> Optional[Draft]:
    """The draft of a network's link; None if that is unusable, with a fault unless it has one.

    `unknown` is how severe it is if no link has the id.
    """
    below = network.text("link") or ""
    if not below:
        network.fault("link", None, "a network without its link, ignoring it")
    elif below not in drafts and below not in drafts.no_vlan_reasons:
        network.fault("link", below, "no link has this id, ignoring the network", unknown)
    return drafts.get(below)


def _take_dns(network: Part, draft: Draft) -> None:
    for service in network.parts("services"):
        if service.text("type") == "dns":
            draft.offer_dns(service, "address", "nameservers")
    draft.offer_dns(network, "dns_nameservers", "nameservers")
    draft.offer_dns(network, "dns_search", "search")
    network.close("services")


def _add_static(network: Part, draft: Draft) -> None:
    address = network.text("ip_address")
    if address is None:
        network.fault("ip_address", None, "a static network without its address")
        network.close()
    else:
        with draft.all_or_nothing():
            draft.add_address(network, "ip_address", address, network.text("netmask"))
    draft.add_default_route(network, "gateway")
    draft.has_platform_gateways = True
    for route in network.parts("routes"):
        route.close("services")
        draft.read_route(route)


def _add_automatic(network: Part, draft: Draft, dhcp: Optional[int]) -> None:
    """A network with DHCP of the family `dhcp` (4, 6), or with router advertisements if None.

    Its default route comes with its addresses; its other routes may come from nowhere else.
    """
    if dhcp is None:
        draft.accept_advertisements()
    else:
        draft.use_dhcp(dhcp)
    network.use(*_KEYS_WITHOUT_EFFECT)
    for route in network.parts("routes"):
        if (route.text("network"), route.text("netmask")) in _DEFAULT_ROUTES:
            route.close()
        else:
            route.close("services")
            draft.read_route(route)
