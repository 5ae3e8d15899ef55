"""The types of IP addresses and networks, of which there is one object for each value."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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
from typing import NamedTuple, Union

Address = Union[IPv4Interface, IPv6Interface]
Network = Union[IPv4Network, IPv6Network]
Host = Union[IPv4Address, IPv6Address]

MOST_KEPT = 16384  # objects: as many as a document may have routes (MAX_ROUTES)


@lru_cache(MOST_KEPT)  # the document, the record and the kernel each name every address
def address_of(packed: bytes, length: int) -> Address:
    """The address with these 4 or 16 bytes and this prefix length. Raises ValueError."""
    return ip_interface((packed, length))


@lru_cache(MOST_KEPT)
def network_of(packed: bytes, length: int) -> Network:
    """The network with these bytes. Raises ValueError if bits behind the prefix are set."""
    return ip_network((packed, length))


def read_address(text: str) -> Address:
    """The address from its text, as `str` writes it. Raises ValueError."""
    ip, _, length = text.partition("/")
    return address_of(ip_address(ip).packed, int(length))


class NetworkTable:
    """Networks, to find those that a host is in."""

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


class DeviceNetworks(NamedTuple):
    """The networks of a device's addresses.

    `configured` are those of addresses that were not autoconfigured, and of peers; `leased` and
    `manual` those of IPv4 addresses that were leased, and that were not.
    """

    configured: set[Network]
    leased: set[Network]
    manual: set[Network]


NO_NETWORKS = DeviceNetworks(set(), set(), set())


def device_networks(
    addresses: Mapping[int, tuple[Address, ...]],
    leased: Collection[tuple[int, Address]],
    autoconf: Collection[tuple[int, Address]],
    peers: Collection[tuple[int, Network]],
) -> dict[int, DeviceNetworks]:
    """The networks by the index of the device, as in the fields of `World`."""
    networks_by_index: dict[int, DeviceNetworks] = {}
    for index, of_device in addresses.items():
        networks = networks_by_index[index] = DeviceNetworks(set(), set(), set())
        for address in of_device:
            if (index, address) not in autoconf:
                networks.configured.add(address.network)
            if address.version == 4:
                is_leased = (index, address) in leased
                (networks.leased if is_leased else networks.manual).add(address.network)
    for index, network in peers:
        networks_by_index.setdefault(index, DeviceNetworks(set(), set(), set())).configured.add(
            network
        )
    return networks_by_index
