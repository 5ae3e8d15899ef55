"""Read addresses and destinations with a netmask, a separate prefix length, or neither."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_network
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import Network

# What cloud-init assumes where a document gives none (net/network_state.py, _normalize_net_keys).
ASSUMED = {4: "24", 6: "64"}


def cidr(text: str, netmask: Optional[str] = None) -> str:
    """An address or destination in CIDR notation.

    Its prefix length follows a slash, otherwise it is `netmask`, otherwise the one that cloud-init
    assumes. Both may be a number or a netmask. Raises UnusableError.

    >>> cidr("10.0.0.1", "255.255.255.0"), cidr("fd00::1/ffff:ffff:ffff:ffff::"), cidr("10.0.0.1")
    ('10.0.0.1/24', 'fd00::1/64', '10.0.0.1/24')
    """
    ip, _, length = text.partition("/")
    return f"{ip}/{_prefix_length(length or netmask or ASSUMED[values.host(ip).version])}"


def prefix_length(part: Part) -> Optional[str]:
    """The prefix length or netmask given next to an address or destination; None if none is."""
    netmask = part.text("netmask")
    return part.text("prefix") or netmask


def is_assumed(text: str, netmask: Optional[str]) -> bool:
    """Whether neither the address nor the netmask says the prefix length."""
    return "/" not in text and netmask is None


def destination(text: str) -> Network:
    """The network of a destination in CIDR notation. Host bits are masked, as by cloud-init.

    Raises UnusableError.
    """
    ip, _, length = text.partition("/")
    host = values.host(ip)
    bits = values.integer(length, 0, host.max_prefixlen, "the prefix length")
    return values.network(str(ip_network(f"{host}/{bits}", strict=False)))


def _prefix_length(netmask: str) -> str:
    netmask = netmask.strip()
    if "." not in netmask and ":" not in netmask:
        return netmask
    return str(values.netmask_length(values.host(netmask)))
