"""Which link each asked route goes through: the one whose network its next hop is in."""

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

# A metric of our own, so that a route of somebody else with the same prefix is never replaced (the key that the kernel replaces
# by is prefix, TOS and metric); low enough to beat the kernel's default for IPv6, 1024 (IP6_RT_PRIO_USER).
ROUTE_METRIC = 20


@dataclass(frozen=True)
class Hops:
    """`loose` are the NICs of hops that lie in no asked address's network: those depend on addresses of the user."""

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
    """Give each route its link; a route that may not or cannot be set is a problem with its reason.

    `links` can be used; `asked_of` has the addresses that are asked for on any link, whether it is there or not.
    """
    hops: list[Hop] = []
    loose: set[str] = set()
    banned: list[Network] = []
    problems: list[Problem] = []
    usable = {key: link for key, link in links.items() if link.role == "dataplane"}
    asked_networks = Networks({key: link.addresses for key, link in usable.items()})
    found_networks = Networks({key: _present(key, world, found) for key in usable})
    all_networks = Networks(asked_of)
    taken = {(other.to, other.metric) for other in world.routes if other.protocol != ROUTE_PROTOCOL}
    own = {address.ip for address in _all_addresses(links, world)}
    for route in routes:
        if route.state == "user":
            continue
        if route.state == "absent":
            reason = _ban_reason(route, usable)
            banned += [] if reason else [route.to]
        else:
            asked = asked_networks.link(route.via)
            key = asked or found_networks.link(route.via) or _said(route, usable)
            nowhere = None if key else all_networks.link(route.via)
            reason = limits.route(route.to) or _hop_reason(route, key or nowhere, usable, own)
            reason = (
                reason or (key and _down_reason(route, key, usable, found)) or _clash(route, taken)
            )
            if reason is None and key is not None:
                hops.append(Hop(route.to, key, route.via, ROUTE_METRIC))
                loose |= set() if asked else {key.mac}
        if reason:
            problems.append(Problem("refused", f"route to {route.to}: {reason}"))
    return Hops(tuple(hops), tuple(banned), tuple(problems), frozenset(loose))


def _link_local(route: RouteRequest) -> bool:
    return route.via is not None and route.via.version == 6 and route.via.is_link_local


def _said(route: RouteRequest, links: Container[LinkKey]) -> Optional[LinkKey]:
    """The link of a link-local next hop, which is in every link's network, as the document says it."""
    return route.link if route.link in links and _link_local(route) else None


def _present(key: LinkKey, world: World, found: Mapping[LinkKey, Device]) -> tuple[Address, ...]:
    return world.addresses.get(found[key].index, ()) if key in found else ()


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
    """A link that is down, or whose NIC is, has no routes (the kernel answers ENETDOWN)."""
    for part in (key.nic, key):
        link = links.get(part)
        if link is not None and link.state == "down":
            return f'the next hop {route.via} is on "{links[key].name}", which is asked to be down'
        if (link is None or link.state != "up") and not (part in found and found[part].up):
            return f'the next hop {route.via} is on "{links[key].name}", which is down'
    return None


def _clash(route: RouteRequest, taken: Container[tuple[Network, int]]) -> Optional[str]:
    """Somebody's route that the kernel would replace by ours: its key is prefix and metric, whatever the device."""
    same = (route.to, ROUTE_METRIC) in taken
    return (
        f"a route that is not ours has the same prefix and metric ({ROUTE_METRIC})"
        if same
        else None
    )


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
