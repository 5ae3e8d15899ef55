"""What a pass does to the record: who is who, what will be ours, what is still ours, and which request is in force."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from errno import ENOENT
from typing import Literal, Optional

from neuca_tools.desired import forwarding
from neuca_tools.desired.device_settings import group_of, restorable, same
from neuca_tools.desired.manager_files import has_rule, marked
from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import OWN, LinkKey, NetworkState, NicRecord, Original, Owned, Record, World
from neuca_tools.model.device_settings import Declined
from neuca_tools.model.links import KINDS
from neuca_tools.model.topology import base, is_nic
from neuca_tools.plan.device_operation import SetDevice
from neuca_tools.plan.link_operations import CreateLink
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import AddAddress, SetMtu, SetTxQueueLen, WriteSysctl

LENGTH_OF_MAC = len("fe:16:3e:00:6d:af")


def after_boot(record: Record, boot_id: str) -> Record:
    """A new boot has a fresh kernel: nothing in it is ours yet, and links and host have their own settings again.

    Sysctls of links stay: our file in sysctl.d may have set them before the agent came to look.
    """
    if record.boot_id == boot_id:
        return record
    originals = {
        key: Original(sysctls=original.sysctls)
        for key, original in record.originals.items()
        if original.sysctls
    }
    return replace(
        record,
        boot_id=boot_id,
        owned=Owned(),
        originals=originals,
        declined={},
        original_sysctls={},
        written={},
        probed={},
    )


def of_this_boot(record: Record, boot_id: str) -> Record:
    """What stays of the record of another machine: only what the agent has done in this boot, which it can take back."""
    if record.boot_id != boot_id:
        return Record()
    return replace(record, nics={}, applied="", ground=())


def fresh(record: Record, world: World) -> Record:
    """The record as it holds for what is there now: after a boot, and for each NIC that was unplugged and has come back.

    Nothing is in force on such a NIC, and what is done to it from now on is kept: a pass looks several times.
    """
    record = after_boot(record, world.boot_id)
    now = _appearances(world)
    back = {
        mac
        for mac, nic in record.nics.items()
        if nic.incarnation and mac in now and _own(nic.incarnation) != f"{world.boot_id}:{now[mac]}"
    }
    if not back:
        return record
    owned = Owned(
        frozenset(pair for pair in record.owned.addresses if pair[0].mac not in back),
        frozenset(key for key in record.owned.vlans if key.mac not in back),
    )
    originals = {
        key: Original(sysctls=original.sysctls) if key.mac in back else original
        for key, original in record.originals.items()
    }
    declined = {key: one for key, one in record.declined.items() if key.mac not in back}
    written = {
        name: value for name, value in record.written.items() if name[:LENGTH_OF_MAC] not in back
    }
    nics = {
        mac: replace(nic, applied="", incarnation=f"{world.boot_id}:{now[mac]}")
        if mac in back
        else nic
        for mac, nic in record.nics.items()
    }
    return replace(
        record,
        nics=nics,
        owned=owned,
        originals={key: one for key, one in originals.items() if one != Original()},
        declined=declined,
        written=written,
        probed={mac: mtu for mac, mtu in record.probed.items() if mac not in back},
    )


def _own(incarnation: str) -> str:
    """Of the NIC itself."""
    return incarnation.partition(" ")[0]


def _of_vlan(incarnation: str, key: LinkKey) -> str:
    """The index of one of its VLANs, empty if that was not there."""
    return dict(word.split("=") for word in incarnation.split()[1:]).get(str(key.vlan_id), "")


def _appearances(world: World) -> dict[str, int]:
    """The index of each NIC, and of each bond or its like."""
    return {
        base(device): device.index
        for device in world.devices.values()
        if is_nic(device) or device.kind in KINDS
    }


def meet(record: Record, resolution: Resolution) -> Record:
    """Remember each NIC by the name it has, and the roles that stick."""
    dataplane = marked(resolution, record)
    ours = {
        mac for mac, role in resolution.roles.stacked_roles.items() if role == "dataplane"
    } | resolution.roles.stacked.keys()
    nics = {
        mac: nic
        for mac, nic in {**dict.fromkeys(ours, NicRecord()), **record.nics}.items()
        if mac in ours or not LinkKey(mac).made
    }
    for mac, role in resolution.roles.by_mac.items():
        if mac not in record.nics and not has_rule(mac, resolution, record, dataplane):
            continue
        nic = nics.get(mac, NicRecord())
        if role == "ignored":
            continue
        role = (
            "unlisted" if mac in resolution.roles.declared else role
        )  # a document's word holds as long as it is said
        nics[mac] = replace(
            nic,
            name=_name(mac, nic, resolution),
            role=_role(mac, role, dataplane),
            doubtful=resolution.roles.doubtful.get(mac, ()),
        )
    return replace(record, nics=nics, ground=resolution.ground or record.ground)


def _name(mac: str, nic: NicRecord, resolution: Resolution) -> str:
    """The first name seen, until a document asks for another one and that can be given."""
    request, granted = resolution.requests.get(LinkKey(mac)), resolution.names.get(LinkKey(mac), "")
    if request and request.name and granted == request.name:
        return granted
    return nic.name or granted


def _role(
    mac: str, role: str, dataplane: Collection[str]
) -> Literal["", "dataplane", "management"]:
    return "management" if role == "management" else "dataplane" if mac in dataplane else ""


def intend(record: Record, operations: Iterable[Operation]) -> Record:
    """What these operations will make ours, and what they will change for the first time; written before they run."""
    addresses, vlans = set(record.owned.addresses), set(record.owned.vlans)
    originals, sysctls, written = (
        dict(record.originals),
        dict(record.original_sysctls),
        dict(record.written),
    )
    nics = dict(record.nics)
    for operation in operations:
        link = operation.link
        written.update(_written(operation))
        if isinstance(operation, AddAddress):
            addresses |= {(operation.on.key, operation.address)} if operation.ours else set()
        elif isinstance(operation, CreateLink):
            vlans.add(operation.on.key)
            if operation.on.key.vlan_id is None:  # the one of before is another device
                nics[operation.on.key.mac] = replace(
                    nics.get(operation.on.key.mac, NicRecord()), incarnation=""
                )
        elif link is None and isinstance(operation, WriteSysctl) and operation.before is not None:
            sysctls.setdefault(operation.path, operation.before)
        elif link is not None and link.key not in vlans:
            originals[link.key] = _first_change(originals.get(link.key, Original()), operation)
    known = {key: original for key, original in originals.items() if original != Original()}
    return replace(
        record,
        owned=Owned(frozenset(addresses), frozenset(vlans)),
        originals=known,
        original_sysctls=sysctls,
        written=written,
        nics=nics,
    )


def _written(operation: Operation) -> dict[str, str]:
    if isinstance(operation, (SetMtu, SetTxQueueLen)):
        return {
            f"{operation.on.key} {'mtu' if isinstance(operation, SetMtu) else 'txqueuelen'}": str(
                operation.after
            )
        }
    if isinstance(operation, CreateLink) and operation.mtu:
        return {f"{operation.on.key} mtu": str(operation.mtu)}
    return (
        {operation.path: operation.after}
        if isinstance(operation, WriteSysctl) and operation.on is None
        else {}
    )


def _first_change(original: Original, operation: Operation) -> Original:
    if isinstance(operation, SetMtu) and original.mtu is None:
        return replace(original, mtu=operation.before)
    if isinstance(operation, SetTxQueueLen) and original.txqueuelen is None:
        return replace(original, txqueuelen=operation.before)
    if isinstance(operation, SetDevice):
        return replace(original, device={**restorable(operation.before), **original.device})
    if (
        isinstance(operation, WriteSysctl)
        and operation.on is not None
        and operation.before is not None
    ):
        template = operation.path.replace(f"/{operation.on.name}/", f"/{OWN}/", 1)
        return replace(original, sysctls={template: operation.before, **original.sysctls})
    return original


def settle(
    record: Record, resolution: Resolution, have: NetworkState, world: Optional[World] = None
) -> Record:
    """Forget what is no longer there to take away, and originals that are in force again and that nobody asks to change.

    A NIC that is there (`world`) and was not looked at, since it is in a bridge or ignored for now, keeps what is ours on it.
    """
    unseen = set(_appearances(world)) - {key.mac for key in have.links} if world else set()
    addresses = {
        (key, address)
        for key, address in record.owned.addresses
        if key.mac in unseen or (key in have.links and address in have.links[key].addresses)
    }
    vlans = {key for key in record.owned.vlans if key.mac in unseen or key in have.links}
    originals = {}
    for key, original in record.originals.items():
        left = _still_changed(original, key, resolution, have) if key in have.links else original
        if left != Original() and (key.vlan_id is None or key in have.links):
            originals[key] = left
    asked = _global_requests(resolution)
    sysctls = {
        path: value
        for path, value in record.original_sysctls.items()
        if path in asked or have.sysctls.get(path) != resolution.want.sysctls.get(path, value)
    }
    tuned = {value.setting for value in resolution.tuning.values}
    written = {
        name: value
        for name, value in record.written.items()
        if name in sysctls or name in tuned or "/" not in name
    }
    declined = {
        key: one for key, one in record.declined.items() if key.mac in unseen or key in have.links
    }
    return replace(
        record,
        owned=Owned(frozenset(addresses), frozenset(vlans)),
        originals=originals,
        original_sysctls=sysctls,
        declined=declined,
        written=written,
    )


def decline(record: Record, declined: Iterable[tuple[Operation, str, int]]) -> Record:
    """Remember what a device did not take, so that it is not tried again before the next boot: a try may reset the NIC."""
    everything = dict(record.declined)
    for operation, reason, number in declined:
        if isinstance(operation, SetDevice):
            effect: Literal["not applicable", "unsupported"] = (
                "unsupported" if number == ENOENT else "not applicable"
            )
            new = {name: Declined(value, effect, reason) for name, value in operation.after.items()}
            everything[operation.on.key] = {**everything.get(operation.on.key, {}), **new}
    return replace(record, declined=everything)


def _still_changed(
    original: Original, key: LinkKey, resolution: Resolution, have: NetworkState
) -> Original:
    request, found = resolution.requests.get(key), have.links[key]
    asks_mtu, asks_queue = (
        request is not None and bool(request.mtu),
        request is not None and bool(request.txqueuelen),
    )
    asked = {template for template, _ in request.sysctls} if request else set()
    groups = {group for group, _ in request.device} if request else set()
    return Original(
        original.mtu if asks_mtu or found.mtu != original.mtu else None,
        original.txqueuelen if asks_queue or found.txqueuelen != original.txqueuelen else None,
        {
            template: value
            for template, value in original.sysctls.items()
            if template in asked or found.sysctls.get(template) != value
        },
        {
            name: value
            for name, value in original.device.items()
            if group_of(name) in groups or not same(name, found.device.get(name), value)
        },
    )


def _global_requests(resolution: Resolution) -> set[str]:
    """The settings of the whole host that a text or a profile asks for."""
    named = {
        template
        for request in resolution.requests.values()
        for template, _ in request.sysctls
        if OWN not in template
    }
    return named | set(resolution.tuning.sysctls) | set(forwarding.asked(resolution.router))


def incarnations(resolution: Resolution, world: World) -> dict[str, str]:
    """Which appearance of each NIC, or bond of ours, this is: it changes with each boot, and each time that it is plugged in.

    Behind it those of its VLANs that are asked for: `BOOT:INDEX ID=INDEX ...`.
    """
    macs = {
        device.index: mac
        for mac, device in (*resolution.roles.nics.items(), *resolution.roles.stacked.items())
    }
    found = {mac: [f"{world.boot_id}:{index}"] for index, mac in macs.items()}
    for index, device in sorted(world.devices.items()):
        mac = macs.get(device.lower, "") if device.kind == "vlan" else ""
        if mac and LinkKey(mac, device.vlan_id) in resolution.requests:
            found[mac].append(f"{device.vlan_id}={index}")
    return {mac: " ".join(words) for mac, words in found.items()}


def changed(record: Record, resolution: Resolution, world: World) -> frozenset[str]:
    """The NICs that may change now: the request for them is another one, or they have appeared. "": what is no NIC's has.

    Of the other NICs the VLANs that have appeared, by their keys, and sysctls that failed, by their paths.
    """
    macs = {mac for mac in resolution.digests if mac}
    macs |= {mac for mac, nic in record.nics.items() if nic.applied and resolution.complete}
    host_changed = record.applied != resolution.digests.get("", "")
    loose = {"", *resolution.loose} if host_changed else set()
    present = incarnations(resolution, world)
    macs = {
        mac
        for mac in macs
        if _differs(
            record.nics.get(mac, NicRecord()), resolution.digests.get(mac, ""), present.get(mac, "")
        )
    }
    return frozenset(loose | macs | _new_vlans(record, resolution, present) | set(record.retry))


def _new_vlans(record: Record, resolution: Resolution, present: Mapping[str, str]) -> set[str]:
    return {
        str(key)
        for key in resolution.requests
        if key.vlan_id is not None
        and key.mac in record.nics
        and _of_vlan(present.get(key.mac, ""), key)
        not in ("", _of_vlan(record.nics[key.mac].incarnation, key))
    }


def _differs(nic: NicRecord, digest: str, present: str) -> bool:
    return nic.unheard or nic.applied != digest or _own(present) not in ("", _own(nic.incarnation))


def applied(
    record: Record,
    resolution: Resolution,
    world: World,
    scope: Optional[Collection[str]],
    failed: Collection[str],
    retry: tuple[str, ...] = (),
) -> Record:
    """Note which request is in force for each NIC of this pass that did not fail."""
    nics, appearances = dict(record.nics), incarnations(resolution, world)
    for mac, nic in record.nics.items():
        in_scope = scope is None or mac in scope
        present = appearances.get(mac, "")
        digest = resolution.digests.get(mac, "")
        if digest and not (LinkKey(mac) in resolution.want.links or _truly_absent(mac, resolution)):
            nics[mac] = replace(
                nic, applied=""
            )  # it is somebody else's for now: what is asked of it is still to be done
        elif (
            in_scope and mac not in failed and not nic.released and (digest or resolution.complete)
        ):
            nics[mac] = replace(
                nic, applied=digest, incarnation=(present or nic.incarnation) if digest else ""
            )
        elif scope and mac not in failed and any(name.startswith(f"{mac}.") for name in scope):
            nics[mac] = replace(nic, incarnation=present or nic.incarnation)
    return replace(record, nics=nics, applied=resolution.digests.get("", ""), retry=retry)


def _truly_absent(mac: str, resolution: Resolution) -> bool:
    if LinkKey(mac).made:
        return False
    held = any(
        problem.code == "contested" and problem.link == LinkKey(mac)
        for problem in resolution.problems
    )
    return (
        mac not in resolution.roles.nics and resolution.roles.role(mac) == "dataplane" and not held
    )


def forget(record: Record, macs: Iterable[str]) -> Record:
    """After `neuca release`: the NIC is ignored from now on, and nothing on it is ours; what was made of it is gone."""
    gone = set(macs)
    owned = Owned(
        frozenset(pair for pair in record.owned.addresses if pair[0].mac not in gone),
        frozenset(key for key in record.owned.vlans if key.mac not in gone),
    )
    originals = {key: original for key, original in record.originals.items() if key.mac not in gone}
    nics = {mac: nic for mac, nic in record.nics.items() if mac not in gone}
    nics.update((mac, NicRecord(released=True)) for mac in gone if not LinkKey(mac).made)
    declined = {key: one for key, one in record.declined.items() if key.mac not in gone}
    return replace(record, nics=nics, owned=owned, originals=originals, declined=declined)
