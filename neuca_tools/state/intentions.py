"""What the record says of operations: before they run, and once a device has declined one."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from errno import ENOENT
from typing import Any

from neuca_tools.desired.device_settings import restorable_values
from neuca_tools.documents.neuca.link_settings import is_of_place
from neuca_tools.model import (
    ACCEPT_RA,
    ADVERTISED,
    IPV6_MTU,
    OWN,
    UNCHANGED,
    UNRECORDED,
    LinkKey,
    OriginalValues,
    OwnedObjects,
    Record,
    WrittenSetting,
)
from neuca_tools.model.device_settings import USUAL_TXQUEUELEN, Declined, Refusal
from neuca_tools.model.links import NONE_IN_FORCE
from neuca_tools.model.routing import POLICY_ROUTING
from neuca_tools.plan.link_operations import CreateLink, SetDevice, SetMaster
from neuca_tools.plan.operation import Operation, of_kind
from neuca_tools.plan.operations import (
    AddAddress,
    ReloadManager,
    SetAttribute,
    SetMtu,
    WriteFile,
    WriteSysctl,
)
from neuca_tools.state.leftovers import change_nics


def record_intentions(record: Record, operations: Iterable[Operation]) -> Record:
    """Record what these operations make ours, and values that they change for the first time.

    It is saved before they run, so that no change is unrecorded after a crash.
    """
    operations = tuple(operations)
    owned = _owned_after(record.owned, operations)
    originals, sysctls = dict(record.originals), dict(record.original_sysctls)
    written, nics = dict(record.written), dict(record.nics)
    for operation in _without_advertised(operations):
        written.update(_written_values(operation))
        if operation.link is None:
            if isinstance(operation, WriteSysctl) and operation.before is not None:
                sysctls.setdefault(operation.path, operation.before)
            continue
        key = operation.link.key
        if isinstance(operation, CreateLink):
            # The values and the incarnation of a previous link do not apply to this one.
            originals.pop(key, None)
            if key.vlan_id is None:
                nics[key.mac] = nics.get(key.mac, UNRECORDED)._replace(incarnation=None)
        elif not (isinstance(operation, SetMtu) and key in owned.vlans):
            # The default MTU of our link is that of its lower devices: see `desired.mtu`.
            original = _with_first_change(originals.get(key, UNCHANGED), operation)
            if original != UNCHANGED:
                originals[key] = original
    return record._replace(
        owned=owned,
        originals=originals,
        original_sysctls=sysctls,
        written=written,
        nics=nics,
        declined=dict(_declined_after(record, operations)),
    )


def without_requests(record: Record, operations: Iterable[Operation]) -> Record:
    """The record with no request in force where these operations change something.

    So it is until they are complete: if they are not, the next pass changes the same NICs, even for
    the document from before. Files, managers and policy routing are part of every pass.
    """
    macs: set[str] = set()
    is_host_changed = False
    for operation in operations:
        is_of_each_pass = isinstance(operation, (WriteFile, ReloadManager))
        if not is_of_each_pass and POLICY_ROUTING not in operation.handles:
            macs |= operation.domains
            is_host_changed |= "" in operation.handles
    record = change_nics(record, macs, applied=NONE_IN_FORCE)
    return record._replace(applied=NONE_IN_FORCE) if is_host_changed else record


def _declined_after(
    record: Record, operations: Sequence[Operation]
) -> Iterator[tuple[LinkKey, Mapping[str, Declined]]]:
    """What was declined, but for the settings of a place that a link leaves or gets."""
    moved = {member.on.key for member in of_kind(operations, SetMaster)}
    for key, settings in record.declined.items():
        if key in moved:
            settings = {name: value for name, value in settings.items() if not is_of_place(name)}
        yield key, settings


def _without_advertised(operations: Sequence[Operation]) -> Iterator[Operation]:
    """The operations, where what an advertisement may have set has the default as earlier value.

    That is so on links whose advertisements are turned off. An advertised value must not come back,
    and the kernel even refuses some of them. The MTU of IPv6 follows the device.
    """
    writes = of_kind(operations, WriteSysctl)
    quieted = {
        write.on
        for write in writes
        if write.on and _sysctl_template(write) == ACCEPT_RA and write.after == "0"
    }
    for operation in operations:
        if isinstance(operation, WriteSysctl) and operation.on in quieted:
            template = _sysctl_template(operation)
            if template in ADVERTISED or template == IPV6_MTU:
                yield replace(operation, before=ADVERTISED.get(template))
                continue
        yield operation


def _sysctl_template(operation: WriteSysctl) -> str:
    name = operation.on.name if operation.on else ""
    return operation.path.replace(f"/{name}/", f"/{OWN}/", 1)


def _owned_after(owned: OwnedObjects, operations: Iterable[Operation]) -> OwnedObjects:
    """What will be ours once the operations are done."""
    addresses, links = set(owned.addresses), set(owned.vlans)
    for operation in operations:
        if isinstance(operation, AddAddress):
            change = addresses.add if operation.ours else addresses.discard
            change((operation.on.key, operation.address))
        elif isinstance(operation, CreateLink):
            links.add(operation.on.key)
    return OwnedObjects(frozenset(addresses), frozenset(links))


def _written_values(operation: Operation) -> Iterator[tuple[WrittenSetting, str]]:
    """The value that the operation writes to an attribute of a link or a sysctl of the host."""
    if isinstance(operation, SetAttribute):
        yield WrittenSetting(operation.setting, operation.on.key), str(operation.after)
    elif isinstance(operation, CreateLink) and operation.mtu:
        yield WrittenSetting("mtu", operation.on.key), str(operation.mtu)
    elif isinstance(operation, WriteSysctl) and operation.on is None:
        yield WrittenSetting(operation.path), operation.after


def _with_first_change(original: OriginalValues, operation: Operation) -> OriginalValues:
    """The original values of a link, with those that this operation is the first to change."""
    before = _values_before(operation)
    return OriginalValues(
        before.mtu if original.mtu is None else original.mtu,
        before.txqueuelen if original.txqueuelen is None else original.txqueuelen,
        {**before.sysctls, **original.sysctls},
        {**before.device, **original.device},
    )


def _values_before(operation: Operation) -> OriginalValues:
    """The values that the operation changes, as far as they are known."""
    if isinstance(operation, SetMaster):
        return OriginalValues(mtu=operation.mtu)
    if isinstance(operation, SetAttribute):
        value = operation.before
        if value is None and operation.on.key.rank and operation.setting == "txqueuelen":
            value = USUAL_TXQUEUELEN
        attributes: dict[str, Any] = {operation.setting: value}
        return OriginalValues(**attributes)
    if isinstance(operation, SetDevice):
        if operation.group == "mac":
            # A bond may have changed the present one. The permanent one is the key.
            return OriginalValues(device={"mac": operation.on.key.mac})
        return OriginalValues(device=restorable_values({**operation.replaced, **operation.before}))
    if isinstance(operation, WriteSysctl) and operation.before is not None:
        return OriginalValues(sysctls={_sysctl_template(operation): operation.before})
    return UNCHANGED


def record_declined(record: Record, declined: Iterable[tuple[Operation, str, int]]) -> Record:
    """Record the settings that a device declined, each as operation, reason and errno.

    They are not tried again before the next boot, because an attempt may reset the NIC.
    """
    settings = dict(record.declined)
    for operation, reason, number in declined:
        if not isinstance(operation, SetDevice):
            continue
        effect: Refusal = "unsupported" if number == ENOENT else "not applicable"
        new = {name: Declined(value, effect, reason) for name, value in operation.after.items()}
        settings[operation.on.key] = {**settings.get(operation.on.key, {}), **new}
    return record._replace(declined=settings)
