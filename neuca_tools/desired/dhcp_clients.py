"""Which client does DHCP on which link: a network manager, or a program that the agent starts.

systemd-networkd does DHCP on links of any kind. NetworkManager does so only on NICs, because it
would take ownership of a virtual link and delete it together with the profile. All other links are
served by dhcpcd, with one process for each link.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neuca_tools.desired import dhcp_files
from neuca_tools.desired.dhcp_files import MANAGERS, OWN, client_labels
from neuca_tools.desired.management import MANAGEMENT_DHCP_SECONDS
from neuca_tools.desired.roles import Dhcp, Roles, find_links
from neuca_tools.desired.router_advertisements import ipv6_clients
from neuca_tools.documents.neuca.link_kinds import is_ipoib
from neuca_tools.model import ACCEPT_RA, Device, LinkKey, LinkRequest, Problem, Requests, World
from neuca_tools.model.ports import is_guid
from neuca_tools.model.topology import identity, is_nic

PACKAGES = "dhcpcd (dhcpcd-base)"
ABSENT = Device(0, "")
UNSERVED = (
    "it has no DHCP lease, and this host has no DHCP client: neither systemd-networkd nor"
    f" NetworkManager is running, and dhcpcd is not installed: install {PACKAGES}"
)
NOT_INSTALLED = (
    "it has no DHCP lease, and the program that [linux] dhcp-client names is not installed:"
    f" install {PACKAGES}"
)
NOT_ON_INFINIBAND = (
    "it has no DHCP lease, and DHCP on an InfiniBand link is left to other programs: configure a"
    " DHCP client for it"
)


def wants_dhcp(request: LinkRequest) -> bool:
    """Whether DHCP or router advertisements are requested on this link."""
    if request.key.kind == "vrf" or request.state in ("down", "user"):
        return False
    return request.leases.has_dhcp or bool(request.leases.accept_ra)


def network_manager(world: World, roles: Roles) -> str:
    """The network manager that is the DHCP client; empty if there is none.

    If both managers run, it is the one that manages the management NIC. Until one has started
    during boot, and while it gives no answer, it is the one for which the agent has written files
    before.
    """
    if world.own_clients.forced or _is_plain(world):
        return ""
    known = {manager for manager, _ in dhcp_files.known_files(world.files).values()}
    before = next((name for name in MANAGERS if name in known), "")
    if not world.managers or before in world.silent_managers:
        return before
    return _running_manager(world, roles)


def _running_manager(world: World, roles: Roles) -> str:
    """The manager that runs, of two the one that has the management NIC.

    A silent one may have it if no other does.
    """
    running = [name for name in MANAGERS if name in world.managers]
    names = {world.devices[at].name for at in roles.guard.management & world.devices.keys()}
    for name in running:
        if any(world.managers[name].get(interface) == "managed" for interface in names):
            return name
    return "" if world.silent_managers else next(iter(running), "")


def _is_plain(world: World) -> bool:
    """Whether this is a host without managers, on which a program of its own can do DHCP.

    Early in a boot, a manager that is enabled may not run yet.
    """
    own = world.own_clients
    is_early = own.expected and world.age < MANAGEMENT_DHCP_SECONDS
    return bool(own.program) and world.unmanaged and not is_early


def _has_own_client(world: World, is_virtual: bool) -> bool:
    """Whether the program that we start may do DHCP on NICs, or on virtual links.

    NetworkManager serves NICs alone; it may run although it gives no answer.
    """
    own, running = world.own_clients, {*world.managers, *world.silent_managers}
    is_beside = is_virtual and "networkmanager" in running
    return bool(own.program) and (own.forced or is_beside or _is_plain(world))


def serves_virtual(world: World) -> bool:
    """Whether this host has a client for DHCP on virtual links."""
    if _has_own_client(world, is_virtual=True):
        return True
    known = {manager for manager, _ in dhcp_files.known_files(world.files).values()}
    return not world.own_clients.forced and "networkd" in {*world.managers, *known}


def assign_clients(requests: Requests, roles: Roles, world: World, complete: bool) -> Roles:
    """The roles, with the DHCP client of each link that has one.

    Without a complete document, unlisted NICs keep their client. NICs with DHCP for which there is
    no client are left to other programs.
    """
    manager = network_manager(world, roles)
    clients = _client_by_link(requests, roles, world, manager)
    if not complete:
        clients.update(dict.fromkeys(_kept_links(roles, world, manager), manager))
    leased = {key.mac for key, request in requests.items() if request.leases.has_dhcp}
    left = leased - {key.mac for key in clients}
    if manager:
        left = set(filter(is_guid, left))
    dataplane = {mac for mac in left if roles.role(mac) == "dataplane"}
    return replace(roles, dhcp=Dhcp(clients, frozenset(dataplane)))


def _kept_links(roles: Roles, world: World, manager: str) -> Iterator[LinkKey]:
    """The unlisted links with a file for this manager."""
    for known, key in dhcp_files.known_files(world.files).values():
        if known == manager and roles.role(key.mac) == "unlisted":
            yield key


def _client_by_link(
    requests: Requests, roles: Roles, world: World, manager: str
) -> dict[LinkKey, str]:
    """The client of each requested dataplane link that has one."""
    ports = set(_member_keys(requests, roles, world))
    here = find_links(world, roles)
    clients: dict[LinkKey, str] = {}
    for key, request in requests.items():
        # On InfiniBand, our files match MAC addresses, and the programs need a client identifier
        # (RFC 4390).
        if key in ports or is_ipoib(key) or roles.role_of(key) != "dataplane":
            continue
        if not wants_dhcp(request):
            continue
        if manager == "networkd" or (manager and not key.rank):
            clients[key] = manager
        elif _is_for_own(request, here.get(key, ABSENT).index, world):
            clients[key] = OWN
    return clients


def _is_for_own(request: LinkRequest, index: int, world: World) -> bool:
    """Whether the program that we start does DHCP on the link: on none that has another's lease."""
    asked = request.leases
    if not _has_own_client(world, bool(request.key.rank)):
        return False
    if not world.own_clients.requests.keys().isdisjoint(client_labels(request.key, asked)):
        return True
    version = 4 if asked.dhcp4 else 6  # the first family that is requested
    leases = (pair for pair in world.leased if pair[0] == index and pair[1].version == version)
    return all(pair in world.autoconf for pair in leases)


