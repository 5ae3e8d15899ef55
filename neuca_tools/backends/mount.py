"""Mounts a volume in a mount namespace of its own, where no other process sees it.

See mount(2) and unshare(2). For short-lived processes only: the mount ends with the process, and
the previous namespace cannot be entered again.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from neuca_tools.errors import SourceError

FILE_SYSTEMS = ("iso9660", "vfat")
_CLONE_NEWNS = 0x00020000  # linux/sched.h
_MS_REC_PRIVATE = 0x4000 | 0x40000  # linux/mount.h: MS_REC, MS_PRIVATE
_MS_HARMLESS = 1 | 2 | 4 | 8  # MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC


def mount_privately(device: Path, place: Path) -> None:
    """Mount a device for this process, with ro, nosuid, nodev and noexec. Raises SourceError."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "create a mount namespace")
    _check(
        libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None),
        "make the mount namespace private",
    )
    for kind in FILE_SYSTEMS:
        code = libc.mount(
            os.fsencode(device),
            os.fsencode(place),
            kind.encode(),
            ctypes.c_ulong(_MS_HARMLESS),
            None,
        )
        if code == 0:
            return
        # EINVAL: it is another file system; ENODEV: the kernel does not know this one.
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENODEV):
            _check(code, f'mount "{device}"')
    raise SourceError(
        f'mount "{device}": it is neither {" nor ".join(FILE_SYSTEMS)}, '
        "or the kernel has no module for it"
    )


def _check(code: int, what: str) -> None:
    if code != 0:
        raise SourceError(f"{what}: {os.strerror(ctypes.get_errno())}")
