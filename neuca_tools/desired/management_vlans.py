"""VLANs next to what is for management on one link: on a NIC, or on a bond or bridge of others."""

# SPDX-License-Identifier: MIT

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from neuca_tools.model import Device, LinkKey, World, topology

_EVERY_ID = frozenset(range(4096))


def management_ids(
    world: World, indexes: Collection[int], ours: frozenset[int], vlans: Collection[LinkKey]
) -> tuple[dict[str, frozenset[int]], frozenset[int]]:
    """The IDs of the VLANs for management, by link, and the indexes of all management devices.

    Only links that have other VLANs too are listed. `indexes` are those of the management NICs,
    `vlans` what may be created on them.
    """
    only = management_vlan_ids(world, indexes)
    management = management_devices(world, indexes, only)
    ids = {**ids_beside(world, management, ours, vlans), **only}
    return ids, management_devices(world, indexes, ids)


def management_vlan_ids(world: World, indexes: Collection[int]) -> dict[str, frozenset[int]]:
    """The IDs of management VLANs on those of the NICs that are management only because of VLANs.

    Such a NIC has neither addresses nor routes of its own, and a default route, or the route to the
    metadata service, goes through a VLAN on it.
    """
    nics = (nic for nic in topology.nics_in(world) if nic.index in indexes)
    plain = {nic.index: topology.identity(nic) for nic in nics if _is_plain(nic, world)}
    upper = topology.with_upper_devices(world, plain)
    ways = topology.best_default_routes(topology.routes_through(world, upper))
    lines = topology.with_lower_devices(
        world, [*(route.index for route in ways), world.metadata_index]
    )
    ids_by_mac: dict[str, frozenset[int]] = defaultdict(frozenset)
    for index in lines & world.devices.keys():
        device = world.devices[index]
        if device.vlan_id is not None and device.lower in plain:
            ids_by_mac[plain[device.lower]] |= {device.vlan_id}
    return dict(ids_by_mac)


def _is_plain(nic: Device, world: World) -> bool:
    """Whether the NIC has no master, and only the addresses and routes of any device with IPv6."""
    if not _is_free(nic) or nic.index == world.metadata_index:
        return False
    prefixes = {address.network for address in world.addresses.get(nic.index, ())}
    prefixes |= {route.to for route in world.routes if route.index == nic.index}
    return all(to.version == 6 and (to.is_link_local or to.is_multicast) for to in prefixes)


def ids_beside(
    world: World, management: frozenset[int], ours: Collection[int], vlans: Iterable[LinkKey]
) -> dict[str, frozenset[int]]:
    """The management links that these VLANs are on, with the IDs that are for management too: all
    others, and 0, the link itself.

    A VLAN changes nothing of the link below it. One that another program made is not taken over.
    """
    asked: dict[str, set[int]] = defaultdict(set)
    for key in vlans:
        asked[key.mac].add(key.vlan_id or 0)
    ids_by_link = {}
    for index in management - {*ours}:
        device, mac = world.devices[index], topology.mac_in_key(world.devices[index])
        if mac in asked and device.vlan_id is None and _is_free(device):
            foreign = {
                upper.vlan_id
                for upper in world.devices.values()
                if upper.lower == index and upper.index not in ours
            }
            ids_by_link[mac] = _EVERY_ID - (asked[mac] - foreign)
    return ids_by_link


def _is_free(device: Device) -> bool:
    return not (device.master or device.slave)


def management_devices(
    world: World, devices: Collection[int], vlans: Mapping[str, frozenset[int]]
) -> frozenset[int]:
    """These devices and what is stacked on them, without VLANs that are not for management."""
    kept = {
        index: device
        for index, device in world.devices.items()
        if not _is_beside(device, world, vlans)
    }
    return topology.with_upper_devices(replace(world, devices=kept), devices)


def _is_beside(device: Device, world: World, vlans: Mapping[str, frozenset[int]]) -> bool:
    lower = world.devices.get(device.lower)
    if device.vlan_id is None or lower is None or lower.vlan_id is not None:
        return False
    return device.vlan_id not in vlans.get(topology.mac_in_key(lower), _EVERY_ID)
