"""The desired routes and rules of all links: of the documents, of policy routing and from DHCP."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.desired import dhcp, policy_routing, shadowed_rules, vrfs
from neuca_tools.desired.link_resolver import LinkResolver
from neuca_tools.desired.merge import Layers
from neuca_tools.desired.roles import Roles
from neuca_tools.desired.routes import resolve_routes
from neuca_tools.desired.rules import resolve_rules, without_included
from neuca_tools.model import Document, Hop, Link, LinkKey, Network, Problem
from neuca_tools.model.effects import Note
from neuca_tools.model.routing import MAIN_TABLE, Rule, RuleRequest


@dataclass(frozen=True)
class Routing:
    """Routes, rules and tables; `banned` and `loose` as in `routes.Hops`."""

    hops: tuple[Hop, ...] = ()
    banned: tuple[Network, ...] = ()
    rules: Mapping[Rule, LinkKey] = field(default_factory=dict)
    tables: Mapping[LinkKey, int] = field(default_factory=dict)
    loose: frozenset[Network] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()


def resolve_routing(
    document: Optional[Document],
    layers: Layers,
    links: Mapping[LinkKey, Link],
    work: LinkResolver,
) -> Routing:
    """The routing for these links, which `work` has resolved."""
    world, roles, limits = work.world, work.roles, work.limits
    hops = resolve_routes(
        layers.routes,
        links,
        layers.addresses,
        work.after,
        work.found_keys,
        limits,
        vrfs=vrfs.foreign(world, roles),
    )
    learned = dhcp.learned(roles, world, limits, {hop.identity for hop in hops.hops})
    isolated = vrfs.tables(work.requests)
    leased = learned.added_to({key: links[key] for key in links if key not in isolated})
    policy = policy_routing.build(
        work.routed, leased, work.requests, world, roles, work.record.tables
    )
    inside, vrf_notes = vrfs.default_routes(
        links, work.requests, work.after, {hop.identity for hop in hops.hops}
    )
    asked = (*hops.hops, *inside)
    tables = {hop.traits.table for hop in asked} - {MAIN_TABLE} | {*policy.tables.values()}
    rules, problems = resolve_rules(_requests(document, layers, roles), links, tables, limits)
    rules = without_included({**rules, **policy.rules})
    return Routing(
        _joined((*asked, *learned.hops), policy.hops),
        hops.banned,
        rules,
        policy.tables,
        hops.loose,
        (*hops.problems, *problems, *learned.problems),
        (*policy.notes, *learned.notes, *vrf_notes, *shadowed_rules.notes(rules, world)),
    )


def _joined(asked: tuple[Hop, ...], own: tuple[Hop, ...]) -> tuple[Hop, ...]:
    """A route that a document requests in the table of a NIC takes the place of the NIC's own."""
    taken = {hop.identity for hop in asked}
    return (*asked, *(hop for hop in own if hop.identity not in taken))


def _requests(document: Optional[Document], layers: Layers, roles: Roles) -> list[RuleRequest]:
    """The rules of the NEuca document, and those of the platform's for its dataplane NICs."""
    own = document.rules if document else ()
    theirs = (
        one for one in layers.platform_rules if one.link and roles.role_of(one.link) == "dataplane"
    )
    return [*own, *theirs]
