"""Which requests are made of which: the links below a bond, bridge, VXLAN, macvlan or VLAN, and those above a link."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neuca_tools.model import LinkRequest
from neuca_tools.model.links import LinkKey


def with_parents(requests: Iterable[LinkRequest]) -> tuple[LinkRequest, ...]:
    """The requests, with an empty one for each link that is only named as the NIC of a VLAN, or as a part of another link."""
    every: dict[LinkKey, LinkRequest] = {}
    listed = tuple(requests)
    asked = {request.key for request in listed}
    for request in listed:
        for key in (request.key, *lower_of(request)):
            if key.nic not in asked:
                every.setdefault(key.nic, LinkRequest(key.nic))
        every[request.key] = request
    return tuple(every.values())


def lower_of(request: LinkRequest) -> tuple[LinkKey, ...]:
    """What a bond or its like is to be made of."""
    return request.virtual.lower if request.virtual else ()


def carriers(macs: Iterable[str], requests: Mapping[LinkKey, LinkRequest]) -> frozenset[str]:
    """The failure domains that these are made of, NICs and those between."""
    found: set[str] = set()
    waiting = list(macs)
    while waiting:
        request = requests.get(LinkKey(waiting.pop()))
        more = {lower.mac for lower in lower_of(request)} - found if request else set()
        found |= more
        waiting += more
    return frozenset(found)


def users(macs: Iterable[str], requests: Mapping[LinkKey, LinkRequest]) -> frozenset[str]:
    """The bonds and their like that are made of one of these, directly or not."""
    above: dict[str, set[str]] = {}
    for key, request in requests.items():
        for lower in lower_of(request):
            above.setdefault(lower.mac, set()).add(key.mac)
    found: set[str] = set()
    waiting = list(macs)
    while waiting:
        more = above.get(waiting.pop(), set()) - found
        found |= more
        waiting += more
    return frozenset(found)
