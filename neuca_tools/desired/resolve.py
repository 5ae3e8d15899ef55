"""The desired state of this host, and the reason for each request that cannot be met.

Only links with the role `dataplane` that are present, free and unprotected get into `desired`;
`shown_links` lists every link, for display.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Optional

from neuca_tools.desired import coverage, dhcp, routing_tables
from neuca_tools.desired.link_resolver import LinkResolver
from neuca_tools.desired.merge import Layers, request_digests, requested_twice, stack_layers
from neuca_tools.desired.names import nic_names
from neuca_tools.desired.policy import Policy
from neuca_tools.desired.policy_routing import build_routing, gateways_of_links
from neuca_tools.desired.roles import Roles, Scene, find_links
from neuca_tools.desired.router_advertisements import allowed_forwarding
from neuca_tools.desired.routes import RouteFinder, Routing, duplicate_reason
from neuca_tools.desired.routing_tables import of_vrfs
from neuca_tools.desired.rules import resolve_rules, shadowed_rules, without_included
from neuca_tools.desired.safety import RequestLimits, management_networks, request_limits
from neuca_tools.desired.virtual_links import deletable_links
from neuca_tools.model import (
    IPV6_MTU,
    Document,
    Hop,
    Host,
    Link,
    LinkKey,
    LinkRequest,
    Network,
    NetworkState,
    OwnedObjects,
    Problem,
    Record,
    Requests,
    Router,
    World,
)
from neuca_tools.model.device_settings import Note
from neuca_tools.model.routing import MAIN_TABLE, Choice, RouteIdentity
from neuca_tools.tuning import allowed_sysctls
from neuca_tools.tuning.layer import Layer
from neuca_tools.tuning.links import Tuned, tune_links


class Settings(NamedTuple):
    """The settings of the configuration file that the desired state depends on."""

    policy: Policy = Policy()
    links: tuple[LinkRequest, ...] = ()
    metadata_hosts: tuple[Host, ...] = ()
    allow_default_route: bool = False
    tuning: Layer = Layer()
    router: bool = True
    allow_sysctls: frozenset[str] = frozenset()
    policy_routing: Choice = "auto"

    def judge(self, layers: Layers) -> allowed_sysctls.Judge:
        """What refuses sysctls; in the layers, the `links` have the identities of their NICs."""
        return allowed_sysctls.Judge(layers.local, self.allow_sysctls)


class Resolution(NamedTuple):
    """The desired state, and what it was derived from.

    `removable` is what may be removed. `trusted`: see `merge.trusted_links`. `digests` maps
    each NIC to the digests of its request; the key "" is for requests that belong to no NIC.
    `left_alone` are prefixes whose routes are left to the user, `dependent_prefixes` those whose
    next hop is in no requested network, `waiting_prefixes` those whose source no link has yet. On
    the links `without_advertisements`, router advertisements have no effect. `tables` are those of
    policy routing. `lacks_ipv6`: a link that is to have IPv6 addresses has no IPv6.
    """

    desired: NetworkState
    removable: OwnedObjects
    roles: Roles
    requests: Requests
    names: Mapping[LinkKey, str]
    shown_links: tuple[Link, ...] = ()
    problems: tuple[Problem, ...] = ()
    digests: Mapping[str, str] = {}
    hostname: Optional[str] = None
    router: Router = "user"
    trusted: Optional[frozenset[LinkKey]] = frozenset()
    left_alone: tuple[Network, ...] = ()
    dependent_prefixes: frozenset[Network] = frozenset()
    waiting_prefixes: frozenset[Network] = frozenset()
    management_networks: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    tuning: Layer = Layer()
    without_advertisements: frozenset[LinkKey] = frozenset()
    tables: Mapping[LinkKey, int] = {}
    lacks_ipv6: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether there is a document without an unusable part."""
        return self.trusted is None

    def requested_name(self, key: LinkKey) -> str:
        """The name that is requested for a dataplane NIC; empty for none, and for other NICs."""
        request = self.requests.get(key)
        if not request or not request.name or self.roles.role(key.mac) != "dataplane":
            return ""
        return request.name

    def is_undecided(self, key: LinkKey) -> bool:
        """Whether an unusable part of the document may be about this requested link."""
        return self.trusted is not None and key in self.requests and key not in self.trusted

    @property
    def is_routed(self) -> bool:
        """Whether there are rules to keep, routes to copy from DHCP, or our own default route.

        A link that lacks IPv6 may also get it at any time, and the kernel may reset an IPv6 MTU.
        """
        default = any(not hop.to.prefixlen for hop in self.desired.hops)
        has_ipv6_mtu = any(IPV6_MTU in link.sysctls for link in self.desired.links.values())
        is_routed = self.desired.rules or self.roles.dhcp.clients or default
        return bool(is_routed or has_ipv6_mtu or self.lacks_ipv6)


