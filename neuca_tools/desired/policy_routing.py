"""Policy routing: packets from an address of a NIC leave through this NIC.

A table for the NIC and three rules do this. The rules of an address A with the table T of its NIC,
the same at every host:

    31000: from A lookup T suppress_prefixlength 0      its own and the other NICs' networks
    31100: from A lookup main suppress_prefixlength 0   containers, VPNs, other routes: unchanged
    31200: from A lookup T                              everything else, through the NIC's gateway

T has the networks of the NIC, the networks of the other NICs through its own gateway (a cloud drops
packets with the address of another NIC as spoofed), and a default route.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import collapse_addresses, ip_address, ip_network
from itertools import chain
from typing import Any, Optional

from neuca_tools.desired import routing_tables
from neuca_tools.desired.coverage import is_inside
from neuca_tools.desired.dhcp import learned_gateways
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.routes import Routing, local_hosts, scoped_host
from neuca_tools.desired.safety import RequestLimits
from neuca_tools.model import Address, Hop, Host, Link, LinkKey, LinkRequest, Network, World
from neuca_tools.model.addresses import EVERYTHING, NetworkTable
from neuca_tools.model.device_settings import Note
from neuca_tools.model.provenance import RTPROT_RA
from neuca_tools.model.routing import MAIN_TABLE, Choice, NicRouting, Rule
from neuca_tools.model.topology import addresses_of, hosts_of

SETTING = "policy-routing"
# Behind the rules of all others: amazon-vpc-cni has 512 to 1536, ec2-net-utils 10000 and more,
# nm-cloud-setup 30200 to 30500.
OWN_NETWORKS, MAIN, DEFAULT = 31000, 31100, 31200
# Addresses of a platform that a route of the main table may lead to, and that answers have to leave
# to through the NIC that was asked: the probes of Azure's load balancers.
PROBING_HOSTS = (ip_address("168.63.129.16"),)
NO_ROUTER = "its IPv6 gateway is not known: no router has advertised itself on this link yet"
MAX_ROUTES = 65536  # a bound of our own: each table has the networks of all other NICs


Gateways = Mapping[LinkKey, Mapping[int, Host]]


def gateways_of_links(
    scene: Scene, local: Iterable[LinkRequest], choice: Choice
) -> dict[LinkKey, dict[int, Host]]:
    """The gateways, by family, of links whose addresses get rules; none for a link without one.

    `choice` is that of the configuration, which also has the `local` requests. A gateway from DHCP
    or of an IPv6 router counts unless a document names one. In a VRF, there are no such rules.
    """
    configured = {request.key: request for request in local}
    learned, routers = learned_gateways(scene.roles, scene.world), _advertised_routers(scene)
    gateways_by_link: dict[LinkKey, dict[int, Host]] = {}
    for key in scene.requests.keys() - routing_tables.of_vrfs(scene.requests).keys():
        request, own = scene.requests[key], configured.get(key)
        implied = request.routing.implied or key in learned
        if request.state in ("up", None) and _is_routed(request, own, choice, implied):
            known = {6: routers[key]} if key in routers else {}
            gateways_by_link[key] = {**known, **learned.get(key, {})}
            gateways_by_link[key].update(
                (gateway.version, gateway) for gateway in request.routing.gateways
            )
    return gateways_by_link


def _is_routed(
    request: LinkRequest, configured: Optional[LinkRequest], choice: Choice, implied: bool
) -> bool:
    """Whether the link is to have rules.

    Its own section in the configuration decides, then the host's setting, then a document.
    """
    own = configured.routing.choice if configured else None
    said = own or (choice if choice != "auto" else request.routing.choice) or "auto"
    return said == "yes" or (said == "auto" and implied)


def _advertised_routers(scene: Scene) -> dict[LinkKey, Host]:
    """The IPv6 router that has advertised itself on each link.

    Its route goes when the kernel no longer accepts advertisements; its entry among the neighbours
    lasts longer, and the record lasts.
    """
    announced: dict[int, Host] = {}  # the next hop of the best default route, by device index
    advertised = (route for route in scene.world.routes if route.protocol == RTPROT_RA)
    for route in sorted(advertised, key=lambda route: route.metric):
        if route.is_default and route.via is not None and route.via.version == 6:
            announced.setdefault(route.index, route.via)
    router_by_link: dict[LinkKey, Host] = {}
    for key, device in scene.device_by_link.items():
        neighbours = scene.world.routers.get(device.index, ())
        before = scene.record.routers.get(key)
        likely = before if before in neighbours else next(iter(neighbours), before)
        router = announced.get(device.index, likely)
        if router is not None:
            router_by_link[key] = router
    return router_by_link


def addresses_in_management(
    request: LinkRequest, gateways_by_link: Gateways, limits: RequestLimits
) -> tuple[Address, ...]:
    """The addresses in the management network; the link's rules and table make them usable.

    Only those of a NIC in that very network, whose gateway is in it too.
    """
    gateways = gateways_by_link.get(request.key, {}).values()
    return tuple(
        address
        for address in request.addresses
        if address.network in limits.prefixes
        and any(gateway in address.network for gateway in gateways)
    )


def build_routing(
    gateways_by_link: Gateways, links: Mapping[LinkKey, Link], scene: Scene
) -> Routing:
    """The routes and rules of these links."""
    if not gateways_by_link:
        return Routing()
    builder = _RoutingBuilder(links, scene)
    usable = builder.usable_links(gateways_by_link)
    tables = routing_tables.assign_tables(usable, scene)
    for key in sorted(usable, key=lambda key: key.order):
        reason = _no_rules_reason(scene.requests[key].routing, key in tables, gateways_by_link[key])
        if reason is not None:
            builder.note(key, reason)
        elif len(builder.hops) <= MAX_ROUTES:
            builder.link(usable[key], tables[key], gateways_by_link[key])
    if len(builder.hops) > MAX_ROUTES:
        # No rules for any link: it must not depend on their order which ones answer.
        reason = f"the tables of all links together would have more than {MAX_ROUTES} routes"
        return Routing(notes=tuple(Note(SETTING, "not applicable", reason, key) for key in usable))
    kept = {key: table for key, table in tables.items() if key in builder.routed_links}
    return Routing(
        tuple(builder.hops), rules=builder.rules, tables=kept, notes=tuple(builder.notes)
    )


def _no_rules_reason(
    asked: NicRouting, has_table: bool, gateways: Mapping[int, Host]
) -> Optional[str]:
    """Why a link cannot have rules; None if it can."""
    if not gateways and asked.choice == "yes":
        return "its gateway is not known"
    if has_table:
        return None
    if asked.table:
        return f"the table {asked.table} is that of another link"
    return f"there are only {len(routing_tables.TABLES)} tables"


def _foreign_sources(world: World) -> dict[Network, int]:
    """The sources of other programs' rules, each with the priority of its first rule.

    A rule that comes before ours and selects only some packets of its source leaves them the rest.
    """
    priorities: dict[Network, int] = {}
    for seen in world.rules:
        leaves_rest = seen.is_partial and seen.rule.priority < OWN_NETWORKS
        if not seen.is_ours and seen.rule.source and not seen.inverted and not leaves_rest:
            network, priority = ip_network(seen.rule.source), seen.rule.priority
            priorities[network] = min(priority, priorities.get(network, priority))
    return priorities


class Siblings:
    """The networks of all NICs, in one family: for the table of each, in few prefixes.

    With one route for each network, N NICs would need N * N routes. Adjacent networks are one
    prefix here. It may have networks of the NIC itself in it, whose own routes are more specific.
    """

    def __init__(self, networks: Iterable[Network]) -> None:
        self._all = frozenset(networks)
        self._table = NetworkTable(self._all)
        self._joined = _join_networks(self._all)
        self._nested = [network for network in self._all if self._is_nested(network)]

    def of(self, own: Collection[Network], gateway: Host) -> list[Network]:
        """The prefixes of all networks but `own`, without other networks with the gateway.

        No prefix is equal to one of `own`, or inside one unless another NIC has just this network.
        """
        removed = {*self._table.covering(gateway)} - {*own}
        joined = _join_networks(self._all - removed - {*own}) if removed else self._joined
        prefixes = {prefix for prefix in joined if not _is_in_any(prefix, own)}
        prefixes.update(network for network in self._nested if _is_in_any(network, own))
        return sorted(prefixes - {*own} - removed)

    def _is_nested(self, network: Network) -> bool:
        wider = self._table.covering(network.network_address)
        return any(other.prefixlen < network.prefixlen for other in wider)


def _join_networks(networks: Iterable[Network]) -> frozenset[Network]:
    every: Any = networks  # of one family, which the type cannot say
    return frozenset(collapse_addresses(every))


def _is_in_any(inner: Network, networks: Iterable[Network]) -> bool:
    return any(is_inside(inner, network) for network in networks)


class _RoutingBuilder:
    """The routes, rules and notes collected so far; `routed_links` are the links that have some."""

    def __init__(self, links: Mapping[LinkKey, Link], scene: Scene) -> None:
        self.links, self.scene, world, roles = links, scene, scene.world, scene.roles
        self.hops: list[Hop] = []
        self.rules: dict[Rule, LinkKey] = {}
        self.notes: list[Note] = []
        self.routed_links: set[LinkKey] = set()
        self.foreign = _foreign_sources(world)
        self.foreign_table = NetworkTable(self.foreign)  # there may be thousands
        # None in the main table, which no link can have.
        self.foreign_routes = {route.identity for route in world.other_routes if not route.is_ours}
        self.ignored = hosts_of(world, roles.guard.devices - roles.guard.management)
        self.main_prefixes = {route.to for route in world.routes}
        self.management = [*addresses_of(world, sorted(roles.guard.management))]
        self.own = {address.ip for address in self.management}
        self.local_hosts = local_hosts(world, links.values())
        self.siblings = {version: Siblings(self._all_networks(version)) for version in (4, 6)}

    def usable_links(self, gateways_by_link: Gateways) -> dict[LinkKey, Link]:
        """The links with an address, but for those that request a table that is refused."""
        usable, refused = {}, routing_tables.closed_tables(self.scene)
        for key in gateways_by_link:
            reason = refused.get(self.scene.requests[key].routing.table)
            if key not in self.links or not self.links[key].addresses:
                continue
            if reason is None:
                usable[key] = self.links[key]
            else:
                self.note(key, reason)
        return usable

    def note(self, key: LinkKey, reason: str) -> None:
        """Add the reason why a link has no rules."""
        self.notes.append(Note(SETTING, "not applicable", reason, key))

    def link(self, link: Link, table: int, gateways: Mapping[int, Host]) -> None:
        """Add the routes and rules of one link, each family for itself."""
        if 6 not in gateways and any(_is_counted(address, 6) for address in link.addresses):
            self.note(link.key, NO_ROUTER)
        for version in sorted(gateways):
            self._add_family(link, table, version, gateways[version])

    def _add_family(self, link: Link, table: int, version: int, gateway: Host) -> None:
        """The routes of all addresses of one family, and the rules of those that are free."""
        key = link.key
        addresses = [address for address in link.addresses if _is_counted(address, version)]
        free = [address for address in addresses if not self._is_taken(address, key)]
        if not free:
            return
        if scoped_host(link.index, gateway) in self.local_hosts:
            self.note(key, f"the gateway {gateway} is this host itself")
            return
        hops = list(self._table(key, table, addresses, gateway))
        if any(hop.identity in self.foreign_routes for hop in hops):
            self.note(key, f"another program has the same routes in table {table}")
            return
        self.routed_links.add(key)
        self.hops += hops
        for address in free:
            source, family = str(ip_network(address.ip)), address.version
            self.rules[Rule(family, OWN_NETWORKS, table, source, suppress=0)] = key
            self.rules[Rule(family, MAIN, MAIN_TABLE, source, suppress=0)] = key
            self.rules[Rule(family, DEFAULT, table, source)] = key

    def _is_taken(self, address: Address, key: LinkKey) -> bool:
        """Whether another use of the address takes precedence.

        It is an address of the management NIC or of an ignored one, or another program has a rule
        for it.
        """
        if address.ip in self.own:
            return True
        if address.ip in self.ignored:
            self.note(key, f"{address.ip} is an address of an ignored NIC too")
            return True
        sources = self.foreign_table.covering(address.ip)
        priority = min(map(self.foreign.__getitem__, sources), default=None)
        if priority is not None:
            text = f"rule {priority} of another program selects {address.ip}"
            self.notes.append(Note(SETTING, "overridden", text, key))
        return priority is not None

    def _table(
        self, key: LinkKey, table: int, addresses: Collection[Address], gateway: Host
    ) -> Iterator[Hop]:
        """The routes of the same family, in an order in which each next hop is known."""
        own = {
            address.network: address
            for address in addresses
            if address.network.prefixlen < address.max_prefixlen
        }
        yield from routing_tables.route_to_gateway(key, own.values(), gateway, table)
        for network, address in own.items():
            source = address.ip if address.version == 4 else None
            yield routing_tables.table_hop(network, key, table, source=source)
        for network in self.siblings[gateway.version].of(own.keys(), gateway):
            yield routing_tables.table_hop(network, key, table, gateway)
        for host in map(ip_network, PROBING_HOSTS):
            if host.version == gateway.version and host in self.main_prefixes:
                yield routing_tables.table_hop(host, key, table, gateway)
        yield routing_tables.table_hop(EVERYTHING[gateway.version], key, table, gateway)

    def _all_networks(self, version: int) -> Iterator[Network]:
        """The networks of all NICs, management included."""
        asked = chain.from_iterable(link.addresses for link in self.links.values())
        for address in chain(self.management, asked):
            if _is_counted(address, version) and address.network.prefixlen < address.max_prefixlen:
                yield address.network
        requests = (self.scene.requests[key] for key in self.scene.requests.keys() & self.links)
        subnets = chain.from_iterable(request.routing.subnets for request in requests)
        yield from (subnet for subnet in subnets if subnet.version == version)


def _is_counted(address: Address, version: int) -> bool:
    return address.version == version and not address.is_link_local
