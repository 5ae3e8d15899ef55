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
    ip_network,
)
from typing import NamedTuple, Union

Address = Union[IPv4Interface, IPv6Interface]
Network = Union[IPv4Network, IPv6Network]
Host = Union[IPv4Address, IPv6Address]

MOST_KEPT = 16384  # objects: as many as a document may have routes (MAX_ROUTES)


class V4(IPv4Interface):
    """An IPv4 address that keeps its hash and its host, which the library makes anew each time."""

    def __init__(self, address: object) -> None:
        super().__init__(address)
        self._hash, self._host = super().__hash__(), super().ip

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"IPv4Interface({str(self)!r})"  # which digests of requests are made of

    @property
    def ip(self) -> IPv4Address:
        return self._host


class V6(IPv6Interface):
    """The same for IPv6."""

    def __init__(self, address: object) -> None:
        super().__init__(address)
        self._hash, self._host = super().__hash__(), super().ip

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"IPv6Interface({str(self)!r})"

    @property
    def ip(self) -> IPv6Address:
        return self._host


@lru_cache(MOST_KEPT)  # the document, the record and the kernel each name every address
def address_of(packed: bytes, length: int) -> Address:
    """The address with these 4 or 16 bytes and this prefix length. Raises ValueError."""
    if len(packed) == 4:
        return V4((packed, length))
    return V6((packed, length))


@lru_cache(MOST_KEPT)
def network_of(packed: bytes, length: int) -> Network:
    """The network with these bytes. Raises ValueError if bits behind the prefix are set."""
    return ip_network((packed, length))


def read_address(text: str) -> Address:
    """The address from its text, as `str` writes it. Raises ValueError."""
    ip, _, length = text.partition("/")
    if ":" in ip:
        return address_of(ip_address(ip).packed, int(length))
    return address_of(bytes(map(int, ip.split("."))), int(length))


class NetworkTable:
    """Networks, to find those that a host is in."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = frozenset(networks)
        lengths = {(network.version, network.prefixlen) for network in self._networks}
        self._lengths = sorted(lengths, reverse=True)

    def covering(self, host: Host) -> Iterator[Network]:
        """The networks that the host is in; the most specific one comes first."""
        for version, length in self._lengths:
            if version == host.version:
                network = ip_network((host, length), strict=False)
                if network in self._networks:
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
