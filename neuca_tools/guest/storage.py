"""The document's iSCSI disks: logged in to, made a file system on where that is asked and the disk is blank, and mounted.

The record says which disks are ours to take away again, and which session is: one that somebody else began is never ended.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Optional

from neuca_tools.config import Config
from neuca_tools.documents import get
from neuca_tools.errors import ApplyError, RecordError
from neuca_tools.guest import blockdev, iscsi, programs
from neuca_tools.guest.base import Finding, Guest
from neuca_tools.guest.blockdev import RefusedError
from neuca_tools.guest.iscsi import Target
from neuca_tools.model.rows import Storage
from neuca_tools.state.shapes import made
from neuca_tools.state.store import read, remove, save

RECORD = "guest-storage.json"  # in the state directory; outcome.RECORDS has its pattern
INITIATOR = "iscsi_initiator_iqn"


@dataclass(frozen=True)
class Attached:
    """One disk of the document. `ours`: the session is one that we began. `mounted`: where we have mounted it, or mean to."""

    target: str
    ip: str
    port: int
    lun: int
    ours: bool = False
    mounted: str = ""

    @property
    def where(self) -> Target:
        return Target(self.target, self.ip, self.port)


Known = dict[str, Attached]


def run(guest: Guest) -> Iterator[Finding]:
    """Take away what is no longer asked for, then bring each disk to where it should be. One that fails costs no other."""
    record = _Record(guest.config.state_directory / RECORD)
    wanted = {storage.device: storage for storage in guest.document.storage if storage.attach}
    if not wanted and not record.known:
        return
    if not programs.find("iscsiadm"):
        yield Finding("failed", "iscsiadm is not installed (open-iscsi): no storage is attached")
        return
    for device in (
        [device for device in record.known if device not in wanted]
        if guest.document.complete
        else ()
    ):
        yield from _guarded(device, _take_away(device, record))
    initiator = get(guest.document, "global", INITIATOR) or ""
    if wanted and not iscsi.IQN.fullmatch(initiator):
        why = "is no iSCSI name" if initiator else "is absent"
        yield Finding("refused", f'no storage is attached: "{INITIATOR}" of [global] {why}')
        return
    if wanted:
        iscsi.introduce(initiator)
    for device, storage in wanted.items():
        yield Finding("pending", f"{device}: is being attached", device)
        yield from _guarded(device, _attach(storage, record))


def _guarded(device: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except RefusedError as error:
        yield Finding("refused", f"{device}: {error.text}", device)
    except ApplyError as error:
        yield Finding("failed", f"{device}: {error.text}", device, again=True)


class _Record:
    """What is attached, written before it is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            data = read(path.parent, path.name)
            disks = {} if data is None else data["disks"]
            self.known: Known = {device: made(Attached, one) for device, one in disks.items()}
        except (RecordError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ApplyError(f'read "{path}": it is not what neucad wrote: {error!r}') from error

    def keep(self, device: str, attached: Optional[Attached]) -> None:
        """None: it is gone. Raises ApplyError."""
        others = {name: one for name, one in self.known.items() if name != device}
        self.known = {**others, device: attached} if attached else others
        disks = {name: asdict(one) for name, one in self.known.items()}
        if disks:
            save(self.path.parent, self.path.name, {"disks": disks}, 0o600)
        else:
            remove(self.path.parent, self.path.name)


def own_files(config: Config) -> list[Path]:
    """The records of open-iscsi that have a secret of the document. Raises ApplyError where that is not known."""
    known = _Record(config.state_directory / RECORD).known.values()
    return sorted({path for one in known if one.ours for path in iscsi.records(one.where)})


def _attach(storage: Storage, record: _Record) -> Iterator[Finding]:
    device, before = storage.device, record.known.get(storage.device)
    if before and (before.ip, before.port, before.lun) != (
        str(storage.ip),
        storage.port,
        storage.lun,
    ):
        yield from _take_away(device, record)
        before = None
    if before and before.mounted not in ("", storage.mount_point):
        _unmount(before)
    target, tag = (
        (before.where, "")
        if before and iscsi.session(before.where)
        else _discovered(storage, before)
    )
    if before and before.where != target:
        yield from _take_away(device, record)
        before = None
    begun = iscsi.session(target) is not None
    ours = not begun or bool(before and before.ours)
    record.keep(
        device,
        Attached(target.name, target.ip, target.port, storage.lun, ours, storage.mount_point),
    )
    if not begun:
        iscsi.remember(target, tag)
    if ours or any(one.ours and one.where == target for one in record.known.values()):
        iscsi.trust(target, (storage.chap_user, storage.chap_secret), storage.mutual_chap)
    if not begun:
        iscsi.log_in(target)
    elif storage.lun not in iscsi.disks(target):
        iscsi.look_again(target)
    name = iscsi.wait_for_disk(target, storage.lun)
    yield Finding("ok", f"{device}: {_provide(storage, name)}", device)


def _discovered(storage: Storage, before: Optional[Attached]) -> tuple[Target, str]:
    """The target that was attached before, or the only one, and the tag of its portal group. Raises ApplyError."""
    found = iscsi.discover(str(storage.ip), storage.port)
    if before and before.where in found:
        return before.where, found[before.where]
    if len(found) != 1:
        names = ", ".join(target.name for target in found)
        raise ApplyError(
            f"{iscsi.portal(storage.ip, storage.port)} offers {len(found)} targets"
            f"{f' ({names}), and the document does not say which one is meant' if found else ' to this host'}"
        )
    return next(iter(found.items()))


def _provide(storage: Storage, name: str) -> str:
    """What has become of the disk: mounted where it should be, with a file system if it was blank. Raises ApplyError."""
    node = Path("/dev") / name
    place = storage.mount_point
    if place:
        blockdev.check_place(place)
    at = [mount.place for mount in blockdev.mounts() if mount.device == blockdev.number(name)]
    if at and (not place or os.path.realpath(place) in at):
        return f"{node} is mounted at {at[0]}"
    found = blockdev.signatures(node)
    if not found and storage.format and storage.fs_type:
        user = blockdev.partitioned(name) or blockdev.in_use(name)
        if user:
            raise RefusedError(f"no file system is made on {node}: {user}")
        blockdev.make(node, storage.fs_type, storage.fs_options)
        found = blockdev.signatures(node)
    if not place:
        return f"it is {node}"
    _judge(storage, node, found, at)
    blockdev.mount(found, name, place)
    return f"{node} is mounted at {place}"


def _judge(storage: Storage, node: Path, found: Mapping[str, str], at: list[str]) -> None:
    """Raises RefusedError where it is not for us to mount."""
    place, kind = storage.mount_point, found.get("TYPE", "")
    if not found:
        why = (
            "and it is not to be formatted"
            if not storage.format
            else "and no type for one is given"
        )
        raise RefusedError(f"{node} carries no file system, {why}")
    if at:
        raise RefusedError(f"{node} is mounted at {at[0]} already, and should be at {place}")
    if storage.fs_type and kind != storage.fs_type:
        carries = kind or found.get("PTTYPE", "something else")
        raise RefusedError(
            f'{node} carries "{carries}", and not "{storage.fs_type}": it is left alone'
        )
    if os.path.realpath(place) == "/" or any(
        mount.place == os.path.realpath(place) for mount in blockdev.mounts()
    ):
        raise RefusedError(f"{place} has something mounted on it already")


def _take_away(device: str, record: _Record) -> Iterator[Finding]:
    """Unmounted, logged out of and forgotten, unless somebody else uses it."""
    attached = record.known[device]
    target = attached.where
    others = [one for name, one in record.known.items() if name != device and one.where == target]
    _unmount(attached)
    for name in [] if others else iscsi.disks(target).values():
        user = blockdev.in_use(name)
        if attached.ours and user:
            raise ApplyError(f"log out of {target.name}: /dev/{name} is in use: {user}")
    if attached.ours and not others:
        if iscsi.session(target) is not None:
            iscsi.log_out(target)
        iscsi.forget(target)
    for name, one in record.known.items() if attached.ours else ():  # whose session it is then
        if one in others:
            record.keep(name, replace(one, ours=True))
    record.keep(device, None)
    yield Finding("ok", f"{device}: is no longer attached", device)


def _unmount(attached: Attached) -> None:
    """Where we have mounted it, and it alone. Raises ApplyError."""
    name = iscsi.disks(attached.where).get(attached.lun)
    place = os.path.realpath(attached.mounted) if attached.mounted else ""
    if name and place and blockdev.Mount(blockdev.number(name), place) in blockdev.mounts():
        blockdev.unmount(place)
