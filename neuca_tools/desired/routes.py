"""The link of each requested route: the one that has its next hop in a network of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Optional

from neuca_tools.desired.safety import ROUTE_PROTOCOL as ROUTE_PROTOCOL  # noqa: PLC0414 - a part of what a route is
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

# A metric of our own, so that no other program's route with the same prefix is replaced: the kernel
# replaces by prefix, TOS and metric. It is below the kernel's default for IPv6, 1024
# (IP6_RT_PRIO_USER), so that our routes are preferred.
ROUTE_METRIC = 20


@dataclass(frozen=True)
class Hops:
    """The routes to set, and the prefixes that must have no route (`banned`).

    `loose` are the MACs of NICs with a next hop in no requested address's network: those routes
    depend on addresses that somebody else sets.
    """

    hops: tuple[Hop, ...] = ()
    banned: tuple[Network, ...] = ()
    problems: tuple[Problem, ...] = ()
    loose: frozenset[str] = frozenset()


def resolve_routes(
    routes: Iterable[RouteRequest],
    links: Mapping[LinkKey, Link],
    asked_of: Mapping[LinkKey, tuple[Address, ...]],
    world: World,
    found: Mapping[LinkKey, Device],
    limits: Fence,
) -> Hops:
    """Find the link of each route. A route that is refused, or cannot be set, becomes a problem.

    `links` are the links that can be used, `found` the devices that are present. `asked_of` has the
    addresses that are asked for on each link, whether it can be used or not.
    """
    usable = {key: link for key, link in links.items() if link.role == "dataplane"}
    finder = _Finder(usable, asked_of, world, found, limits)
    hops: list[Hop] = []
    loose: set[str] = set()
    banned: list[Network] = []
    problems: list[Problem] = []
    own = {address.ip for address in _all_addresses(links, world)}
    for route in routes:
        if route.state == "user":
            continue
        if route.state == "absent":
            reason = _ban_reason(route, usable)
            if reason is None:
                banned.append(route.to)
        else:
            key, reason = finder.link(route, own)
            if key is not None:
                hops.append(Hop(route.to, key, route.via, ROUTE_METRIC))
                loose |= finder.loose(route, key)
        if reason:
            problems.append(Problem("refused", f"route to {route.to}: {reason}"))
    return Hops(tuple(hops), tuple(banned), tuple(problems), frozenset(loose))


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
            (other.to, other.metric) for other in world.routes if other.protocol != ROUTE_PROTOCOL
        }

    def link(
        self, route: RouteRequest, own: Container[Host]
    ) -> tuple[Optional[LinkKey], Optional[str]]:
        """The link of the route and None, or None and the reason why the route cannot be set."""
        key = self._asked.link(route.via) or self._present.link(route.via)
        key = key or _said(route, self._usable)
        reason = self._limits.route(route.to)
        reason = reason or _hop_reason(route, key or self._all.link(route.via), self._usable, own)
        if reason is None and key is not None:
            reason = _down_reason(route, key, self._usable, self._found)
        reason = reason or _clash(route, self._taken)
        if reason:
            return None, reason
        return key, None

    def loose(self, route: RouteRequest, key: LinkKey) -> set[str]:
        """The NIC of the route, if the next hop is in the network of no address that is asked for."""
        if self._asked.link(route.via):
            return set()
        return {key.mac}


def _link_local(route: RouteRequest) -> bool:
    return route.via is not None and route.via.version == 6 and route.via.is_link_local


def _said(route: RouteRequest, links: Container[LinkKey]) -> Optional[LinkKey]:
    """The link that the document gives for a link-local next hop, which is in the network of every
    link.
    """
    if route.link in links and _link_local(route):
        return route.link
    return None


def _present(key: LinkKey, world: World, found: Mapping[LinkKey, Device]) -> tuple[Address, ...]:
    if key not in found:
        return ()
    return world.addresses.get(found[key].index, ())


class Networks:
    """The networks of the addresses of some links, to look next hops up in."""

    def __init__(self, addresses: Mapping[LinkKey, tuple[Address, ...]]) -> None:
        self._links: dict[Network, LinkKey] = {}
        for key in sorted(addresses, reverse=True):
            self._links.update((address.network, key) for address in addresses[key])
        lengths = {(network.version, network.prefixlen) for network in self._links}
        self._lengths = sorted(lengths, reverse=True)

    def link(self, via: Optional[Host]) -> Optional[LinkKey]:
        """The link with the most specific network that holds the next hop."""
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
    if route.link is None and _link_local(route):
        return f"the next hop {route.via} is link-local, which does not say through which interface"
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
    for part in (key.nic, key):
        link = links.get(part)
        if link is not None and link.state == "down":
            return f'the next hop {route.via} is on "{links[key].name}", which is asked to be down'
        if (link is None or link.state != "up") and not (part in found and found[part].up):
            return f'the next hop {route.via} is on "{links[key].name}", which is down'
    return None


def _clash(route: RouteRequest, taken: Container[tuple[Network, int]]) -> Optional[str]:
    """Why the kernel would replace another program's route: routes are the same by prefix and
    metric alone.
    """
    if (route.to, ROUTE_METRIC) in taken:
        return f"a route that is not ours has the same prefix and metric ({ROUTE_METRIC})"
    return None


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
            return f'it is the network of an address that is asked for on "{link.name}"'
    return None
