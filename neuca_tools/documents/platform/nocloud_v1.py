"""Read version 1 of NoCloud's network-config, a list of links with their subnets.

References: the cloud-init manual, "Networking config Version 1", and its
config/schemas/schema-network-config-v1.json.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.link_kinds import OPTIONS
from neuca_tools.documents.platform import automatic, dns, virtual_links
from neuca_tools.documents.platform.drafts import LEFT, QINQ, Draft, finish_document, nic_draft
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.virtual_links import LinkDrafts, SkippedLinks, Upper
from neuca_tools.model import ACCEPT_RA, Network, PlatformDocument
from neuca_tools.model.addresses import NetworkTable

# All spellings occur: `bond-min-links`, `bond_min_links`, and `bond-min_links` in the schema.
_BOND = {
    **{f"bond-{name}": name for name in OPTIONS["bond"]},
    **{f"bond-{name.replace('-', '_')}": name for name in OPTIONS["bond"]},
    **{f"bond_{name.replace('-', '_')}": name for name in OPTIONS["bond"]},
}
_BRIDGE = {
    "bridge_stp": "stp",
    "bridge_fd": "forward-delay",
    "bridge_hello": "hello-time",
    "bridge_maxage": "max-age",
    "bridge_ageing": "ageing-time",
    "bridge_bridgeprio": "priority",
}
_PRIMARY = ("bond-primary", "bond_primary")
_OPTIONS = {"bond": _BOND, "bridge": _BRIDGE}
_LOWER_KEYS = {"bond": "bond_interfaces", "bridge": "bridge_interfaces", "vlan": "vlan_link"}
KEYS = (
    frozenset(
        "type name mac_address mtu subnets address netmask prefix gateway metric network"
        " destination vlan_link vlan_id bond_interfaces bridge_interfaces params control"
        " accept-ra interface keep_configuration".split()
    )
    | _BOND.keys()
    | _BRIDGE.keys()
    | {*_PRIMARY, "bridge_pathcost", "bridge_portprio", "wakeonlan"}
    | dns.KEYS
)
_STATIC = ("static", "static4", "static6")
_UNUSABLE = "it cannot be used, because its NIC cannot be used"
_FOR_OTHERS = ("nameserver", "loopback")
_NICS = ("physical", "infiniband")
_KINDS = (*_NICS, "bond", "bridge", "vlan", "route", *_FOR_OTHERS)


def read(top: Part) -> PlatformDocument:
    """Read the document. VLANs come after the links they are on, and members after all of them."""
    top.warn_besides("version", "config")
    if top.value("config") is None and not top.faults.unusable:
        top.fault("config", None, "version 1 has no links")
    taken = _left_to_others(top)
    drafts = LinkDrafts()
    for link in top.parts("config"):
        name = link.text("name") or ""
        drafts.add(name, _nic_or_upper_draft(name, link))
    drafts.no_vlan_reasons = _no_vlan_reasons(top, taken)
    for link in _of_kind(top, "vlan"):
        drafts.add_named_nics(link, "vlan_link")
        drafts.add(link.text("name") or link.path, _vlan_draft(link, drafts))
    _set_members(top, taken, drafts)
    _add_unattached(_of_kind(top, "route"), drafts.values())
    for server in _of_kind(top, "nameserver"):
        draft = drafts.get(server.text("interface") or "")
        if draft is not None:
            draft.offer_dns(server, "address", "nameservers")
            draft.offer_dns(server, "search", "search")
    return finish_document(drafts.values(), top, by_hand=True)


def _no_vlan_reasons(top: Part, taken: Iterable[str]) -> dict[str, str]:
    """Why links that are described cannot be the lower device of a VLAN, by their names."""
    names = (link.text("name") or "" for link in top.parts("config"))
    no_vlan_reasons = {**dict.fromkeys(names, _UNUSABLE), **dict.fromkeys(taken, LEFT)}
    no_vlan_reasons.update((link.text("name") or "", QINQ) for link in _of_kind(top, "vlan"))
    no_vlan_reasons.pop("", None)
    return no_vlan_reasons


def _of_kind(top: Part, kind: str) -> Iterator[Part]:
    return (link for link in top.parts("config") if link.text("type") == kind)


def _left_to_others(top: Part) -> set[str]:
    """The names of links of unsupported kinds."""
    names = set()
    for link in top.parts("config"):
        kind = link.text("type")
        if kind not in _KINDS or (kind == "loopback" and _has_addresses(link)):
            names.add(link.text("name") or "")
            reason = "this kind of link is left to other programs, with everything on top of it"
            link.warn_of_type(reason)
    return names


def _has_addresses(link: Part) -> bool:
    return any(subnet.text("type") in _STATIC for subnet in link.parts("subnets"))


def _nic_or_upper_draft(name: str, link: Part) -> Optional[Draft]:
    """A NIC, bond or bridge; None for everything else."""
    kind = link.text("type") or ""
    if kind in _OPTIONS:
        return _virtual_draft(kind, name, link)
    if kind not in _NICS:
        return None
    if not name:
        link.fault("name", None, "a link without a name, ignoring it")
        return None
    draft = nic_draft(link, "mac_address")
    return draft and _add_common_keys(draft, draft.part)


def _set_members(top: Part, taken: Iterable[str], drafts: LinkDrafts) -> None:
    uppers: dict[str, Upper] = {}
    for link in top.parts("config"):
        kind = link.text("type") or ""
        if kind in _LOWER_KEYS:
            uppers[link.text("name") or link.path] = Upper(link, kind, _LOWER_KEYS[kind])
    for name, upper in uppers.items():
        if name in drafts and upper.kind != "vlan":
            drafts.add_named_nics(upper.part, upper.key)
    skipped = SkippedLinks(sorted(taken), uppers, drafts)
    skipped.add_unusable(name for name in drafts.no_vlan_reasons if name not in drafts)
    skipped.connect_others(partial(drafts.set_lower_devices, "params", _PRIMARY))


def _virtual_draft(kind: str, name: str, link: Part) -> Optional[Draft]:
    """A bond or bridge. A bond without a mode gets the kernel's default, as with cloud-init."""
    defaults = {"mode": "balance-rr"} if kind == "bond" else {}
    draft = virtual_links.virtual_draft(kind, name, link)
    if draft is None:
        return None
    if not virtual_links.set_options(draft, link.child("params"), _OPTIONS[kind], defaults):
        return None
    return _add_common_keys(draft, link)