def _member_keys(requests: Requests, roles: Roles, world: World) -> Iterator[LinkKey]:
    """The present and requested members of bonds and ports of bridges.

    On Azure the lower one of two devices with one MAC has the other, which is the NIC, as master.
    """
    free = {mac for mac, device in roles.nics.items() if not device.master}
    for device in world.devices.values():
        if device.master and is_nic(device) and identity(device) not in free:
            yield LinkKey(identity(device))
    for request in requests.values():
        if request.virtual is not None:
            yield from request.virtual.members


def unserved_links(requests: Requests, roles: Roles, world: World) -> Iterator[Problem]:
    """A problem for each link with DHCP that has neither a client nor a lease."""
    is_late, reason = world.age >= MANAGEMENT_DHCP_SECONDS, ""
    if world.own_clients.forced and not world.own_clients.program:
        reason = NOT_INSTALLED
    elif world.unmanaged and is_late:
        reason = UNSERVED
    for key, request in requests.items():
        text = reason
        if is_ipoib(key):
            text = NOT_ON_INFINIBAND if is_late else ""
        if text and _is_unserved(key, request, roles, world):
            yield Problem("refused", text, key)


def _is_unserved(key: LinkKey, request: LinkRequest, roles: Roles, world: World) -> bool:
    """Whether this is a dataplane link that requests a lease, and has neither one nor a client.

    Of Ethernet links, only NICs.
    """
    device = roles.links.get(key.nic)
    is_counted = is_ipoib(key) or not key.rank
    if device is None or not is_counted or roles.role_of(key) != "dataplane":
        return False
    is_served = key in roles.dhcp.clients or any(index == device.index for index, _ in world.leased)
    return not is_served and request.leases.has_dhcp and wants_dhcp(request)


def without_kernel(requests: Requests, roles: Roles) -> dict[LinkKey, LinkRequest]:
    """The requests without `accept_ra` on links whose advertisements a client handles."""
    changed = dict(requests)
    for key in ipv6_clients(requests, roles) & requests.keys():
        request = changed[key]
        sysctls = tuple(pair for pair in request.sysctls if pair[0] != ACCEPT_RA)
        changed[key] = replace(request, sysctls=sysctls)
    return changed
