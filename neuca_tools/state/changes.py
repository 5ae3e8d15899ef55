"""Which NICs a pass may change, and what of the record no longer holds.

A pass changes the NICs with a new request, and those that have appeared. After a boot, and for a
link that was plugged in again, what was set is gone.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import (
    UNRECORDED,
    Device,
    Incarnation,
    LinkKey,
    OriginalValues,
    OwnedObjects,
    Record,
    World,
)
from neuca_tools.model.links import KINDS, LINK_ALIAS, MAX_ABSENT_NICS
from neuca_tools.model.routing import ROUTES_OF
from neuca_tools.model.topology import identity, is_nic, key_of, mac_in_key, nics_in

Value = TypeVar("Value")


def present_incarnations(resolution: Resolution, world: World) -> dict[str, Incarnation]:
    """The incarnation of each NIC and virtual link, by MAC or by "KIND NAME"."""
    macs = resolution.roles.macs
    incarnation_by_mac = {mac: Incarnation(world.boot_id, index) for index, mac in macs.items()}
    for index, device in sorted(world.devices.items()):
        mac = macs.get(device.lower) if device.kind == "vlan" else None
        if mac and device.vlan_id and LinkKey(mac, device.vlan_id) in resolution.requests:
            vlans = (*incarnation_by_mac[mac].vlans, (device.vlan_id, index))
            incarnation_by_mac[mac] = incarnation_by_mac[mac]._replace(vlans=vlans)
    return incarnation_by_mac


def link_appearances(world: World) -> dict[str, Incarnation]:
    """The incarnation of each NIC and virtual link, without VLANs, by MAC or by "KIND NAME"."""
    return {
        mac_in_key(device): Incarnation(world.boot_id, device.index)
        for device in world.devices.values()
        if is_nic(device) or device.kind in KINDS
    }


def changed_scope(record: Record, resolution: Resolution, world: World) -> frozenset[str]:
    """What may change now, as the scope of a plan.

    MACs: NICs that appeared, or whose request differs from the one in force. `ROUTES_OF` with a
    MAC: NICs of which the requested routes alone differ. Keys of VLANs that appeared on other NICs.
    Handles of settings that failed in earlier passes. "" if the part of the document that belongs
    to no NIC differs, with `ROUTES_OF` the routes in that part.
    """
    scope = set(record.retry)
    if record.applied != resolution.digests.get("", ""):
        scope |= host_scope(resolution)
    present = present_incarnations(resolution, world)
    for mac in _requested_macs(record, resolution):
        nic, digest = record.nics.get(mac, UNRECORDED), resolution.digests.get(mac, "")
        appearance = present.get(mac)
        is_new = appearance is not None and not appearance.is_same_link(nic.incarnation)
        if nic.unheard or is_new or not has_same_links(nic.applied, digest):
            scope.add(mac)
        elif nic.applied != digest:
            scope.add(f"{ROUTES_OF}{mac}")
    return frozenset(scope | _new_vlans(record, present))


def host_scope(resolution: Resolution) -> frozenset[str]:
    """The scope of the part of the document that belongs to no NIC."""
    return frozenset({"", *(f"{ROUTES_OF}{prefix}" for prefix in resolution.dependent_prefixes)})


def has_same_links(applied: str, digest: str) -> bool:
    """Whether two requests of a NIC differ in their routes at most."""
    return applied.partition(".")[0] == digest.partition(".")[0]


def _requested_macs(record: Record, resolution: Resolution) -> set[str]:
    """The NICs that a document requests, or requested when it was last applied as a whole.

    Those of another instance are not recorded any more; what was set on them since the boot is.
    """
    macs = {mac for mac in resolution.digests if mac}
    if resolution.is_complete:
        macs |= {mac for mac, nic in record.nics.items() if nic.applied}
        macs |= {key.mac for key in (*record.owned.vlans, *record.originals)}
        macs |= {key.mac for key, _ in record.owned.addresses}
    return macs


def _new_vlans(record: Record, present: Mapping[str, Incarnation]) -> set[str]:
    """The keys of VLANs that are present and were not there when the request was carried out."""
    new = set()
    for mac in present.keys() & record.nics.keys():
        before = record.nics[mac].incarnation
        known = before.vlans if before else ()
        new |= {str(LinkKey(mac, vlan[0])) for vlan in present[mac].vlans if vlan not in known}
    return new


def after_boot(record: Record, boot_id: str) -> Record:
    """The record in this boot: a new kernel has none of our addresses, links and settings.

    The original sysctls of links are kept, since our file in sysctl.d may have set them before the
    agent started.
    """
    if record.boot_id == boot_id:
        return record
    return record._replace(
        boot_id=boot_id,
        owned=OwnedObjects(),
        originals=_sysctls_only(record, {key.mac for key in record.originals}),
        declined={},
        original_sysctls={},
        written={},
        made={},
    )


def of_this_boot(record: Record, boot_id: str) -> Record:
    """What still holds of another machine's record: what we did in this boot and can undo."""
    if record.boot_id != boot_id:
        return Record()
    return record._replace(nics={}, applied="", management_networks=())


