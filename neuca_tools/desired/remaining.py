"""The host as others find it once a pass has removed what is ours and not requested any more.

What such a link or address stands in the way of can be done in the same pass: removal comes first.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from neuca_tools.desired import vrfs
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.virtual_links import held
from neuca_tools.model import Address, Device, Virtual


def remaining(scene: Scene) -> Scene:
    """The scene with the links, addresses and routes that stay, if these are all requests."""
    world, gone, removed = scene.world, _deleted(scene), _removed(scene)
    if not removed and not gone:
        return scene
    tables = set(map(_table, gone.values()))
    after = replace(
        world,
        devices={index: one for index, one in world.devices.items() if index not in gone},
        addresses={
            index: tuple(address for address in present if (index, address) not in removed)
            for index, present in world.addresses.items()
            if index not in gone
        },
        tables=tuple(route for route in world.tables if route.traits.table not in tables),
    )
    return scene._replace(world=after)


def _deleted(scene: Scene) -> dict[int, Device]:
    """The devices of our links that are no longer requested and may go."""
    old = scene.record.owned.vlans - scene.requests.keys()
    old -= held(scene, old).keys() if old else set()
    return {scene.found[key].index: scene.found[key] for key in old & scene.found.keys()}


def _removed(scene: Scene) -> set[tuple[int, Address]]:
    """Our addresses that are no longer requested, each with the index of its device."""
    requests = scene.requests
    asked = {(key, address) for key in requests for address in requests[key].addresses}
    stale = scene.record.owned.addresses - asked
    return {(scene.found[key].index, address) for key, address in stale if key in scene.found}


def _table(device: Device) -> int:
    """The table of a VRF, which loses the routes of its members with it; 0 for another link."""
    return vrfs.number(Virtual(options=device.options)) if device.kind == vrfs.KIND else 0
