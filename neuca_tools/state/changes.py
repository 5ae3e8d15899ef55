"""Which NICs a pass may change: those with a new request, and those that have appeared since the last one.

An incarnation tells one appearance of a NIC from another: a reboot and every plugging in make a new one.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping

from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import LinkKey, NicRecord, Record, World
from neuca_tools.model.links import KINDS
from neuca_tools.model.topology import base, is_nic


def incarnations(resolution: Resolution, world: World) -> dict[str, str]:
    """The incarnation of each NIC and virtual link, by MAC or by "KIND NAME".

    It reads `BOOT_ID:INDEX ID=INDEX ...`: the interface index, followed by the index of each VLAN on
    it that is asked for.
    """
    macs = {
        device.index: mac
        for mac, device in (*resolution.roles.nics.items(), *resolution.roles.stacked.items())
    }
    found = {mac: [f"{world.boot_id}:{index}"] for index, mac in macs.items()}
    for index, device in sorted(world.devices.items()):
        if device.kind != "vlan" or not macs.get(device.lower):
            continue
        mac = macs[device.lower]
        if LinkKey(mac, device.vlan_id) in resolution.requests:
            found[mac].append(f"{device.vlan_id}={index}")
    return {mac: " ".join(words) for mac, words in found.items()}


def nic_part(incarnation: str) -> str:
    """The part that is about the NIC itself: `BOOT_ID:INDEX`."""
    return incarnation.partition(" ")[0]


def appearances(world: World) -> dict[str, int]:
    """The interface index of each NIC and virtual link, by MAC or by "KIND NAME"."""
    return {
        base(device): device.index
        for device in world.devices.values()
        if is_nic(device) or device.kind in KINDS
    }


def changed(record: Record, resolution: Resolution, world: World) -> frozenset[str]:
    """What may change now, as the scope of a plan.

    MACs: NICs that appeared, or whose request differs from the one in force. Keys of VLANs that
    appeared on other NICs. Paths of sysctls that failed in the last pass. "" if the part of the
    document that belongs to no NIC differs.
    """
    scope = set(record.retry)
    if record.applied != resolution.digests.get("", ""):
        scope |= {"", *resolution.loose}
    macs = {mac for mac in resolution.digests if mac}
    if resolution.complete:
        macs |= {mac for mac, nic in record.nics.items() if nic.applied}
    present = incarnations(resolution, world)
    for mac in macs:
        nic, digest = record.nics.get(mac, NicRecord()), resolution.digests.get(mac, "")
        if nic.unheard or nic.applied != digest or _appeared(nic, present.get(mac, "")):
            scope.add(mac)
    return frozenset(scope | _new_vlans(record, resolution, present))


def _appeared(nic: NicRecord, present: str) -> bool:
    return nic_part(present) not in ("", nic_part(nic.incarnation))


def _new_vlans(record: Record, resolution: Resolution, present: Mapping[str, str]) -> set[str]:
    """The keys of VLANs that are present and were not there when the request was carried out."""
    new = set()
    for key in resolution.requests:
        if key.vlan_id is None or key.mac not in record.nics:
            continue
        index = _vlan_index(present.get(key.mac, ""), key)
        if index not in ("", _vlan_index(record.nics[key.mac].incarnation, key)):
            new.add(str(key))
    return new


def _vlan_index(incarnation: str, key: LinkKey) -> str:
    """The interface index of this VLAN in an incarnation; empty if the VLAN was not there."""
    return dict(word.split("=") for word in incarnation.split()[1:]).get(str(key.vlan_id), "")
