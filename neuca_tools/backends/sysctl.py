"""Reads and writes sysctls below /proc/sys; /proc/sys/net shows the process's network namespace."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path
from typing import Optional

from neuca_tools.errors import ApplyError
from neuca_tools.files import applying

ROOT = Path("/proc/sys")


def read(path: str) -> Optional[str]:
    """The value, with white space collapsed; None if it is absent or unreadable."""
    try:
        # The kernel gives a whole value in one piece.
        with open(f"{ROOT}/{path}", "rb", buffering=0) as stream:  # noqa: PTH123 - no Path for each
            return " ".join(stream.read().decode("utf-8", "replace").split())
    except OSError:
        return None


def write(path: str, value: str) -> None:
    """Write a sysctl below net/. Raises ApplyError, also for any other path."""
    parts = path.split("/")
    if parts[0] != "net" or ".." in parts or "" in parts:
        raise ApplyError(f'set the sysctl {path}: only settings below "net" are written')
    with applying(), (ROOT / path).open("w", encoding="utf-8") as stream:
        stream.write(value)
