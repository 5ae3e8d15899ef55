"""What the addresses of a connection's ends tell about the path between them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ipaddress
from typing import Optional, Union

SUBNETS = {4: 24, 6: 64}  # the usual lengths of the prefix of a local network
# RFC 1918, and RFC 4193 for IPv6
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")


def is_loopback(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_loopback


def is_private(host: str) -> bool:
    """Whether this is an address for private networks; those of documentation are not."""
    address = _address(host)
    return address is not None and any(address in ipaddress.ip_network(one) for one in PRIVATE)


def is_same_subnet(one: str, other: str) -> bool:
    """Whether both addresses are in one local network, if its prefix has the usual length."""
    first, second = _address(one), _address(other)
    if first is None or second is None or first.version != second.version:
        return False
    shift = first.max_prefixlen - SUBNETS[first.version]
    return int(first) >> shift == int(second) >> shift


def _address(host: str) -> Optional[Union[ipaddress.IPv4Address, ipaddress.IPv6Address]]:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
