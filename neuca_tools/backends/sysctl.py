"""Reads and writes sysctls below /proc/sys; /proc/sys/net shows the process's network namespace."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Optional

from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error, raise_shortage

ROOT = Path("/proc/sys")
MAX_VALUE_BYTES = 65536
# How the kernel makes the link-local address of an interface; NO_ADDRESS: it makes none
# (IN6_ADDR_GEN_MODE_NONE of linux/if_link.h).
ADDRESS_MODE, NO_ADDRESS = "net/ipv6/conf/{}/addr_gen_mode", "1"


def read_value(path: str) -> Optional[str]:
    """The value, with white space collapsed; None if it is absent or may not be read.

    Raises ObserveError if the host is short of a resource, as nothing is known of the value then.
    """
    try:
        descriptor = os.open(f"{ROOT}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The kernel gives a whole value in one piece.
            return " ".join(os.read(descriptor, MAX_VALUE_BYTES).decode("utf-8", "replace").split())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise_shortage(error, ROOT / path)
        return None


def is_read_only() -> bool:
    """Whether /proc/sys is read-only here, as in most containers."""
    with suppress(OSError):
        return bool(os.statvfs(f"{ROOT}/net").f_flag & os.ST_RDONLY)
    return False


def write_value(path: str, value: str) -> None:
    """Write a sysctl below net/. Raises ApplyError, also for any other path."""
    parts = path.split("/")
    if parts[0] != "net" or ".." in parts or "" in parts:
        raise ApplyError(f'set the sysctl {path}: only settings below "net" are written')
    with as_apply_error():
        descriptor = os.open(f"{ROOT}/{path}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
