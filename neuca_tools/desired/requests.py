"""The requests of the documents, before the host is looked at: one per link, with digests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from operator import attrgetter

from neuca_tools.desired.roles import Roles
from neuca_tools.desired.routes import Networks
from neuca_tools.documents.neuca.links import combine
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.neuca.values import nic as nic_of
from neuca_tools.documents.stacking import lower_of, with_parents, with_vrfs
from neuca_tools.model import (
    OWN,
    Address,
    Document,
    Fault,
    Host,
    LinkKey,
    LinkRequest,
    RouteRequest,
)
from neuca_tools.model.links import KINDS
from neuca_tools.model.ports import forms


def merge(
    document: Iterable[LinkRequest], local: Iterable[LinkRequest]
) -> dict[LinkKey, LinkRequest]:
    """One request for each link; each setting of the local configuration takes precedence.

    The lower devices of a link that is requested to be up are brought up too.
    """
    merged = {request.key: request for request in with_parents(with_vrfs(combine(document, local)))}
    for key in sorted(merged, key=lambda key: key.order, reverse=True):
        if merged[key].state != "up":
            continue
        for lower in (key.nic, *lower_of(merged[key])):
            if lower in merged and merged[lower].state is None:
                merged[lower] = replace(merged[lower], state="up")
    return {key: _with_dns(request) for key, request in merged.items()}


def _with_dns(request: LinkRequest) -> LinkRequest:
    """The request, with the DNS settings that its platform offers if it requests them."""
    if request.dns != "per-link" or not request.offers:
        return request
    device = {**dict(request.offers), **dict(request.device)}
    return replace(request, device=tuple(device.items()))


def twice(requests: Mapping[LinkKey, LinkRequest], roles: Roles) -> dict[Host, str]:
    """The addresses requested on several dataplane links, with these links; none of them gets it.

    This depends on the documents, not on which NICs are present. Link-local IPv6 addresses are
    unique per link only (RFC 4291, 2.5.6), and do not count.
    """
    asked: dict[Host, list[LinkKey]] = {}
    for key in sorted(requests):
        if roles.role_of(key) == "dataplane" and requests[key].state != "user":
            for ip in {*map(attrgetter("ip"), requests[key].addresses)}:
                asked.setdefault(ip, []).append(key)
    return {
        ip: " and ".join(map(str, keys))
        for ip, keys in asked.items()
        if len(keys) > 1 and not (ip.version == 6 and ip.is_link_local)
    }


def trusted(document: Document, requests: Mapping[LinkKey, LinkRequest]) -> frozenset[LinkKey]:
    """The links of an incomplete document without faulty lines: what they no longer request may be
    removed.
    """
    doubtful: set[str] = set()
    for fault in document.faults:
        if fault.severity == "error":
            doubtful.update(_macs_of(fault))
    return frozenset(
        key
        for key, request in requests.items()
        if request.origins and not (doubtful and forms([key.mac]) & doubtful)
    )


def _macs_of(fault: Fault) -> Iterable[str]:
    """Every MAC or "KIND NAME" that a faulty line may be about.

    `[vlan MAC.ID]` has the MAC before its last dot.
    """
    words = fault.section.split()
    yield from (
        f"{kind} {name.partition('.')[0]}" for kind, name in zip(words, words[1:]) if kind in KINDS
    )
    for word in (fault.key, *words):
        for part in (word, word.rpartition(".")[0]):
            with suppress(UnusableError):
                yield nic_of(part)


def digests(
    requests: Mapping[LinkKey, LinkRequest],
    asked: Mapping[LinkKey, tuple[Address, ...]],
    routes: Iterable[RouteRequest],
    sysctls: Mapping[str, str],
    refused: Collection[Host],
) -> dict[str, str]:
    """The digests of each NIC's request: of its links, and of the routes through their networks.

    The key "" is for requests that belong to no NIC, with the `sysctls` of the whole host. A digest
    depends on the documents only: plugging in a NIC changes no other NIC's request. `refused` are
    the addresses that another NIC requests too: none of them has it any more.
    """
    parts: dict[str, list[str]] = {"": [], **{key.mac: [] for key in requests}}
    for key in sorted(requests):
        request = requests[key]
        parts[key.mac].append(request.substance())
        parts[key.mac] += [f"not {one}" for one in request.addresses if one.ip in refused]
        parts[""] += [repr(pair) for pair in request.sysctls if OWN not in pair[0]]
        for lower in lower_of(request):
            parts[lower.mac].append(f"in {key}")
    parts[""] += [repr(pair) for pair in sorted(sysctls.items())]
    networks = Networks(asked)
    paths: dict[str, list[str]] = {mac: [] for mac in parts}
    for route in routes:
        mac = _mac_of(route, networks)
        paths[mac if mac in paths else ""].append(repr(route._replace(where="")))
    return {mac: f"{_digest(texts)}.{_digest(paths[mac])}" for mac, texts in parts.items()}


def _digest(texts: Iterable[str]) -> str:
    """The digest of a set of texts."""
    return sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]


def _mac_of(route: RouteRequest, networks: Networks) -> str:
    """The MAC of the link that a route belongs to; empty if it belongs to none."""
    link = networks.link(route.via, route.link)
    if link is None and route.traits.kind == "unicast":
        link = route.link if route.via is None or route.traits.onlink else None
    return link.mac if link else ""
