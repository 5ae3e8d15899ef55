"""Which NICs a pass may change: those with a new request, and those that have appeared."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import UNRECORDED, Incarnation, LinkKey, Record, World
from neuca_tools.model.links import KINDS
from neuca_tools.model.routing import ROUTES_OF
from neuca_tools.model.topology import base, is_nic


def incarnations(resolution: Resolution, world: World) -> dict[str, Incarnation]:
    """The incarnation of each NIC and virtual link, by MAC or by "KIND NAME"."""
    macs = resolution.roles.macs
    found = {mac: Incarnation(world.boot_id, index) for index, mac in macs.items()}
    for index, device in sorted(world.devices.items()):
        mac = macs.get(device.lower) if device.kind == "vlan" else None
        if mac and device.vlan_id and LinkKey(mac, device.vlan_id) in resolution.requests:
            vlans = (*found[mac].vlans, (device.vlan_id, index))
            found[mac] = found[mac]._replace(vlans=vlans)
    return found


def appearances(world: World) -> dict[str, Incarnation]:
    """The incarnation of each NIC and virtual link, without VLANs, by MAC or by "KIND NAME"."""
    return {
        base(device): Incarnation(world.boot_id, device.index)
        for device in world.devices.values()
        if is_nic(device) or device.kind in KINDS
    }


def changed(record: Record, resolution: Resolution, world: World) -> frozenset[str]:
    """What may change now, as the scope of a plan.

    MACs: NICs that appeared, or whose request differs from the one in force. `ROUTES_OF` with a
    MAC: NICs of which the requested routes alone differ. Keys of VLANs that appeared on other NICs.
    Paths of sysctls that failed in the last pass. "" if the part of the document that belongs to no
    NIC differs, with `ROUTES_OF` the routes in that part.
    """
    scope = set(record.retry)
    if record.applied != resolution.digests.get("", ""):
        scope |= {"", *(f"{ROUTES_OF}{prefix}" for prefix in resolution.loose)}
    present = incarnations(resolution, world)
    for mac in _requested_macs(record, resolution):
        nic, digest = record.nics.get(mac, UNRECORDED), resolution.digests.get(mac, "")
        appearance = present.get(mac)
        is_new = appearance is not None and not appearance.is_same_link(nic.incarnation)
        if nic.unheard or is_new or not has_same_links(nic.applied, digest):
            scope.add(mac)
        elif nic.applied != digest:
            scope.add(f"{ROUTES_OF}{mac}")
    return frozenset(scope | _new_vlans(record, resolution, present))


def has_same_links(applied: str, digest: str) -> bool:
    """Whether two requests of a NIC differ in their routes at most."""
    return applied.partition(".")[0] == digest.partition(".")[0]


def _requested_macs(record: Record, resolution: Resolution) -> set[str]:
    """The NICs that a document requests, or requested when it was last applied as a whole.

    Those of another instance are not recorded any more; what was set on them since the boot is.
    """
    macs = {mac for mac in resolution.digests if mac}
    if resolution.complete:
        macs |= {mac for mac, nic in record.nics.items() if nic.applied}
        macs |= {key.mac for key in (*record.owned.vlans, *record.originals)}
        macs |= {key.mac for key, _ in record.owned.addresses}
    return macs


def _new_vlans(
    record: Record, resolution: Resolution, present: Mapping[str, Incarnation]
) -> set[str]:
    """The keys of VLANs that are present and were not there when the request was carried out."""
    new = set()
    for key in resolution.requests:
        if key.vlan_id is None or key.mac not in record.nics:
            continue
        index = _vlan_index(present.get(key.mac), key)
        if index not in (None, _vlan_index(record.nics[key.mac].incarnation, key)):
            new.add(str(key))
    return new


def _vlan_index(incarnation: Optional[Incarnation], key: LinkKey) -> Optional[int]:
    """The interface index of this VLAN in an incarnation; None if the VLAN was not there."""
    if incarnation is None or key.vlan_id is None:
        return None
    return dict(incarnation.vlans).get(key.vlan_id)
