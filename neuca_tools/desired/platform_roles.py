"""The roles of NICs according to the platform's document, and which of its requests are used."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from neuca_tools.desired.policy import NOTHING, PlatformClaims
from neuca_tools.desired.roles import Roles
from neuca_tools.desired.virtual_links import message_subject
from neuca_tools.documents.stacking import all_lower_devices, without_sysctl
from neuca_tools.model import (
    ACCEPT_RA,
    LinkKey,
    LinkRequest,
    PlatformDocument,
    Problem,
    Requests,
    World,
    topology,
)
from neuca_tools.model.device_settings import Note

DHCP_LEFT_TO_OTHERS = "DHCP on it is left to other programs"
NO_DHCP_ON_VIRTUAL = (
    "no program on this host runs DHCP on virtual links: start systemd-networkd, or install"
    " dhcpcd (dhcpcd-base)"
)
MANAGEMENT_NOT_OURS = (
    "neucad never configures the management NIC: that is the task of cloud-init or of the network"
    " manager of the image"
)
DEFAULT_ROUTE_STAYS = "the default route of this host stays with the management NIC"


def platform_claims(
    platform: PlatformDocument, configured: Collection[str], world: World
) -> PlatformClaims:
    """What the document says about management NICs, except those that the configuration names."""
    if not (platform.links or platform.management):  # saves a look at every NIC
        return NOTHING
    # A document may name a NIC by its present MAC.
    identity_by_mac = {device.mac: topology.identity(device) for device in topology.nics_in(world)}
    identity_by_mac.update((mac, mac) for mac in map(topology.identity, topology.nics_in(world)))
    firm: dict[str, str] = {}
    weak: dict[str, str] = {}
    for hint in platform.management:
        if hint.mac not in configured:
            reasons = firm if hint.firm else weak
            reasons[identity_by_mac.get(hint.mac, hint.mac)] = hint.reason
    macs = {request.key.mac for request in platform.links}
    return PlatformClaims(
        frozenset(identity_by_mac.get(mac, mac) for mac in macs),
        firm,
        tuple(_management_groups(platform, weak)),
        _dataplane_vlans(platform, world),
    )


def _dataplane_vlans(platform: PlatformDocument, world: World) -> frozenset[LinkKey]:
    """The VLANs that are not for management: while nothing has a default route, one that has a
    gateway or DHCP may be.
    """
    has_default = any(route.is_default for route in world.routes)
    vlans = (request for request in platform.links if request.key.vlan_id is not None)
    return frozenset(
        request.key
        for request in vlans
        if has_default or not (request.leases.has_dhcp or request.routing.gateways)
    )


def _management_groups(
    platform: PlatformDocument, weak: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """The NICs that may be for management, with reasons; those below a virtual link are a group."""
    requests = {request.key: request for request in platform.links}
    lower = all_lower_devices(weak, requests)
    for top in weak:
        if top not in lower:
            group = {top, *all_lower_devices([top], requests)}
            yield {mac: weak[mac] for mac in weak if mac in group and not LinkKey(mac).virtual_kind}


def left_alone(platform: PlatformDocument) -> frozenset[str]:
    """The virtual links with DHCP and all below them, which other programs create and configure."""
    requests = {request.key: request for request in platform.links}
    dhcp_links = {
        key.mac for key, request in requests.items() if key.virtual_kind and request.leases.has_dhcp
    }
    return frozenset(dhcp_links | all_lower_devices(dhcp_links, requests))


def requests_for(
    platform: PlatformDocument, roles: Roles, named: Collection[str], world: World
) -> Iterator[LinkRequest]:
    """The requests for dataplane links.

    The members of refused VRFs are left out, because outside of its VRF the addresses of a member
    would be reachable. NICs in `named`, those of the NEuca document and the configuration, lose
    the document's DHCP request, and that for router advertisements.
    """
    barred = dict(_barred_members(platform, roles, world))
    for request in platform.links:
        if roles.role_of(request.key) != "dataplane" or request.key in barred:
            continue
        if request.key.mac in named:
            request = without_sysctl(request, ACCEPT_RA)._replace(automatic=None)
        yield request


def role_reasons(
    platform: PlatformDocument,
    roles: Roles,
    named: Collection[str],
    left_to_others: Collection[str],
) -> dict[str, str]:
    """Why NICs in the document are dataplane NICs, and why `left_to_others` are left alone."""
    hints = {hint.mac: hint.reason for hint in reversed(platform.management)}
    chosen = _chosen_sentence(roles)
    reasons = dict.fromkeys(set(left_to_others) - roles.reasons.keys(), DHCP_LEFT_TO_OTHERS)
    for mac in dict.fromkeys(request.key.mac for request in platform.links):
        if roles.role(mac) != "dataplane":
            continue
        if mac in hints and mac in named:
            reasons[mac] = f"a NEuca document or the configuration names it, though {hints[mac]}"
        elif mac in hints:
            reasons[mac] = f"{hints[mac]}, but {chosen}"
        elif mac not in named:
            text = "the platform's document names it, and does not indicate a management NIC"
            reasons[mac] = text
    return reasons


def _chosen_sentence(roles: Roles) -> str:
    """Which NIC is for management, and why."""
    for mac, reason in sorted(roles.reasons.items()):  # of several, always the same one
        if roles.role(mac) == "management":
            return f'the management NIC is "{roles.name(mac) or mac}": {reason}'
    return "no NIC on this host is for management"


def unused_notes(
    platform: PlatformDocument, roles: Roles, used_requests: Requests
) -> Iterator[Note]:
    """Notes on the gateways and DHCP of dataplane links in the document that are not used."""
    gateways = {LinkKey(hint.mac): hint.reason for hint in platform.management}
    sharing = _sharing_a_hint(platform)
    for request in platform.links:
        key = request.key
        if roles.role_of(key) != "dataplane" or key not in used_requests:
            continue
        reason = _no_client_reason(key, roles) if used_requests[key].leases.has_dhcp else ""
        if reason:
            yield Note("dhcp", "not applicable", reason, key)
        elif key.nic in gateways and key not in sharing and not request.leases.has_dhcp:
            reason = f"{gateways[key.nic]}; {DEFAULT_ROUTE_STAYS}"
            yield Note("gateway", "not applicable", reason, key)


def _sharing_a_hint(platform: PlatformDocument) -> set[LinkKey]:
    """The links without a gateway of their own that are VLANs, or lie below a link with one."""
    requests = {request.key: request for request in platform.links}
    upper = {key for key, request in requests.items() if request.routing.gateways}
    lower = {*map(LinkKey, all_lower_devices([key.mac for key in upper], requests))}
    lower |= {key.nic for key in upper} | {key for key in requests if key.vlan_id}
    return lower - upper


def refused_links(platform: PlatformDocument, roles: Roles, world: World) -> Iterator[Problem]:
    """A problem for each virtual link and VLAN for management that no other program has created.

    The members of such VRFs have one, too.
    """
    requests = {request.key: request for request in platform.links}
    for key in _refused_keys(platform, roles, world):
        lowers = (key.mac, *sorted(all_lower_devices((key.mac,), requests)))
        reason = next(filter(None, map(roles.reasons.get, lowers)), "by its MAC address")
        yield Problem("refused", f"{message_subject(key)} is on the management NIC: {reason}", key)
    for member, vrf in _barred_members(platform, roles, world):
        text = f'it belongs to the VRF "{vrf.virtual_name}", which cannot be created'
        yield Problem("refused", text, member)


def _refused_keys(platform: PlatformDocument, roles: Roles, world: World) -> Iterator[LinkKey]:
    requests = {request.key: request for request in platform.links}
    for key in requests:
        if key.rank and roles.role_of(key) == "management" and not _is_there(key, requests, world):
            yield key


def _barred_members(
    platform: PlatformDocument, roles: Roles, world: World
) -> Iterator[tuple[LinkKey, LinkKey]]:
    """The dataplane links that belong into a refused VRF, each with its VRF."""
    refused_keys = {*_refused_keys(platform, roles, world)}
    for request in platform.links:
        if request.key in refused_keys and request.key.kind == "vrf" and request.virtual:
            for member in request.virtual.members:
                if roles.role_of(member) == "dataplane":
                    yield member, request.key


def _is_there(key: LinkKey, requests: Requests, world: World) -> bool:
    """Whether such a link is on its NICs, whatever its name."""
    macs = {key.mac} | all_lower_devices((key.mac,), requests)
    nics = [device.index for device in topology.nics_in(world) if topology.identity(device) in macs]
    uppers = (world.devices[index] for index in topology.with_upper_devices(world, nics) - {*nics})
    return any((device.kind, device.vlan_id) == (key.kind, key.vlan_id) for device in uppers)


def absent_notes(platform: PlatformDocument, roles: Roles, world: World) -> Iterator[Note]:
    """Notes on addresses and default routes of management links that are absent."""
    present = topology.hosts_of(world, world.addresses)
    families = {route.to.version for route in topology.best_default_routes(world.routes)}
    for request in platform.links:
        if roles.role_of(request.key) != "management" or not roles.name(request.key.mac):
            continue
        absent = [str(address) for address in request.addresses if address.ip not in present]
        vias = [via for via in request.routing.gateways if via.version not in families]
        if absent:
            absent += map("the default route through {}".format, vias)
            reason = f"{', '.join(absent)}: absent, and {MANAGEMENT_NOT_OURS}"
            yield Note("addresses", "not applicable", reason, request.key)


def _no_client_reason(key: LinkKey, roles: Roles) -> str:
    """Why the agent has no DHCP client for this link; empty if it has one."""
    if key.mac in roles.dhcp.left_to_others:
        return DHCP_LEFT_TO_OTHERS
    return NO_DHCP_ON_VIRTUAL if key.rank and key not in roles.dhcp.clients else ""


def choice_sentences(roles: Roles) -> Iterator[str]:
    """A sentence if the document has several links that could equally be the management link."""
    if not roles.choice.equal_candidates:
        return
    others = ", ".join(sorted(roles.name(mac) or mac for mac in roles.choice.equal_candidates))
    yield (
        f"{_chosen_sentence(roles)}; the platform's document has a gateway or DHCP on {others} too:"
        " to choose otherwise, set [network] management-macs"
    )
