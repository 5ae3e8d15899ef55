"""Enters another network namespace, or mounts a volume where no other process sees it.

Both leave the mount namespace of the host (unshare(2)): a mount ends with its process, or when
`namespaces_restored` returns.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from neuca_tools.errors import ObserveError, SourceError
from neuca_tools.libc import call

FILE_SYSTEMS = ("iso9660", "vfat")
_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000  # linux/sched.h
_MS_REC_PRIVATE = 0x4000 | 0x40000  # linux/mount.h: MS_REC, MS_PRIVATE
_MS_HARMLESS = 1 | 2 | 4 | 8  # MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC


def enter_network(namespace: Path) -> None:
    """Enter the network namespace of this file, such as /run/netns/NAME. Raises ObserveError."""
    try:
        with namespace.open("rb") as file:
            call("setns", file.fileno(), _CLONE_NEWNET)
        _leave_mounts()
    except OSError as error:
        text = f'enter the network namespace "{namespace}": {error.strerror}'
        raise ObserveError(text) from error
    # Not fatal: without its own /sys, only the speed of a NIC is not known.
    with suppress(OSError):
        call("mount", b"sysfs", b"/sys", b"sysfs", 0, None)


@contextmanager
def namespaces_restored() -> Iterator[None]:
    """Return to the namespaces of now at the end. Raises OSError."""
    with ExitStack() as stack:
        paths = (Path("/proc/self/ns", kind) for kind in ("net", "mnt"))
        namespaces = [stack.enter_context(path.open("rb")) for path in paths]
        try:
            yield
        finally:
            for namespace in namespaces:
                call("setns", namespace.fileno(), 0)


def mount_privately(device: Path, place: Path) -> None:
    """Mount a device for this process, with ro, nosuid, nodev and noexec. Raises SourceError."""
    what = "create a mount namespace"
    try:
        _leave_mounts()
        what = f'mount "{device}"'
        for kind in FILE_SYSTEMS:
            try:
                paths = os.fsencode(device), os.fsencode(place)
                call("mount", *paths, kind.encode(), _MS_HARMLESS, None)
                return
            except OSError as error:
                # EINVAL: it is another file system; ENODEV: the kernel does not know this one.
                if error.errno not in (errno.EINVAL, errno.ENODEV):
                    raise
    except OSError as error:
        raise SourceError(f"{what}: {error.strerror}") from error
    raise SourceError(
        f"{what}: it is neither {' nor '.join(FILE_SYSTEMS)}, or the kernel has no module for it"
    )


def _leave_mounts() -> None:
    call("unshare", _CLONE_NEWNS)
    call("mount", None, b"/", None, _MS_REC_PRIVATE, None)
