"""Attaches and mounts the document's iSCSI disks, and formats blank ones if asked to.

A record lists the disks and sessions that are the agent's. A session that another program began is
never ended.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.config import Config
from neuca_tools.documents import find_value
from neuca_tools.documents.neuca.tables import INITIATOR
from neuca_tools.errors import ApplyError, NeucaError, RecordError
from neuca_tools.guest import blockdev, iscsi, programs
from neuca_tools.guest.base import Finding, Guest
from neuca_tools.guest.blockdev import RefusedError
from neuca_tools.guest.iscsi import Target
from neuca_tools.model.rows import Storage
from neuca_tools.model.shapes import Shapes
from neuca_tools.state.store import read_state, remove_state, save_state

RECORD = "guest-storage.json"  # in the state directory; outcome.RECORDS has its pattern


class AttachedDisk(NamedTuple):
    """One disk. `ours`: the agent began its session. `mounted`: its mount point, if any."""

    target: str
    ip: str
    port: int
    lun: int
    ours: bool = False
    mounted: str = ""

    @property
    def where(self) -> Target:
        return Target(self.target, self.ip, self.port)


Known = dict[str, AttachedDisk]


def set_up_storage(guest: Guest) -> Iterator[Finding]:
    """Detach what is no longer requested, then attach what is. Disks fail separately."""
    record = _Record(guest.config.state_directory / RECORD)
    wanted = {storage.device: storage for storage in guest.document.storage if storage.attach}
    if not wanted and not record.known:
        return
    if not programs.find_program("iscsiadm"):
        yield Finding("failed", "iscsiadm is not installed (open-iscsi): no storage is attached")
        return
    if guest.document.is_complete:
        for device in tuple(record.known):
            if device not in wanted:
                yield from _findings_of_disk(device, _detach_disk(device, record))
    if wanted:
        yield from _attach_all(guest, wanted, record)


def _attach_all(guest: Guest, wanted: Mapping[str, Storage], record: _Record) -> Iterator[Finding]:
    initiator = find_value(guest.document, "global", INITIATOR) or ""
    if not iscsi.IQN.fullmatch(initiator):
        why = "is not an iSCSI name" if initiator else "is absent"
        yield Finding("refused", f'no storage is attached: "{INITIATOR}" of [global] {why}')
        return
    iscsi.set_initiator_name(initiator)
    for device, storage in wanted.items():
        yield Finding("pending", f"{device}: is being attached", device)
        yield from _findings_of_disk(device, _attach_disk(storage, record))


def _findings_of_disk(device: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings about one disk, with an exception as the last of them."""
    try:
        yield from findings
    except RefusedError as error:
        yield Finding("refused", f"{device}: {error.text}", device)
    except NeucaError as error:
        yield Finding("failed", f"{device}: {error.text}", device, needs_retry=True)