def resolve_state(
    document: Optional[Document], settings: Settings, world: World, record: Record
) -> Resolution:
    """The desired state. Without a complete document, nothing is removed."""
    layers = stack_layers(document, settings.links, settings.policy, world, record)
    names, name_problems = nic_names(layers.requests, world, layers.roles, record)
    removable = _removable_objects(record.owned, layers.trusted)
    limits = _request_limits(layers, settings, world, record, removable)
    tuned, scene = _tune_requests(layers, settings.tuning, world, record)
    gateways = gateways_of_links(scene, layers.local, settings.policy_routing)
    resolver = LinkResolver(scene, limits, names, layers.trusted, settings.judge(layers), gateways)
    links = {**resolver.resolve(), **resolver.leftovers()}
    routing = resolve_routing(layers, resolver)
    removable = _without_kept_links(removable, resolver)
    router: Router = document.router if document and settings.router else "user"
    forwards, contested = allowed_forwarding(router, layers.roles, world)
    problems = (*settings.tuning.problems, *layers.roles.problems, *layers.problems, *name_problems)
    sysctls = {**_original_sysctls(settings, resolver), **forwards, **resolver.sysctls}
    return Resolution(
        NetworkState(links, routing.hops, routing.banned, sysctls, rules=routing.rules),
        removable,
        layers.roles,
        tuned.requests,
        resolver.names,
        shown_links=tuple(resolver.shown_links()),
        problems=(*problems, *resolver.problems, *routing.problems, *contested),
        digests=request_digests(layers, forwards, {*limits.requested_twice, *resolver.unset_hosts}),
        hostname=document.hostname if document else None,
        router=router,
        trusted=layers.trusted,
        left_alone=tuple(route.to for route in layers.routes if route.state == "user"),
        dependent_prefixes=routing.dependent_prefixes,
        waiting_prefixes=routing.waiting_prefixes,
        management_networks=management_networks(world, layers.roles, record.management_networks),
        notes=(*_remaining_notes(layers, routing), *resolver.notes, *tuned.notes, *routing.notes),
        tuning=settings.tuning._replace(values=(*settings.tuning.values, *tuned.values)),
        without_advertisements=resolver.without_advertisements,
        tables=routing.tables,
        lacks_ipv6=bool(resolver.unset_hosts),
    )


def _remaining_notes(layers: Layers, routing: Routing) -> Iterator[Note]:
    """The notes on documents, but none on a gateway that the routing table of its link uses."""
    used = {
        hop.link for hop in routing.hops if hop.to.prefixlen == 0 and hop.traits.table != MAIN_TABLE
    }
    return (note for note in layers.notes if note.setting != "gateway" or note.link not in used)


def _tune_requests(
    layers: Layers, tuning: Layer, world: World, record: Record
) -> tuple[Tuned, Scene]:
    """The requests with the settings of the tuning profiles, and the scene of these requests."""
    devices = find_links(world, layers.roles)
    tuned = tune_links(layers.requests, tuning, devices, record, layers.roles.guard.devices)
    return tuned, Scene(tuned.requests, world, layers.roles, record, devices)


def _removable_objects(owned: OwnedObjects, trusted: Optional[frozenset[LinkKey]]) -> OwnedObjects:
    if trusted is None:
        return owned._replace(routes=True)
    return OwnedObjects(frozenset(pair for pair in owned.addresses if pair[0] in trusted))


def _without_kept_links(removable: OwnedObjects, resolver: LinkResolver) -> OwnedObjects:
    """What may be removed, without unwanted links that stay and their addresses.

    For each such link, a problem is added to those of the resolver.
    """
    virtual_links = resolver.virtual_links if resolver.trusted is None else None
    deletable, problems = deletable_links(resolver.scene, virtual_links)
    resolver.problems += problems
    kept = removable.vlans - deletable - resolver.wanted.keys()
    addresses = frozenset(pair for pair in removable.addresses if pair[0] not in kept)
    return removable._replace(vlans=deletable, addresses=addresses)


