"""What is there, in the same terms as what is asked: one look at the links in question, their settings and our files."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Callable, Optional

from .backends import sysctl
from .desired import Resolution, find_links
from .errors import ObserveError
from .fileio import read_bytes
from .model import OWN, Device, Hop, Link, LinkKey, NetworkState, Original, Record, World

ReadSysctl = Callable[[str], Optional[str]]
Words = Mapping[str, Mapping[str, str]]  # manager -> interface name -> word


def found(resolution: Resolution, world: World, record: Record, protocol: int, files: Iterable[str], managers: Words,
          read_sysctl: ReadSysctl = sysctl.read) -> NetworkState:
    """The found side of a plan: dataplane links alone, and those that the agent itself once changed. Raises ObserveError."""
    wanted = {*resolution.want.links, *record.owned.vlans, *record.originals, *(key for key, _ in record.owned.addresses)}
    wanted |= {key.nic for key in wanted}
    devices = {key: device for key, device in find_links(world, resolution.roles).items()
               if key in wanted and device.index not in resolution.roles.protected}
    links = {key: _link(key, device, resolution, world, record, managers, read_sysctl) for key, device in devices.items()}
    paths = {*resolution.want.sysctls, *record.original_sysctls}
    sysctls = {path: value for path in sorted(paths) for value in [read_sysctl(path)] if value is not None}
    running = {path: manager for path, manager in resolution.want.tell.items() if manager in managers}
    return NetworkState(links, _hops(world, devices, resolution, protocol), sysctls=sysctls, files=_files(files), tell=running)


def _link(key: LinkKey, device: Device, resolution: Resolution, world: World, record: Record, managers: Words,
          read: ReadSysctl) -> Link:
    wanted, original = resolution.want.links.get(key), record.originals.get(key, Original())
    templates = {*(wanted.sysctls if wanted else ()), *original.sysctls}
    values = {template: read(template.replace(OWN, device.name)) for template in templates}
    return Link(
        key, "vlan" if key.vlan_id is not None else "physical", resolution.roles.role(key.mac), device.name, device.index,
        "up" if device.up else "down", device.mtu, device.txqueuelen, world.addresses.get(device.index, ()),
        {template: value for template, value in values.items() if value is not None},
        {manager: words[device.name] for manager, words in managers.items() if device.name in words})


def _hops(world: World, devices: Mapping[LinkKey, Device], resolution: Resolution, protocol: int) -> tuple[Hop, ...]:
    """Our own routes, and other people's to a prefix that should have none; never a default route, nor a link's own network."""
    keys = {device.index: key for key, device in devices.items()}
    banned = set(resolution.want.banned)
    return tuple(Hop(route.to, keys[route.index], route.via, route.metric, route.protocol == protocol)
                 for route in world.routes if route.index in keys
                 and (route.protocol == protocol or (route.to in banned and route.via is not None)))


def _files(paths: Iterable[str]) -> dict[str, Optional[bytes]]:
    contents: dict[str, Optional[bytes]] = {}
    for path in paths:
        try:
            contents[path] = read_bytes(Path(path))
        except OSError as error:
            raise ObserveError(f'read "{path}": {error.strerror}') from error
    return contents
