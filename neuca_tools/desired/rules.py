"""The routing rules that a document requests: why one is refused, and which have no effect.

A rule of another program, such as that of a VPN's exit node, may take the packets of ours.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import collapse_addresses, ip_network
from itertools import combinations
from typing import Any, Optional

from neuca_tools.desired.coverage import is_inside
from neuca_tools.desired.safety import RequestLimits
from neuca_tools.model import Host, Link, LinkKey, Network, Problem, World
from neuca_tools.model.device_settings import Note
from neuca_tools.model.provenance import RTPROT_KERNEL
from neuca_tools.model.routing import NOWHERE, ROUTE_PROTOCOL, Rule, RuleRequest, SeenRule

MARKED = "a rule of another program selects packets with this mark"
SETTING = "policy-routing"
# Routes to all of IPv4, or to the public addresses of IPv6 (RFC 4291, 2.4), take every packet. VPNs
# have a route for each half so as not to replace a default route.
WHOLE: Mapping[int, Network] = {4: ip_network("0.0.0.0/0"), 6: ip_network("2000::/3")}
LONGEST_PART = 3  # the longest prefix that counts as a part of it


def resolve_rules(
    requests: Iterable[RuleRequest],
    links: Mapping[LinkKey, Link],
    tables: Collection[int],
    limits: RequestLimits,
) -> tuple[dict[Rule, LinkKey], list[Problem]]:
    """The rules that can be set, with their links. Only we add routes to the `tables`."""
    dataplane = (link for link in links.values() if link.role == "dataplane")
    own = {address.ip for link in dataplane for address in link.addresses}
    rules: dict[Rule, LinkKey] = {}
    problems = []
    for request in requests:
        reason = _refusal_reason(request.rule, own, tables, limits)
        if reason:
            problems.append(Problem("refused", f"rule {request.rule.text}: {reason}", request.link))
        elif request.link is None or request.link in links:
            rules[request.rule] = request.link or NOWHERE
    return rules, problems


def _refusal_reason(
    rule: Rule, own: Collection[object], tables: Collection[int], limits: RequestLimits
) -> Optional[str]:
    """Why a rule could lead packets of the management NIC or to the metadata service elsewhere."""
    if not rule.source:
        if not rule.mask:
            return "it has neither from nor mark, so it could select traffic of the management NIC"
        if rule.table not in tables:
            need = "without from, its table must be one of the document's own"
            return f"{need}, which {rule.table} is not"
        return MARKED if limits.has_mark(rule.mark, rule.mask) else None
    source = ip_network(rule.source)
    is_own = source.prefixlen == source.max_prefixlen and source.network_address in own
    if is_own and source.network_address not in limits.ignored:
        return None
    return _source_reason(source, limits)


def _source_reason(source: Network, limits: RequestLimits) -> Optional[str]:
    """Why no rule may select packets from these addresses."""
    host = _first_in(source, limits.own)
    if host:
        return f"it selects {host}, which is an address of the management NIC"
    for prefix in limits.prefixes:
        if prefix.version == source.version and source.overlaps(prefix):
            return f"it overlaps the management network {prefix}"
    if source.network_address.is_unspecified:
        # In IPv4 the kernel looks up the route of a new connection with the source 0.0.0.0.
        return "it selects packets whose source address is not chosen yet"
    host = _first_in(source, limits.ignored)
    return f"it selects {host}, which is an address of an ignored NIC" if host else None


def without_included(rules: Mapping[Rule, LinkKey]) -> dict[Rule, LinkKey]:
    """The rules without those that another one with the same priority and table includes.

    They have no effect, and the kernel takes a request to delete the other one for them.
    """
    return {rule: rules[rule] for rule in rules if rules.keys().isdisjoint(_wider_rules(rule))}


def _wider_rules(rule: Rule) -> Iterator[Rule]:
    """The rules with some of its selectors."""
    of_mark: dict[str, Any] = {"mark": 0, "mask": 0}
    every: tuple[dict[str, Any], ...] = ({"source": ""}, {"to": ""}, of_mark, {"tos": 0})
    selectors = [fields for fields in every if any(getattr(rule, name) for name in fields)]
    for count in range(1, len(selectors) + 1):
        for left_out in combinations(selectors, count):
            yield rule._replace(**ChainMap(*left_out))


def _first_in(network: Network, hosts: Collection[Host]) -> Optional[Host]:
    """One of these addresses that is in the network, None if none is."""
    if network.prefixlen == network.max_prefixlen:
        return network.network_address if network.network_address in hosts else None
    contained = (host for host in hosts if host.version == network.version and host in network)
    return min(contained, key=str, default=None)


# --- Rules of other programs ----------------------------------------------------------------------


def shadowed_rules(rules: Mapping[Rule, LinkKey], world: World) -> Iterator[Note]:
    """A note for each rule of another program, and each link whose rules it makes ineffective."""
    routes = _wide_routes(world)
    for seen in world.rules:
        if seen.protocol not in (ROUTE_PROTOCOL, RTPROT_KERNEL) and _leads_everywhere(seen, routes):
            shadowed: dict[LinkKey, list[Rule]] = {}
            for rule in sorted(rules):
                if _comes_first(seen, rule):
                    shadowed.setdefault(rules[rule], []).append(rule)
            for key, behind in shadowed.items():
                texts = "; ".join(rule.text for rule in behind)
                priority, _, selectors = seen.rule.text.partition(" ")
                theirs = f"{priority} {'not ' if seen.inverted else ''}{selectors}"
                reason = f'rule "{theirs}" of another program comes first: {texts}'
                yield Note(SETTING, "overridden", reason, key if key.mac else None)


def _wide_routes(world: World) -> dict[int, set[Network]]:
    """The prefixes of each table that may lead everywhere."""
    wide: dict[int, set[Network]] = {}
    for route in (*world.routes, *world.other_routes):
        if route.to.prefixlen <= LONGEST_PART and route.traits.kind != "throw":
            wide.setdefault(route.traits.table, set()).add(route.to)
    return wide


def _leads_everywhere(seen: SeenRule, wide: Mapping[int, set[Network]]) -> bool:
    """Whether the table has a route for every packet, after the rule has suppressed some."""
    rule = seen.rule
    if not (seen.plain or seen.inverted):
        return False
    whole, routes = WHOLE[rule.family], wide.get(rule.table, ())
    parts: Any = [to for to in routes if to.version == whole.version]  # of one family
    parts = [to for to in parts if to.prefixlen > rule.suppress]
    return any(is_inside(whole, network) for network in collapse_addresses(parts))


def _comes_first(seen: SeenRule, ours: Rule) -> bool:
    """Whether the rule matches the packets of our rule, if they have no mark and no TOS."""
    rule = seen.rule
    if rule.family != ours.family or rule.priority >= ours.priority or ours.mask:
        return False
    is_selected = not (rule.to or rule.mark or rule.tos)
    if rule.source and ours.source:
        is_selected &= is_inside(ip_network(ours.source), ip_network(rule.source))
    elif rule.source:
        is_selected = False
    return is_selected != seen.inverted
