"""The types of IP addresses and networks, of which there is one object for each value.

An `Address` has a prefix length (`192.0.2.1/24`), a `Host` is an address without one.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Optional, Union

Address = Union[IPv4Interface, IPv6Interface]
Network = Union[IPv4Network, IPv6Network]
Host = Union[IPv4Address, IPv6Address]

EVERYTHING: Mapping[int, Network] = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}
LINK_LOCAL = ip_network("fe80::/64")  # RFC 4291, 2.5.6: on every link
MAX_CACHED = 16384  # objects in a cache: as many as a document may have routes (MAX_ROUTES)


@lru_cache(MAX_CACHED)  # the document, the record and the kernel each name every address
def address_of(packed: bytes, length: int) -> Address:
    """The address with these 4 or 16 bytes and this prefix length. Raises ValueError."""
    return ip_interface((packed, length))


@lru_cache(MAX_CACHED)
def network_of(packed: bytes, length: int) -> Network:
    """The network with these bytes. Raises ValueError if bits after the prefix are set."""
    return ip_network((packed, length))


def read_address(text: str) -> Address:
    """The address from its text, as `str` writes it. Raises ValueError."""
    ip, _, length = text.partition("/")
    return address_of(ip_address(ip).packed, int(length))


def broadcast_of(network: Network) -> Optional[Host]:
    """The host that the kernel takes for all hosts of a link with an address in this network.

    It has a route in the table `local`, whether the network has one or not (fib_add_ifaddr in
    net/ipv4/fib_frontend.c).
    """
    has_one = network.version == 4 and network.prefixlen < 31  # RFC 3021
    return network.broadcast_address if has_one else None


class NetworkTable:
    """A set of networks that finds those which contain a host."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._all_networks = frozenset(networks)
        lengths = {(network.version, network.prefixlen) for network in self._all_networks}
        self._lengths = sorted(lengths, reverse=True)

    def covering(self, host: Host) -> Iterator[Network]:
        """The networks that the host is in; the most specific one comes first."""
        for version, length in self._lengths:
            if version == host.version:
                network = ip_network((host, length), strict=False)
                if network in self._all_networks:
                    yield network