class _Record:
    """What is attached; written before each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            data = read_state(path.parent, path.name)
            disks = {} if data is None else data["disks"]
            self.known: Known = Shapes({}).reader(Known)(disks)
        except (RecordError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ApplyError(f'read "{path}": it is not what neucad wrote: {error!r}') from error

    def keep(self, device: str, attached: Optional[AttachedDisk]) -> None:
        """Record this about a disk; None: it is detached. Raises ApplyError."""
        others = {name: disk for name, disk in self.known.items() if name != device}
        self.known = {**others, device: attached} if attached else others
        disks = {name: disk._asdict() for name, disk in self.known.items()}
        if disks:
            save_state(self.path.parent, self.path.name, {"disks": disks}, 0o600)
        else:
            remove_state(self.path.parent, self.path.name)


def own_files(config: Config) -> list[Path]:
    """The records of open-iscsi that hold a secret of the document. Raises ApplyError."""
    known = _Record(config.state_directory / RECORD).known.values()
    return sorted({path for disk in known if disk.ours for path in iscsi.record_paths(disk.where)})


def _attach_disk(storage: Storage, record: _Record) -> Iterator[Finding]:
    """Log in to the target of a disk, and mount the disk. Raises ApplyError."""
    device, before = storage.device, record.known.get(storage.device)
    address = (str(storage.ip), storage.port, storage.lun)
    if before and (before.ip, before.port, before.lun) != address:
        yield from _detach_disk(device, record)
        before = None
    if before and before.mounted not in ("", storage.mount_point):
        _unmount_disk(before)
    target, tag = _target_of_disk(storage, before)
    if before and before.where != target:
        yield from _detach_disk(device, record)
        before = None
    _log_in(storage, record, target, tag, was_ours=bool(before and before.ours))
    name = iscsi.wait_for_disk(target, storage.lun)
    yield Finding("ok", f"{device}: {_mount_disk(storage, name)}", device)


def _log_in(storage: Storage, record: _Record, target: Target, tag: str, *, was_ours: bool) -> None:
    """Log in unless there is a session. A session that another program began stays theirs."""
    has_session = iscsi.find_session(target) is not None
    ours = not has_session or was_ours
    attached = AttachedDisk(*target, storage.lun, ours, storage.mount_point)
    record.keep(storage.device, attached)
    if not has_session:
        iscsi.create_record(target, tag)
    if any(disk.ours and disk.where == target for disk in record.known.values()):
        chap = (storage.chap_user, storage.chap_secret)
        iscsi.write_credentials(target, chap, storage.mutual_chap)
    if not has_session:
        iscsi.log_in(target)
    elif storage.lun not in iscsi.disks_by_lun(target):
        target.run(f"look for new disks of {target.name}", "--rescan")


def _target_of_disk(storage: Storage, before: Optional[AttachedDisk]) -> tuple[Target, str]:
    """The target attached before, or the only one, and the tag of its portal group.

    The tag is empty for a target that has a session already. Raises ApplyError.
    """
    if before and iscsi.find_session(before.where):
        return before.where, ""
    tag_by_target = iscsi.discover_targets(str(storage.ip), storage.port)
    if before and before.where in tag_by_target:
        return before.where, tag_by_target[before.where]
    if len(tag_by_target) == 1:
        return next(iter(tag_by_target.items()))
    names, why = ", ".join(target.name for target in tag_by_target), " to this host"
    if tag_by_target:
        why = f" ({names}), and the document does not say which one is meant"
    portal = iscsi.portal_text(storage.ip, storage.port)
    raise ApplyError(f"{portal} offers {len(tag_by_target)} targets{why}")


def _mount_disk(storage: Storage, name: str) -> str:
    """Mount a disk, with a new file system if it is blank and the document requests one.

    Returns what has become of the disk, in words. Raises ApplyError.
    """
    node, mount_point = Path("/dev") / name, storage.mount_point
    if mount_point:
        blockdev.check_mount_point(mount_point)
    mounted_at = blockdev.mount_points(name)
    if mounted_at and (not mount_point or blockdev.real_path(mount_point) in mounted_at):
        return f"{node} is mounted at {mounted_at[0]}"
    signatures = _format_blank_disk(storage, name, node)
    if not mount_point:
        return f"it is {node}"
    _check_mountable(storage, node, signatures, mounted_at)
    blockdev.mount_by_uuid(signatures, name, mount_point)
    return f"{node} is mounted at {mount_point}"


def _format_blank_disk(storage: Storage, name: str, node: Path) -> Mapping[str, str]:
    """The signatures on a disk, after making a file system if it is blank and one is requested."""
    signatures = blockdev.read_signatures(node)
    if signatures or not storage.format or not storage.fs_type:
        return signatures
    user = blockdev.partitions_text(name) or blockdev.in_use(name)
    if user:
        raise RefusedError(f"no file system is created on {node}: {user}")
    blockdev.make_file_system(node, storage.fs_type, storage.fs_options)
    return blockdev.read_signatures(node)


def _check_mountable(
    storage: Storage, node: Path, signatures: Mapping[str, str], mounted_at: list[str]
) -> None:
    """Raises RefusedError if the disk must not be mounted where the document requests it.

    `signatures` are those of the disk, `mounted_at` its mount points.
    """
    mount_point, kind = storage.mount_point, signatures.get("TYPE", "")
    if not signatures:
        why = "specifies no type" if storage.format else "does not request formatting"
        raise RefusedError(f"{node} contains no file system, and the document {why}")
    if mounted_at:
        raise RefusedError(f"{node} is mounted at {mounted_at[0]} instead of {mount_point}")
    if storage.fs_type and kind != storage.fs_type:
        carries = kind or signatures.get("PTTYPE", "something else")
        what = f'{node} contains "{carries}" instead of "{storage.fs_type}"'
        raise RefusedError(f"{what}: it is left alone")
    real = blockdev.real_path(mount_point)
    if any(mount.mount_point == real for mount in blockdev.read_mounts()):
        raise RefusedError(f"another file system is mounted at {mount_point}")


def _detach_disk(device: str, record: _Record) -> Iterator[Finding]:
    """Unmount a disk; log out unless another disk uses the session. Raises ApplyError."""
    attached = record.known[device]
    others_of_session = {
        name: disk
        for name, disk in record.known.items()
        if name != device and disk.where == attached.where
    }
    _unmount_disk(attached)
    if attached.ours and not others_of_session:
        _log_out(attached.where)
    if attached.ours:
        # The session is recorded with the other disks from now on.
        for name, disk in others_of_session.items():
            record.keep(name, disk._replace(ours=True))
    record.keep(device, None)
    yield Finding("ok", f"{device}: is no longer attached", device)


def _log_out(target: Target) -> None:
    """Raises ApplyError, also if one of the target's disks is in use."""
    for name in iscsi.disks_by_lun(target).values():
        user = blockdev.in_use(name)
        if user:
            raise ApplyError(f"log out of {target.name}: /dev/{name} is in use: {user}")
    if iscsi.find_session(target) is not None:
        target.run(f"log out of {target.name} at {target.portal}", "--logout")
    if iscsi.record_paths(target):  # with the secret
        target.run(f"forget {target.name}", "--op", "delete")


def _unmount_disk(attached: AttachedDisk) -> None:
    """Unmount a disk from where the agent mounted it, if it is this disk. Raises ApplyError."""
    name = iscsi.disks_by_lun(attached.where).get(attached.lun)
    mount_point = blockdev.real_path(attached.mounted) if attached.mounted else ""
    if name and mount_point and mount_point in blockdev.mount_points(name):
        blockdev.unmount(mount_point)
