"""The link of each requested route: the one with an address in the network of its next hop."""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, Optional, Union

from neuca_tools.desired.coverage import SHORTEST_PREFIX, foreign_vrfs, shared_tables
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.safety import RequestLimits
from neuca_tools.model import (
    Hop,
    Host,
    Link,
    LinkKey,
    LinkRequest,
    Network,
    Problem,
    RouteRequest,
    World,
)
from neuca_tools.model.addresses import NetworkTable, broadcast_of
from neuca_tools.model.device_settings import Note
from neuca_tools.model.routing import MAIN_TABLE, NOWHERE, Rule, Traits, is_link_scoped, usual_scope
from neuca_tools.model.topology import foreign_routes, local_networks

# A metric of our own, so that no other program's route with the same prefix is replaced: the kernel
# replaces by prefix, TOS and metric. It is below the kernel's default for IPv6, 1024
# (IP6_RT_PRIO_USER), so that our routes are preferred.
ROUTE_METRIC = 20


class Routing(NamedTuple):
    """The routes (`hops`) and rules to set, and the table of each link with policy routing.

    `banned` are prefixes that must have no route. `dependent_prefixes` are those with a next hop in
    no requested network: their routes depend on addresses that another program sets. The routes to
    `waiting_prefixes` wait for their source address. `duplicates` have the prefix and metric of one
    of the `hops` of the main table, and another link.
    """

    hops: tuple[Hop, ...] = ()
    banned: tuple[Network, ...] = ()
    rules: Mapping[Rule, LinkKey] = {}
    tables: Mapping[LinkKey, int] = {}
    dependent_prefixes: frozenset[Network] = frozenset()
    waiting_prefixes: frozenset[Network] = frozenset()
    duplicates: tuple[Hop, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()


class RouteFinder:
    """Finds the link of each route by its next hop, and collects what can be set.

    `links` are the links that can be used; `without_ipv6` has those without IPv6, each with the
    reason.
    """

    def __init__(
        self,
        routes: Collection[RouteRequest],
        links: Mapping[LinkKey, Link],
        scene: Scene,
        limits: RequestLimits,
        without_ipv6: Mapping[LinkKey, str],
    ) -> None:
        requests, world, _, _, devices = scene
        usable = {key: link for key, link in links.items() if link.role == "dataplane"}
        indexes = {key: devices[key].index for key in usable.keys() & devices.keys()}
        present = {
            key: link._replace(addresses=world.addresses.get(indexes.get(key, 0), ()))
            for key, link in usable.items()
        }
        self._usable, self._device_by_link, self._limits = usable, devices, limits
        self._requested_networks = Networks(usable)
        self._present_networks = Networks(present)
        self._networks_of_all_links = Networks(requests)
        self._links_without_lease = {
            version: [
                key for key in present if _waits_for_lease(requests[key], present[key], version)
            ]
            for version in (4, 6)
        }
        self._foreign_identities = foreign_routes(world, {route.to for route in routes})
        direct = filter(attrgetter("is_direct"), routes)
        self._link_by_direct_prefix = {route.to: route.link for route in direct}
        self._direct_prefixes = NetworkTable(self._link_by_direct_prefix)
        self._local_hosts = local_hosts(world, links.values())
        self._local_networks = NetworkTable(local_networks(world))
        self._reason_by_vrf_table = foreign_vrfs(world, scene.roles)
        self._without_ipv6, self._routes = without_ipv6, routes
        self._shared_tables = shared_tables(world)
        self.hop_by_identity: dict[object, Hop] = {}
        self.dependent_prefixes: set[Network] = set()
        self.waiting_prefixes: set[Network] = set()
        self.duplicates: list[Hop] = []
        self.banned: list[Network] = []
        self.problems: list[Problem] = []

    def routing(self) -> Routing:
        """What can be set. A route that is refused, or cannot be set, becomes a problem."""
        for route in self._routes:
            self._add(route)
        return Routing(
            tuple(self.hop_by_identity.values()),
            tuple(self.banned),
            dependent_prefixes=frozenset(self.dependent_prefixes),
            waiting_prefixes=frozenset(self.waiting_prefixes),
            duplicates=tuple(self.duplicates),
            problems=tuple(self.problems),
        )

    def _add(self, route: RouteRequest) -> None:
        reason = None
        if route.state == "absent":
            reason = self._ban_reason(route)
            self.banned += [] if reason else [route.to]
        elif route.state == "present":
            reason = self._add_hop(route)
        if reason:
            self.problems.append(Problem("refused", f"route to {route.to}: {reason}"))

    def _add_hop(self, route: RouteRequest) -> Optional[str]:
        """Add the route if it can be set; return the reason if it cannot."""
        reason, links = _form_reason(route) or self._prefix_reason(route), [NOWHERE]
        parts = [self._tied_route(route._replace(via=via)) for via in (route.via, *route.others)]
        if reason is None and route.traits.kind == "unicast":
            links, reason = self._next_hop_links(parts)
        if reason is not None or not links:
            return reason
        hop = _hop_of(route, parts, links)
        if hop.identity in self._foreign_identities:
            return f"a route of another program has the same prefix and metric ({hop.metric})"
        if route.via is not None and not self._requested_networks.link_to(route.via):
            self.dependent_prefixes.add(route.to)
        return self._keep(hop)

    def _keep(self, hop: Hop) -> Optional[str]:
        """Keep the route. Return the reason if not: the kernel would replace another one by it."""
        other = self.hop_by_identity.setdefault(hop.identity, hop)
        if other.link != hop.link and hop.traits.table == MAIN_TABLE:
            self.duplicates.append(hop)
        elif other != hop:
            return duplicate_reason(hop)
        return None

    def _tied_route(self, route: RouteRequest) -> RouteRequest:
        """The route, on the link of the direct route that leads to its next hop, if only one does.

        A direct route has a link and no next hop. The next hop counts as `onlink` then.
        """
        if route.via is None or self._networks_of_all_links.link_to(route.via):
            return route
        prefixes = self._direct_prefixes.covering(route.via)
        link = next(map(self._link_by_direct_prefix.get, prefixes), None)
        if link is None or route.link not in (None, link):
            return route
        return route._replace(link=link, traits=route.traits._replace(onlink=True))

    def _next_hop_links(self, parts: Sequence[RouteRequest]) -> tuple[list[LinkKey], Optional[str]]:
        """The links of all parts of a route, one for each next hop; none if one has no link yet.

        The reason is returned too, unless the address that leads to the next hop was refused: that
        is reported already.
        """
        links = list[LinkKey]()
        for part in parts:
            key, reason = self._next_hop_link(part)
            if reason is not None:
                return [], reason
            links += [key] if key else []
        is_waiting = len(links) < len(parts) or self._waits_for_source(parts[0], links[0])
        return [] if is_waiting else links, None

    def _waits_for_source(self, route: RouteRequest, key: LinkKey) -> bool:
        """Whether the source is not an address of this host yet; that is a problem meanwhile.

        The kernel refuses such a route (fib_valid_prefsrc, ip6_route_info_create), but for one of
        IPv4 with a local route to its source.
        """
        source = route.traits.source
        if not source or scoped_host(self._usable[key].index, source) in self._local_hosts:
            return False
        if any(self._local_networks.covering(source)):
            return False
        self.waiting_prefixes.add(route.to)
        text = f"the source {source} is not an address of this host yet"
        self.problems.append(Problem("pending", f"route to {route.to}: {text}"))
        return True

    def _ban_reason(self, route: RouteRequest) -> Optional[str]:
        """Why the routes to this prefix are not removed."""
        if route.to.prefixlen == 0:
            return "a default route is never removed"
        for link in self._usable.values():
            if any(address.network == route.to for address in link.addresses):
                return f'it is the network of an address that is requested on "{link.name}"'
        return None

    def _prefix_reason(self, route: RouteRequest) -> Optional[str]:
        """Why no route may lead there. A table that only our rules lead to may have any route."""
        table = route.traits.table
        if table in self._reason_by_vrf_table or table not in self._shared_tables:
            return self._reason_by_vrf_table.get(table)
        if route.traits.kind != "unicast" and route.to.prefixlen < SHORTEST_PREFIX:
            return "a prefix of length 0 or 1 would replace the default route"
        return self._limits.route_reason(route.to)

    def _next_hop_link(self, route: RouteRequest) -> tuple[Optional[LinkKey], Optional[str]]:
        """The link of a next hop and None, or None and the reason why there is none."""
        key = self._usable_link(route)
        named = key or self._networks_of_all_links.link_to(route.via, route.link)
        if self._is_pending(route, named):
            return None, None
        reason = self._next_hop_reason(route, named)
        if reason is None and key is not None:
            reason = self._down_reason(route, key)
            if route.to.version == 6:
                reason = self._without_ipv6.get(key, reason)
            master = self._usable[key].master
            if route.traits.table == MAIN_TABLE and master is not None and master.kind == "vrf":
                reason = f'the next hop {route.via} is in the VRF "{master}"'
        return (None, reason) if reason else (key, None)

    def _usable_link(self, route: RouteRequest) -> Optional[LinkKey]:
        """The usable link through which the next hop is reached, if there is one."""
        via, link = route.via, route.link
        is_on_named_link = via is None or route.traits.onlink or is_link_scoped(via)
        if is_on_named_link and link is not None:
            return link if link in self._usable else None
        requested = self._requested_networks.link_to(via, link)
        return requested or self._present_networks.link_to(via, link)

    def _is_pending(self, route: RouteRequest, named: Optional[LinkKey]) -> bool:
        """Whether a lease may still lead to the next hop; that is a problem meanwhile."""
        via = route.via
        if named or via is None or route.traits.onlink or is_link_scoped(via):
            return False
        if any(via in prefix for prefix in self._limits.prefixes):
            return False
        for key in self._links_without_lease[via.version]:
            if route.link in (None, key):
                text = f'"{self._usable[key].name}" has no lease yet that leads to {via}'
                self.problems.append(Problem("pending", f"route to {route.to}: {text}"))
                return True
        return False

    def _next_hop_reason(self, route: RouteRequest, key: Optional[LinkKey]) -> Optional[str]:
        """Why the next hop cannot be used; `key` is its link, usable or not, if it has one."""
        via, hop = route.via, f"the next hop {route.via}"
        if route.link is None and is_link_scoped(via):
            return f"{hop} is link-local, which does not say through which interface"
        if key is None:
            if route.link and (via is None or route.traits.onlink):
                return f"{route.link} cannot be used"
            return f"{hop} is in no network of a dataplane NIC"
        if key not in self._usable:
            return f"{hop} is on {key}, which cannot be used"
        wrong = via and self._host_reason(self._usable[key], via)
        return f"{hop} is {wrong}" if wrong else None

    def _host_reason(self, link: Link, via: Host) -> Optional[str]:
        """What no next hop can be."""
        if scoped_host(link.index, via) in self._local_hosts:
            return "this host itself"
        is_broadcast = via in {broadcast_of(address.network) for address in link.addresses}
        return "a broadcast address" if is_broadcast else None

    def _down_reason(self, route: RouteRequest, key: LinkKey) -> Optional[str]:
        """Why the link can have no routes: it or its NIC is down (the kernel returns ENETDOWN)."""
        subject = f"the next hop {route.via}" if route.via else "it"
        place, devices = f'{subject} is on "{self._usable[key].name}"', self._device_by_link
        for part in (key.nic, key):
            link = self._usable.get(part)
            if link is not None and link.state == "down":
                return f"{place}, which is requested to be down"
            if (link is None or link.state != "up") and not (part in devices and devices[part].up):
                return f"{place}, which is down"
        return None


def duplicate_reason(hop: Hop) -> str:
    """Why a route is not set whose place in its table another one has."""
    return f"another requested route has the same prefix and metric ({hop.metric})"


def _form_reason(route: RouteRequest) -> Optional[str]:
    """Why the kernel accepts no such route on any host."""
    hops, scope, source = (route.via, *route.others), route.traits.scope, route.traits.source
    if source and (source.is_unspecified or source.is_multicast):
        return f"{source} cannot be a source address"
    if route.via and scope in ("link", "host"):
        return f"a route of scope {scope} cannot have a next hop"
    if route.to.version == 6 and route.traits.tos:
        return "an IPv6 route cannot have a type of service"
    if route.to.version == 6 and len({*hops}) < len(hops):
        return "a next hop is listed twice"
    return None


def _waits_for_lease(request: LinkRequest, present: Link, version: int) -> bool:
    """Whether the link is to get addresses of this family from others, and has none."""
    leases = request.leases.dhcp4 if version == 4 else request.leases.has_ipv6
    if not leases or present.state != "up":
        return False
    own = (address for address in present.addresses if address.version == version)
    return all(address.is_link_local or address in request.addresses for address in own)


def local_hosts(world: World, links: Iterable[Link] = ()) -> frozenset[tuple[int, Host]]:
    """The addresses of this host, and those that these links will have, as `scoped_host`."""
    requested = ((link.index, link.addresses) for link in links)
    both = chain(world.addresses.items(), requested)
    return frozenset(scoped_host(index, address.ip) for index, own in both for address in own)


def scoped_host(index: int, host: Host) -> tuple[int, Host]:
    """An address to compare with others: a link-local one of IPv6 counts on its link only.

    It is paired with the index of its link, any other address with 0.
    """
    return (index if is_link_scoped(host) else 0), host


class Networks:
    """The networks of the addresses of some links, to find the link of a next hop."""

    def __init__(self, holders: Mapping[LinkKey, Union[Link, LinkRequest]]) -> None:
        self._holders = holders

    # Computed when first needed: most documents have no route, so nothing is looked up.
    @cached_property
    def _links(self) -> dict[Network, LinkKey]:
        link_by_network: dict[Network, LinkKey] = {}
        for key in sorted(self._holders, reverse=True):
            addresses = self._holders[key].addresses
            link_by_network.update((address.network, key) for address in addresses)
        return link_by_network

    @cached_property
    def _table(self) -> NetworkTable:
        return NetworkTable(self._links)

    def link_to(self, via: Optional[Host], named: Optional[LinkKey] = None) -> Optional[LinkKey]:
        """The link with the most specific network that contains the next hop `via`.

        If the link that the document names is one of several that contain it, this one is meant.
        """
        if via is None:
            return None
        holder = self._holders.get(named) if named else None
        if holder and any(via in address.network for address in holder.addresses):
            return named
        return next(map(self._links.get, self._table.covering(via)), None)


def _hop_of(route: RouteRequest, parts: Iterable[RouteRequest], links: Iterable[LinkKey]) -> Hop:
    first, *more = links
    traits = _normal_traits(route)._replace(onlink=any(part.traits.onlink for part in parts))
    metric = ROUTE_METRIC if route.metric is None else route.metric
    if metric == 0 and route.to.version == 6:
        metric = 1024  # what the kernel will show (IP6_RT_PRIO_USER)
    others = tuple(zip(more, route.others))
    return Hop(route.to, first, route.via, metric, traits=traits, others=others)


def _normal_traits(route: RouteRequest) -> Traits:
    """The traits without the usual scope, and for IPv6 without the source of what drops packets."""
    traits, version = route.traits, route.to.version
    if version == 6:
        return traits._replace(scope="", source=traits.source if traits.kind == "unicast" else None)
    is_usual = traits.scope == usual_scope(version, traits.kind, route.via)
    return traits._replace(scope="") if is_usual else traits
