"""The routing tables of VRFs and of links with policy routing, and why a table is refused.

What arrives on a member, or leaves through a socket bound to the VRF, is routed by the table of the
VRF alone (vrf.rst of the kernel). So the routes of a member belong into this table, and it is
no one else's: neither the management link's nor that of policy routing.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_network
from typing import Optional

from neuca_tools.desired.coverage import foreign_vrfs
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.routes import ROUTE_METRIC, Networks, Routing, local_hosts, scoped_host
from neuca_tools.model import (
    Address,
    Hop,
    Host,
    Link,
    LinkKey,
    LinkRequest,
    Network,
    Requests,
    Route,
    RouteRequest,
    Virtual,
    World,
)
from neuca_tools.model.addresses import EVERYTHING
from neuca_tools.model.device_settings import Note
from neuca_tools.model.routing import KERNEL_TABLES, MAIN_TABLE, SeenRule, Traits, is_link_scoped

VRF = "vrf"
Tables = Mapping[LinkKey, int]
NO_DHCP = "network managers do not run DHCP in a VRF that they did not create"


def vrf_table(virtual: Optional[Virtual]) -> int:
    """The table of a VRF; 0 if none is requested."""
    return int((virtual or Virtual()).option("table") or 0)


def of_vrfs(requests: Requests) -> dict[LinkKey, int]:
    """The table of each requested VRF and of each of its members.

    This depends on the requests only: whether the VRF can be created makes no difference.
    """
    table_by_link: dict[LinkKey, int] = {}
    for key, request in requests.items():
        table = vrf_table(request.virtual) if key.kind == VRF else 0
        if table and request.virtual and request.state != "user":
            table_by_link[key] = table
            table_by_link.update(dict.fromkeys(request.virtual.members, table))
    return table_by_link


def without_dhcp(requests: Requests) -> tuple[dict[LinkKey, LinkRequest], list[Note]]:
    """The requests without DHCP and router advertisements for members, and notes about these.

    networkd takes a link out of a VRF that is not in its own files (systemd.network(5), VRF=).
    """
    changed, notes = dict(requests), []
    for key in sorted(of_vrfs(requests).keys() & requests.keys(), key=lambda key: key.order):
        asked = requests[key].leases
        if asked.has_dhcp or asked.accept_ra:
            notes.append(Note("dhcp", "not applicable", NO_DHCP, key))
        changed[key] = requests[key]._replace(automatic=None)
    return changed, notes


def place_routes(routes: Iterable[RouteRequest], requests: Requests) -> tuple[RouteRequest, ...]:
    """The routes, with those through a VRF or one of its members in the table of the VRF.

    A route that names a table other than `main` stays there. Of a VRF's own route, the link is the
    member that has the next hop in one of its networks.
    """
    tables = of_vrfs(requests)
    if not tables:
        return tuple(routes)
    networks = Networks(requests)
    return tuple(_place_route(route, requests, tables, networks) for route in routes)


def _place_route(
    route: RouteRequest, requests: Requests, tables: Tables, networks: Networks
) -> RouteRequest:
    if route.state != "present":
        return route
    route = _through_member(route, requests, tables)
    # The link of any other next hop is the one that has it in one of its networks.
    is_tied = route.via is None or route.traits.onlink
    link = route.link if is_tied else networks.link_to(route.via, route.link) or route.link
    table = tables.get(link, 0) if link else 0
    if not table or route.traits.table != MAIN_TABLE:
        return route
    return route._replace(traits=route.traits._replace(table=table))


def _through_member(route: RouteRequest, requests: Requests, tables: Tables) -> RouteRequest:
    """A route through a VRF leaves through the member that has the next hop in its network."""
    key = route.link
    if key is None or key.kind != VRF or route.via is None or key not in tables:
        return route
    virtual = requests[key].virtual or Virtual()
    members = {member: requests[member] for member in virtual.members if member in requests}
    return route._replace(link=Networks(members).link_to(route.via) or key)


def of_own_tables(
    duplicates: Iterable[Hop], policy: Routing, taken: Collection[object]
) -> tuple[list[Hop], list[Hop]]:
    """These routes of the main table in the table of their link, and those that it cannot have.

    There they take the packets from its addresses, which the route of another link would take, if
    rules of this family lead there. `taken` are the identities of other routes, also of those in
    the main table.
    """
    ruled = {(key, rule.family) for rule, key in policy.rules.items()}
    placed, refused = dict[object, Hop](), list[Hop]()
    for hop in duplicates:
        is_ruled = (hop.link, hop.to.version) in ruled
        table = policy.tables[hop.link] if is_ruled else MAIN_TABLE
        own = hop._replace(traits=hop.traits._replace(table=table))
        if own.identity in taken or placed.setdefault(own.identity, own) != own:
            refused.append(hop)
    return [*placed.values()], refused


class TablesInUse:
    """Why a table cannot be that of a VRF, by all requests and what is in the tables now."""

    def __init__(self, scene: Scene) -> None:
        self._roles, requests = scene.roles, scene.requests
        self._vrfs: dict[int, list[LinkKey]] = {}
        for key, request in requests.items():
            if key.kind == VRF and request.state != "user":
                self._vrfs.setdefault(vrf_table(request.virtual), []).append(key)
        self._taken = _tables_of_others(scene, scene.world.rules)
        for key in sorted(requests, reverse=True):
            table = requests[key].routing.table
            self._taken[table] = f"the table {table} is that of the policy routing of {key}"
        self._routes_of_others: dict[int, list[Route]] = {}
        for route in scene.world.other_routes:
            if not route.is_ours:
                self._routes_of_others.setdefault(route.traits.table, []).append(route)

    def reason(self, key: LinkKey, table: int) -> Optional[str]:
        """Why the VRF may not have this table."""
        twin = next((vrf for vrf in self._vrfs.get(table, ()) if vrf != key), None)
        if twin:
            return f"the table {table} is requested for {twin} too"
        if table in self._taken:
            return self._taken[table]
        device = self._roles.made.devices.get(key.mac)
        # Once we have created the VRF, the kernel and others may have added routes of the members.
        is_ours = device is not None and vrf_table(Virtual(options=device.options)) == table
        for route in self._routes_of_others.get(table, ()):
            if route.index in self._roles.guard.management:
                return f"the table {table} has a route of the management NIC, to {route.to}"
            if route.index in self._roles.guard.devices or not is_ours:
                return f"the table {table} has a route of another program, to {route.to}"
        return None


def _tables_of_others(scene: Scene, rules: Iterable[SeenRule]) -> dict[int, str]:
    """Why the tables of foreign VRFs, and those that these rules refer to, are not ours."""
    foreign = (seen.rule for seen in rules if not seen.is_ours)
    reasons = {
        rule.table: f"rule {rule.priority} of another program refers to the table {rule.table}"
        for rule in foreign
    }
    return {**reasons, **foreign_vrfs(scene.world, scene.roles)}


def default_routes(
    links: Mapping[LinkKey, Link], scene: Scene, taken: Collection[object]
) -> tuple[tuple[Hop, ...], tuple[Note, ...]]:
    """The default routes through the gateways of members, in the tables of their VRFs.

    `taken` are the identities of requested routes, which take precedence. Of several gateways in
    one VRF, the first counts.
    """
    hops: dict[object, Hop] = {}
    notes: list[Note] = []
    members = _vrf_members(links)
    present = local_hosts(scene.world) if members else ()
    for link, table in members:
        for gateway in scene.requests[link.key].routing.gateways:
            hop = table_hop(EVERYTHING[gateway.version], link.key, table, gateway)
            reason = ""
            if scoped_host(link.index, gateway) in present:
                reason = f"the gateway {gateway} is this host itself"
            elif hop.identity in {*hops, *taken}:
                reason = f"its VRF has a default route through another gateway than {gateway}"
            if reason:
                notes.append(Note("gateway", "not applicable", reason, link.key))
                continue
            parts = (*route_to_gateway(link.key, link.addresses, gateway, table), hop)
            hops.update((part.identity, part) for part in parts)
    return tuple(hops.values()), tuple(notes)


def _vrf_members(links: Mapping[LinkKey, Link]) -> list[tuple[Link, int]]:
    """The links with addresses in VRFs, in their order, each with the table of its VRF."""
    # Those of a VRF that is refused may still be in another one, or in the same with another table.
    tables: dict[Optional[LinkKey], int] = {
        key: vrf_table(link.virtual) for key, link in links.items() if key.kind == VRF
    }
    members = [link for link in links.values() if link.addresses and link.master in tables]
    members.sort(key=lambda link: link.key.order)
    return [(link, tables[link.master]) for link in members]


def route_to_gateway(
    key: LinkKey, addresses: Iterable[Address], gateway: Host, table: int
) -> Iterator[Hop]:
    """The route to the gateway itself if it is in no network of the link."""
    if not is_link_scoped(gateway) and not any(gateway in own.network for own in addresses):
        yield table_hop(ip_network(gateway), key, table)


def table_hop(
    to: Network, key: LinkKey, table: int, via: Optional[Host] = None, source: Optional[Host] = None
) -> Hop:
    """A route through a link in a table of our own."""
    return Hop(to, key, via, ROUTE_METRIC, traits=Traits(table, source=source))


# --- Policy routing -------------------------------------------------------------------------------

# Numbers of our own choice, like the priorities of our rules, and documented in neucad(8).
TABLES = range(31001, 32000)


def closed_tables(scene: Scene) -> dict[int, str]:
    """The tables that no document may give a default route, with the reasons.

    A rule that selects marked packets only does not count: it is meant to use its table.
    """
    rules = (seen for seen in scene.world.rules if seen.rule.table)
    unmarked = (seen for seen in rules if not (seen.plain and seen.rule.mask))
    vrfs = of_vrfs(scene.requests).values()
    own = {table: f"the table {table} is that of a VRF" for table in vrfs}
    return {**own, **_tables_of_others(scene, unmarked)}


def assign_tables(links: Collection[LinkKey], scene: Scene) -> dict[LinkKey, int]:
    """The table of each link: the requested one, its previous one, or the first unused one.

    No two links have the same: the routes of one would replace those of the other. Of links that
    request the same table, only the first gets it.
    """
    requests, recorded = scene.requests, scene.record.tables
    foreign, ours = _used_tables(scene.world)
    asked = {request.routing.table for request in requests.values()}
    spare = iter(_spare_tables(foreign | ours | asked, recorded, requests))
    usable = set(TABLES) - (foreign - ours) - asked
    link_by_table: dict[int, LinkKey] = {}
    for key in sorted(links, key=lambda key: key.order):
        table = requests[key].routing.table
        before = recorded.get(key, 0)
        if not table and before in usable:
            usable.remove(before)
            table = before
        table = table or next(spare, 0)
        if table:
            link_by_table.setdefault(table, key)
    return {key: table for table, key in link_by_table.items()}


def _spare_tables(
    taken: Collection[int], recorded: Mapping[LinkKey, int], requested: Collection[LinkKey]
) -> list[int]:
    """The tables for links without one; last of all, those of links that are not requested now."""
    kept = {table for key, table in recorded.items() if key in requested}
    known = set(recorded.values())
    free = (table for table in TABLES if table not in kept and table not in taken)
    return sorted(free, key=lambda table: (table in known, table))


def _used_tables(world: World) -> tuple[set[int], set[int]]:
    """The tables with routes or rules of other programs, and those with ours."""
    foreign: set[int] = set(KERNEL_TABLES)
    ours: set[int] = set()
    for route in world.other_routes:
        (ours if route.is_ours else foreign).add(route.traits.table)
    for seen in world.rules:
        (ours if seen.is_ours else foreign).add(seen.rule.table)
    return foreign, ours
