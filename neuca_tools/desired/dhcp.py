"""What is used of the addresses and routes that dataplane links get from DHCP and advertisements.

Anyone on the dataplane can answer. So the client (`dhcp_clients` chooses it) puts every route, even
the one to the network of an address, into a table of the link that no rule leads to
(`dhcp_files.table_of`). From there, routes that a document could also request are copied into the
main table, and the gateway is used for policy routing. Neither a default route nor a route to a
public network is ever copied, not even to that of the address itself.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_interface, ip_network
from itertools import chain
from typing import Optional

from neuca_tools.desired import dhcp_files
from neuca_tools.desired.coverage import count_public, is_inside
from neuca_tools.desired.roles import Roles, find_links
from neuca_tools.desired.routes import local_hosts, scoped_host
from neuca_tools.desired.safety import RequestLimits
from neuca_tools.model import (
    Address,
    Device,
    Hop,
    Host,
    Link,
    LinkKey,
    Network,
    Problem,
    Route,
    World,
)
from neuca_tools.model.device_settings import Note
from neuca_tools.model.routing import MAIN_TABLE, ROUTE_PROTOCOL, Traits, is_link_scoped
from neuca_tools.model.topology import PLATFORM_HOSTS, foreign_routes, routes_through

SETTING = "dhcp"  # in the notes of a link
TAKEN = "there is another route with the same prefix and metric"
SLAAC_LENGTH = 64  # a whole network of IPv6 (RFC 4291, 2.5.4), which may be that of a lab
PRIVATE_IPV6 = ip_network("fc00::/7")  # RFC 4193
MAX_ROUTES = 64  # for each link: a server or router must not fill the routing table


def learned_gateways(roles: Roles, world: World) -> dict[LinkKey, dict[int, Host]]:
    """The gateway of each link by IP version, from the default routes that its client learned."""
    gateways: dict[LinkKey, dict[int, Host]] = {}
    for key, device in devices_with_client(roles, world).items():
        gateways[key] = {}
        for route in _learned_routes(key, device, world):
            if route.to.prefixlen == 0 and route.via is not None:
                gateways[key].setdefault(route.to.version, route.via)
    return gateways


def devices_with_client(roles: Roles, world: World) -> dict[LinkKey, Device]:
    """The devices of the unprotected links that have a client, ordered by key."""
    devices = find_links(world, roles)
    return {
        key: devices[key]
        for key in sorted(roles.dhcp.clients)
        if key in devices and devices[key].index not in roles.guard.devices
    }


def _learned_routes(key: LinkKey, device: Device, world: World) -> list[Route]:
    """The routes in the table of this link that the client has set, the preferred ones first."""
    table = dhcp_files.table_of(key)
    routes = [
        route
        for route in world.other_routes
        if (route.index, route.traits.table) == (device.index, table)
        and route.protocol != ROUTE_PROTOCOL
        and not (_is_ipv6_link_local(route.to) or route.to.is_multicast)
    ]
    return sorted(routes, key=lambda route: (route.metric, route.via is not None, str(route.to)))


class LearnedConfiguration:
    """What the clients have learned on the links: their addresses, and the routes to copy (`hops`).

    `requested` are the identities of the requested routes, which no learned route may replace.
    `duplicates` have the prefix and metric of another route of the main table.
    """

    def __init__(
        self, roles: Roles, world: World, limits: RequestLimits, requested: Collection[object]
    ) -> None:
        self.world, self.limits = world, limits
        self.local_hosts = local_hosts(world)
        devices = devices_with_client(roles, world)
        routes = {key: _learned_routes(key, device, world) for key, device in devices.items()}
        prefixes = {route.to for route in chain.from_iterable(routes.values())}
        self.taken_identities = {*requested, *foreign_routes(world, prefixes)}
        # A client that began before our file was written has put its routes into the main table.
        self.present_routes = {
            (route.to, route.index, route.via, route.metric)
            for route in routes_through(world, {device.index for device in devices.values()})
            if route.protocol != ROUTE_PROTOCOL
        }
        self.addresses: dict[LinkKey, tuple[Address, ...]] = {}
        self.hops: list[Hop] = []
        self.duplicates: list[Hop] = []
        self.notes: list[Note] = []
        self.problems: list[Problem] = []
        for key, device in devices.items():
            self._read_link(key, device, routes[key])

    def extend_links(self, links: Mapping[LinkKey, Link]) -> dict[LinkKey, Link]:
        """The links with their learned addresses added to the requested ones."""
        extended = dict(links)
        for key in self.addresses.keys() & links.keys():
            requested = links[key].addresses
            more = tuple(address for address in self.addresses[key] if address not in requested)
            extended[key] = links[key]._replace(addresses=(*requested, *more))
        return extended

    def _read_link(self, key: LinkKey, device: Device, routes: Collection[Route]) -> None:
        """Find the learned addresses of a link and the routes to copy, and report violations."""
        sources = {route.traits.source for route in routes}
        self.addresses[key] = tuple(
            address
            for address in self.world.addresses.get(device.index, ())
            if not _is_ipv6_link_local(address.network)
            if (device.index, address) in self.world.leased_addresses or address.ip in sources
        )
        self._copy_routes(key, device, routes)
        violations = self._violations(key, device)
        self.problems += [Problem("contested", text, key) for text in violations]

    def _copy_routes(self, key: LinkKey, device: Device, routes: Collection[Route]) -> None:
        """Copy the allowed routes into the main table.

        Those without a gateway come first: the gateways of the others may be in their networks.
        """
        addresses = self.world.addresses.get(device.index, ())
        connected = {address.network for address in addresses}
        connected -= {address.network for address in self.addresses[key]}
        for route in sorted(routes, key=lambda route: route.via is not None):
            if route.to.prefixlen == 0:
                continue
            if (route.to, route.index, route.via, route.metric) in self.present_routes:
                connected.add(route.to)
                continue
            reason = self._refusal_reason(route, connected) or self._excess_reason()
            if reason:
                self.notes.append(unused_note(key, route.to, reason))
                continue
            self._copy_route(key, route, addresses)
            if route.via is None:
                connected.add(route.to)

    def _copy_route(self, key: LinkKey, route: Route, addresses: Collection[Address]) -> None:
        """Copy one route; its source address only if the link has it: the kernel refuses others."""
        source = route.traits.source
        if source not in {address.ip for address in addresses}:
            source = None
        hop = Hop(route.to, key, route.via, route.metric, traits=Traits(source=source))
        is_taken = hop.identity in self.taken_identities
        (self.duplicates if is_taken else self.hops).append(hop)
        self.taken_identities.add(hop.identity)

    def _refusal_reason(self, route: Route, connected: Collection[Network]) -> Optional[str]:
        """Why a route is not copied. `connected` are the networks on the link in the main table."""
        reason = self.limits.route_reason(route.to)
        if reason and (route.to, MAIN_TABLE, route.metric, 0) in self.taken_identities:
            return TAKEN
        if reason is None and _is_public(route.to):
            reason = "only a document can route public addresses"
        reason = reason or _service_reason(route.to)
        if reason or route.via is None:
            return reason
        return self._gateway_reason(route.index, route.via, connected)

    def _gateway_reason(
        self, index: int, gateway: Host, connected: Collection[Network]
    ) -> Optional[str]:
        if scoped_host(index, gateway) in self.local_hosts:
            return f"its next hop {gateway} is this host itself"
        if is_link_scoped(gateway) or any(gateway in network for network in connected):
            return None
        return f"its next hop {gateway} is in no network on this link"

    def _excess_reason(self) -> Optional[str]:
        """Why no more routes are copied: the links so far have MAX_ROUTES each, all together."""
        if len(self.hops) + len(self.duplicates) < MAX_ROUTES * len(self.addresses):
            return None
        return f"there are more than {MAX_ROUTES} routes"

    def _violations(self, key: LinkKey, device: Device) -> Iterator[str]:
        """What a client should not have set; it stays, because we did not set it."""
        for address in self.addresses[key]:
            reason = self.limits.bare_address_reason(address)
            if reason:
                yield f"it got the address {address} from a server or router: {reason}"
        for index, host in sorted(self.world.broadcasts, key=str):
            reason = self.limits.bare_address_reason(ip_interface(host))
            if reason and index == device.index:
                yield f"it got the broadcast address {host} from a server: {reason}"
        for route in self.world.routes:
            is_foreign = route.index == device.index and route.protocol != ROUTE_PROTOCOL
            if is_foreign and route.to.prefixlen == 0:
                what = f"an IPv{route.to.version} default route through it"
                yield f"the main table has {what} that neucad did not add"


def unused_note(key: LinkKey, to: Network, reason: str) -> Note:
    text = f"the route to {to} that was offered on it is not used: {reason}"
    return Note(SETTING, "not applicable", text, key)


def _is_public(to: Network) -> bool:
    """Whether it has other than private addresses.

    Of IPv6, the rest of the special ones counts, too: behind NAT64 (RFC 6052) is all of IPv4.
    """
    is_other_ipv6 = to.version == 6 and not is_inside(to, PRIVATE_IPV6)
    return is_other_ipv6 or count_public([to], to.version) > 0


def _service_reason(to: Network) -> Optional[str]:
    """Why no server or router may route a network in which clouds have DNS and NTP servers."""
    if to.is_link_local:
        return "link-local addresses are not routed"
    if to.is_loopback:
        return "loopback addresses are not routed"
    if to.version == 4 and to.broadcast_address.is_reserved:
        return "multicast and reserved addresses are not routed"
    service = next((host for host in PLATFORM_HOSTS if host in to), None)
    is_taken = service is not None and to.prefixlen > SLAAC_LENGTH
    return f"clouds have a service at {service}" if is_taken else None


def _is_ipv6_link_local(network: Network) -> bool:
    """Whether it is a link-local network of IPv6: the kernel gives each link such an address."""
    return network.version == 6 and network.is_link_local
