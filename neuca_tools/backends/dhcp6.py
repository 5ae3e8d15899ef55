"""What dhclient or dhcpcd reports of a DHCPv6 lease: one address."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address, IPv6Interface
from typing import Optional

from neuca_tools.backends.dhcplease import FOR_EVER, Given, Timed, is_unicast, number
from neuca_tools.lazy import pattern

# The variables of dhclient-script(8) and of dhcpcd-run-hooks(8), without "new_" or "old_".
_ADDRESS = ("ip6_address", "dhcp6_ia_na1_ia_addr1")
_VALID = ("max_life", "dhcp6_ia_na1_ia_addr1_vltime")
_PREFERRED = ("preferred_life", "dhcp6_ia_na1_ia_addr1_pltime")
_LONGEST_DUID = 130  # bytes: RFC 8415, 11.1
_DUID = pattern(r"(?:[0-9a-fA-F]{1,2}:)+[0-9a-fA-F]{1,2}|(?:[0-9a-fA-F]{2})+")


def given(environment: Mapping[str, str], now: float) -> Optional[Given]:
    """The address of a lease, with a prefix length of 128; None if there is no usable one.

    `now`: seconds since the epoch. dhclient reports a lease that a server has only confirmed with
    the lifetimes of its beginning. DHCPv6 says nothing of what is on the link (RFC 5942, 3), and
    has no routes and no MTU.
    """
    address = lost(environment, "new")
    if address is None or not is_unicast(address):
        return None
    # An address without an end would not be told from one of an administrator.
    past = max(0, int(now) - (number(environment, "new_life_starts") or int(now)))
    valid = min(_seconds(environment, _VALID), FOR_EVER - 1) - past
    if valid <= 0:
        return None
    preferred = min(max(_seconds(environment, _PREFERRED) - past, 0), valid)
    timed = Timed(IPv6Interface((address, 128)), valid, preferred)
    return Given((timed,), duid(environment.get("new_dhcp6_server_id", "")))


def lost(environment: Mapping[str, str], prefix: str = "old") -> Optional[IPv6Address]:
    """The address that a report is about; None if it names none, or something else."""
    for name in _ADDRESS:
        text = environment.get(f"{prefix}_{name}", "")
        try:
            if text:
                return IPv6Address(text)
        except ValueError:
            return None
    return None


def _seconds(environment: Mapping[str, str], names: tuple[str, ...]) -> int:
    return next(filter(None, (number(environment, f"new_{name}") for name in names)), 0)


def duid(text: str) -> str:
    """The identifier of a server in hexadecimal bytes; empty if it is none.

    >>> duid("0:3:0:1:2:0:0:0:0:2"), duid("00030001020000000002")
    ('00:03:00:01:02:00:00:00:00:02', '00:03:00:01:02:00:00:00:00:02')
    """
    if len(text) > 3 * _LONGEST_DUID or not _DUID.fullmatch(text):
        return ""
    whole = "".join(part.zfill(2) for part in text.split(":")) if ":" in text else text
    return ":".join(whole[at : at + 2].lower() for at in range(0, len(whole), 2))
