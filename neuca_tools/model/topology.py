"""What stands on what: which devices are NICs, what is above and below them, and the default routes in force."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address

from neuca_tools.model import Device, Host, Route, World
from neuca_tools.model.links import KINDS

METADATA_HOSTS: tuple[Host, ...] = (ip_address("169.254.169.254"), ip_address("fd00:ec2::254"))
"""IPv4: the link-local address of RFC 3927 that every cloud uses; IPv6: EC2's (Amazon EC2 User Guide)."""
VIRTUAL_NICS = frozenset(
    {"veth", "tun"}
)  # so that the whole agent can be tried in a network namespace
AUTOMATIC = frozenset({9, 16})  # RTPROT_RA, RTPROT_DHCP (linux/rtnetlink.h): nobody's decision
MAC_LENGTH = len("00:00:00:00:00:00")


def is_nic(device: Device) -> bool:
    """Hardware, a veth or a tap; never a VLAN, a macvlan, a bond, a bridge or their kind."""
    nic = device.hardware if not device.kind else device.kind in VIRTUAL_NICS
    return nic and len(device.permanent_mac or device.mac) == MAC_LENGTH


def identity(device: Device) -> str:
    """The MAC that a NIC is known by."""
    return device.permanent_mac or device.mac


def automatic(route: Route) -> bool:
    """From a DHCP server or a router, by a network manager or the kernel."""
    return route.protocol in AUTOMATIC


def base(device: Device) -> str:
    """What it is, without its VLAN: the MAC of a NIC, kind and name of a bond or its like."""
    return f"{device.kind} {device.name}" if device.kind in KINDS else identity(device)


def best_default_routes(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The default routes in force: those of the lowest metric, for each family."""
    defaults = [route for route in routes if route.to.prefixlen == 0]
    best: dict[int, int] = {}
    for route in defaults:
        best[route.to.version] = min(route.metric, best.get(route.to.version, route.metric))
    return tuple(route for route in defaults if route.metric == best[route.to.version])


def lifelines(world: World, management: Collection[int]) -> frozenset[tuple[int, int]]:
    """Device and family of each default route from DHCP or a router, where management has none of that family."""
    others = {
        route.to.version
        for route in world.routes
        if route.to.prefixlen == 0 and route.index in management
    }
    return frozenset(
        (route.index, route.to.version)
        for route in world.routes
        if route.to.prefixlen == 0 and automatic(route) and route.to.version not in others
    )


def below(world: World, indexes: Iterable[int]) -> frozenset[int]:
    """These devices and all that carry them: the device under a VLAN, the members of a bond or bridge."""
    members: dict[int, list[int]] = defaultdict(list)
    for device in world.devices.values():
        if device.master:
            members[device.master].append(device.index)
        if device.lower:
            members[device.index].append(device.lower)
    return _closure(indexes, members)


def above(world: World, indexes: Iterable[int]) -> frozenset[int]:
    """These devices and all that is stacked on them, bonds and bridges they are members of included."""
    stacked: dict[int, list[int]] = defaultdict(list)
    for device in world.devices.values():
        if device.master:
            stacked[device.index].append(device.master)
        if device.lower:
            stacked[device.lower].append(device.index)
    return _closure(indexes, stacked)


def _closure(start: Iterable[int], edges: Mapping[int, Collection[int]]) -> frozenset[int]:
    reached: set[int] = set()
    waiting = [index for index in start if index]
    while waiting:
        index = waiting.pop()
        if index not in reached:
            reached.add(index)
            waiting.extend(edges.get(index, ()))
    return frozenset(reached)
