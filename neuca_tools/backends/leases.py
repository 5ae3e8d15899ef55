"""What systemd-networkd has stored of the DHCPv4 lease of a link: server and end.

The files are not a documented interface, but cloud-init reads them too (net/dhcp.py). Whatever
cannot be read is left out.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

LEASES = Path("/run/systemd/netif/leases")  # one file for each link, called by its index
LARGEST = 1 << 16  # bytes


class Lease(NamedTuple):
    """A DHCPv4 lease; `server` and `until` (UTC, RFC 3339) are empty if they are not known."""

    address: str
    server: str = ""
    until: str = ""


def read(index: int, directory: Path = LEASES) -> list[Lease]:
    """The lease of the link with this index; none if there is none."""
    values: dict[str, str] = {}
    saved = 0.0
    with suppress(OSError), (directory / str(index)).open("rb") as stream:
        saved = os.fstat(stream.fileno()).st_mtime
        for line in stream.read(LARGEST).decode("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            values[key] = value
    address, server = (
        _address(values.get("ADDRESS", "")),
        _address(values.get("SERVER_ADDRESS", "")),
    )
    if not address:
        return []
    seconds, until = values.get("LIFETIME", ""), ""
    if seconds.isdecimal() and int(seconds) < 2**32 - 1:  # infinite, RFC 2131, 3.3
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(saved + int(seconds)))
    return [Lease(address, server, until)]


def _address(text: str) -> str:
    with suppress(ValueError):
        return str(ip_address(text))
    return ""
