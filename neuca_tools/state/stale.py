"""What of the record no longer holds: after a boot, and for a link that was plugged in again."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Optional

from neuca_tools.model import Device, Incarnation, LinkKey, Original, Owned, Record, World
from neuca_tools.model.links import LINK_ALIAS
from neuca_tools.model.topology import base, key_of
from neuca_tools.state.changes import appearances


def after_boot(record: Record, boot_id: str) -> Record:
    """The record in this boot: a new kernel has none of our addresses, links and settings.

    The original sysctls of links are kept, since our file in sysctl.d may have set them before the
    agent started.
    """
    if record.boot_id == boot_id:
        return record
    return record._replace(
        boot_id=boot_id,
        owned=Owned(),
        originals=_sysctls_only(record, {key.mac for key in record.originals}),
        declined={},
        original_sysctls={},
        written={},
        probed={},
        made={},
    )


def of_this_boot(record: Record, boot_id: str) -> Record:
    """What still holds of another machine's record: what we did in this boot and can undo."""
    if record.boot_id != boot_id:
        return Record()
    return record._replace(nics={}, applied="", ground=())


def forget_stale(record: Record, world: World) -> Record:
    """Drop what a reboot undid, and what was set on a NIC that has been replugged since.

    Links and addresses with our mark are ours, whatever the record says. A replugged NIC has no
    request in force. Its new incarnation is recorded here, so that the following looks of the same
    pass keep what is set on it from now on.
    """
    record = after_boot(record, world.boot_id)
    devices = world.devices
    marked = {key_of(device, world) for device in devices.values() if _is_marked(device)}
    own = {(key_of(devices[at], world), address) for at, address in world.own if at in devices}
    owned = Owned(record.owned.addresses | own, record.owned.vlans | marked)
    if owned != record.owned:
        record = record._replace(owned=owned)
    record = without_indexes(record, lambda index: index not in devices)
    replugged = _replugged(record, world)
    if not replugged:
        return record
    nics = {
        mac: record.nics[mac]._replace(applied="", incarnation=present)
        for mac, present in replugged.items()
    }
    kept = without_links(record, replugged)
    return kept._replace(
        nics={**record.nics, **nics},
        originals={**kept.originals, **_sysctls_only(record, replugged)},
        probed={mac: mtu for mac, mtu in record.probed.items() if mac not in replugged},
    )


def without_indexes(record: Record, is_gone: Callable[[int], bool]) -> Record:
    """The record without the interface indexes of links that are, or were, gone.

    A link that comes back from another network namespace has the index that it had.
    """
    nics = dict(record.nics)
    for mac, nic in record.nics.items():
        before = nic.incarnation
        if before is not None and any(map(is_gone, (before.ifindex, *dict(before.vlans).values()))):
            vlans = tuple(pair for pair in before.vlans if not is_gone(pair[1]))
            ifindex = 0 if is_gone(before.ifindex) else before.ifindex
            nics[mac] = nic._replace(incarnation=before._replace(ifindex=ifindex, vlans=vlans))
    return record._replace(nics=nics) if nics != record.nics else record


def _replugged(record: Record, world: World) -> dict[str, Incarnation]:
    """NICs and virtual links other than those configured, with their present incarnation.

    A link with our mark is none: a roll-back may have created it again.
    """
    return {
        mac: present
        for mac, present in appearances(world).items()
        if mac in record.nics
        and record.nics[mac].incarnation is not None
        and not present.is_same_link(record.nics[mac].incarnation)
        and not _is_there(mac, record.nics[mac].incarnation, world)
        and not _is_marked(world.devices[present.ifindex])
    }


def _is_marked(device: Device) -> bool:
    return device.alias == LINK_ALIAS


def _is_there(mac: str, incarnation: Optional[Incarnation], world: World) -> bool:
    """Whether the configured device is present, perhaps beside another one with its MAC."""
    if incarnation is None or incarnation.boot_id != world.boot_id:
        return False
    device = world.devices.get(incarnation.ifindex)
    return device is not None and base(device) == mac


def without_links(record: Record, macs: Collection[str]) -> Record:
    """The record without what is ours on these NICs.

    What was written to them, and what their devices declined, is dropped too.
    """

    def is_kept(key: Optional[LinkKey]) -> bool:
        return key is None or key.mac not in macs

    addresses = (pair for pair in record.owned.addresses if is_kept(pair[0]))
    return record._replace(
        owned=Owned(frozenset(addresses), frozenset(filter(is_kept, record.owned.vlans))),
        originals={key: one for key, one in record.originals.items() if is_kept(key)},
        declined={key: one for key, one in record.declined.items() if is_kept(key)},
        made={key: link for key, link in record.made.items() if is_kept(key)},
        written={one: value for one, value in record.written.items() if is_kept(one.link)},
    )


def _sysctls_only(record: Record, macs: Collection[str]) -> dict[LinkKey, Original]:
    """The original sysctls of these NICs, without their other original values."""
    return {
        key: Original(sysctls=original.sysctls)
        for key, original in record.originals.items()
        if key.mac in macs and original.sysctls
    }
