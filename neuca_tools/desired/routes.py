"""The link of each requested route: the one that has its next hop in a network of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_network
from typing import Optional

from neuca_tools.desired.coverage import SHORTEST_PREFIX, shared_tables
from neuca_tools.desired.safety import Fence
from neuca_tools.model import (
    Address,
    Device,
    Hop,
    Host,
    Link,
    LinkKey,
    Network,
    Problem,
    RouteRequest,
    World,
)
from neuca_tools.model.routing import MAIN_TABLE, NOWHERE, ROUTE_PROTOCOL, Traits

# A metric of our own, so that no other program's route with the same prefix is replaced: the kernel
# replaces by prefix, TOS and metric. It is below the kernel's default for IPv6, 1024
# (IP6_RT_PRIO_USER), so that our routes are preferred.
ROUTE_METRIC = 20


@dataclass(frozen=True)
class Hops:
    """The routes to set, and the prefixes that must have no route (`banned`).

    `loose` are the prefixes with a next hop in no requested address's network: those routes depend
    on addresses that another program sets.
    """

    hops: tuple[Hop, ...] = ()
    banned: tuple[Network, ...] = ()
    problems: tuple[Problem, ...] = ()
    loose: frozenset[Network] = frozenset()


def resolve_routes(
    routes: Collection[RouteRequest],
    links: Mapping[LinkKey, Link],
    asked_of: Mapping[LinkKey, tuple[Address, ...]],
    world: World,
    found: Mapping[LinkKey, Device],
    limits: Fence,
    vrfs: Mapping[int, str],
    without_ipv6: Mapping[LinkKey, str],
) -> Hops:
    """Find the link of each route. A route that is refused, or cannot be set, becomes a problem.

    `links` are the links that can be used, `found` the devices that are present. `asked_of` has the
    addresses that are requested on each link, whether it can be used or not. `vrfs` are the tables
    of VRFs that are not ours, which no document adds routes to; `without_ipv6` says why links have
    no IPv6.
    """
    if not routes:
        return Hops()
    usable = {key: link for key, link in links.items() if link.role == "dataplane"}
    finder = _Finder(usable, asked_of, world, found, limits)
    finder.vrfs, finder.without_ipv6 = vrfs, without_ipv6
    taken: dict[object, Hop] = {}
    loose: set[Network] = set()
    banned: list[Network] = []
    problems: list[Problem] = []
    own = {address.ip for address in _all_addresses(links, world)}
    for route in routes:
        hop, reason = _outcome(route, finder, usable, own, taken)
        if reason:
            problems.append(Problem("refused", f"route to {route.to}: {reason}"))
        elif hop is not None:
            taken[hop.identity] = hop
            loose |= {route.to} if finder.is_loose(route) else set()
        elif route.state == "absent":
            banned.append(route.to)
    return Hops(tuple(taken.values()), tuple(banned), tuple(problems), frozenset(loose))


def _outcome(
    route: RouteRequest,
    finder: _Finder,
    usable: Mapping[LinkKey, Link],
    own: Container[Host],
    taken: Mapping[object, Hop],
) -> tuple[Optional[Hop], Optional[str]]:
    """The route on its link, None for a banned one, and the reason why it cannot be."""
    if route.state == "absent":
        return None, _ban_reason(route, usable)
    if route.state != "present":
        return None, None
    hop, reason = finder.hop(route, own)
    if hop is not None:
        reason = reason or _twin(hop, taken)
    return hop, reason


class _Finder:
    """Finds the link of a route by its next hop."""

    def __init__(
        self,
        usable: Mapping[LinkKey, Link],
        asked_of: Mapping[LinkKey, tuple[Address, ...]],
        world: World,
        found: Mapping[LinkKey, Device],
        limits: Fence,
    ) -> None:
        self._usable, self._found, self._limits = usable, found, limits
        self._asked = Networks({key: link.addresses for key, link in usable.items()})
        self._present = Networks({key: _present(key, world, found) for key in usable})
        self._all = Networks(asked_of)
        self._taken = {
            (other.to, other.traits.table, other.metric, other.traits.tos)
            for other in (*world.routes, *world.tables)
            if other.protocol != ROUTE_PROTOCOL
        }
        self.vrfs: Mapping[int, str] = {}
        self.without_ipv6: Mapping[LinkKey, str] = {}
        self._shared = shared_tables(world)

    def hop(self, route: RouteRequest, own: Container[Host]) -> tuple[Optional[Hop], Optional[str]]:
        """The route as it can be set, or None and the reason why it cannot."""
        reason = self._fence_reason(route)
        links: list[LinkKey] = []
        vias = (route.via, *route.others) if route.traits.kind == "unicast" else ()
        for via in vias:
            if reason is None:
                key, reason = self._link(replace(route, via=via), own)
                links += [key] if key else []
        if reason is not None or len(links) < len(vias):
            # Without a reason, the address that leads to the next hop was refused and reported.
            return None, reason
        first, *others = links or [NOWHERE]
        hop = Hop(
            route.to,
            first,
            route.via,
            _metric(route),
            traits=_normal(route),
            others=tuple(zip(others, route.others)),
        )
        if hop.identity in self._taken:
            return None, f"a route of another program has the same prefix and metric ({hop.metric})"
        return hop, None

    def _fence_reason(self, route: RouteRequest) -> Optional[str]:
        """Why no route may lead there. A table that only our rules lead to may have any route."""
        name = self.vrfs.get(route.traits.table)
        if name:
            return (
                f'the table {route.traits.table} is that of the VRF "{name}",'
                " which neucad did not create"
            )
        if route.traits.table not in self._shared:
            return None
        if route.traits.kind != "unicast" and route.to.prefixlen < SHORTEST_PREFIX:
            return "a prefix of length 0 or 1 would replace the default route"
        return self._limits.route(route.to)

    def _link(
        self, route: RouteRequest, own: Container[Host]
    ) -> tuple[Optional[LinkKey], Optional[str]]:
        """The link of a next hop and None, or None and the reason why there is none."""
        key = self._reaching(route)
        known = key or self._all.link(route.via, route.link)
        reason = _hop_reason(route, known, self._usable, own)
        if reason is None and key is not None:
            reason = _down_reason(route, key, self._usable, self._found)
            if route.to.version == 6:
                reason = self.without_ipv6.get(key, reason)
            if _is_outside(route, self._usable, key):
                reason = f'the next hop {route.via} is in the VRF "{self._usable[key].master}"'
        return (None, reason) if reason else (key, None)

    def _reaching(self, route: RouteRequest) -> Optional[LinkKey]:
        """The usable link by which the next hop is reached, if there is one."""
        is_said = route.via is None or route.traits.onlink or _link_local(route)
        if is_said and route.link is not None:
            return route.link if route.link in self._usable else None
        return self._asked.link(route.via, route.link) or self._present.link(route.via, route.link)

    def is_loose(self, route: RouteRequest) -> bool:
        """Whether the next hop is in no network of a requested address."""
        return route.via is not None and not self._asked.link(route.via)


def _link_local(route: RouteRequest) -> bool:
    return route.via is not None and route.via.version == 6 and route.via.is_link_local


def _is_outside(route: RouteRequest, links: Mapping[LinkKey, Link], key: LinkKey) -> bool:
    """Whether a route of the main table would lead into a VRF."""
    master = links[key].master
    is_main = route.traits.table == MAIN_TABLE
    return is_main and master is not None and master.kind == "vrf"


def _present(key: LinkKey, world: World, found: Mapping[LinkKey, Device]) -> tuple[Address, ...]:
    if key not in found:
        return ()
    return world.addresses.get(found[key].index, ())


class Networks:
    """The networks of the addresses of some links, to look next hops up in."""

    def __init__(self, addresses: Mapping[LinkKey, tuple[Address, ...]]) -> None:
        self._addresses = addresses

    # Most documents have no route, and nothing is looked up.

    @cached_property
    def _of(self) -> dict[Optional[LinkKey], set[Network]]:
        return {
            key: {address.network for address in addresses}
            for key, addresses in self._addresses.items()
        }

    @cached_property
    def _links(self) -> dict[Network, LinkKey]:
        found: dict[Network, LinkKey] = {}
        for key in sorted(self._addresses, key=lambda key: key.position, reverse=True):
            found.update((address.network, key) for address in self._addresses[key])
        return found

    @cached_property
    def _lengths(self) -> list[tuple[int, int]]:
        lengths = {(network.version, network.prefixlen) for network in self._links}
        return sorted(lengths, reverse=True)

    def link(self, via: Optional[Host], said: Optional[LinkKey] = None) -> Optional[LinkKey]:
        """The link with the most specific network that holds the next hop.

        Several links may have a network that holds it; `said` is the one that the document names.
        """
        if via is not None and any(via in network for network in self._of.get(said, ())):
            return said
        networks = (
            ip_network((via, length), strict=False)
            for version, length in self._lengths
            if via is not None and via.version == version
        )
        return next((self._links[network] for network in networks if network in self._links), None)


def _hop_reason(
    route: RouteRequest,
    key: Optional[LinkKey],
    links: Mapping[LinkKey, Link],
    own: Container[Host],
) -> Optional[str]:
    if route.link is None and route.via is None:
        return "it has neither a next hop nor an interface"
    if route.link is None and _link_local(route):
        return f"the next hop {route.via} is link-local, which does not say through which interface"
    if key is None and (route.via is None or route.traits.onlink):
        return f"{route.link} cannot be used"
    if key is None:
        return f"the next hop {route.via} is in no network of a dataplane NIC"
    if key not in links:
        return f"the next hop {route.via} is on {key}, which cannot be used"
    if route.via in own:
        return f"the next hop {route.via} is this host itself"
    return None


def _down_reason(
    route: RouteRequest,
    key: LinkKey,
    links: Mapping[LinkKey, Link],
    found: Mapping[LinkKey, Device],
) -> Optional[str]:
    """Why the link can have no routes: it is down, or its NIC is (the kernel returns ENETDOWN)."""
    subject = f"the next hop {route.via}" if route.via else "it"
    for part in (key.nic, key):
        link = links.get(part)
        if link is not None and link.state == "down":
            return f'{subject} is on "{links[key].name}", which is requested to be down'
        if (link is None or link.state != "up") and not (part in found and found[part].up):
            return f'{subject} is on "{links[key].name}", which is down'
    return None


def _twin(hop: Hop, taken: Mapping[object, Hop]) -> Optional[str]:
    """Why another requested route stands in the way: the kernel would replace one by the other."""
    other = taken.get(hop.identity)
    if other is None or other == hop:
        return None
    return f"another requested route has the same prefix and metric ({hop.metric})"


def _metric(route: RouteRequest) -> int:
    """The metric that the kernel will show: for IPv6, 0 stands for 1024 (IP6_RT_PRIO_USER)."""
    if route.metric is None:
        return ROUTE_METRIC
    return route.metric or (1024 if route.to.version == 6 else 0)


def _normal(route: RouteRequest) -> Traits:
    """The traits without a scope that the route has anyway; IPv6 has no scopes."""
    traits = route.traits
    usual = "link" if traits.kind == "unicast" and route.via is None else "global"
    if route.to.version == 6 or traits.scope == usual:
        return replace(traits, scope="")
    return traits


def _all_addresses(links: Mapping[LinkKey, Link], world: World) -> Iterator[Address]:
    for link in links.values():
        yield from link.addresses
    for addresses in world.addresses.values():
        yield from addresses


def _ban_reason(route: RouteRequest, links: Mapping[LinkKey, Link]) -> Optional[str]:
    if route.to.prefixlen == 0:
        return "a default route is never removed"
    for link in links.values():
        if any(address.network == route.to for address in link.addresses):
            return f'it is the network of an address that is requested on "{link.name}"'
    return None
