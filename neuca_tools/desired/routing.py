"""The desired routes and rules of all links: of the documents, of policy routing and from DHCP."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from neuca_tools.desired import dhcp, policy_routing, vrfs
from neuca_tools.desired.link_resolver import LinkResolver
from neuca_tools.desired.merge import Layers
from neuca_tools.desired.roles import Roles
from neuca_tools.desired.routes import Routing, resolve_routes
from neuca_tools.desired.rules import resolve_rules, shadowed, without_included
from neuca_tools.model import Document, Hop, Link, LinkKey
from neuca_tools.model.routing import MAIN_TABLE, RuleRequest


def resolve_routing(
    document: Optional[Document], layers: Layers, links: Mapping[LinkKey, Link], work: LinkResolver
) -> Routing:
    """The routing for these links, which `work` has resolved."""
    scene, world, roles, limits = work.scene, work.world, work.roles, work.limits
    without_ipv6 = work.common.without_ipv6
    found = resolve_routes(
        layers.routes, links, layers.addresses, work.after, limits, without_ipv6=without_ipv6
    )
    taken = {hop.identity for hop in found.hops}
    learned = dhcp.Learned(roles, world, limits, taken)
    isolated = vrfs.tables(work.requests)
    leased = learned.added_to({key: links[key] for key in links if key not in isolated})
    policy = policy_routing.build(work.routed, leased, scene)
    inside, vrf_notes = vrfs.default_routes(links, work.after, taken)
    asked = (*found.hops, *inside)
    tables = {hop.traits.table for hop in asked} - {MAIN_TABLE} | {*policy.tables.values()}
    rules, problems = resolve_rules(_requests(document, layers, roles), links, tables, limits)
    rules = without_included({**rules, **policy.rules})
    return found._replace(
        hops=_joined((*asked, *learned.hops), policy.hops),
        rules=rules,
        tables=policy.tables,
        problems=(*found.problems, *problems, *learned.problems),
        notes=(*policy.notes, *learned.notes, *vrf_notes, *shadowed(rules, world)),
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
