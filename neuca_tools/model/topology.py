"""Which devices are NICs, their upper and lower devices, and the effective default routes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator
from ipaddress import ip_address
from itertools import chain

from neuca_tools.model import Address, Device, Host, LinkKey, Network, Route, World
from neuca_tools.model.links import KINDS
from neuca_tools.model.ports import GUID_LENGTH
from neuca_tools.model.provenance import is_automatic
from neuca_tools.model.routing import RouteIdentity

METADATA_HOSTS: tuple[Host, ...] = (ip_address("169.254.169.254"), ip_address("fd00:ec2::254"))
"""IPv4: RFC 3927's link-local address that every cloud uses; IPv6: EC2's (EC2 User Guide)."""
# Azure's wireserver, Alibaba's metadata service; the services of EC2, Google, Oracle and Scaleway.
PLATFORM_HOSTS: tuple[Host, ...] = (
    *map(ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::123", "fd00:ec2::253")),
    *map(ip_address, ("fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42")),
)
# Kinds that count as NICs, so that the whole agent can be tested in a network namespace.
VIRTUAL_NICS = frozenset({"veth", "tun"})
SWITCH = "openvswitch"  # kind of its datapath (ovs-system) and of its bridges
MAC_LENGTH = len("00:00:00:00:00:00")  # characters


def is_nic(device: Device) -> bool:
    """Whether a device is hardware, a veth or a tap, and not a VLAN or virtual link.

    Hardware whose addresses are neither MACs nor GUIDs is no NIC (IEEE 802.15.4), nor is a virtual
    function that has no address yet, which is all zeros.
    """
    is_candidate = device.kind in VIRTUAL_NICS if device.kind else device.hardware
    length, own = GUID_LENGTH if device.infiniband else MAC_LENGTH, identity(device)
    return is_candidate and len(own) == length and bool(own.strip("0:"))


def nics_in(world: World) -> Iterator[Device]:
    """The NICs among the devices."""
    return filter(is_nic, world.devices.values())


def identity(device: Device) -> str:
    """The MAC or GUID that identifies a NIC: the permanent one, else the present one."""
    return device.permanent_mac or device.mac


def mac_in_key(device: Device) -> str:
    """The attribute `mac` in the key of a device: `KIND NAME` for a virtual link (`LinkKey`)."""
    return f"{device.kind} {device.name}" if device.kind in KINDS else identity(device)


def key_of(device: Device, world: World) -> LinkKey:
    """The key of a device, which has to be a NIC, a virtual link or a VLAN on one of them."""
    if device.vlan_id is None:
        return LinkKey(mac_in_key(device))
    return LinkKey(mac_in_key(world.devices.get(device.lower, device)), device.vlan_id)


def best_default_routes(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The effective default routes: those with the lowest metric in each family."""
    defaults = [route for route in routes if route.is_default]
    best: dict[int, int] = {}
    for route in defaults:
        best[route.to.version] = min(route.metric, best.get(route.to.version, route.metric))
    return tuple(route for route in defaults if route.metric == best[route.to.version])


def routes_through(world: World, indexes: Container[int]) -> Iterator[Route]:
    """The routes of the main table through these devices."""
    return (route for route in world.routes if route.index in indexes)


def foreign_routes(world: World, prefixes: Collection[Network]) -> frozenset[RouteIdentity]:
    """The identities of the routes of other programs to these prefixes, in every table."""
    every = chain(world.routes, world.other_routes) if prefixes else ()
    routes = (route for route in every if route.to in prefixes)
    return frozenset(route.identity for route in routes if not route.is_ours)


def local_networks(world: World) -> Iterator[Network]:
    """The IPv4 networks of this host by routes of RT_TABLE_LOCAL, as for AnyIP."""
    for route in world.other_routes:
        if route.traits[:2] == (255, "local") and route.to.version == 4:
            yield route.to


def addresses_of(world: World, indexes: Iterable[int]) -> Iterator[Address]:
    """The addresses of these devices, each with its prefix length."""
    return chain.from_iterable(world.addresses.get(index, ()) for index in indexes)


def hosts_of(world: World, indexes: Iterable[int]) -> frozenset[Host]:
    """The addresses of these devices, without their prefix lengths."""
    return frozenset(address.ip for address in addresses_of(world, indexes))


def automatic_default_routes(
    world: World, management: Collection[int]
) -> frozenset[tuple[int, int]]:
    """The device index and IP version of each default route from DHCP or a router advertisement.

    An IP version in which a management device (`management`: indexes) has one is left out.
    """
    defaults = [route for route in world.routes if route.is_default]
    of_management = {route.to.version for route in defaults if route.index in management}
    others = (route for route in defaults if route.to.version not in of_management)
    automatic = (route for route in others if is_automatic(route, world))
    return frozenset((route.index, route.to.version) for route in automatic)


def with_lower_devices(world: World, indexes: Iterable[int]) -> frozenset[int]:
    """These devices and all their lower devices, including members and ports."""
    return _reachable_from(indexes, ((above, below) for below, above in _stacked_devices(world)))


def nics_below(world: World, indexes: Iterable[int]) -> frozenset[str]:
    """The MACs of the NICs that are among these devices or below them.

    Beside hardware, a veth or tap there belongs to a container or guest of this host.
    """
    macs = set[str]()
    for index in {*indexes}:
        carriers = filter(None, map(world.devices.get, with_lower_devices(world, [index])))
        nics = [*filter(is_nic, carriers)]
        macs.update(map(identity, [nic for nic in nics if nic.hardware] or nics))
    return frozenset(macs)


def with_upper_devices(world: World, indexes: Iterable[int]) -> frozenset[int]:
    """These devices and all their upper devices, including bonds and bridges."""
    return _reachable_from(indexes, _stacked_devices(world))


def _stacked_devices(world: World) -> Iterator[tuple[int, int]]:
    """The indexes of each pair of a lower and an upper device."""
    for device in world.devices.values():
        if device.master:
            yield device.index, device.master
        if device.lower:
            yield device.lower, device.index
    yield from _ports_of_switches(world)


def _ports_of_switches(world: World) -> Iterator[tuple[int, int]]:
    """The indexes of ports and bridges of Open vSwitch.

    The kernel does not know which port is on which bridge: one is on those that have its MAC, or
    else on every bridge.
    """
    switches = {index: device for index, device in world.devices.items() if device.kind == SWITCH}
    ports = [device for device in world.devices.values() if device.master in switches]
    for bridge in switches.values():
        own = [port for port in ports if port.mac == bridge.mac]
        yield from ((port.index, bridge.index) for port in own or ports)


def _reachable_from(start: Iterable[int], edges: Iterable[tuple[int, int]]) -> frozenset[int]:
    """The indexes in `start` and all that the edges lead to from there; 0 stands for no device."""
    ends_by_start: dict[int, list[int]] = defaultdict(list)
    for first, second in edges:
        ends_by_start[first].append(second)
    reached: set[int] = set()
    waiting = [index for index in start if index]
    while waiting:
        index = waiting.pop()
        if index not in reached:
            reached.add(index)
            waiting.extend(ends_by_start.get(index, ()))
    return frozenset(reached)
