"""What network managers and DHCP clients have stored of the leases of a link.

The files of managers are not a documented interface, but cloud-init reads networkd's too
(net/dhcp.py). Whatever cannot be read is left out.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from neuca_tools.files import names_in, text_of

LEASES = Path("/run/systemd/netif/leases")  # one file for each link, called by its index
DEVICES = Path("/run/NetworkManager/devices")  # the same
LARGEST = 1 << 16  # bytes
# Debian and Ubuntu; Red Hat and SUSE; initramfs; NetworkManager's own dhclient.
PATTERNS = (
    "var/lib/dhcp/*.lease*",
    "var/lib/dhclient/*.lease*",
    "run/*dhclient*.lease*",
    "var/lib/NetworkManager/dhclient*.lease",
)
_MOST_FILES, _LONGEST = 256, 1 << 20  # bytes of one file
# At the beginning of a line: the text of an option, which the server chooses, is never there.
_STATEMENT = re.compile(r'^\s*(interface|fixed-address)\s+"?([^";\s]+)"?;', re.MULTILINE)
_DUID = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){2,129}")


class Lease(NamedTuple):
    """A lease; `server` and `until` (UTC, RFC 3339) are empty if they are not known."""

    address: str
    server: str = ""
    until: str = ""


def read(index: int, networkd: Path = LEASES, networkmanager: Path = DEVICES) -> list[Lease]:
    """The leases of the link with this index that the managers have stored."""
    leases = [_of_networkd(networkd / str(index)), _of_networkmanager(networkmanager / str(index))]
    return [lease for lease in leases if lease.address]


def read_own(index: int, place: Path) -> list[Lease]:
    """The leases of the link that a client of ours has written to this directory."""
    leases = []
    for name in (name for name in names_in(place) if name.endswith(".lease")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            values = json.loads((place / name).read_bytes()[:LARGEST])
            if values.get("index") == index and values.get("address"):
                until = _moment(values["until"]) if values["until"] else ""
                address = _address(str(values["address"]).partition("/")[0])
                leases.append(Lease(address, _server(str(values["server"])), until))
    return leases


def _server(text: str) -> str:
    """The address of a server, or its identifier (RFC 8415, 11)."""
    return text if _DUID.fullmatch(text) else _address(text)


def _of_networkd(path: Path) -> Lease:
    values, saved = _values(path)
    seconds, until = values.get("LIFETIME", ""), ""
    if seconds.isdecimal() and int(seconds) < 2**32 - 1:  # infinite, RFC 2131, 3.3
        until = _moment(saved + int(seconds))
    return Lease(
        _address(values.get("ADDRESS", "")), _address(values.get("SERVER_ADDRESS", "")), until
    )


def _of_networkmanager(path: Path) -> Lease:
    """The keys are those of the options that NetworkManager has on D-Bus (Dhcp4Config)."""
    values, _ = _values(path)
    server = _address(values.get("dhcp4.dhcp_server_identifier", ""))
    end, until = values.get("dhcp4.expiry", ""), ""
    if end.isdecimal() and values.get("dhcp4.dhcp_lease_time") != str(2**32 - 1):
        until = _moment(int(end))
    return Lease(_address(values.get("dhcp4.ip_address", "")), server, until)


def _values(path: Path) -> tuple[dict[str, str], float]:
    """The values of a file by key, and when it was written, in seconds since the epoch."""
    values: dict[str, str] = {}
    saved = 0.0
    with suppress(OSError), path.open("rb") as stream:
        saved = os.fstat(stream.fileno()).st_mtime
        for line in stream.read(LARGEST).decode("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            values[key] = value
    return values, saved


def _moment(seconds: float) -> str:
    """RFC 3339 in UTC; empty for a moment that cannot be written."""
    with suppress(OverflowError, ValueError, OSError):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    return ""


def _address(text: str) -> str:
    with suppress(ValueError):
        return str(ip_address(text))
    return ""


def with_udhcpc() -> frozenset[str]:
    """The names of the interfaces on which udhcpc has been started; it records no leases.

    Its addresses and routes look like those of an administrator, as those of dhclient do. The names
    of the pid files are those of BusyBox and ifupdown, and of OpenRC.
    """
    files = Path("/run").glob("udhcpc[.-]*.pid")
    return frozenset(path.stem[len("udhcpc.") :] for path in files)


def recorded() -> frozenset[tuple[str, str]]:
    """Interface name and IPv4 address of each lease of dhclient (dhclient.leases(5)).

    The address of an infinite lease looks like one that an administrator has set: its lifetime in
    the kernel is infinite too, and the script of dhclient adds its routes without a protocol of
    their own. The end in the file does not tell: for such a lease it is a date about 136 years
    ahead. A file that cannot be read counts as one without leases.
    """
    paths = [path for name in PATTERNS for path in sorted(Path("/").glob(name))][:_MOST_FILES]
    return frozenset(lease for path in paths for lease in _leases(text_of(path, _LONGEST)))


def _leases(text: str) -> Iterator[tuple[str, str]]:
    """Each lease names its interface first."""
    interface = ""
    for keyword, value in _STATEMENT.findall(text):
        if keyword == "interface":
            interface = value
        elif interface:
            yield interface, value
