"""Copies the documents of a config drive or a NoCloud volume to the run directory.

The daemon itself may mount nothing. Only documents are copied, each within the size limit of a
source, and none from outside the volume. `model.volumes` decides which volumes are used, from what
is recorded here; why one is not is kept for status and the log, and reported once.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.backends import hostid, udev
from neuca_tools.backends.blockdev import read_device, read_device_by_number
from neuca_tools.errors import DocumentError, NeucaError, ObserveError, SourceError
from neuca_tools.files import locked, write_files
from neuca_tools.model import machine, volumes
from neuca_tools.sources.files import CONFIG_DRIVE, DRIVES, SEED, newest_version_name, read_regular
from neuca_tools.state import records
from neuca_tools.state.store import Where

_OF_A_SEED = ("user-data", "meta-data", "network-config")
_OF_A_DRIVE = (
    "openstack/*/meta_data.json",
    "openstack/*/network_data.json",
    "openstack/*/user_data",
    "ec2/latest/user-data",
)
_MAX_FILES = 100  # files: nova has had some fifteen versions so far
_MOUNTED = "volume"  # the mount point; only the process that mounts sees the volume there
LOCK = "drives.lock"  # also of the copies
COPY_LOCK_SECONDS = 15.0  # to wait for the copy of another volume; the unit has 60
KINDS: Mapping[str, str] = dict(zip(volumes.SOURCES, (CONFIG_DRIVE, SEED)))


class Volume(NamedTuple):
    """The documents of a volume, by their paths on it. `kind`: CONFIG_DRIVE or SEED."""

    kind: str
    documents: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """The SHA-256 of the kind and all documents, in hexadecimal digits."""
        whole = sha256(self.kind.encode())
        for name, data in sorted(self.documents.items()):
            whole.update(f"\0{name}\0{len(data)}\0".encode() + data)
        return whole.hexdigest()

    @property
    def instance(self) -> str:
        """The instance ID in the document that the source will read; empty if there is none."""
        # Most hosts have no volume; it saves 5 ms, and a MiB of the idle daemon.
        from neuca_tools.documents.platform import combined, instance

        name, part = "meta-data", instance.NOCLOUD
        if self.kind == CONFIG_DRIVE:
            paths = (path.split("/") for path in self.documents)
            version = newest_version_name({parts[1] for parts in paths if parts[0] == "openstack"})
            part = instance.OPENSTACK
            name = f"openstack/{version}/{part}"
        with suppress(DocumentError):  # the source reports what is wrong with it
            parts = {part: self.documents.get(name, b"")}
            return combined.instance_id(combined.reduce_documents(parts))
        return ""


def read_volume(place: Path) -> Volume:
    """Read the volume mounted at `place`. Raises SourceError, also without a document."""
    is_drive = any(path.is_dir() for path in _matching_paths(place, ("openstack",)))
    kind, patterns = (CONFIG_DRIVE, _OF_A_DRIVE) if is_drive else (SEED, _OF_A_SEED)
    documents = dict(_read_documents(place, patterns))
    if not documents:
        raise SourceError("it contains neither a config drive nor a NoCloud seed")
    return Volume(kind, documents)


def store_volume(volume: Volume, run_directory: Path) -> None:
    """Replace the documents of the last volume of this kind. Raises SourceError and ApplyError."""
    if volume.kind == SEED and not volume.documents.keys() >= {"user-data", "meta-data"}:
        raise SourceError("its NoCloud seed has no user-data or no meta-data")
    place = run_directory / DRIVES / volume.kind
    files: dict[Path, Optional[bytes]] = dict.fromkeys(filter(Path.is_file, place.rglob("*")))
    files |= {place / name: data for name, data in volume.documents.items()}
    write_files(files, mode=0o600)
    for path in sorted(place.rglob("*"), reverse=True):
        with suppress(OSError):  # an empty directory would be a version without documents
            path.rmdir()


def copy_volume(node: Path, state: Where, run_directory: Path) -> tuple[str, str]:
    """Copy the documents of the volume on a device, unless it must not be used.

    Returns the kind of the volume, and why it is not used: empty if it is. To be called in a
    process of its own, since the device stays mounted in its mount namespace until it exits.
    Raises SourceError, RecordError and ApplyError.
    """
    # The idle daemon, which only lists volumes, needs no ctypes.
    from neuca_tools.backends.namespace import mount_privately

    device = read_device(node)
    place = run_directory / DRIVES / _MOUNTED
    with locked(run_directory / LOCK, COPY_LOCK_SECONDS):
        kind, why = "", volumes.device_refusal(device)
        try:
            known = recorded_volumes(state, run_directory)
            why = why or volumes.network_refusal(known)
            if not why:
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                mount_privately(node, place)
                volume = read_volume(place)
                kind = volume.kind
                why = volumes.refusal_reason(volume.instance, volume.digest, known)
            if not why:
                store_volume(volume, run_directory)
        except NeucaError as error:
            why = error.text
            raise
        finally:
            log = records.load_volumes(run_directory)
            reasons = {**log.refused, device.name: why}.items()
            refused = {name: reason for name, reason in reasons if reason}
            records.save_volumes(run_directory, log._replace(refused=refused))
    return kind, why


def copy_directory(place: Path, state: Where, run_directory: Path) -> tuple[str, str]:
    """Copy from a directory where root has mounted the volume. Raises as `copy_volume` does."""
    volume = read_volume(place)
    with locked(run_directory / LOCK, COPY_LOCK_SECONDS):
        why = volumes.network_refusal(recorded_volumes(state, run_directory))
        if not why:
            store_volume(volume, run_directory)
    return volume.kind, why


def recorded_volumes(state: Where, run_directory: Path) -> volumes.RecordedInstance:
    """What is recorded of this instance, to judge a volume by. Raises RecordError.

    If the disk was copied to other hardware, only what was read since the boot.
    """
    copies = [*filter(None, (_stored_copy(run_directory, kind) for kind in KINDS.values()))]
    instances = {copy.instance for copy in copies} - {""}
    digests = {copy.digest for copy in copies}
    before = records.load_machine(state)
    if machine.is_other_hardware(before, hostid.read_machine()):
        return volumes.RecordedInstance("", frozenset(instances), frozenset(digests))
    instances |= {machine.instance_text(kind, name) for kind, name in before.instances.items()}
    digests |= {before.volume} - {""}
    booted = records.has_document(state)
    network = before.origin.source if before.origin else ""
    return volumes.RecordedInstance(network, frozenset(instances), frozenset(digests), booted)


def digest_in_force(source: str, run_directory: Path) -> str:
    """The digest of the volume from which this source was read; empty if there was none."""
    copy = _stored_copy(run_directory, KINDS[source]) if source in KINDS else None
    return copy.digest if copy else ""


def _stored_copy(run_directory: Path, kind: str) -> Optional[Volume]:
    """The volume of this kind that was read since the boot; None if there was none."""
    with suppress(SourceError):
        return read_volume(run_directory / DRIVES / kind)
    return None


def _read_documents(volume: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The path and the content of each file that matches. Raises SourceError."""
    paths = [path for pattern in patterns for path in _matching_paths(volume, pattern.split("/"))]
    root = os.path.realpath(volume) + os.sep
    for path in paths[:_MAX_FILES]:
        name = str(path.relative_to(volume))
        if not os.path.realpath(path).startswith(root):  # through a symbolic link on the volume
            raise SourceError(f'"{name}" points outside the volume')
        try:
            yield name, read_regular(str(path))
        except OSError as error:
            raise SourceError(f'"{name}" cannot be read: {error.strerror}') from error
        except SourceError as error:
            raise SourceError(f'"{name}" {error}') from None


