"""Reads from sysfs how a block device is attached.

pyudev lists neither the classes below a device nor the controllers of an NVMe namespace with
multipath. It reads nothing but /sys, and no test host has disks of all kinds.
"""

# SPDX-License-Identifier: MIT

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from neuca_tools.errors import SourceError
from neuca_tools.model.volumes import REMOTE_CLASSES, BlockDevice

_SYSFS = Path("/sys")
_NVME_SUBSYSTEM = "nvme-subsystem"  # drivers/nvme/host/core.c, with native multipath


def read_device(node: Path) -> BlockDevice:
    """The block device with a device node such as /dev/vdb. Raises SourceError."""
    try:
        status = node.stat()
    except OSError as error:
        raise SourceError(f"it cannot be inspected: {error.strerror}") from error
    if not stat.S_ISBLK(status.st_mode):
        raise SourceError("it is not a block device")
    return read_device_by_number(f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}")


def read_device_by_number(number: str, sysfs: Path = _SYSFS) -> BlockDevice:
    """The block device with this number, `major:minor`. Raises SourceError."""
    try:
        place = (sysfs / "dev/block" / number).resolve(strict=True)
        attachments, devices = [place, *_nvme_controllers(place)], sysfs.resolve() / "devices"
        paths = [attachment.relative_to(devices) for attachment in attachments]
        # The devices to which this one is attached.
        ancestors = [devices / parent for path in paths for parent in [*path.parents][:-1]]
        return BlockDevice(
            place.name,
            tuple(chain.from_iterable(path.parts for path in paths)),
            frozenset(filter(None, map(_subsystem_of, ancestors))),
            frozenset(
                name for name in REMOTE_CLASSES if any((each / name).is_dir() for each in ancestors)
            ),
            any(map(_is_removable, ancestors)),
        )
    except (OSError, ValueError) as error:
        raise SourceError(f"find block device {number} in sysfs: {error}") from error


def _nvme_controllers(place: Path) -> Iterator[Path]:
    """The controllers of an NVMe namespace with native multipath, which is a virtual device."""
    for ancestor in place.parents:
        if ancestor.parent.name == _NVME_SUBSYSTEM:
            for link in ancestor.iterdir():
                if link.name.startswith("nvme") and link.is_symlink():
                    yield link.resolve(strict=True)


def _subsystem_of(device: Path) -> str:
    try:
        return (device / "subsystem").readlink().name
    except FileNotFoundError:
        # A directory between two devices, or a device without bus.
        return ""


def _is_removable(device: Path) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return (device / "removable").read_text(encoding="ascii").strip() == "removable"
    return False
