"""The types of IP addresses and networks."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)

from neuca_tools.typed import Union

Address = Union[IPv4Interface, IPv6Interface]
Network = Union[IPv4Network, IPv6Network]
Host = Union[IPv4Address, IPv6Address]
