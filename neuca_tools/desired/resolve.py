"""What is asked, resolved against what is there: the state that a pass should lead to, and a reason for all that it will not.

Only links with the role `dataplane` that are present, free and unprotected get into `want`; `shown` lists every link for people.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from neuca_tools.desired import coverage, forwarding
from neuca_tools.desired.link_resolver import LinkResolver
from neuca_tools.desired.merge import Layers, stack
from neuca_tools.desired.names import nic_names
from neuca_tools.desired.requests import digests, trusted, twice
from neuca_tools.desired.requests import removable as may_go
from neuca_tools.desired.roles import Policy, Roles, find_links
from neuca_tools.desired.router_advertisements import quiet
from neuca_tools.desired.routes import resolve_routes
from neuca_tools.desired.safety import ROUTE_PROTOCOL, Fence, fence, ground
from neuca_tools.model import (
    Document,
    Host,
    Link,
    LinkKey,
    LinkRequest,
    Network,
    NetworkState,
    Owned,
    Problem,
    Record,
    Router,
    World,
)
from neuca_tools.model.effects import Note
from neuca_tools.tuning import Layer, allowed_sysctls, tune


@dataclass(frozen=True)
class Settings:
    """What the configuration file says that matters here."""

    policy: Policy = field(default_factory=Policy)
    links: tuple[LinkRequest, ...] = ()
    metadata_hosts: tuple[Host, ...] = ()
    allow_default_route: bool = False
    tuning: Layer = field(default_factory=Layer)
    router: bool = True
    allow_sysctls: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Resolution:
    """The outcome. `digests` tells for each NIC which request this is; the key "" is what belongs to no NIC.

    `left_alone` are prefixes whose routes are the user's own; `loose` the NICs with routes through addresses of the user.
    On links that are `quiet`, router advertisements have no effect.
    """

    want: NetworkState
    removable: Owned
    roles: Roles
    requests: Mapping[LinkKey, LinkRequest]
    names: Mapping[LinkKey, str]
    shown: tuple[Link, ...] = ()
    problems: tuple[Problem, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    hostname: Optional[str] = None
    router: Router = "user"
    complete: bool = False
    left_alone: tuple[Network, ...] = ()
    loose: frozenset[str] = frozenset()
    ground: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    tuning: Layer = field(default_factory=Layer)
    quiet: frozenset[LinkKey] = frozenset()


def resolve(
    document: Optional[Document], settings: Settings, world: World, record: Record
) -> Resolution:
    """Find out what should be. Without a document, or with an incomplete one, nothing is taken away."""
    layers = stack(document, settings.links, settings.policy, world, record)
    requests, roles, routes = layers.requests, layers.roles, layers.routes
    names, problems = nic_names(requests, world, roles, record)
    complete = document is not None and document.complete
    sure = trusted(document, requests) if document else frozenset()
    removable = may_go(record.owned, complete, sure)
    limits = _limits(layers, settings, world, record, removable)
    tuned = tune(requests, settings.tuning, find_links(world, roles), record)
    rules = allowed_sysctls.Judge(settings.links, settings.allow_sysctls)
    sure_of = None if complete else sure
    work = LinkResolver(tuned.requests, world, roles, record, limits, names, sure_of, rules)
    links = work.links()
    router: Router = document.router if document and settings.router else "user"
    forwards, refused = forwarding.allowed(router, roles, world)
    before = {**record.original_sysctls, **settings.tuning.before} if complete else {}
    asked = {key: request.addresses for key, request in requests.items()}
    hops = resolve_routes(routes, links, asked, world, work.found_keys, limits)
    removable = replace(removable, vlans=work.deletable(complete))
    want = NetworkState(
        {**links, **work.leftovers()},
        hops.hops,
        hops.banned,
        {**before, **settings.tuning.sysctls, **forwards, **work.sysctls},
    )
    problems = [*settings.tuning.problems, *roles.problems, *layers.problems, *problems]
    problems += [*work.problems, *hops.problems, *refused]
    return Resolution(
        want,
        removable,
        roles,
        tuned.requests,
        {**names, **work.vlan_names},
        tuple(work.shown(links)),
        tuple(problems),
        digests(requests, asked, routes, forwards),
        document.hostname if document else None,
        router,
        complete,
        tuple(route.to for route in routes if route.state == "user"),
        hops.loose,
        ground(world, roles),
        (*work.notes, *tuned.notes),
        replace(settings.tuning, values=(*settings.tuning.values, *tuned.values)),
        quiet(tuned.requests, roles, world),
    )


def _limits(
    layers: Layers, settings: Settings, world: World, record: Record, removable: Owned
) -> Fence:
    """The ground that is taken, and how wide a request may be next to what stays of earlier ones."""
    requests, roles = layers.requests, layers.roles
    kept = coverage.kept(record.owned.addresses, removable, world.routes, ROUTE_PROTOCOL)
    asked = coverage.asked(requests, layers.routes, roles)
    return fence(
        world,
        roles,
        settings.metadata_hosts,
        settings.allow_default_route,
        record.ground,
        twice=twice(requests, roles),
        shortest=coverage.shortest(asked, kept),
    )
