"""What is there, in the same terms as what is asked: the links in question, their settings and our files."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Optional

from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import find_links
from neuca_tools.desired.router_advertisements import is_advertised
from neuca_tools.model import (
    OWN,
    Device,
    Hop,
    Link,
    LinkKey,
    NetworkState,
    Original,
    Record,
    Virtual,
    World,
)
from neuca_tools.model.device_settings import DeviceSettings
from neuca_tools.model.topology import automatic, lifelines


def found(resolution: Resolution, world: World, record: Record, protocol: int) -> NetworkState:
    """The found side of a plan: dataplane links alone, and those that the agent itself once changed."""
    wanted = {*resolution.want.links, *resolution.removable.vlans, *record.owned.vlans}
    wanted |= {*record.originals, *(key for key, _ in record.owned.addresses)}
    wanted |= {key.nic for key in wanted}
    everything = find_links(world, resolution.roles)
    masters = {device.index: LinkKey(mac) for mac, device in resolution.roles.stacked.items()}
    devices = {
        key: device
        for key, device in everything.items()
        if (key in wanted or device.master in masters)
        and device.index not in resolution.roles.protected
    }
    keys = {device.index: key for key, device in everything.items()}
    links = {
        key: replace(
            _link(key, device, resolution, world, record),
            master=masters.get(device.master),
            virtual=_virtual(key, device, keys, world),
        )
        for key, device in devices.items()
    }
    paths = sorted({*resolution.want.sysctls, *record.original_sysctls})
    sysctls = {path: world.sysctls[path] for path in paths if path in world.sysctls}
    unheard = any(nic.unheard for nic in record.nics.values())
    running = {
        path: "" if unheard else manager
        for path, manager in resolution.want.tell.items()
        if manager in world.managers
    }
    files = {path: world.files.get(path) for path in resolution.want.files}
    leaving = {mac for mac, nic in record.nics.items() if nic.leaving}
    hops = _hops(world, devices, resolution, protocol, leaving)
    return NetworkState(links, hops, sysctls=sysctls, files=files, tell=running)


def _virtual(
    key: LinkKey, device: Device, keys: Mapping[int, LinkKey], world: World
) -> Optional[Virtual]:
    """What a bond or its like is made of, as far as that is known; of a VLAN its MAC."""
    if key.vlan_id is not None:
        return Virtual(options=(("mac", device.mac),))
    if not key.made:
        return None
    members = sorted(
        keys[one.index]
        for one in world.devices.values()
        if one.master == device.index and one.index in keys
    )
    return Virtual(tuple(members), keys.get(device.lower), device.options)


def _link(
    key: LinkKey, device: Device, resolution: Resolution, world: World, record: Record
) -> Link:
    wanted, original = resolution.want.links.get(key), record.originals.get(key, Original())
    templates = {*(wanted.sysctls if wanted else ()), *original.sysctls}
    paths = {template: template.replace(OWN, device.name) for template in templates}
    values = {name: world.sysctls[path] for name, path in paths.items() if path in world.sysctls}
    leased = {
        address
        for address in (wanted.addresses if wanted else ())
        if (device.index, address) in world.leased
    }
    addresses = tuple(
        address for address in world.addresses.get(device.index, ()) if address not in leased
    )
    settings = world.settings.get(device.index, DeviceSettings()).values
    names = {*(wanted.device if wanted else ()), *original.device}
    return Link(
        key,
        key.kind,
        resolution.roles.role(key.mac),
        device.name,
        device.index,
        "up" if device.up else "down",
        device.mtu,
        device.txqueuelen,
        addresses,
        values,
        {name: value for name, value in settings.items() if name in names},
        {
            manager: words[device.name]
            for manager, words in world.managers.items()
            if device.name in words
        },
    )


def _hops(
    world: World,
    devices: Mapping[LinkKey, Device],
    resolution: Resolution,
    protocol: int,
    leaving: Collection[str],
) -> tuple[Hop, ...]:
    """Our own routes, other people's to a prefix that should have none, and what a manager leaves behind.

    Of other people's never a link's own network; nor what is left behind, while it is all that this host has of a default route.
    """
    keys = {device.index: key for key, device in devices.items()}
    banned = set(resolution.want.banned)
    kept = lifelines(world, resolution.roles.management)
    hops = (
        Hop(
            route.to,
            keys[route.index],
            route.via,
            route.metric,
            route.protocol == protocol,
            (
                automatic(route)
                and keys[route.index].mac in leaving
                and keys[route.index].vlan_id is None
                and (route.index, route.to.version) not in kept
            )
            or (keys[route.index] in resolution.quiet and is_advertised(route, world)),
        )
        for route in world.routes
        if route.index in keys
    )
    return tuple(
        hop
        for hop in hops
        if hop.ours or hop.left_over or (hop.to in banned and hop.via is not None)
    )