def _original_sysctls(settings: Settings, resolver: LinkResolver) -> dict[str, str]:
    """The sysctls of the tuning profiles, and original values as far as they may be restored."""
    tuning = settings.tuning
    if resolver.trusted is not None or resolver.world.fixed_sysctls:
        return dict(tuning.sysctls)
    return {**resolver.record.original_sysctls, **tuning.before, **tuning.sysctls}


def _request_limits(
    layers: Layers, settings: Settings, world: World, record: Record, removable: OwnedObjects
) -> RequestLimits:
    """What requests may not take over, and how many public addresses they may have together."""
    requests, roles = layers.requests, layers.roles
    tables = coverage.shared_tables(world)
    kept = coverage.kept_networks(record.owned.addresses, removable, world, tables)
    requested = coverage.requested_networks(requests, layers.routes, roles, tables)
    hosts, allow = settings.metadata_hosts, settings.allow_default_route
    return replace(
        request_limits(world, roles, hosts, allow, record.management_networks),
        requested_twice=requested_twice(requests, roles),
        shortest=coverage.shortest_granted(requested, kept),
    )


# --- Routes and rules -----------------------------------------------------------------------------


def resolve_routing(layers: Layers, resolver: LinkResolver) -> Routing:
    """The routing for the links that the resolver wants."""
    world, limits, links = resolver.world, resolver.limits, resolver.wanted
    scene, routing = resolver.scene_after_removal, Routing()
    if layers.routes:
        without_ipv6 = resolver.without_ipv6
        routing = RouteFinder(layers.routes, links, scene, limits, without_ipv6).routing()
    taken = {hop.identity for hop in routing.hops}
    learned = dhcp.LearnedConfiguration(resolver.roles, world, limits, taken)
    in_vrfs = of_vrfs(resolver.requests)
    with_leases = learned.extend_links({key: links[key] for key in links if key not in in_vrfs})
    policy = build_routing(resolver.gateways, with_leases, resolver.scene)
    vrf_hops, vrf_notes = routing_tables.default_routes(links, scene, taken)
    own_hops, refusals, unused = _hops_of_own_tables(routing, learned, policy, taken)
    requested_hops = (*routing.hops, *vrf_hops)
    tables = {hop.traits.table for hop in requested_hops} - {MAIN_TABLE} | {*policy.tables.values()}
    rules, problems = resolve_rules(layers.rules, links, tables, limits)
    rules = without_included({**rules, **policy.rules})
    # A route that a document requests in the table of a NIC takes the place of the NIC's own.
    requested = {hop.identity for hop in (*requested_hops, *own_hops)}
    policy_hops = (hop for hop in policy.hops if hop.identity not in requested)
    overlaps = coverage.overlap_notes(links, routing.hops, world, resolver.roles.guard.devices)
    return routing._replace(
        # In the order of the plan: next hops of requested routes are in networks from DHCP.
        hops=(*learned.hops, *requested_hops, *policy_hops, *own_hops),
        rules=rules,
        tables=policy.tables,
        problems=(*routing.problems, *refusals, *problems, *learned.problems),
        notes=(*policy.notes, *unused, *vrf_notes, *shadowed_rules(rules, world), *overlaps),
    )


def _hops_of_own_tables(
    routing: Routing, learned: dhcp.LearnedConfiguration, policy: Routing, taken: set[RouteIdentity]
) -> tuple[list[Hop], list[Problem], list[Note]]:
    """The routes whose place in the main table another one has, and what is said of the others.

    `taken` are the identities of the requested routes.
    """
    hops, refused = routing_tables.of_own_tables(routing.duplicates, policy, taken)
    others = learned.taken_identities.union(hop.identity for hop in hops)
    more, unused = routing_tables.of_own_tables(learned.duplicates, policy, others)
    problems = [
        Problem("refused", f"route to {hop.to}: {duplicate_reason(hop)}") for hop in refused
    ]
    notes = [dhcp.unused_note(hop.link, hop.to, dhcp.TAKEN) for hop in unused]
    return [*hops, *more], problems, [*learned.notes, *notes]
