"""The routing rules that a document requests, and why one is refused."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_network
from itertools import combinations
from typing import Any, Optional

from neuca_tools.desired.safety import Fence
from neuca_tools.model import Host, Link, LinkKey, Network, Problem
from neuca_tools.model.routing import NOWHERE, Rule, RuleRequest

MARKED = "a rule of another program selects packets with this mark"


def resolve_rules(
    requests: Iterable[RuleRequest],
    links: Mapping[LinkKey, Link],
    tables: Collection[int],
    limits: Fence,
) -> tuple[dict[Rule, LinkKey], list[Problem]]:
    """The rules that can be set, with their links. Only we add routes to the `tables`."""
    dataplane = (link for link in links.values() if link.role == "dataplane")
    own = {address.ip for link in dataplane for address in link.addresses}
    rules: dict[Rule, LinkKey] = {}
    problems = []
    for request in requests:
        reason = _reason(request.rule, own, tables, limits)
        if reason:
            text = f"rule {request.rule.text}: {reason}"
            problems.append(Problem("refused", text, request.link))
        elif request.link is None or request.link in links:
            rules[request.rule] = request.link or NOWHERE
    return rules, problems


def _reason(
    rule: Rule, own: Collection[object], tables: Collection[int], limits: Fence
) -> Optional[str]:
    """Why a rule could lead packets of the management NIC or to the metadata service elsewhere."""
    if not rule.source:
        if not rule.mask:
            return "it has neither from nor mark, so it could select traffic of the management NIC"
        if rule.table not in tables:
            return (
                "without from, its table must be one of the document's own,"
                f" which {rule.table} is not"
            )
        return MARKED if limits.has_mark(rule.mark, rule.mask) else None
    source = ip_network(rule.source)
    is_own = source.prefixlen == source.max_prefixlen and source.network_address in own
    if is_own and source.network_address not in limits.ignored:
        return None
    return _source_reason(source, limits)


def _source_reason(source: Network, limits: Fence) -> Optional[str]:
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
    return {rule: rules[rule] for rule in rules if not any(one in rules for one in _wider(rule))}


def _wider(rule: Rule) -> Iterator[Rule]:
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
    found = (one for one in hosts if one.version == network.version and one in network)
    return min(found, key=str, default=None)
