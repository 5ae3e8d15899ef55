"""The operations on routes and rules that lead from one state to another.

A route or rule that is added never makes less reachable than before: the routes of a table come
before the rules that lead to it, and the rules come in the order of their priorities. Removal is
the reverse. A rule that another one replaces is deleted after all that is added.

An address of a NIC also adds its network to the main table, where the rules of other NICs look too.
So the route to this network in the table of another NIC is set before the address, and deleted
after it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

from neuca_tools.desired.mtu import MIN_IPV6_MTU, USUAL_MTU
from neuca_tools.model import Address, Hop, Host, LinkKey, Network, NetworkState, Route
from neuca_tools.model.addresses import NetworkTable
from neuca_tools.model.provenance import RTPROT_RA
from neuca_tools.model.routing import MAIN_TABLE, NOWHERE, OF_KERNEL
from neuca_tools.plan.operation import Operation, Phase, Plan, Target, of_kind
from neuca_tools.plan.operations import AddAddress, SetMtu, SetState
from neuca_tools.plan.route_operations import (
    AddRule,
    DeleteRoute,
    DeleteRule,
    ReplaceRoute,
    RestoreRoute,
)
from neuca_tools.plan.sides import Sides


def stale_routes(sides: Sides) -> Iterator[Operation]:
    """Delete routes that are not wanted; late in other tables, or if another takes their place."""
    kept = {hop.identity for hop in sides.desired.hops}
    taken_over = {hop.to for hop in filter(_is_main, sides.desired.hops)}
    banned = set(sides.desired.banned)
    for hop in sides.observed.hops:
        is_unwanted = hop.ours and sides.owned.routes and hop.identity not in kept
        is_stale = hop.is_stale or hop.to in banned
        if (is_stale or is_unwanted) and sides.deleted.isdisjoint(hop.links):
            phase = _phase_of_removal(hop, is_stale, taken_over)
            yield DeleteRoute(_targets_of(sides, hop), hop, phase)


def _phase_of_removal(hop: Hop, is_stale: bool, taken_over: Collection[Network]) -> Phase:
    if _is_main(hop) and (is_stale or hop.to not in taken_over):
        return Phase.SHRINK
    return Phase.RETIRE


def _is_main(hop: Hop) -> bool:
    return hop.traits.table == MAIN_TABLE


def _targets_of(sides: Sides, hop: Hop) -> tuple[Target, ...]:
    return tuple(map(sides.target, hop.links))


def set_routes(sides: Sides) -> Iterator[Operation]:
    """Set routes that differ, and those that the kernel drops when the plan takes a link down."""
    ours = {hop.identity: hop for hop in sides.observed.hops if hop.ours}
    known = _next_hops(sides)
    for hop in sides.desired.hops:
        before, on = ours.get(hop.identity), _targets_of(sides, hop)
        if not _can_exist(sides, hop.links):
            continue
        if before is None:
            yield ReplaceRoute(on, hop, phase=_phase_of_route(sides, hop, known))
            continue
        is_deleted = not sides.deleted.isdisjoint(before.links)
        if before.body != hop.body and not is_deleted:
            yield ReplaceRoute(on, hop, _targets_of(sides, before), before)
        elif is_deleted or _is_dropped(sides, hop, hop.links):
            yield ReplaceRoute(on, hop)


def _is_dropped(sides: Sides, hop: Hop, links: Collection[LinkKey]) -> bool:
    """Whether the kernel drops the route, as one of its links goes down or loses IPv4."""
    if any(map(sides.goes_down, links)):
        return True
    return hop.to.version == 4 and not sides.without_ipv4.isdisjoint(links)


def restore_routes(sides: Sides) -> Iterator[Operation]:
    """Set the routes of other programs that the plan makes the kernel drop, or that have gone.

    The last are in the desired state only if that is an earlier state of the host. Routes to next
    hops come after those that lead to them.
    """
    links = sides.observed.links if sides.observed.foreign_routes else ()
    cut = {key for key in links if sides.is_interrupted(key)}
    if not any((cut, sides.without_ipv4, sides.desired.foreign_routes)):
        return
    present = _routes_of_others(sides.observed)
    lost = {hop: (routes, sides.desired) for hop, routes in _missing_routes(sides, present)}
    lost |= {hop: (present[hop], sides.observed) for hop in _dropped_routes(sides, present, cut)}
    for hop in sorted(lost, key=lambda hop: hop.via is not None):
        if _can_exist(sides, hop.links) and all(map(sides.is_up_at_the_end, hop.links)):
            yield _restore_route(sides, hop, *lost[hop])


def _missing_routes(sides: Sides, known: Collection[Hop]) -> Iterator[tuple[Hop, Sequence[Route]]]:
    """The routes of the earlier state that are gone."""
    for hop, routes in _routes_of_others(sides.desired).items():
        if hop not in known and not _sets_itself(sides, hop, routes[0]):
            yield hop, routes


def _dropped_routes(
    sides: Sides, present: Mapping[Hop, Sequence[Route]], cut: set[LinkKey]
) -> Iterator[Hop]:
    """The routes that go with the links that are `cut`, and that the kernel does not set again.

    So do those that go with the last IPv4 address of their link.
    """
    deleted = {hop._replace(left_over=False) for hop in sides.observed.hops if not hop.ours}
    for hop, routes in present.items():
        is_kept = hop not in deleted and hop.to not in sides.desired.banned
        is_dropped = cut.intersection(hop.links) or _is_flushed(sides, hop)
        if is_kept and is_dropped and routes[0].protocol not in OF_KERNEL:
            yield hop


def _is_flushed(sides: Sides, hop: Hop) -> bool:
    """Whether it goes with the last IPv4 address, whose network does not lead to its next hops."""
    return hop.to.version == 4 and all(
        key in sides.without_ipv4 and sides.is_reached_otherwise(key, via)
        for key, via in ((hop.link, hop.via), *hop.others)
    )


def _routes_of_others(state: NetworkState) -> dict[Hop, Sequence[Route]]:
    """The routes of other programs. The kernel describes the next hops of one in one message."""
    keys = {link.index: key for key, link in state.links.items()}
    messages: dict[bytes, list[Route]] = {}
    for route in state.foreign_routes:
        if {*route.indexes} <= keys.keys():
            messages.setdefault(route.message, []).append(route)
    hops: dict[Hop, Sequence[Route]] = {}
    for routes in messages.values():
        first = routes[0]
        more = [*first.others, *((route.index, route.via) for route in routes[1:])]
        others = tuple((keys[index], via) for index, via in more)
        hop = Hop(first.to, keys[first.index], first.via, first.metric, ours=False, others=others)
        hops[hop._replace(traits=first.traits)] = routes
    return hops


def _sets_itself(sides: Sides, hop: Hop, route: Route) -> bool:
    """Whether the kernel sets the route with the link or with an address that the plan adds.

    That of a router advertisement comes with the next one.
    """
    if route.protocol == RTPROT_RA:
        return True
    if route.protocol not in OF_KERNEL or route.to.is_link_local or route.to.is_multicast:
        return route.protocol in OF_KERNEL
    current, wanted = sides.current(hop.link), sides.wanted(hop.link)
    added = {address.network for address in {*wanted.addresses} - {*current.addresses}}
    return current.state != "up" or sides.is_interrupted(hop.link) or hop.to in added


def _restore_route(
    sides: Sides, hop: Hop, routes: Sequence[Route], earlier: NetworkState
) -> RestoreRoute:
    first = routes[0]
    indexes = (*first.indexes, *(route.index for route in routes[1:]))
    phase = Phase.ADDRESS if hop.via is None else Phase.ROUTE
    on = _targets_of(sides, hop)
    return RestoreRoute(on, hop, first.message, indexes, seen=earlier.read_at, phase=phase)


def _phase_of_route(
    sides: Sides, hop: Hop, known: Collection[tuple[LinkKey, Optional[Host], int]]
) -> Phase:
    """When a new route is added: early if its next hop can be reached already, and remains so."""
    is_known = (hop.link, hop.via, hop.traits.table) in known
    if is_known and not _is_dropped(sides, hop, [hop.link]):
        return Phase.UP
    return Phase.ROUTE


def _next_hops(sides: Sides) -> set[tuple[LinkKey, Optional[Host], int]]:
    """Link, next hop and table of each default route, whose next hop can be reached already.

    A link that the plan deletes and creates again loses the addresses that make it so.
    """
    default_routes = (hop for hop in sides.observed.hops if hop.ours and hop.to.prefixlen == 0)
    return {
        (hop.link, hop.via, hop.traits.table)
        for hop in default_routes
        if hop.traits.table != MAIN_TABLE and hop.link not in sides.deleted
    }


def change_rules(sides: Sides) -> Iterator[Operation]:
    """Add the rules that are absent, then delete those that are not wanted, the last one first."""
    wanted = sides.desired.rules
    for rule in sorted(wanted):
        if rule not in sides.observed.rules and _can_exist(sides, [wanted[rule]]):
            yield AddRule(_target_of_rule(sides, wanted[rule]), rule)
    sources = {rule.source for rule in wanted}
    for rule in sorted(sides.observed.rules, reverse=True):
        if sides.owned.routes and rule not in wanted:
            phase = Phase.RETIRE if rule.source in sources else Phase.SHRINK
            yield DeleteRule(_target_of_rule(sides, sides.observed.rules[rule]), rule, phase)


def _can_exist(sides: Sides, keys: Iterable[LinkKey]) -> bool:
    """Whether all of these links are there, or can be created."""
    return all(key == NOWHERE or (key in sides.names and sides.can_exist(key)) for key in keys)


def _target_of_rule(sides: Sides, key: LinkKey) -> Optional[Target]:
    return None if key == NOWHERE else sides.target(key)


def possible_operations(operations: Plan, sides: Sides) -> Plan:
    """The operations without routes of other tables that the kernel would refuse.

    Those are set at every pass. Their link may be down or too small for IPv6, or the address absent
    that they have as their source or that leads to their next hop, without this pass being about
    that link.
    """
    hops = [new.hop for new in of_kind(operations, ReplaceRoute) if not _is_main(new.hop)]
    if not hops:
        return operations
    present = {*_addresses(sides.observed)}
    present.update((new.on.key, new.address) for new in of_kind(operations, AddAddress))
    usable = _usable_links(operations, sides.observed)
    refused = set(_routes_through(hops, _networks(_addresses(sides.desired)) - _networks(present)))
    sources = {(key, address.ip) for key, address in present}
    refused.update(hop for hop in hops if not _is_possible(hop, usable[hop.to.version], sources))
    return tuple(new for new in operations if getattr(new, "hop", None) not in refused)


def _usable_links(operations: Plan, observed: NetworkState) -> Mapping[int, Collection[LinkKey]]:
    """The links with each version of IP after these operations."""
    up = {state.on.key for state in of_kind(operations, SetState) if state.up}
    up |= {key for key, link in observed.links.items() if link.state == "up"}
    small = {key for key, link in observed.links.items() if (link.mtu or USUAL_MTU) < MIN_IPV6_MTU}
    return {4: up, 6: up - small.difference(new.on.key for new in of_kind(operations, SetMtu))}


def _addresses(state: NetworkState) -> Iterator[tuple[LinkKey, Address]]:
    return ((key, address) for key, link in state.links.items() for address in link.addresses)


def _networks(addresses: Iterable[tuple[LinkKey, Address]]) -> set[tuple[LinkKey, Network]]:
    return {(key, address.network) for key, address in addresses}


def _is_possible(
    hop: Hop, usable: Collection[LinkKey], sources: Collection[tuple[LinkKey, Host]]
) -> bool:
    source = hop.traits.source
    is_usable = all(key in usable for key in hop.links)
    return is_usable and (source is None or (hop.link, source) in sources)


def _routes_through(
    hops: Iterable[Hop], networks: Iterable[tuple[LinkKey, Network]]
) -> Iterator[Hop]:
    """The routes with a next hop in one of these networks on its link, unless it is on-link."""
    networks_by_link = defaultdict[LinkKey, list[Network]](list)
    for key, network in networks:
        networks_by_link[key].append(network)
    tables = {key: NetworkTable(networks_by_link[key]) for key in networks_by_link}
    for hop in (hop for hop in hops if not hop.traits.onlink):
        for key, via in ((hop.link, hop.via), *hop.others):
            if via and key in tables and any(tables[key].covering(via)):
                yield hop
