"""Disks: their signatures and users, making a file system on a blank one, and mounting.

A disk is blank only if both blkid and wipefs find nothing: each knows signatures that the other
does not.
"""

# SPDX-License-Identifier: MIT

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from neuca_tools.documents.neuca import filesystems
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error, make_directory, readable_names_in, text_of
from neuca_tools.guest import programs
from neuca_tools.libc import call

SYSFS, MOUNTS, SWAPS = Path("/sys/class/block"), Path("/proc/self/mountinfo"), Path("/proc/swaps")
INSPECT_SECONDS = 60.0  # and to mount a disk
FORMAT_SECONDS = 3600.0  # the disk may be large, and is behind a network
EDGE_BYTES = 1 << 20  # at the start and at the end of a disk, which have to be readable
BLKID_NOTHING = 2  # blkid(8): no signature was found, or the disk cannot be read

# Nothing is mounted at or below SYSTEM, where the contents of a disk would replace programs and
# configuration of the host, nor at SHARED, where they would hide the state of the host.
SYSTEM = (
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32"),
    *("proc", "root", "run", "sbin", "sys", "usr", "var/lib/neuca", "var/spool/cron"),
    *(f"var/lib/{name}" for name in ("cloud", "dpkg", "rpm", "systemd")),
)
SHARED = (Path("/"), Path("/var"), Path("/var/lib"), Path("/var/log"), Path("/var/spool"))
# _netdev: the disk is unmounted before the network is stopped (systemd.mount(5)). nosuid, nodev:
# no set-user-ID program or device node on the disk gives anybody root here.
OPTIONS = "_netdev,nosuid,nodev"
_MS_RDONLY, _MS_NOSUID_NODEV = 1, 2 | 4  # linux/mount.h


class RefusedError(ApplyError):
    """An operation that is refused by policy; trying again does not help."""


class Mount(NamedTuple):
    """One line of mountinfo (proc(5)): the number of the device (`8:16`), and the mount point."""

    device: str
    mount_point: str


def read_signatures(device: Path) -> dict[str, str]:
    """Its signatures (`TYPE`, `UUID`, …); none only if both programs agree. Raises ApplyError."""
    what = f"read the contents of {device}"
    # blkid does not tell a disk that cannot be read from a blank one.
    with as_apply_error(f"read {device}"), device.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        for offset in (0, max(0, size - EDGE_BYTES)):
            stream.seek(offset)
            stream.read(EDGE_BYTES)
    blkid = ["blkid", "--probe", "--output", "export", str(device)]
    output = programs.run_program(what, blkid, INSPECT_SECONDS, accepted=(0, BLKID_NOTHING))
    value_by_name = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    value_by_name.pop("DEVNAME", None)
    wipefs = ["wipefs", "--no-act", "--noheadings", "--output", "TYPE", str(device)]
    types = programs.run_program(what, wipefs, INSPECT_SECONDS).split()
    if not value_by_name and types:
        return {"TYPE": types[0]}
    return value_by_name


def partitions_text(name: str) -> str:
    """The partitions of a disk in words, empty if it has none. Raises ObserveError."""
    disk = SYSFS / name
    parts = [part for part in readable_names_in(disk) if (disk / part / "partition").exists()]
    return f"it has partitions ({', '.join(parts)})" if parts else ""


def in_use(name: str) -> str:
    """What uses a disk or a part of it; empty if nothing does. Raises ApplyError, ObserveError."""
    holders = readable_names_in(SYSFS / name / "holders")
    if holders:
        return f"{holders[0]} is made of it"
    places = mount_points(name)
    if places:
        return f"it is mounted at {places[0]}"
    if any(line.split()[0] == f"/dev/{name}" for line in text_of(SWAPS).splitlines()[1:]):
        return "it is swap space"
    try:  # O_EXCL is refused for a disk that the kernel itself uses (open(2))
        os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return f"it cannot be opened exclusively: {error.strerror}"
    return ""


def mount_points(name: str) -> list[str]:
    """Where the disk with this kernel name is mounted. Raises ApplyError."""
    with as_apply_error(f"inspect {name}"):
        number = (SYSFS / name / "dev").read_text().strip()
    return [mount.mount_point for mount in read_mounts() if mount.device == number]


