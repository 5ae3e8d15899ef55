"""NICs that are management NICs only because of VLANs on them, and the devices of these VLANs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping

from neuca_tools.model import Device, World
from neuca_tools.model.topology import above, below, best_default_routes, identity, is_nic


def tagged(world: World, macs: Collection[str]) -> dict[str, frozenset[int]]:
    """The IDs of management VLANs on those of the NICs that are management only because of VLANs.

    Such a NIC has neither addresses nor routes of its own, and a default route, or the route to the
    metadata service, goes through a VLAN on it.
    """
    plain = {
        index: identity(device)
        for index, device in world.devices.items()
        if identity(device) in macs and is_nic(device) and _is_plain(device, world)
    }
    upper = above(world, plain)
    ways = best_default_routes(route for route in world.routes if route.index in upper)
    lines = below(world, [*(route.index for route in ways), world.metadata_index])
    found: dict[str, frozenset[int]] = {}
    for index in lines & world.devices.keys():
        device = world.devices[index]
        if device.vlan_id is not None and device.lower in plain:
            mac = plain[device.lower]
            found[mac] = found.get(mac, frozenset()) | {device.vlan_id}
    return found


def _is_plain(nic: Device, world: World) -> bool:
    """Whether the NIC has no master, and only the addresses and routes of any device with IPv6."""
    if nic.master or nic.slave or nic.index == world.metadata_index:
        return False
    prefixes = {address.network for address in world.addresses.get(nic.index, ())}
    prefixes |= {route.to for route in world.routes if route.index == nic.index}
    return all(to.version == 6 and (to.is_link_local or to.is_multicast) for to in prefixes)


def management_devices(
    world: World, devices: Collection[int], vlans: Mapping[str, frozenset[int]]
) -> frozenset[int]:
    """These devices and what is stacked on them, without VLANs that are not for management."""
    carriers = {index for index in devices if identity(world.devices[index]) in vlans}
    upper = {
        device.index
        for device in world.devices.values()
        if device.lower in carriers
        and (
            device.vlan_id is None or device.vlan_id in vlans[identity(world.devices[device.lower])]
        )
    }
    return above(world, {*devices} - carriers | upper) | carriers
