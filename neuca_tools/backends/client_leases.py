"""The leases of DHCP clients that the kernel cannot tell from an administrator's settings.

The scripts of dhclient and udhcpc add routes without a protocol of their own. The address of an
infinite lease of dhclient has no lifetime, and no address of udhcpc has one. The lease files of
dhclient name their addresses (dhclient.leases(5)); the end in the file does not tell: for such a
lease it is a date about 136 years ahead. udhcpc leaves a pid file only.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

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


def with_udhcpc() -> frozenset[str]:
    """The names of the interfaces on which udhcpc has been started.

    The names of the pid files are those of BusyBox and ifupdown, and of OpenRC.
    """
    files = Path("/run").glob("udhcpc[.-]*.pid")
    return frozenset(path.stem[len("udhcpc.") :] for path in files)


def recorded() -> frozenset[tuple[str, str]]:
    """Interface name and IPv4 address of each lease in the files of dhclient.

    A file that cannot be read counts as one without leases.
    """
    return frozenset(lease for path in _files() for lease in _leases(_text(path)))


def _files() -> list[Path]:
    root = Path("/")
    return [path for name in PATTERNS for path in sorted(root.glob(name))][:_MOST_FILES]


def _text(path: Path) -> str:
    with suppress(OSError), path.open("rb") as stream:
        return stream.read(_LONGEST).decode("utf-8", "replace")
    return ""


def _leases(text: str) -> Iterator[tuple[str, str]]:
    """Each lease names its interface first."""
    interface = ""
    for keyword, value in _STATEMENT.findall(text):
        if keyword == "interface":
            interface = value
        elif interface:
            yield interface, value
