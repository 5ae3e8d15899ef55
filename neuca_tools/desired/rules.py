"""The routing rules that a document requests, and why one is refused."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_network
from typing import Optional

from neuca_tools.desired.safety import Fence
from neuca_tools.model import Link, LinkKey, Network, Problem
from neuca_tools.model.routing import NOWHERE, Rule, RuleRequest


def resolve_rules(
    requests: Iterable[RuleRequest],
    links: Mapping[LinkKey, Link],
    tables: Collection[int],
    limits: Fence,
) -> tuple[dict[Rule, LinkKey], list[Problem]]:
    """The rules that can be set, with their links. Only we add routes to the `tables`."""
    own = {
        address.ip
        for link in links.values()
        if link.role == "dataplane"
        for address in link.addresses
    }
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
            return "it has neither from nor mark, so that it could be about the management NIC"
        if rule.table not in tables:
            return (
                "without from, its table has to be one of the document's own,"
                f" and {rule.table} is not"
            )
        return None
    source = ip_network(rule.source)
    is_own = source.prefixlen == source.max_prefixlen and source.network_address in own
    if is_own and source.network_address not in limits.ignored:
        return None
    return _source_reason(source, limits)


def _source_reason(source: Network, limits: Fence) -> Optional[str]:
    """Why no rule may be about packets from these addresses."""
    for host in sorted(limits.own, key=str):
        if host.version == source.version and host in source:
            return f"it is about {host}, which is an address of the management NIC"
    for prefix in limits.prefixes:
        if prefix.version == source.version and source.overlaps(prefix):
            return f"it overlaps the management network {prefix}"
    if source.network_address.is_unspecified:
        # In IPv4 the kernel looks up the route of a new connection with the source 0.0.0.0.
        return "it is about packets whose source address is not chosen yet"
    for host in sorted(limits.ignored, key=str):
        if host.version == source.version and host in source:
            return f"it is about {host}, which is an address of an ignored NIC"
    return None
