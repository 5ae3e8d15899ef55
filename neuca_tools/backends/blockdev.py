"""Reads from sysfs how a block device is attached.

pyudev lists neither the classes below a device nor the controllers of an NVMe namespace with
multipath. It reads nothing but /sys, and no test host has disks of all kinds.
"""

# SPDX-License-Identifier: MIT

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
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
        return _device_at(place, sysfs.resolve() / "devices")
    except (OSError, ValueError) as error:
        raise SourceError(f"find block device {number} in sysfs: {error}") from error


def _device_at(place: Path, devices: Path) -> BlockDevice:
    """Raises OSError, and ValueError for a place that is not below `devices`."""
    attachments = [place, *_nvme_controllers(place)]
    # The devices to which this one is attached, nearest first.
    ancestors = [
        ancestor
        for attachment in attachments
        for ancestor in takewhile(lambda device: device != devices, attachment.parents)
    ]
    return BlockDevice(
        place.name,
        tuple(part for attachment in attachments for part in attachment.relative_to(devices).parts),
        frozenset(filter(None, map(_subsystem_of, ancestors))),
        frozenset(
            name for name in REMOTE_CLASSES for ancestor in ancestors if (ancestor / name).is_dir()
        ),
        any(map(_is_removable, ancestors)),
    )


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
