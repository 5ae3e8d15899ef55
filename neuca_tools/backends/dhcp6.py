"""What dhcpcd reports of a DHCPv6 lease: one address."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv6Address, IPv6Interface
from typing import Optional

from neuca_tools.backends.dhcplease import FOR_EVER, Given, Timed, is_unicast, number

_ADDRESS = "dhcp6_ia_na1_ia_addr1"  # without "new_" or "old_" (dhcpcd-run-hooks(8))
_LONGEST_DUID = 130  # bytes: RFC 8415, 11.1
_DUID = re.compile(r"(?:[0-9a-fA-F]{1,2}:)+[0-9a-fA-F]{1,2}|(?:[0-9a-fA-F]{2})+")


def given(environment: Mapping[str, str]) -> Optional[Given]:
    """The address of a lease, with a prefix length of 128; None if there is no usable one.

    DHCPv6 says nothing of what is on the link (RFC 5942, 3), and has no routes and no MTU.
    """
    address = lost(environment, "new")
    if address is None or not is_unicast(address):
        return None
    # An address without an end would not be told from one of an administrator.
    valid = min(number(environment, f"new_{_ADDRESS}_vltime"), FOR_EVER - 1)
    if not valid:
        return None
    preferred = min(number(environment, f"new_{_ADDRESS}_pltime"), valid)
    timed = Timed(IPv6Interface((address, 128)), valid, preferred)
    return Given((timed,), duid(environment.get("new_dhcp6_server_id", "")))


def lost(environment: Mapping[str, str], prefix: str = "old") -> Optional[IPv6Address]:
    """The address that a report is about; None if it names none, or something else."""
    with suppress(ValueError):
        return IPv6Address(environment.get(f"{prefix}_{_ADDRESS}", ""))
    return None


def duid(text: str) -> str:
    """The identifier of a server in hexadecimal bytes; empty if it is none.

    >>> duid("0:3:0:1:2:0:0:0:0:2"), duid("00030001020000000002")
    ('00:03:00:01:02:00:00:00:00:02', '00:03:00:01:02:00:00:00:00:02')
    """
    if len(text) > 3 * _LONGEST_DUID or not _DUID.fullmatch(text):
        return ""
    whole = "".join(part.zfill(2) for part in text.split(":")) if ":" in text else text
    return ":".join(whole[at : at + 2].lower() for at in range(0, len(whole), 2))
