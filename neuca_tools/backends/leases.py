"""Which addresses are those of DHCP clients whose leases look like an administrator's settings."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from neuca_tools.files import text_of

# Debian and Ubuntu; Red Hat and SUSE; initramfs; NetworkManager's own dhclient.
PATTERNS = (
    "var/lib/dhcp/*.lease*",
    "var/lib/dhclient/*.lease*",
    "run/*dhclient*.lease*",
    "var/lib/NetworkManager/dhclient*.lease",
)
_MAX_FILES, _MAX_FILE_BYTES = 256, 1 << 20
# At the beginning of a line: the text of an option, which the server chooses, is never there.
_STATEMENT = re.compile(r'^\s*(interface|fixed-address)\s+"?([^";\s]+)"?;', re.MULTILINE)


def with_udhcpc() -> frozenset[str]:
    """The names of the interfaces on which udhcpc has been started; it records no leases.

    Its addresses and routes look like those of an administrator, as those of dhclient do. The names
    of the pid files are those of BusyBox and ifupdown, and of OpenRC.
    """
    files = Path("/run").glob("udhcpc[.-]*.pid")
    return frozenset(path.stem[len("udhcpc.") :] for path in files)


def dhclient_leases() -> frozenset[tuple[str, str]]:
    """Interface name and IPv4 address of each lease of dhclient (dhclient.leases(5)).

    The address of an infinite lease looks like one that an administrator has set: its lifetime in
    the kernel is infinite too, and the script of dhclient adds its routes without a protocol of
    their own. The end in the file does not tell: for such a lease it is a date about 136 years
    ahead. A file that cannot be read counts as one without leases.
    """
    paths = [path for name in PATTERNS for path in sorted(Path("/").glob(name))][:_MAX_FILES]
    return frozenset(
        lease for path in paths for lease in _leases_in(text_of(path, _MAX_FILE_BYTES))
    )


def _leases_in(text: str) -> Iterator[tuple[str, str]]:
    """Each lease names its interface first."""
    interface = ""
    for keyword, value in _STATEMENT.findall(text):
        if keyword == "interface":
            interface = value
        elif interface:
            yield interface, value