def _matching_paths(place: Path, pattern: Sequence[str], name: str = "") -> Iterator[Path]:
    """The paths below `place` that match the parts of a pattern.

    Raises SourceError for what cannot be read; Path.glob would leave it out.
    """
    if not pattern:
        yield place
        return
    try:
        if pattern[0] == "*":  # a version that the source would read
            paths = sorted(path for path in place.iterdir() if newest_version_name([path.name]))
        else:
            (place / pattern[0]).stat()
            paths = [place / pattern[0]]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SourceError(f'"{name or "/"}" cannot be read: {error.strerror}') from error
    for path in paths:
        yield from _matching_paths(path, pattern[1:], f"{name}/{path.name}".lstrip("/"))


def unused_volumes(run_directory: Path) -> list[str]:
    """A line for each volume of this host that is not used."""
    try:
        return lines_of(udev.volume_numbers(), run_directory)
    except ObserveError as error:
        return [f"volumes: {error.text}"]


def lines_of(numbers: Sequence[str], run_directory: Path) -> list[str]:
    """The lines for those of these block devices (`major:minor`) whose volume is not used."""
    if not numbers:
        return []
    log = records.load_volumes(run_directory)
    lines = []
    for number in numbers:
        with suppress(SourceError):  # it has disappeared meanwhile
            device = read_device_by_number(number)
            why = volumes.device_refusal(device) or log.refused.get(device.name, "")
            if why:
                lines.append(f'volume "{device.name}" is not used: {why}')
    return sorted(lines)


def unreported_lines(lines: Sequence[str], run_directory: Path) -> list[str]:
    """The lines that the last call did not have. Raises ApplyError."""
    log = records.load_volumes(run_directory)
    if tuple(lines) != log.reported:
        with locked(run_directory / LOCK, COPY_LOCK_SECONDS):
            now = records.load_volumes(run_directory)
            records.save_volumes(run_directory, now._replace(reported=tuple(lines)))
    return [line for line in lines if line not in log.reported]
