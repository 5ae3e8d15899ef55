"""Refuse what would cut off the management NIC, the metadata service or the default route.

Each function returns the reason for a refusal, or None.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from ipaddress import ip_network
from typing import Optional

from neuca_tools.desired import coverage
from neuca_tools.desired.coverage import SHORTEST_PREFIX, is_broad, is_inside
from neuca_tools.desired.roles import Roles, own_mac
from neuca_tools.model import Address, Host, Network, Route, World, topology
from neuca_tools.model.addresses import LINK_LOCAL, NetworkTable, broadcast_of
from neuca_tools.model.provenance import is_automatic

MAX_ROUTED = 1000  # routes through the management NIC that are remembered for the next boot


@dataclass(frozen=True)
class RequestLimits:
    """The management prefixes, and the length of the prefix that routes each guarded host.

    `routed`: where foreign routes lead through a management gateway. `shortest`: the outcome of
    `coverage.shortest_granted`. `own` are the addresses of the management NIC. `marks` are those
    that rules of other programs select, each with its mask.
    """

    prefixes: tuple[Network, ...]
    hosts: Mapping[Host, int]
    allow_default_route: bool
    default_routes: frozenset[int]
    requested_twice: Mapping[Host, str] = field(default_factory=dict)
    routed: frozenset[Network] = frozenset()
    shortest: Mapping[int, int] = field(default_factory=dict)
    own: frozenset[Host] = frozenset()
    ignored: frozenset[Host] = frozenset()
    marks: frozenset[tuple[int, int]] = frozenset()

    def has_mark(self, mark: int, mask: int) -> bool:
        """Whether a packet can have both this mark and one that a foreign rule selects."""
        return any((mark ^ other) & mask & theirs == 0 for other, theirs in self.marks)

    @cached_property
    def _table(self) -> NetworkTable:
        return NetworkTable(self.routed)

    def bare_address_reason(self, address: Address) -> Optional[str]:
        """Why this address is refused if its network gets no route in the main table."""
        if address.ip in self.own:
            return "it is an address of the management NIC"
        host = address.ip
        reason = self._repetition_reason(host) or self._takeover_reason(ip_network(host))
        return reason or self._broadcast_reason(address)

    def address_reason(self, address: Address) -> Optional[str]:
        """Why this address is refused.

        Several links request it, it is in a management prefix, or it takes over what is guarded.
        """
        ip = address.ip  # made anew each time
        for prefix in self.prefixes:
            if address.version == prefix.version and ip in prefix:
                return f"it is inside the management network {prefix}"
        reason = self._repetition_reason(ip) or self._network_reason(address.network)
        return reason or self._broadcast_reason(address)

    def _broadcast_reason(self, address: Address) -> Optional[str]:
        """Why the broadcast address that comes with this address may lead to no other link."""
        host = broadcast_of(address.network)
        if host in self.own:
            return f"its broadcast address {host} is an address of the management NIC"
        return _takeover_text(host) if host in self.hosts else None

    def _repetition_reason(self, ip: Host) -> Optional[str]:
        others = self.requested_twice.get(ip)
        return f"it is requested on {others}, so it is set on none of them" if others else None

    def route_reason(self, to: Network) -> Optional[str]:
        """Why a route to this prefix is refused."""
        for prefix in self.prefixes:
            if is_inside(to, prefix):
                return f"{_place_text(to, prefix)} the management network {prefix}"
        if to.prefixlen == 0 and self.allow_default_route:
            taken = to.version in self.default_routes
            return "this host has a default route already" if taken else None
        return self._network_reason(to)

    def _network_reason(self, to: Network) -> Optional[str]:
        """Why no route may lead to this network, not even that of an address."""
        if to.prefixlen < SHORTEST_PREFIX:
            return "a prefix of length 0 or 1 would replace the default route"
        return self._takeover_reason(to) or self._override_reason(to) or self._excess_reason(to)

    def _takeover_reason(self, to: Network) -> Optional[str]:
        for host, now in self.hosts.items():
            if host.version == to.version and host in to and to.prefixlen >= now:
                return _takeover_text(host)
        return None

    def _override_reason(self, to: Network) -> Optional[str]:
        """Inside a broad route, longer prefixes may lead elsewhere, as with a default route."""
        for wider in self._table.covering(to.network_address):
            if is_inside(to, wider) and (wider == to or not is_broad(wider)):
                place = f"{_place_text(to, wider)} {wider}"
                return f"{place}, which is routed through the management NIC"
        return None

    def _excess_reason(self, to: Network) -> Optional[str]:
        is_granted = to.prefixlen >= self.shortest.get(to.version, 0)
        if is_granted or not coverage.count_public([to], to.version):
            return None
        most = coverage.LIMIT_LENGTH[to.version]
        return (
            f"together, the requested routes and networks cover more public IPv{to.version}"
            f" addresses than a /{most}, which is the limit, so the widest of them are refused"
        )


def _takeover_text(host: Optional[Host]) -> str:
    return f"it would take over {host}, which is reached through the management NIC"


def _place_text(to: Network, prefix: Network) -> str:
    return "it is" if to == prefix else "it is inside"


def request_limits(
    world: World,
    roles: Roles,
    metadata_hosts: Iterable[Host],
    allow_default_route: bool = False,
    before: Iterable[str] = (),
) -> RequestLimits:
    """The limits on this host.

    Routes through dataplane NICs do not count, as they may be ours, nor do those that a stranger
    may have caused on an unlisted NIC. `before` are the management networks, gateways and routes of
    the last boot.
    """
    dataplane = _dataplane_indexes(world, roles)
    foreign = [
        route
        for route in world.routes
        if route.index in roles.guard.devices
        or (route.index not in dataplane and not is_automatic(route, world))
    ]
    foreign_rules = (seen.rule for seen in world.rules if not seen.is_ours)
    defaults = topology.best_default_routes(foreign)
    last_boot = [*map(ip_network, before)]
    guarded = {*topology.METADATA_HOSTS, *metadata_hosts, *_default_gateways(foreign, last_boot)}
    routed = _routed_networks(world, roles)
    prefixes = _connected_networks(world, roles) | ({*last_boot} - routed)
    prefixes.discard(LINK_LOCAL)
    return RequestLimits(
        tuple(sorted(prefixes, key=str)),
        _lengths_now(guarded, foreign),
        allow_default_route,
        frozenset(route.to.version for route in defaults),
        routed=routed,
        own=topology.hosts_of(world, roles.guard.management),
        ignored=topology.hosts_of(world, roles.guard.devices - roles.guard.management),
        marks=frozenset((rule.mark, rule.mask) for rule in foreign_rules if rule.mask),
    )


def _default_gateways(foreign: Iterable[Route], before: Iterable[Network]) -> Iterator[Host]:
    """The gateways of default routes, now and in the last boot."""
    for route in foreign:
        if route.is_default and route.via is not None:
            yield route.via
    for network in before:
        if network.prefixlen == network.max_prefixlen:
            yield network.network_address


def _connected_networks(world: World, roles: Roles) -> set[Network]:
    networks = {address.network for address in topology.addresses_of(world, roles.guard.management)}
    # A /32 or /128 address has its network as a route (DHCP, RA).
    routes = topology.routes_through(world, roles.guard.management)
    direct = {route.to for route in routes if route.via is None}
    return networks | {to for to in direct if to.prefixlen >= SHORTEST_PREFIX}


def _routed_networks(world: World, roles: Roles) -> frozenset[Network]:
    """The prefixes that others route through a management gateway, without default routes."""
    routes = topology.routes_through(world, roles.guard.management)
    ways = (route for route in routes if route.via is not None and not route.is_ours)
    return frozenset(route.to for route in ways if route.to.prefixlen >= SHORTEST_PREFIX)


def management_networks(world: World, roles: Roles, before: Iterable[str] = ()) -> tuple[str, ...]:
    """The management networks, gateways and routes, to be remembered for the next boot.

    Those from `before` while the management devices have no address; of their gateways, those of a
    family that has none now, as its default route may come back.
    """
    prefixes = _connected_networks(world, roles) - {LINK_LOCAL}
    if not prefixes:
        return tuple(before)
    gateways = {*_default_gateways(topology.routes_through(world, roles.guard.management), ())}
    versions = {gateway.version for gateway in gateways}
    for gateway in _default_gateways((), map(ip_network, before)):
        if gateway.version not in versions and any(gateway in prefix for prefix in prefixes):
            gateways.add(gateway)
    narrow = (network for network in _routed_networks(world, roles) if not is_broad(network))
    kept = {*prefixes, *map(ip_network, gateways), *nsmallest(MAX_ROUTED, narrow, key=str)}
    return tuple(sorted(map(str, kept)))


def guarded_networks(
    world: World, roles: Roles, metadata_hosts: Iterable[Host], remembered: Iterable[str]
) -> tuple[str, ...]:
    """Where no DHCP server or router may give a link an address.

    These are the metadata services, and the addresses and gateways of the management devices, also
    while these are missing; without a gateway of a family, the `remembered` management networks, as
    the gateway may be anywhere in them. The IPv6 addresses with a lifetime change by themselves.
    """
    gateways = {*_default_gateways(topology.routes_through(world, roles.guard.management), ())}
    versions = {gateway.version for gateway in gateways}
    own = (
        address.ip
        for index in roles.guard.management
        for address in world.addresses.get(index, ())
        if address.version == 4 or (index, address) not in world.leased_addresses
    )
    kept = (network for network in map(ip_network, remembered) if network.version not in versions)
    guarded = {*map(ip_network, (*metadata_hosts, *gateways, *own)), *kept}
    return tuple(sorted(map(str, guarded)))


def _dataplane_indexes(world: World, roles: Roles) -> frozenset[int]:
    """The dataplane NICs, the virtual links that we created, and what is stacked on those."""
    named = {mac for mac, role in roles.by_mac.items() if role == "dataplane"}
    nics = {device.index for device in world.devices.values() if topology.identity(device) in named}
    return (topology.with_upper_devices(world, roles.made.indexes) | nics) - roles.guard.devices


def _lengths_now(hosts: Iterable[Host], routes: Iterable[Route]) -> dict[Host, int]:
    """The length of the longest prefix that routes each host now.

    It is 0 for the default route and for none. Addresses that another link can have too without
    harm to this one are left out.
    """
    table = NetworkTable(route.to for route in routes)
    return {
        host: next((network.prefixlen for network in table.covering(host)), 0)
        for host in hosts
        if not (host.is_loopback or (host.version == 6 and host.is_link_local))
    }


# --- MAC addresses --------------------------------------------------------------------------------


def mac_reason(mac: str, carriers: Collection[str], world: World, roles: Roles) -> Optional[str]:
    """Why a link may not have this MAC address. `carriers` are the NICs below it, or the NIC.

    Those may share theirs with it, as is usual for bonds, bridges and VLANs.
    """
    if not mac:
        return None
    reason = protected_mac(mac, world, roles)
    if reason or mac in carriers:
        return reason
    for device in topology.nics_in(world):
        macs = (topology.identity(device), own_mac(device, roles.made.indexes))
        if mac in macs and topology.identity(device) not in carriers:
            whose = f'that of "{device.name}", which is not one of its lower devices'
            return f"the MAC address {mac} is {whose}"
    return None


def protected_mac(mac: str, world: World, roles: Roles) -> Optional[str]:
    """Why no link may have this MAC: it is that of a management or ignored NIC, present or not."""
    for device in world.devices.values():
        if device.index in roles.guard.devices and mac in (device.mac, device.permanent_mac):
            is_management = device.index in roles.guard.management
            role = "the management NIC" if is_management else "an ignored NIC"
            return f'the MAC address {mac} is that of {role} "{device.name}"'
    if roles.role(mac) == "management":
        return f"the MAC address {mac} is that of a management NIC"
    if mac in roles.guard.ignored or roles.role(mac) == "ignored":
        return f"the MAC address {mac} is that of an ignored NIC"
    return None