def read_mounts(source: str = "") -> list[Mount]:
    """Every mount of this mount namespace whose source begins with `source`.

    proc(5) writes a space and a newline in a path as `\\040` and `\\012`, but no carriage return.
    Raises ApplyError, as in a chroot without /proc.
    """
    with as_apply_error("list the file systems that are mounted"):
        content = MOUNTS.read_bytes()
    mounts = []
    for line in content.split(b"\n")[:-1]:
        words = line.split(b" ")
        mount_point = words[4].decode("unicode_escape").encode("latin-1")
        if words[words.index(b"-") + 2].startswith(source.encode()):
            mounts.append(Mount(words[2].decode(), os.fsdecode(mount_point)))
    return mounts


def make_file_system(device: Path, kind: str, options: str) -> None:
    """Make a file system. The caller has checked that the disk is blank and unused.

    Raises RefusedError for a type or an option that is not allowed
    (`documents.neuca.filesystems`), ApplyError for a failure.
    """
    what = f"create a file system of type {kind} on {device}"
    try:
        words = filesystems.mkfs_options(kind, options)
    except UnusableError as error:
        raise RefusedError(f"{what}: {error}") from None
    programs.run_program(what, [f"mkfs.{kind}", *words, "--", str(device)], FORMAT_SECONDS)


def mount_by_uuid(contents: Mapping[str, str], name: str, mount_point: str) -> None:
    """Mount a disk by its UUID, after checking that no other disk has the same one.

    `contents` are its signatures (`read_signatures`). The mount point is checked again: while the
    file system was made, a user who owns a directory on the way could put a link there. Raises
    ApplyError.
    """
    what = f"mount {name} at {mount_point}"
    uuid, real = contents.get("UUID"), check_mount_point(mount_point)
    if not uuid:
        raise ApplyError(f"{what}: its contents have no UUID")
    with as_apply_error(what):
        make_directory(Path(real))
    find = "blkid --cache-file /dev/null --output device --match-token".split()
    same = programs.run_program(what, [*find, f"UUID={uuid}"], INSPECT_SECONDS)
    if same.split() != [f"/dev/{name}"]:
        raise ApplyError(f"{what}: {', '.join(same.split()) or 'no disk'} has its UUID")
    with as_apply_error(what):
        _mount_at(f"/dev/{name}", contents.get("TYPE", ""), real)
    # Only an entry in /run/mount/utab, in which systemd finds _netdev.
    entry = ["mount", "--fake", "-o", OPTIONS, f"UUID={uuid}", real]
    programs.run_program(what, entry, INSPECT_SECONDS)
    if real not in mount_points(name):
        raise ApplyError(f"{what}: another disk is there now, or a symbolic link points elsewhere")


def _mount_at(device: str, kind: str, real: str) -> None:
    """Mount a device at this very directory. Raises OSError.

    The kernel gets a descriptor of it: mount(8) would follow a link that has taken its place.
    """
    directory = os.open(real, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        place = Path(f"/proc/self/fd/{directory}")
        if str(place.readlink()) != real:
            raise OSError(errno.ELOOP, "a symbolic link points elsewhere")
        words = (device.encode(), bytes(place), kind.encode())
        try:
            call("mount", *words, _MS_NOSUID_NODEV, None)
        except OSError as error:
            if error.errno == errno.ENODEV:  # mount(2)
                reason = f'the kernel has no file system "{kind}"'
                raise OSError(error.errno, reason) from None
            # A write-protected disk is mounted read-only, as by mount(8).
            if error.errno not in (errno.EACCES, errno.EROFS):
                raise
            call("mount", *words, _MS_NOSUID_NODEV | _MS_RDONLY, None)
    finally:
        os.close(directory)


def unmount(mount_point: str) -> None:
    """Raises ApplyError, also if the file system is in use."""
    programs.run_program(f"unmount {mount_point}", ["umount", mount_point], INSPECT_SECONDS)


def real_path(path: str) -> str:
    """The path without symbolic links. Raises ApplyError, as while a user replaces one of them."""
    with as_apply_error(f"resolve {path}"):
        return os.path.realpath(path)


def check_mount_point(mount_point: str) -> str:
    """The path without symbolic links. Raises RefusedError for a directory of the system."""
    real = Path(real_path(mount_point))
    if real in SHARED or not {real, *real.parents}.isdisjoint(Path("/", name) for name in SYSTEM):
        what = f"nothing is mounted at {mount_point}"
        raise RefusedError(f"{what}: {real} is a directory of the system")
    return str(real)
