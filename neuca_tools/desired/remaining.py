"""The host as others find it once a pass has removed what is ours and not requested any more.

What such a link or address stands in the way of can be done in the same pass: removal comes first.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from neuca_tools.desired import vrfs
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.virtual_links import held
from neuca_tools.model import Device, LinkKey, LinkRequest, Virtual

NO_REQUEST = LinkRequest(LinkKey(""))


def remaining(scene: Scene) -> Scene:
    """The scene with the links, addresses and routes that stay, if these are all requests."""
    requests, world, owned, found = scene.requests, scene.world, scene.record.owned, scene.found
    old = owned.vlans - requests.keys()
    old -= held(scene, old).keys() if old else set()
    gone = {found[key].index: found[key] for key in old & found.keys()}
    addresses = dict(world.addresses)
    for key, address in owned.addresses:
        index = found[key].index if key in found else 0
        left = addresses.get(index, ())
        if address in left and address not in requests.get(key, NO_REQUEST).addresses:
            addresses[index] = tuple(other for other in left if other != address)
    if addresses == world.addresses and not gone:
        return scene
    tables = set(map(_table, gone.values()))
    after = replace(
        world,
        devices={index: world.devices[index] for index in world.devices if index not in gone},
        addresses={index: addresses[index] for index in addresses if index not in gone},
        tables=tuple(route for route in world.tables if route.traits.table not in tables),
    )
    return scene._replace(world=after)


def _table(device: Device) -> int:
    """The table of a VRF, which loses the routes of its members with it; 0 for another link."""
    return vrfs.number(Virtual(options=device.options)) if device.kind == vrfs.KIND else 0
