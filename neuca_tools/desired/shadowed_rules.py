"""Rules of other programs that take the packets of our rules, such as that of a VPN's exit node."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network

from neuca_tools.desired.coverage import is_inside
from neuca_tools.model import LinkKey, Network, World
from neuca_tools.model.effects import Note
from neuca_tools.model.routing import ROUTE_PROTOCOL, Rule, SeenRule

SETTING = "policy-routing"
KERNEL = 2  # RTPROT_KERNEL (linux/rtnetlink.h): the rules that every host has
# Each set leads all packets, or all to public addresses (RFC 4291, 2.4), to the table's routes.
# VPNs use halves so as not to replace a default route.
EVERYTHING: Mapping[int, tuple[frozenset[Network], ...]] = {
    4: (
        frozenset({ip_network("0.0.0.0/0")}),
        frozenset({ip_network("0.0.0.0/1"), ip_network("128.0.0.0/1")}),
    ),
    6: (
        frozenset({ip_network("::/0")}),
        frozenset({ip_network("::/1"), ip_network("8000::/1")}),
        frozenset({ip_network("2000::/3")}),
    ),
}
WIDEST = 3  # the longest prefix above


def notes(rules: Mapping[Rule, LinkKey], world: World) -> Iterator[Note]:
    """A note for each rule of another program, and each link whose rules it makes ineffective."""
    routes = _wide_routes(world)
    for seen in world.rules:
        if seen.protocol not in (ROUTE_PROTOCOL, KERNEL) and _leads_everywhere(seen, routes):
            shadowed: dict[LinkKey, list[Rule]] = {}
            for rule in sorted(rules):
                if _comes_first(seen, rule):
                    shadowed.setdefault(rules[rule], []).append(rule)
            for key, behind in shadowed.items():
                texts = "; ".join(rule.text for rule in behind)
                reason = f'rule "{_text(seen)}" of another program comes before: {texts}'
                yield Note(SETTING, "overridden", reason, key if key.mac else None)


def _wide_routes(world: World) -> dict[int, set[Network]]:
    """The prefixes of each table that may lead everywhere."""
    wide: dict[int, set[Network]] = {}
    for route in (*world.routes, *world.tables):
        if route.to.prefixlen <= WIDEST:
            wide.setdefault(route.traits.table, set()).add(route.to)
    return wide


def _leads_everywhere(seen: SeenRule, wide: Mapping[int, set[Network]]) -> bool:
    """Whether the table has a route for every packet, after the rule has suppressed some."""
    rule = seen.rule
    if not (seen.plain or seen.inverted):
        return False
    routes = {to for to in wide.get(rule.table, ()) if to.prefixlen > rule.suppress}
    return any(networks <= routes for networks in EVERYTHING[rule.family])


def _comes_first(seen: SeenRule, ours: Rule) -> bool:
    """Whether the rule takes the packets of ours, if they have no mark and no TOS."""
    rule = seen.rule
    if rule.family != ours.family or rule.priority >= ours.priority or ours.mask:
        return False
    is_selected = not (rule.to or rule.mark or rule.tos) and _is_within(ours.source, rule.source)
    return is_selected != seen.inverted


def _is_within(source: str, other: str) -> bool:
    if not (source and other):
        return not other
    return is_inside(ip_network(source), ip_network(other))


def _text(seen: SeenRule) -> str:
    priority, _, selectors = seen.rule.text.partition(" ")
    if seen.inverted:
        selectors = f"not {selectors}"
    return f"{priority} {selectors}"
