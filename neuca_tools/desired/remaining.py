"""The host as others find it once a pass has removed what is ours and not requested any more.

What such a link or address stands in the way of can be done in the same pass: removal comes first.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from neuca_tools.desired import vrfs
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.virtual_links import held
from neuca_tools.model import Device, Virtual


def remaining(scene: Scene) -> Scene:
    """The scene with the links, addresses and routes that stay, if these are all requests."""
    requests, world, owned, found = scene.requests, scene.world, scene.record.owned, scene.found
    old = owned.vlans - requests.keys()
    old -= held(scene, old).keys() if old else set()
    gone = {found[key].index: found[key] for key in old & found.keys()}
    asked = {(key, address) for key in requests for address in requests[key].addresses}
    removed = {
        (found[key].index, address) for key, address in owned.addresses - asked if key in found
    }
    if not removed and not gone:
        return scene
    addresses = {
        index: tuple(address for address in present if (index, address) not in removed)
        for index, present in world.addresses.items()
        if index not in gone
    }
    tables = set(map(_table, gone.values()))
    after = replace(
        world,
        devices={index: world.devices[index] for index in world.devices if index not in gone},
        addresses=addresses,
        tables=tuple(route for route in world.tables if route.traits.table not in tables),
    )
    return scene._replace(world=after)


def _table(device: Device) -> int:
    """The table of a VRF, which loses the routes of its members with it; 0 for another link."""
    return vrfs.number(Virtual(options=device.options)) if device.kind == vrfs.KIND else 0
