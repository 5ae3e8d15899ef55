"""How requests depend on each other: the lower devices of a virtual link, the upper ones of any."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from neuca_tools.model import LinkRequest
from neuca_tools.model.links import LinkKey, Virtual


def with_parents(requests: Iterable[LinkRequest]) -> tuple[LinkRequest, ...]:
    """The requests, with an empty one for each link that is only named as a lower device."""
    every: dict[LinkKey, LinkRequest] = {}
    listed = tuple(requests)
    asked = {request.key for request in listed}
    for request in listed:
        for key in (request.key, *lower_of(request)):
            if key.nic not in asked:
                every.setdefault(key.nic, LinkRequest(key.nic))
        every[request.key] = request
    return tuple(every.values())


def with_vrfs(requests: Iterable[LinkRequest]) -> tuple[LinkRequest, ...]:
    """The requests, with the links that request a VRF (`vrf`) among the members of this VRF."""
    every = {request.key: request for request in requests}
    for request in tuple(every.values()):
        if not request.vrf:
            continue
        every[request.key] = replace(request, vrf="")
        key = LinkKey(f"vrf {request.vrf}")
        vrf = every.get(key, LinkRequest(key, state="up"))
        virtual = vrf.virtual or Virtual()
        members = tuple(dict.fromkeys((*virtual.members, request.key)))
        every[key] = replace(vrf, virtual=virtual._replace(members=members))
    return tuple(every.values())


def lower_of(request: LinkRequest) -> tuple[LinkKey, ...]:
    """The requested lower devices of a virtual link; empty for every other link."""
    if request.virtual is None:
        return ()
    return request.virtual.lower


def carriers(macs: Iterable[str], requests: Mapping[LinkKey, LinkRequest]) -> frozenset[str]:
    """All lower devices of these links, direct and indirect, by the MAC of their keys."""

    def below(mac: str) -> set[str]:
        request = requests.get(LinkKey(mac))
        if request is None:
            return set()
        return {lower.mac for lower in lower_of(request)}

    return _reachable(macs, below)


def users(macs: Iterable[str], requests: Mapping[LinkKey, LinkRequest]) -> frozenset[str]:
    """All virtual links on top of these links, direct and indirect, by the MAC of their keys."""
    above: dict[str, set[str]] = {}
    for key, request in requests.items():
        for lower in lower_of(request):
            above.setdefault(lower.mac, set()).add(key.mac)
    return _reachable(macs, lambda mac: above.get(mac, set()))


def _reachable(start: Iterable[str], following: Callable[[str], set[str]]) -> frozenset[str]:
    """Everything that follows these; one of them is included only if it follows another."""
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        more = following(waiting.pop()) - found
        found |= more
        waiting += more
    return frozenset(found)
