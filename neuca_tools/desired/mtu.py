"""The MTU that each link may have: within its device's limits, and those of what is below and above it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Optional, Protocol

from neuca_tools.documents.neuca import link_kinds
from neuca_tools.model import Device, Link, LinkKey, LinkRequest, Record, Virtual, World
from neuca_tools.tuning.layer import PROFILE

LEAST_IPV6_MTU = 1280  # RFC 8200, section 5
USUAL_MTU = 1500  # ETH_DATA_LEN, what the kernel gives a new bond or bridge


class Refuse(Protocol):
    def __call__(self, key: LinkKey, text: str, code: str = "refused") -> None: ...


class Sizes:
    """One resolution's judgement of MTUs; each refusal is handed to `refuse`."""

    def __init__(
        self,
        requests: Mapping[LinkKey, LinkRequest],
        world: World,
        record: Record,
        found: Mapping[LinkKey, Device],
        refuse: Refuse,
    ) -> None:
        self.requests, self.world, self.record, self.found, self.refuse = (
            requests,
            world,
            record,
            found,
            refuse,
        )
        self.keys = {device.index: key for key, device in found.items()}
        self.children: dict[int, list[Device]] = defaultdict(list)
        for device in world.devices.values():
            self.children[device.lower].append(device)

    def of(self, key: LinkKey, links: Mapping[LinkKey, Link]) -> int:
        """The MTU that a link will have; a bridge's is the least of its ports' where nobody says so (br_mtu_auto_adjust)."""
        link, found = links.get(key), self.found.get(key)
        if link and link.mtu:
            return link.mtu
        ports = link.virtual.members if link and link.virtual and key.kind == "bridge" else ()
        least = min((self.of(port, links) for port in ports if port in links), default=0)
        return least or (found.mtu if found else USUAL_MTU)

    def nic(self, key: LinkKey, mtu: Optional[int], device: Device) -> Optional[int]:
        """The MTU that may be set: within the device's limits, and not below a link on it that is not ours."""
        if mtu is None:
            return None
        if device.max_mtu and mtu > device.max_mtu:
            self.refuse(
                key, f'MTU {mtu} asked, but "{device.name}" takes at most {device.max_mtu}', "mtu"
            )
        elif mtu < device.min_mtu:
            self.refuse(
                key, f'MTU {mtu} asked, but "{device.name}" takes at least {device.min_mtu}', "mtu"
            )
        else:
            foreign = self._foreign_above(device, mtu)
            if foreign is None:
                return self.with_ipv6(key, mtu, device)
            self.refuse(
                key,
                f'MTU {mtu} asked, but "{foreign.name}" on "{device.name}" is not ours and has MTU {foreign.mtu}',
            )
        return None

    def vlan(self, key: LinkKey, mtu: Optional[int], parent: Link, most: int) -> Optional[int]:
        """At most that of what it is on."""
        found = self.found.get(key)
        if mtu is not None and mtu > most:
            self.refuse(
                key,
                f'MTU {mtu} asked, but its {key.made or "NIC"} "{parent.name}" has {most}',
                "mtu",
            )
            return None
        return self.with_ipv6(key, mtu, found) if mtu and found else mtu

    def made(self, key: LinkKey, virtual: Virtual, links: Mapping[LinkKey, Link]) -> Optional[int]:
        """A bond sets its members' MTU; a bridge has at most its ports', a VXLAN or macvlan what its parent leaves."""
        mtu, found = self.requests[key].mtu, self.found.get(key)
        if key.kind == "bond":
            mtu = self._bond(key, virtual, links, mtu)
        elif key.kind == "bridge" and mtu:
            small = next(
                (port for port in virtual.members if port in links and self.of(port, links) < mtu),
                None,
            )
            if small:
                self.refuse(
                    key,
                    f'MTU {mtu} asked, but its port "{links[small].name}" has {self.of(small, links)}',
                    "mtu",
                )
                mtu = None
        elif virtual.parent:
            mtu = self._over(
                key, virtual, links[virtual.parent], self.of(virtual.parent, links), mtu
            )
        return self.with_ipv6(key, mtu, found) if mtu and found else mtu

    def _bond(
        self, key: LinkKey, virtual: Virtual, links: Mapping[LinkKey, Link], mtu: Optional[int]
    ) -> Optional[int]:
        there = [member for member in virtual.members if member in links]
        asked = {member: self.requests[member].mtu for member in there}
        mtu = mtu or min(filter(None, asked.values()), default=None)
        small = next(
            (member for member in there if mtu and 0 < self.found[member].max_mtu < mtu), None
        )
        if small:
            most = self.found[small].max_mtu
            self.refuse(
                key,
                f'MTU {mtu} asked, but its member "{links[small].name}" takes at most {most}',
                "mtu",
            )
            return None
        for member in there:
            named = any(
                one.setting == "mtu" and not one.where.startswith(PROFILE)
                for one in self.requests[member].origins
            )
            if named and asked[member] != mtu:
                self.refuse(
                    member,
                    f'MTU {asked[member]} asked, but it is in "{key.given_name}", which has {mtu}',
                    "mtu",
                )
        return mtu

    def _over(
        self, key: LinkKey, virtual: Virtual, parent: Link, size: int, mtu: Optional[int]
    ) -> int:
        taken = link_kinds.overhead(virtual)
        most = size - taken
        if mtu is None or mtu <= most:
            return mtu or most
        why = f", which leaves {most} to a VXLAN over IPv{4 if taken == 50 else 6}" if taken else ""
        self.refuse(key, f'MTU {mtu} asked, but "{parent.name}" below it has {size}{why}', "mtu")
        return most

    def with_ipv6(self, key: LinkKey, mtu: int, device: Device) -> Optional[int]:
        """The MTU, unless the kernel would drop an IPv6 address of the user for it."""
        theirs = (
            address
            for address in self.world.addresses.get(device.index, ())
            if address.version == 6
            and not address.is_link_local
            and (key, address) not in self.record.owned.addresses
        )
        address = next(theirs, None) if mtu < LEAST_IPV6_MTU <= device.mtu else None
        if address is None:
            return mtu
        self.refuse(
            key,
            f'MTU {mtu} asked, but "{device.name}" would lose its IPv6 address {address}',
            "mtu",
        )
        return None

    def _foreign_above(self, device: Device, mtu: int) -> Optional[Device]:
        """A device stacked on this one that the kernel would clamp, and that we did not create and are not asked to set."""
        for child in self.children[device.index]:
            key = self.keys.get(child.index)
            request = self.requests.get(key) if key else None
            if child.mtu > mtu and not (
                key in self.record.owned.vlans or (request and request.mtu)
            ):
                return child
        return None
