"""What is there, in the same terms as what is asked: one look at the links in question, their settings and our files."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional

from .backends import sysctl
from .desired import Resolution
from .device_settings import DeviceSettings
from .errors import ObserveError
from .fileio import read_bytes
from .model import OWN, Device, Hop, Link, LinkKey, NetworkState, Original, Record, Virtual, World
from .roles import automatic, find_links, lifelines

ReadSysctl = Callable[[str], Optional[str]]
Words = Mapping[str, Mapping[str, str]]  # manager -> interface name -> word


def found(
    resolution: Resolution,
    world: World,
    record: Record,
    protocol: int,
    files: Iterable[str],
    managers: Words,
    read_sysctl: ReadSysctl = sysctl.read,
) -> NetworkState:
    """The found side of a plan: dataplane links alone, and those that the agent itself once changed. Raises ObserveError."""
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
            _link(key, device, resolution, world, record, managers, read_sysctl),
            master=masters.get(device.master),
            virtual=_virtual(key, device, keys, world),
        )
        for key, device in devices.items()
    }
    paths = {*resolution.want.sysctls, *record.original_sysctls}
    sysctls = {
        path: value for path in sorted(paths) for value in [read_sysctl(path)] if value is not None
    }
    unheard = any(nic.unheard for nic in record.nics.values())
    running = {
        path: "" if unheard else manager
        for path, manager in resolution.want.tell.items()
        if manager in managers
    }
    leaving = {mac for mac, nic in record.nics.items() if nic.leaving}
    hops = _hops(world, devices, resolution, protocol, leaving)
    return NetworkState(links, hops, sysctls=sysctls, files=_files(files), tell=running)


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
    key: LinkKey,
    device: Device,
    resolution: Resolution,
    world: World,
    record: Record,
    managers: Words,
    read: ReadSysctl,
) -> Link:
    wanted, original = resolution.want.links.get(key), record.originals.get(key, Original())
    templates = {*(wanted.sysctls if wanted else ()), *original.sysctls}
    values = {template: read(template.replace(OWN, device.name)) for template in templates}
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
        {template: value for template, value in values.items() if value is not None},
        {name: value for name, value in settings.items() if name in names},
        {
            manager: words[device.name]
            for manager, words in managers.items()
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
            automatic(route)
            and keys[route.index].mac in leaving
            and keys[route.index].vlan_id is None
            and (route.index, route.to.version) not in kept,
        )
        for route in world.routes
        if route.index in keys
    )
    return tuple(
        hop
        for hop in hops
        if hop.ours or hop.left_over or (hop.to in banned and hop.via is not None)
    )


def _files(paths: Iterable[str]) -> dict[str, Optional[bytes]]:
    contents: dict[str, Optional[bytes]] = {}
    for path in paths:
        try:
            contents[path] = read_bytes(Path(path))
        except OSError as error:
            raise ObserveError(f'read "{path}": {error.strerror}') from error
    return contents
