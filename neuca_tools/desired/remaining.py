"""The host as others find it once a pass has removed what is ours and not requested any more.

What such a link or address stands in the way of can be done in the same pass: removal comes first.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neuca_tools.desired import vrfs
from neuca_tools.desired.roles import Roles, find_links
from neuca_tools.desired.virtual_links import held
from neuca_tools.model import Device, LinkKey, LinkRequest, Record, Virtual, World


def remaining(
    requests: Mapping[LinkKey, LinkRequest], world: World, roles: Roles, record: Record
) -> World:
    """The links, addresses and routes that stay, if these are all requests."""
    owned, found = record.owned, find_links(world, roles)
    old = owned.vlans - requests.keys()
    old -= held(old, requests, world, roles, record).keys() if old else set()
    gone = {found[key].index: found[key] for key in old & found.keys()}
    stale = owned.addresses - {(key, one) for key in requests for one in requests[key].addresses}
    if not stale and not gone:
        return world
    addresses = dict(world.addresses)
    for key in {key for key, _ in stale} & found.keys():
        present = addresses.get(found[key].index, ())
        addresses[found[key].index] = tuple(one for one in present if (key, one) not in stale)
    tables = set(map(_table, gone.values()))
    return replace(
        world,
        devices={index: world.devices[index] for index in world.devices if index not in gone},
        addresses={index: addresses[index] for index in addresses if index not in gone},
        tables=tuple(one for one in world.tables if one.traits.table not in tables),
    )


def _table(device: Device) -> int:
    """The table of a VRF, which loses the routes of its members with it; 0 for another link."""
    return vrfs.number(Virtual(options=device.options)) if device.kind == vrfs.KIND else 0