def forget_stale(record: Record, world: World) -> Record:
    """The record without what a reboot undid, and what was set on a NIC that was replugged since.

    Links and addresses with our mark are ours, whatever the record says. A replugged NIC has no
    request in force. Its new incarnation is recorded here, so that the following looks of the same
    pass keep what is set on it from now on.
    """
    record = after_boot(record, world.boot_id)
    devices = world.devices
    marked = {key_of(device, world) for device in devices.values() if _is_marked(device)}
    present = [pair for pair in world.marked_addresses if pair[0] in devices]
    own = {(key_of(devices[index], world), address) for index, address in present}
    links = record.owned.vlans.difference(_gone_vlans(record, world)) | marked
    owned = OwnedObjects(record.owned.addresses | own, links)
    if owned != record.owned:
        record = record._replace(owned=owned)
    record = without_indexes(record, lambda mac, index: not _is_there(mac, index, world))
    record = _without_taken_names(_without_passing_nics(record, world), world)
    replugged = _replugged_links(record, world)
    if not replugged:
        return record
    nics = {
        mac: record.nics[mac]._replace(applied="", incarnation=present)
        for mac, present in replugged.items()
    }
    kept = without_links(record, replugged)
    originals = {**kept.originals, **_sysctls_only(record, replugged)}
    return kept._replace(nics={**record.nics, **nics}, originals=originals)


def _without_passing_nics(record: Record, world: World) -> Record:
    """The record without the absent NICs that no document names, if they are too many.

    A NIC with a random MAC is another one at each boot, and each keeps a name from all others.
    """
    if len(record.nics) <= MAX_ABSENT_NICS:
        return record
    others = record.nics.keys() - link_appearances(world).keys()
    nics = ((mac, record.nics[mac]) for mac in others)
    absent = {mac for mac, nic in nics if not (nic.role or nic.released or nic.applied)}
    if len(absent) <= MAX_ABSENT_NICS:
        return record
    return record._replace(nics={mac: record.nics[mac] for mac in record.nics.keys() - absent})


def _has_name_twice(record: Record) -> bool:
    names = [nic.name for nic in record.nics.values() if nic.name]
    return len(set(names)) < len(names)


def _without_taken_names(record: Record, world: World) -> Record:
    """The record without the names of NICs that are those of management NICs now.

    Both have it recorded if one had replaced the other, and both are present now.
    """
    if not _has_name_twice(record):
        return record
    present = {(identity(nic), nic.name) for nic in nics_in(world)}
    named = {mac: nic.name for mac, nic in record.nics.items() if (mac, nic.name) in present}
    taken = {named[mac] for mac in named.keys() & record.macs_of("management")}
    losers = {mac for mac, _ in present} & record.nics.keys() - named.keys()
    lost = {
        mac: record.nics[mac]._replace(name="") for mac in losers if record.nics[mac].name in taken
    }
    return record._replace(nics={**record.nics, **lost}) if lost else record


def without_indexes(record: Record, is_gone: Callable[[str, int], bool]) -> Record:
    """The record without the interface indexes for which `is_gone` is true.

    A link that comes back from another network namespace, or gets back its MAC address, has the
    index that it had. The other argument is the MAC of the NIC, empty for a VLAN on it.
    """
    nics = dict(record.nics)
    for mac, nic in record.nics.items():
        before = nic.incarnation
        if before is not None:
            vlans = tuple(pair for pair in before.vlans if not is_gone("", pair[1]))
            ifindex = 0 if is_gone(mac, before.ifindex) else before.ifindex
            nics[mac] = nic._replace(incarnation=before._replace(ifindex=ifindex, vlans=vlans))
    return record._replace(nics=nics) if nics != record.nics else record


def _replugged_links(record: Record, world: World) -> dict[str, Incarnation]:
    """NICs and virtual links other than those configured, with their present incarnation.

    Links with our mark are left out: a roll-back may have created them again.
    """
    replugged = {}
    for mac, present in link_appearances(world).items():
        before = record.nics.get(mac, UNRECORDED).incarnation
        is_of_this_boot = before is not None and before.boot_id == world.boot_id
        if before is None or (is_of_this_boot and _is_there(mac, before.ifindex, world)):
            continue
        if not _is_marked(world.devices[present.ifindex]):
            replugged[mac] = present
    return replugged


def _gone_vlans(record: Record, world: World) -> Iterator[LinkKey]:
    """The VLANs whose recorded devices are gone; one with a new index is not ours."""
    for mac, nic in record.nics.items():
        for vlan_id, ifindex in nic.incarnation.vlans if nic.incarnation else ():
            if ifindex not in world.devices:
                yield LinkKey(mac, vlan_id)


def _is_marked(device: Device) -> bool:
    return device.alias == LINK_ALIAS


def _is_there(mac: str, index: int, world: World) -> bool:
    """Whether the device is still present, even if another one has its MAC too."""
    device = world.devices.get(index)
    return device is not None and mac in ("", mac_in_key(device))


def without_links(record: Record, macs: Collection[str]) -> Record:
    """The record without what is ours, was written or was declined on these NICs."""
    addresses = (pair for pair in record.owned.addresses if pair[0].mac not in macs)
    links = (key for key in record.owned.vlans if key.mac not in macs)
    return record._replace(
        owned=OwnedObjects(frozenset(addresses), frozenset(links)),
        originals=of_others(record.originals, macs),
        declined=of_others(record.declined, macs),
        made=of_others(record.made, macs),
        written={
            written: value
            for written, value in record.written.items()
            if written.link is None or written.link.mac not in macs
        },
    )


def of_others(values: Mapping[LinkKey, Value], macs: Collection[str]) -> dict[LinkKey, Value]:
    """The values of links on NICs other than these."""
    return {key: value for key, value in values.items() if key.mac not in macs}


def _sysctls_only(record: Record, macs: Collection[str]) -> dict[LinkKey, OriginalValues]:
    """The original sysctls of these NICs, without their other original values."""
    return {
        key: OriginalValues(sysctls=original.sysctls)
        for key, original in record.originals.items()
        if key.mac in macs and original.sysctls
    }
