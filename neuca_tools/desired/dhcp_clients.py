"""Which client does DHCP on which link: a network manager, or a program that the agent starts.

systemd-networkd does DHCP on links of any kind. NetworkManager does so only on NICs, because it
would take ownership of a virtual link and delete it together with the profile. All other links are
served by dhcpcd, with one process for each link.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Optional

from neuca_tools.desired import dhcp_files
from neuca_tools.desired.dhcp_files import MANAGERS, OWN, client_labels, link_of_label
from neuca_tools.desired.management import MANAGEMENT_DHCP_SECONDS
from neuca_tools.desired.roles import Dhcp, Roles, find_links
from neuca_tools.desired.router_advertisements import ipv6_clients
from neuca_tools.documents.neuca.link_kinds import is_ipoib
from neuca_tools.documents.stacking import without_sysctl
from neuca_tools.model import ACCEPT_RA, Device, LinkKey, LinkRequest, Problem, Requests, World
from neuca_tools.model.ports import is_guid
from neuca_tools.model.topology import identity, is_nic

# Seconds after a boot at which a pass sees whether a network manager has started meanwhile.
MANAGER_SECONDS = (30.0, 60.0, 120.0, 240.0, MANAGEMENT_DHCP_SECONDS)
PACKAGE = "dhcpcd (dhcpcd-base)"
_NO_ADDRESS = "it has no address from DHCP or a router"
UNSERVED = (
    f"{_NO_ADDRESS}, and this host has no DHCP client: neither systemd-networkd nor NetworkManager"
    f" is running, and dhcpcd is not installed: install {PACKAGE}"
)
NOT_INSTALLED = (
    f"{_NO_ADDRESS}, and the program that [linux] dhcp-client names is not installed: install"
    f" {PACKAGE}"
)
NOT_ON_INFINIBAND = (
    f"{_NO_ADDRESS}, and DHCP on an InfiniBand link is left to other programs: configure a DHCP"
    " client for it"
)
NOT_ON_VIRTUAL = (
    f"{_NO_ADDRESS}, and no program on this host takes router advertisements on virtual links:"
    f" start systemd-networkd, or install {PACKAGE}"
)
NO_IPV6 = "DHCPv6 and router advertisements: this kernel has no IPv6"


def wants_dhcp(request: LinkRequest) -> bool:
    """Whether DHCP or router advertisements are requested on this link."""
    if request.key.kind == "vrf" or request.state in ("down", "user"):
        return False
    return bool(request.leases.dhcp4 or request.leases.has_ipv6)


def network_manager(world: World, roles: Roles) -> str:
    """The network manager that does DHCP on dataplane links; empty if none does.

    If both managers run, it is the one that manages the management NIC. As long as none has started
    during a boot, or the present one does not respond, it is the one that has files of ours.
    """
    if world.own_clients.replaces_managers or _runs_no_manager(world):
        return ""
    known = _managers_with_our_files(world)
    present = next((name for name in MANAGERS if name in known), "")
    if not world.managers or present in world.silent_managers:
        return present
    return _running_manager(world, roles)


def _managers_with_our_files(world: World) -> set[str]:
    return {manager for manager, _ in dhcp_files.known_files(world.files).values()}


def _running_manager(world: World, roles: Roles) -> str:
    """The manager that runs; if both do, the one that manages the management NIC.

    Empty if that may be one that does not respond.
    """
    running = [name for name in MANAGERS if name in world.managers]
    names = {world.devices[index].name for index in roles.guard.management & world.devices.keys()}
    for name in running:
        if any(world.managers[name].get(interface) == "managed" for interface in names):
            return name
    return "" if world.silent_managers else next(iter(running), "")


def _runs_no_manager(world: World) -> bool:
    """Whether no network manager runs here, so that dhcpcd has to serve NICs too.

    Early in a boot, a manager that is enabled may not have started yet.
    """
    own = world.own_clients
    if not own.program or not world.no_manager_runs:
        return False
    return not own.manager_may_start or world.is_aged(MANAGEMENT_DHCP_SECONDS)


def _has_own_client(world: World, is_virtual: bool) -> bool:
    """Whether dhcpcd may do DHCP on NICs, or with `is_virtual` on virtual links.

    NetworkManager leaves virtual links to it, also while it runs without a response.
    """
    own, running = world.own_clients, {*world.managers, *world.silent_managers}
    is_left_over = is_virtual and "networkmanager" in running
    is_chosen = own.replaces_managers or is_left_over or _runs_no_manager(world)
    return bool(own.program) and is_chosen


def serves_virtual(world: World) -> bool:
    """Whether this host has a client for DHCP on virtual links."""
    if _has_own_client(world, is_virtual=True):
        return True
    managers = {*world.managers, *_managers_with_our_files(world)}
    return not world.own_clients.replaces_managers and "networkd" in managers


def assign_clients(
    requests: Requests, roles: Roles, world: World, trusted: Optional[Collection[LinkKey]]
) -> Roles:
    """The roles, with the DHCP client of each link that has one.

    `trusted`: see `merge.trusted_links`. NICs with DHCP and no client are left to other programs.
    """
    manager = network_manager(world, roles)
    clients = _client_by_link(requests, roles, world, manager)
    if trusted is not None:
        undecided = {*requests}.difference(trusted, _member_keys(requests, roles, world))
        clients = {**dict(_kept_clients(undecided, roles, world, manager)), **clients}
    leased = {key.mac for key, request in requests.items() if request.leases.has_dhcp}
    left = leased - {key.mac for key in clients}
    if manager:
        left = set(filter(is_guid, left))
    dataplane = {mac for mac in left if roles.role(mac) == "dataplane"}
    return replace(roles, dhcp=Dhcp(clients, frozenset(dataplane)))


def _kept_clients(
    undecided: Collection[LinkKey], roles: Roles, world: World, manager: str
) -> Iterator[tuple[LinkKey, str]]:
    """The present clients of undecided dataplane links; of unlisted links, only the manager."""
    for known, key in dhcp_files.known_files(world.files).values():
        role = roles.role_of(key)
        if known == manager and (role == "unlisted" or (role == "dataplane" and key in undecided)):
            yield key, manager
    for key in filter(None, map(link_of_label, world.own_clients.requests)):
        if key in undecided and roles.role_of(key) == "dataplane":
            yield key, OWN


def _client_by_link(
    requests: Requests, roles: Roles, world: World, manager: str
) -> dict[LinkKey, str]:
    members = set(_member_keys(requests, roles, world))
    devices = find_links(world, roles)
    clients: dict[LinkKey, str] = {}
    for key, request in requests.items():
        # For IPoIB, our files, which match MAC addresses, do not work, and the programs would need
        # a client identifier (RFC 4390).
        is_excluded = is_ipoib(key) or key in members or roles.role_of(key) != "dataplane"
        if is_excluded or not wants_dhcp(request):
            continue
        if manager == "networkd" or (manager and not key.rank):
            clients[key] = manager
        elif _is_for_own(request, devices.get(key), world):
            clients[key] = OWN
        else:
            _await_managers(world)
    return clients


def _await_managers(world: World) -> None:
    """Have passes made for an enabled manager that has not started: no event tells when it has."""
    own = world.own_clients
    if world.no_manager_runs and own.manager_may_start and not own.replaces_managers:
        for seconds in MANAGER_SECONDS:
            world.is_aged(seconds)


def _is_for_own(request: LinkRequest, device: Optional[Device], world: World) -> bool:
    """Whether dhcpcd does DHCP on the link: only if no other program has a lease there."""
    labels = client_labels(request.key, request.leases)
    if not _has_own_client(world, bool(request.key.rank)):
        return False
    if not world.own_clients.requests.keys().isdisjoint(labels):
        return True
    version = 4 if request.leases.dhcp4 else 6  # the first family that is requested
    index = device.index if device else 0
    leases = world.leased_addresses - world.autoconfigured
    return all((at, address.version) != (index, version) for at, address in leases)


def _member_keys(requests: Requests, roles: Roles, world: World) -> Iterator[LinkKey]:
    """The present and requested members of bonds and ports of bridges.

    A device whose MAC is that of a free NIC is not among them: on Azure, the accelerated device has
    the NIC, which has the same MAC, as its master.
    """
    free = {mac for mac, device in roles.nics.items() if not device.master}
    for device in world.devices.values():
        if device.master and is_nic(device) and identity(device) not in free:
            yield LinkKey(identity(device))
    for request in requests.values():
        if request.virtual is not None:
            yield from request.virtual.members


def unserved_links(requests: Requests, roles: Roles, world: World) -> Iterator[Problem]:
    """A problem for each link whose DHCP has no client and no lease, or no IPv6."""
    of_nics = _reason_of_nics(world)
    for key, request in requests.items():
        text = _reason_of(key, world) if key.rank or is_ipoib(key) else of_nics
        if text and _is_unserved(key, request, roles, world):
            yield Problem("refused", text, key)
    for key, request in requests.items():
        if not world.has_ipv6 and key in roles.dhcp.clients and request.leases.has_ipv6:
            yield Problem("refused", NO_IPV6, key)


def _reason_of_nics(world: World) -> str:
    """Why NICs of this host may have no client; empty if they have, or may have one later."""
    if world.own_clients.replaces_managers and not world.own_clients.program:
        return NOT_INSTALLED
    return UNSERVED if world.no_manager_runs and world.is_aged(MANAGEMENT_DHCP_SECONDS) else ""


def _reason_of(key: LinkKey, world: World) -> str:
    """Why a virtual or an InfiniBand link may have no client; empty as for NICs."""
    if not is_ipoib(key) and serves_virtual(world):
        return ""
    reason = NOT_ON_INFINIBAND if is_ipoib(key) else NOT_ON_VIRTUAL
    return reason if world.is_aged(MANAGEMENT_DHCP_SECONDS) else ""


def _is_unserved(key: LinkKey, request: LinkRequest, roles: Roles, world: World) -> bool:
    """Whether this is a dataplane link that requests a lease, and has neither one nor a client.

    Of virtual links other than IPoIB, only those with router advertisements are reported.
    """
    is_virtual = bool(key.rank and not is_ipoib(key))
    if roles.role_of(key) != "dataplane" or not wants_dhcp(request) or key in roles.dhcp.clients:
        return False
    if is_virtual and not request.leases.accept_ra:
        return False
    device = find_links(world, roles).get(key) if is_virtual else roles.links.get(key.nic)
    if device is None:
        return is_virtual
    return all(index != device.index for index, _ in world.leased_addresses)


def without_accept_ra(
    requests: Requests, roles: Roles, local: Collection[LinkRequest]
) -> dict[LinkKey, LinkRequest]:
    """The requests, without `accept_ra` on links whose advertisements a client handles.

    A document that has `accept-ra` for a link requests a client, too, whose lack is reported,
    unless the configuration (`local`) has the kernel accept them.
    """
    served = ipv6_clients(requests, roles)
    configured = {request.key for request in local if ACCEPT_RA in dict(request.sysctls)}
    return {
        key: without_sysctl(request, ACCEPT_RA)
        if key in served or (request.leases.accept_ra is not None and key not in configured)
        else request
        for key, request in requests.items()
    }
