"""Enters another network namespace for good (setns(2)), with a matching /sys."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from neuca_tools.errors import ObserveError

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000  # linux/sched.h
_MS_REC_PRIVATE = 0x4000 | 0x40000  # linux/mount.h: MS_REC, MS_PRIVATE


def enter(namespace: Path) -> None:
    """Enter the network namespace of this file, such as /run/netns/NAME. Raises ObserveError."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ObserveError(
            f'enter the network namespace "{namespace}": {error.strerror}'
        ) from error
    try:
        _check(libc.setns(descriptor, _CLONE_NEWNET), namespace)
    finally:
        os.close(descriptor)
    _check(libc.unshare(_CLONE_NEWNS), namespace)
    _check(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None), namespace)
    # Not fatal: without its own /sys, only the speed of a NIC is not known.
    with suppress(ObserveError):
        _check(libc.mount(b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None), namespace)


def _check(code: int, namespace: Path) -> None:
    if code != 0:
        raise ObserveError(
            f'enter the network namespace "{namespace}": {os.strerror(ctypes.get_errno())}'
        )
