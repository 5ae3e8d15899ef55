"""The addresses of dhclient's infinite leases, from its lease files (dhclient.leases(5)).

Such an address looks like one that an administrator has set: its lifetime in the kernel is infinite
too, and the script of dhclient adds its routes without a protocol of their own.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from neuca_tools.lazy import pattern

# Debian and Ubuntu; Red Hat and SUSE; initramfs; NetworkManager's own dhclient.
PATTERNS = (
    "var/lib/dhcp/*.lease*",
    "var/lib/dhclient/*.lease*",
    "run/*dhclient*.lease*",
    "var/lib/NetworkManager/dhclient*.lease",
)
_MOST_FILES, _LONGEST = 256, 1 << 20  # bytes of one file
_STATEMENT = pattern(r'\b(interface|fixed-address|expire)\s+"?([^";\s]+)"?;')


def infinite() -> frozenset[tuple[str, str]]:
    """Interface name and IPv4 address of each infinite lease that is recorded.

    A file that cannot be read counts as one without leases.
    """
    return frozenset(lease for path in _files() for lease in _infinite_leases(_text(path)))


def _files() -> list[Path]:
    root = Path("/")
    return [path for name in PATTERNS for path in sorted(root.glob(name))][:_MOST_FILES]


def _text(path: Path) -> str:
    with suppress(OSError), path.open("rb") as stream:
        return stream.read(_LONGEST).decode("utf-8", "replace")
    return ""


def _infinite_leases(text: str) -> Iterator[tuple[str, str]]:
    """Each lease names its interface first and says last when it expires."""
    interface = address = ""
    for keyword, value in _STATEMENT.findall(text):
        if keyword == "interface":
            interface, address = value, ""
        elif keyword == "fixed-address":
            address = value
        elif value == "never" and interface and address:
            yield interface, address
