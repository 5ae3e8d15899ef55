"""Shared by the readers of the clouds' documents: drafts of NICs, with addresses and subnets."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.drafts import Draft
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, Network
from neuca_tools.model.addresses import NetworkTable
from neuca_tools.model.routing import Traits


class Subnets:
    """The subnets of a NIC: an address has the prefix length of the first one that contains it."""

    def __init__(self, part: Part, subnets: Iterable[Optional[Network]]) -> None:
        errors = part.faults.unusable
        self.networks: list[Network] = list(dict.fromkeys(filter(None, subnets)))
        self._has_unusable = part.faults.unusable != errors
        self._places = {network: place for place, network in enumerate(self.networks)}
        self._table = NetworkTable(self.networks)

    def add_address(self, draft: Draft, part: Part, key: str, text: str) -> None:
        """Add an address; one in no subnet is a single address, if all of them are known.

        Services that list addresses of IPv4 have a subnet for them; for IPv6, some have none.
        """
        host = part.parse(key, text, values.host)
        if host is None:
            return
        subnet = min(self._table.covering(host), key=self._places.__getitem__, default=None)
        length = subnet.prefixlen if subnet else host.max_prefixlen
        if length == host.max_prefixlen and self._has_unusable:
            part.fault(key, text, "its subnet is unusable, ignoring the address")
        elif host.version == 4 and all(network.version == 6 for network in self.networks):
            part.fault(key, text, "its subnet is not known, ignoring the address")
        else:
            draft.add_address(part, key, f"{host}/{length}")


def draft_by_mac(part: Part, key: str, mtu: Optional[int] = None) -> Optional[Draft]:
    """The draft of the NIC with the MAC of a key; None, with a fault, if that is unusable."""
    mac = part.read(key, values.nic) if part.has_all(key) else None
    return Draft(LinkKey(mac), part.for_nic(mac), mtu=mtu) if mac else None


def drafts_by_mac(parts: Iterable[Part], key: str, mtu: Optional[int] = None) -> list[Draft]:
    """The drafts of all NICs with a usable MAC address."""
    return [draft for part in parts if (draft := draft_by_mac(part, key, mtu))]


def add_masked(draft: Draft, part: Part, key: str, mask: str, default: str = "") -> None:
    """Add the address of a key, with the netmask or prefix length of the key `mask`."""
    text = part.text(key)
    if text:
        draft.add_address(part, key, text, part.text(mask) or default or None)


def add_subnet(draft: Draft, key: str, to: str, netmask: Optional[str] = None) -> None:
    """Add the route to the NIC's network, of which it has single addresses, through the gateway."""
    first = len(draft.routes)
    draft.add_route(draft.part, key, to, netmask)
    for number, route in enumerate(draft.routes[first:], first):
        draft.routes[number] = route._replace(traits=Traits(onlink=True))
        draft.subnets.append(route.to)
