"""How much of the public address space a document may route, and which of its requests exceed that.

The default route must stay the management NIC's. A prefix of length 0 or 1 is only the plainest way
to replace it: 2000::/3, four routes of length 2 or an address like 2001::1/3 do the same. So the
limit is on the union of all routes and connected networks that a document requests. What other
programs route before it is reported.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import collapse_addresses, ip_network
from typing import Any

from neuca_tools.desired.roles import Roles
from neuca_tools.model import (
    Address,
    Device,
    Hop,
    Link,
    LinkKey,
    Network,
    NetworkState,
    OwnedObjects,
    Problem,
    Requests,
    Route,
    RouteRequest,
    World,
)
from neuca_tools.model.device_settings import Note
from neuca_tools.model.routing import CONNECTED_METRIC, MAIN_TABLE
from neuca_tools.model.topology import best_default_routes, nics_in, routes_through

SHORTEST_PREFIX = 2  # a prefix of length 0 or 1 is a default route, or half of one
# The limit, as the length of a prefix that has as many addresses. IPv4: a /4, which is sixteen of
# the largest blocks that IANA has assigned (a /8 each), and 7 % of the public addresses. IPv6: a
# /13, half of what IANA assigns to a regional registry (a /12 of 2000::/3; IANA IPv6 Global Unicast
# Address Assignments): no document reroutes all customers of a registry.
LIMIT_LENGTH: Mapping[int, int] = {4: 4, 6: 13}
ADDRESS_BITS: Mapping[int, int] = {4: 32, 6: 128}
# Not counted: what is not public (IANA IPv4 and IPv6 Special-Purpose Address Registries; multicast,
# RFC 5771; reserved, RFC 1112; and all of IPv6 outside 2000::/3, RFC 4291, 2.4).
_SPECIAL = {
    4: "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24"
    " 192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3",
    6: "::/3 4000::/2 8000::/1 2001:db8::/32 3fff::/20",
}
NOT_PUBLIC: Mapping[int, tuple[Network, ...]] = {
    version: tuple(map(ip_network, text.split())) for version, text in _SPECIAL.items()
}
# Whole blocks for private use: RFC 1918 and RFC 6598. That of IPv6, fc00::/7, is over the limit.
PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")))


def is_inside(inner: Network, outer: Network) -> bool:
    same_family = inner.version == outer.version
    return same_family and inner.prefixlen >= outer.prefixlen and inner.network_address in outer


def is_broad(network: Network) -> bool:
    """Whether it covers a whole private block or reaches the limit, much like a default route."""
    return network.prefixlen <= LIMIT_LENGTH[network.version] or any(
        is_inside(block, network) for block in PRIVATE
    )


def count_public(networks: Iterable[Network], version: int) -> int:
    """How many public addresses of this family (4, 6) the networks have together."""
    uncounted = NOT_PUBLIC[version]
    union: Any = [*networks, *uncounted]  # of the same family, which the type cannot say
    return _count_addresses(collapse_addresses(union)) - _count_addresses(uncounted)


def _count_addresses(networks: Iterable[Network]) -> int:
    return sum(1 << (network.max_prefixlen - network.prefixlen) for network in networks)


def shared_tables(world: World) -> frozenset[int]:
    """The main table and those that rules of other programs look up.

    Any packet may be routed by these, also one of the management NIC.
    """
    return frozenset({seen.rule.table for seen in world.rules if not seen.is_ours} | {MAIN_TABLE})


def foreign_vrfs(world: World, roles: Roles) -> dict[int, str]:
    """The tables of VRFs that are not ours, each with the reason why nothing may use it."""
    reasons = {}
    for device in world.devices.values():
        if device.kind == "vrf" and device.index not in roles.made.indexes:
            table = int(dict(device.options).get("table") or 0)
            owner = f'the VRF "{device.name}", which neucad did not create'
            reasons[table] = f"the table {table} is that of {owner}"
    return reasons


def requested_networks(
    requests: Requests, routes: Iterable[RouteRequest], roles: Roles, tables: Collection[int]
) -> frozenset[Network]:
    """Every network that the requests would add to one of these tables, refused or not.

    It depends on the documents, the roles and the tables, not on which NICs are present.
    """
    networks = {
        route.to for route in routes if route.state == "present" and route.traits.table in tables
    }
    for key, request in requests.items():
        if roles.role_of(key) == "dataplane" and request.state != "user":
            networks.update(address.network for address in request.addresses)
    return frozenset(networks)


def kept_networks(
    owned: Iterable[tuple[LinkKey, Address]],
    removable: OwnedObjects,
    world: World,
    tables: Collection[int],
) -> frozenset[Network]:
    """The networks that the agent added to these tables earlier and may not remove now."""
    connected = {address.network for _, address in {*owned} - removable.addresses}
    if removable.routes:
        return frozenset(connected)
    ours = (route for route in (*world.routes, *world.other_routes) if route.is_ours)
    return frozenset(connected | {route.to for route in ours if route.traits.table in tables})


def shortest_granted(requested: Collection[Network], kept: Collection[Network]) -> dict[int, int]:
    """The shortest prefix length of each family that is granted to requests for public addresses.

    The widest requests are refused first, all of one length together, until the union of the rest
    and of what is kept is within the limit. So the order of the requests does not matter.
    """
    shortest = {}
    for version, limit_length in LIMIT_LENGTH.items():
        limit = 1 << (ADDRESS_BITS[version] - limit_length)
        of_kept, of_requested = _networks_of(version, kept), _networks_of(version, requested)
        shortest[version] = SHORTEST_PREFIX
        for length in sorted({network.prefixlen for network in of_requested}):
            least = shortest[version]
            granted = (network for network in of_requested if network.prefixlen >= least)
            networks = [*of_kept, *granted]
            # The first count is the faster one: too high if networks overlap or are not public.
            if _count_addresses(networks) <= limit or count_public(networks, version) <= limit:
                break
            shortest[version] = length + 1
    return shortest


def _networks_of(version: int, networks: Iterable[Network]) -> list[Network]:
    """The networks of one family, without default routes, which only the administrator permits."""
    family = (network for network in networks if network.version == version)
    return [network for network in family if network.prefixlen >= SHORTEST_PREFIX]


# --- Default routes of other programs -------------------------------------------------------------


def bypassing_routes(roles: Roles, world: World, observed: NetworkState) -> Iterator[Problem]:
    """A problem for each default route of a NIC that is preferred to those of management NICs.

    A DHCP client of the image may have added one before a document named the NIC. It is not
    removed: it may be meant, and a client that still runs would add it again. Routes that this pass
    removes, and those of links on which we have a DHCP client, are left out.
    """
    left_over = (hop for hop in observed.hops if hop.left_over)
    removed = {(hop.to, observed.links[hop.link].index, hop.metric) for hop in left_over}
    left_out = {observed.links[key].index for key in roles.dhcp.clients if key in observed.links}
    left_out |= roles.guard.devices
    managing = best_default_routes(routes_through(world, roles.guard.management))
    metrics = {route.to.version: route.metric for route in managing}
    for route, device in _default_routes_of_others(world, left_out):
        metric = metrics.get(route.to.version, 0)
        is_removed = (route.to, route.index, route.metric) in removed
        if route.metric < metric and not is_removed:
            yield _bypass_problem(route, device, metric, world)


def _default_routes_of_others(
    world: World, left_out: Collection[int]
) -> Iterator[tuple[Route, Device]]:
    """The default routes of other programs through NICs, apart from those `left_out`."""
    nics = {nic.index: nic for nic in nics_in(world) if nic.index not in left_out}
    for route in routes_through(world, nics):
        if route.is_default and not route.is_ours:
            yield route, nics[route.index]


def _bypass_problem(route: Route, device: Device, metric: int, world: World) -> Problem:
    path = f"{device.name} via {route.via}" if route.via else device.name
    addresses, leased = world.addresses.get(device.index, ()), world.leased_addresses
    own = [address for address in addresses if address.version == route.to.version]
    leases = ", ".join(str(address) for address in own if (device.index, address) in leased)
    lease = f"; {device.name} has {leases} from a DHCP client or router" if leases else ""
    return Problem(
        "contested",
        f"the IPv{route.to.version} default route of another program through {path} (metric"
        f" {route.metric}) is preferred to that of the management NIC (metric {metric}){lease}",
    )


# The setting, prefix, link and metric of what a document requests in the main table.
_Requested = tuple[str, Network, LinkKey, int]


def overlap_notes(
    links: Mapping[LinkKey, Link], hops: Iterable[Hop], world: World, guarded: Collection[int]
) -> Iterator[Note]:
    """A note for each requested network or route that another program's route comes before.

    Docker and libvirt choose networks that a document may request too. Where routes lead through
    `guarded` devices, requests are refused. Each link has a link-local network of its own.
    """
    requested = _sorted_requests(links, hops)
    left_out = {link.index for link in links.values()} | {*guarded}
    theirs = _routes_of_others(world, {to for _, to, _, _ in requested}, left_out)
    for setting, to, key, metric in requested:
        for route in theirs.get(to, ()):
            if route.metric <= metric:
                name = world.devices[route.index].name if route.index in world.devices else "?"
                text = f"another program routes {to} through {name} (metric {route.metric})"
                yield Note(setting, "overridden", text, key if key.mac else None)


def _sorted_requests(links: Mapping[LinkKey, Link], hops: Iterable[Hop]) -> list[_Requested]:
    """The networks and routes, without those of links that are to be down."""
    down = {key for key, link in links.items() if link.state == "down"}
    routes = (hop for hop in hops if hop.traits.table == MAIN_TABLE and hop.to.prefixlen)
    every = {("routes", hop.to, hop.link, hop.metric) for hop in routes}
    every.update(_requested_networks(links))
    return sorted((request for request in every if request[2] not in down), key=str)


def _routes_of_others(
    world: World, prefixes: Collection[Network], left_out: Collection[int]
) -> Mapping[Network, Sequence[Route]]:
    """The routes of other programs to these prefixes, but for those through `left_out`.

    Of several with one metric, the kernel uses the first, as it lists them.
    """
    others = {*_others(world.routes, left_out, prefixes)}
    by_prefix, own = defaultdict[Network, list[Route]](list), set[tuple[Network, int]]()
    for route in (route for route in world.routes if others and route.to in others):
        if route.index in left_out or route.is_ours:
            own.add((route.to, route.metric))
        elif (route.to, route.metric) not in own:
            by_prefix[route.to].append(route)
    return by_prefix


def _others(
    routes: Iterable[Route], left_out: Collection[int], prefixes: Collection[Network]
) -> Iterator[Network]:
    """Those of the prefixes to which other programs have routes."""
    for route in routes:
        if route.index not in left_out and not route.is_ours and route.to in prefixes:
            yield route.to


def _requested_networks(links: Mapping[LinkKey, Link]) -> Iterator[_Requested]:
    for key, link in links.items():
        if link.role == "dataplane" and (link.master is None or link.master.kind != "vrf"):
            for address in {*link.addresses} - {*link.bare}:
                if not (address.version == 6 and address.is_link_local):
                    yield "addresses", address.network, key, CONNECTED_METRIC[address.version]
