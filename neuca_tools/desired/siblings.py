"""The networks of the other NICs, for the table of each NIC: in as few prefixes as possible.

With one route for each network, N NICs would need N * N routes. Adjacent networks are one prefix
here. It may have networks of the NIC itself in it, whose own routes are more specific.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import collapse_addresses
from typing import Any

from neuca_tools.desired.coverage import is_inside
from neuca_tools.model import Host, Network
from neuca_tools.model.addresses import NetworkTable


class Siblings:
    """The networks of all NICs, in one family."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._all = frozenset(networks)
        self._table = NetworkTable(self._all)
        self._lengths = sorted({network.prefixlen for network in self._all})
        every: Any = sorted(self._all)
        self._joined: frozenset[Network] = frozenset(collapse_addresses(every))
        self._nested = [network for network in self._all if self._above(network)]

    def of(self, own: Collection[Network], gateway: Host) -> list[Network]:
        """The prefixes of all other networks than `own`, without other networks with the gateway.

        No prefix is equal to one of `own`, or inside one unless another NIC has just this network.
        """
        removed = {*self._table.covering(gateway)} - {*own}
        found = set(self._joined)
        for network in sorted(removed):
            _remove(found, network)
        found = {one for one in found if not any(is_inside(one, network) for network in own)}
        hidden = {*own, *removed}
        found |= {one for one in self._nested if self._above(one) & hidden and one not in hidden}
        return sorted(found)

    def _above(self, network: Network) -> set[Network]:
        """The other networks that this one is in."""
        shorter = (length for length in self._lengths if length < network.prefixlen)
        wider: set[Any] = {network.supernet(new_prefix=length) for length in shorter}
        return wider & self._all


def _remove(networks: set[Network], gone: Network) -> None:
    """Take the addresses of a network out of disjoint ones."""
    wider = (gone.supernet(new_prefix=length) for length in range(gone.prefixlen, -1, -1))
    holder = next((network for network in wider if network in networks), None)
    if holder is None:
        networks.difference_update([one for one in networks if is_inside(one, gone)])
        return
    networks.remove(holder)
    if holder != gone:
        rest: Any = holder
        networks.update(rest.address_exclude(gone))
