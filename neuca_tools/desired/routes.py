"""The link of each requested route: the one that has its next hop in a network of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Optional, Union

from neuca_tools.desired.coverage import SHORTEST_PREFIX, shared_tables
from neuca_tools.desired.roles import Roles, Scene
from neuca_tools.desired.safety import RequestLimits
from neuca_tools.model import (
    Hop,
    Host,
    Link,
    LinkKey,
    LinkRequest,
    Network,
    Problem,
    Requests,
    RouteRequest,
    World,
)
from neuca_tools.model.addresses import NetworkTable
from neuca_tools.model.device_settings import Note
from neuca_tools.model.routing import MAIN_TABLE, NOWHERE, Rule, Traits, is_link_scoped
from neuca_tools.model.topology import foreign_routes

# A metric of our own, so that no other program's route with the same prefix is replaced: the kernel
# replaces by prefix, TOS and metric. It is below the kernel's default for IPv6, 1024
# (IP6_RT_PRIO_USER), so that our routes are preferred.
ROUTE_METRIC = 20


class Routing(NamedTuple):
    """Routes and rules to set, and the table of each link with policy routing (`tables`).

    `banned` are prefixes that must have no route. `loose` are those with a next hop in no requested
    address's network: their routes depend on addresses that another program sets.
    """

    hops: tuple[Hop, ...] = ()
    banned: tuple[Network, ...] = ()
    rules: Mapping[Rule, LinkKey] = {}
    tables: Mapping[LinkKey, int] = {}
    loose: frozenset[Network] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()


def resolve_routes(
    routes: Collection[RouteRequest],
    links: Mapping[LinkKey, Link],
    requests: Requests,
    scene: Scene,
    limits: RequestLimits,
    without_ipv6: Mapping[LinkKey, str],
) -> Routing:
    """Find the link of each route. A route that is refused, or cannot be set, becomes a problem.

    `links` are the links that can be used, `requests` those of all links. `without_ipv6` says why
    links have no IPv6.
    """
    if not routes:
        return Routing()
    finder = _Finder(links, requests, scene, limits, without_ipv6)
    for route in _on_link(routes, finder.requested):
        finder.take(route)
    return Routing(
        tuple(finder.taken.values()),
        tuple(finder.banned),
        loose=frozenset(finder.loose),
        problems=tuple(finder.problems),
    )


def _on_link(routes: Collection[RouteRequest], networks: Networks) -> Iterator[RouteRequest]:
    """The routes; one whose next hop only another requested route covers, without a next hop of its
    own, is on the link of that one. `networks` are those of all requested links.
    """
    direct = {route.to: route.link for route in routes if _is_direct(route)}
    table = NetworkTable(direct)
    for route in routes:
        if direct and route.via is not None and not networks.link(route.via):
            link = next(map(direct.get, table.covering(route.via)), None)
            if link is not None and route.link in (None, link):
                traits = route.traits._replace(onlink=True)
                route = route._replace(link=link, traits=traits)
        yield route


def _is_direct(route: RouteRequest) -> bool:
    is_unicast = route.state == "present" and route.traits.kind == "unicast"
    return is_unicast and route.via is None and route.link is not None


class _Finder:
    """Finds the link of each route by its next hop, and collects what can be set."""

    def __init__(
        self,
        links: Mapping[LinkKey, Link],
        requests: Requests,
        scene: Scene,
        limits: RequestLimits,
        without_ipv6: Mapping[LinkKey, str],
    ) -> None:
        world, devices = scene.world, scene.device_by_link
        usable = {key: link for key, link in links.items() if link.role == "dataplane"}
        present = {
            key: replace(link, addresses=world.addresses.get(devices[key].index, ()))
            for key, link in usable.items()
            if key in devices
        }
        self._usable, self._device_by_link, self._limits = usable, devices, limits
        self._asked, self.requested = Networks(usable), Networks(requests)
        self._present = Networks(present)
        self._foreign = foreign_routes(world)
        self._own = local_hosts(world, links.values())
        self._vrfs = foreign_vrfs(world, scene.roles)
        self._without_ipv6, self._shared = without_ipv6, shared_tables(world)
        self.taken: dict[object, Hop] = {}
        self.loose: set[Network] = set()
        self.banned: list[Network] = []
        self.problems: list[Problem] = []

    def take(self, route: RouteRequest) -> None:
        """Add the route, or the reason why it cannot be set."""
        reason = None
        if route.state == "absent":
            reason = self._ban_reason(route)
            self.banned += [] if reason else [route.to]
        elif route.state == "present":
            reason = self._set_route(route)
        if reason:
            self.problems.append(Problem("refused", f"route to {route.to}: {reason}"))

    def _set_route(self, route: RouteRequest) -> Optional[str]:
        """Add the route if it can be set; why it cannot, or None."""
        reason, links = self._fence_reason(route), [NOWHERE]
        if reason is None and route.traits.kind == "unicast":
            links, reason = self._links(route)
        if reason is not None or not links:
            return reason
        first, *others = links
        more = tuple(zip(others, route.others))
        hop = Hop(
            route.to,
            first,
            route.via,
            _kernel_metric(route),
            traits=_normal_traits(route),
            others=more,
        )
        if hop.identity in self._foreign:
            return f"a route of another program has the same prefix and metric ({hop.metric})"
        if self.taken.get(hop.identity, hop) != hop:
            # The kernel would replace one by the other.
            return f"another requested route has the same prefix and metric ({hop.metric})"
        self.taken[hop.identity] = hop
        if route.via is not None and not self._asked.link(route.via):
            self.loose.add(route.to)
        return None

    def _links(self, route: RouteRequest) -> tuple[list[LinkKey], Optional[str]]:
        """The links of all next hops; none, perhaps with the reason, if one of them has none.

        Without a reason, the address that leads to the next hop was refused and reported.
        """
        vias, links = (route.via, *route.others), list[LinkKey]()
        for via in vias:
            key, reason = self._link(route._replace(via=via))
            if reason is not None:
                return [], reason
            links += [key] if key else []
        return links if len(links) == len(vias) else [], None

    def _ban_reason(self, route: RouteRequest) -> Optional[str]:
        if route.to.prefixlen == 0:
            return "a default route is never removed"
        for link in self._usable.values():
            if any(address.network == route.to for address in link.addresses):
                return f'it is the network of an address that is requested on "{link.name}"'
        return None

    def _fence_reason(self, route: RouteRequest) -> Optional[str]:
        """Why no route may lead there. A table that only our rules lead to may have any route."""
        table = route.traits.table
        if table in self._vrfs or table not in self._shared:
            return self._vrfs.get(table)
        if route.traits.kind != "unicast" and route.to.prefixlen < SHORTEST_PREFIX:
            return "a prefix of length 0 or 1 would replace the default route"
        return self._limits.route(route.to)

    def _link(self, route: RouteRequest) -> tuple[Optional[LinkKey], Optional[str]]:
        """The link of a next hop and None, or None and the reason why there is none."""
        key = self._reaching_link(route)
        reason = self._hop_reason(route, key or self.requested.link(route.via, route.link))
        if reason is None and key is not None:
            reason = self._down_reason(route, key)
            if route.to.version == 6:
                reason = self._without_ipv6.get(key, reason)
            master = self._usable[key].master
            if route.traits.table == MAIN_TABLE and master is not None and master.kind == "vrf":
                reason = f'the next hop {route.via} is in the VRF "{master}"'
        return (None, reason) if reason else (key, None)

    def _reaching_link(self, route: RouteRequest) -> Optional[LinkKey]:
        """The usable link by which the next hop is reached, if there is one."""
        is_said = route.via is None or route.traits.onlink or is_link_scoped(route.via)
        if is_said and route.link is not None:
            return route.link if route.link in self._usable else None
        return self._asked.link(route.via, route.link) or self._present.link(route.via, route.link)

    def _hop_reason(self, route: RouteRequest, key: Optional[LinkKey]) -> Optional[str]:
        hop = f"the next hop {route.via}"
        if route.link is None and route.via is None:
            return "it has neither a next hop nor an interface"
        if route.link is None and is_link_scoped(route.via):
            return f"{hop} is link-local, which does not say through which interface"
        if key is None:
            is_named = route.via is None or route.traits.onlink
            no_network = f"{hop} is in no network of a dataplane NIC"
            return f"{route.link} cannot be used" if is_named else no_network
        if key not in self._usable:
            return f"{hop} is on {key}, which cannot be used"
        if on_link(self._usable[key].index, route.via) in self._own:
            return f"{hop} is this host itself"
        return None

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


def foreign_vrfs(world: World, roles: Roles) -> dict[int, str]:
    """Why nothing may use the tables of VRFs that are not ours."""
    tables = {
        int(dict(device.options).get("table") or 0): device.name
        for device in world.devices.values()
        if device.kind == "vrf" and device.index not in roles.made.indexes
    }
    return {
        table: f'the table {table} is that of the VRF "{name}", which neucad did not create'
        for table, name in tables.items()
    }


def local_hosts(world: World, links: Iterable[Link] = ()) -> frozenset[tuple[int, Optional[Host]]]:
    """The addresses of this host and those that it will have, as `on_link` has them."""
    asked = ((link.index, link.addresses) for link in links)
    both = chain(world.addresses.items(), asked)
    return frozenset(on_link(index, address.ip) for index, own in both for address in own)


def on_link(index: int, host: Optional[Host]) -> tuple[int, Optional[Host]]:
    """An address with the index of its link, 0 if no other link can have the same address."""
    return (index if is_link_scoped(host) else 0), host


class Networks:
    """The networks of the addresses of some links, to look next hops up in."""

    def __init__(self, holders: Mapping[LinkKey, Union[Link, LinkRequest]]) -> None:
        self._holders = holders

    # Most documents have no route, and nothing is looked up.
    @cached_property
    def _links(self) -> dict[Network, LinkKey]:
        link_by_network: dict[Network, LinkKey] = {}
        for key in sorted(self._holders, reverse=True):
            own = self._holders[key].addresses
            link_by_network.update((address.network, key) for address in own)
        return link_by_network

    @cached_property
    def _table(self) -> NetworkTable:
        return NetworkTable(self._links)

    def link(self, via: Optional[Host], said: Optional[LinkKey] = None) -> Optional[LinkKey]:
        """The link with the most specific network that holds the next hop.

        Several links may have a network that holds it; `said` is the one that the document names.
        """
        if via is None:
            return None
        holder = self._holders.get(said) if said else None
        if holder and any(via in address.network for address in holder.addresses):
            return said
        return next(map(self._links.get, self._table.covering(via)), None)


def _kernel_metric(route: RouteRequest) -> int:
    """The metric that the kernel will show: for IPv6, 0 stands for 1024 (IP6_RT_PRIO_USER)."""
    if route.metric is None:
        return ROUTE_METRIC
    return route.metric or (1024 if route.to.version == 6 else 0)


def _normal_traits(route: RouteRequest) -> Traits:
    """The traits without a scope that the route has anyway; IPv6 has no scopes."""
    traits = route.traits
    usual = "link" if traits.kind == "unicast" and route.via is None else "global"
    if route.to.version == 6 or traits.scope == usual:
        return traits._replace(scope="")
    return traits