def _vlan_draft(link: Part, drafts: LinkDrafts) -> Optional[Draft]:
    draft = drafts.vlan_draft(link, ("vlan_link", "vlan_id"))
    if draft is None:
        return None
    draft.name = draft.part.read("name", values.link_name)
    return _add_common_keys(draft, draft.part)


def set_mtu_and_accept_ra(draft: Draft, link: Part) -> None:
    """Set the MTU, and whether router advertisements are accepted."""
    draft.mtu = link.mtu()
    accept_ra = link.flag("accept-ra")
    if accept_ra is not None:
        draft.automatic = draft.automatic._replace(accept_ra=accept_ra)
        draft.sysctls[ACCEPT_RA] = str(int(accept_ra))


def _add_common_keys(draft: Draft, link: Part) -> Draft:
    set_mtu_and_accept_ra(draft, link)
    if draft.key.kind == "physical" and link.flag("wakeonlan"):
        draft.device["wake-on-lan"] = "magic"
    link.use_defaults("wakeonlan", "keep_configuration")
    _add_subnets(draft, list(link.parts("subnets")))
    if draft.automatic.dhcp4 or draft.automatic.dhcp6:
        draft.automatic = draft.automatic._replace(critical=link.flag("keep_configuration"))
    return draft


def _add_subnets(draft: Draft, subnets: Sequence[Part]) -> None:
    """Add the subnets. Those that are left to the user are ignored; if all are, so is the link."""
    manual = [subnet for subnet in subnets if subnet.text("control") == "manual"]
    if manual and len(manual) == len(subnets):
        draft.leave_to_user()
    for subnet in subnets:
        if subnet in manual and draft.state != "user":
            subnet.warn("control", "a subnet that is left to the user, ignoring it")
            subnet.close()
        else:
            _add_subnet(draft, subnet)


def _add_subnet(draft: Draft, subnet: Part) -> None:
    kind = subnet.text("type") or ""
    if kind in automatic.DHCP:
        draft.use_dhcp(automatic.DHCP[kind])
    elif kind in _STATIC:
        _add_static(draft, subnet)
    elif kind in automatic.ADVERTISED:
        draft.accept_advertisements()
    elif kind != "manual":
        subnet.warn_of_type("an unknown kind of subnet, ignoring it")
        subnet.close()
        return
    # `control: auto` is the default; `ipv4` and `ipv6` only repeat the family.
    subnet.use("control", "ipv4", "ipv6")
    draft.offer_dns(subnet, "dns_nameservers", "nameservers")
    draft.offer_dns(subnet, "dns_search", "search")
    first = len(draft.routes)
    add_routes(draft, subnet)
    automatic.set_metric(draft, subnet, first)


def _add_static(draft: Draft, subnet: Part) -> None:
    address = subnet.text("address")
    if address is None:
        subnet.fault("address", None, "a static subnet without its address")
    else:
        with draft.all_or_nothing():
            draft.add_address(subnet, "address", address, subnet.prefix_length())
        if ":" in address:
            draft.set_ipv6_mtu(subnet, "mtu")
        else:  # it becomes the link's MTU, as in cloud-init
            draft.mtu = subnet.mtu() or draft.mtu
    draft.add_default_route(subnet, "gateway")


def add_routes(draft: Draft, part: Part) -> None:
    """Add the routes of a subnet, or of another object with such a list."""
    for route in part.parts("routes"):
        draft.read_route(route, _destination_key(route))


def _destination_key(route: Part) -> str:
    return "destination" if route.text("destination") else "network"


def _add_unattached(routes: Iterable[Part], drafts: Iterable[Draft]) -> None:
    """Add each top-level route to the first link that has its gateway in one of its networks."""
    owners: dict[Network, tuple[int, Draft]] = {}
    for number, draft in enumerate(drafts):
        for address in draft.addresses:
            owners.setdefault(address.network, (number, draft))
    table = NetworkTable(owners)
    for route in routes:
        gateway = route.read("gateway", values.host)
        if gateway is None:
            continue
        on_link = [owners[network] for network in table.covering(gateway)]
        if not on_link:
            route.warn("gateway", "it is in the network of no link, ignoring the route")
            continue
        _, draft = min(on_link, key=itemgetter(0))
        draft.read_route(route, _destination_key(route))
        draft.other_parts.append(route)
