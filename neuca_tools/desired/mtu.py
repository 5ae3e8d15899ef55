"""The MTU in bytes that each link may have, within the limits of its lower and upper devices."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Optional, Protocol

from neuca_tools.desired.roles import Scene
from neuca_tools.documents.neuca import link_kinds
from neuca_tools.documents.neuca.link_settings import IPOIB_MODE
from neuca_tools.model import (
    UNCHANGED,
    Device,
    Link,
    LinkKey,
    LinkRequest,
    ProblemCode,
    Virtual,
    Written,
)
from neuca_tools.tuning.layer import PROFILE

LEAST_IPV6_MTU = 1280  # RFC 8200, section 5
USUAL_MTU = 1500  # ETH_DATA_LEN, what the kernel gives a new bond or bridge


# With the four bytes of IPoIB's own header (RFC 4391, 6): the largest and the smallest packet that
# the kernel takes (ipoib.h, ipoib_change_mtu), and the largest InfiniBand MTU, 4096.
DATAGRAM_MTU, CONNECTED_MTU, LEAST_IPOIB_MTU = 4092, 65520, 72


def _most(mode: str, port: Device) -> int:
    """The largest MTU of IPoIB in this mode. A port of Omni-Path has a larger datagram than others,
    from the start.
    """
    if mode == "connected":
        return CONNECTED_MTU
    if port.mode == "connected":
        return DATAGRAM_MTU
    return max(DATAGRAM_MTU, port.mtu)


class Refuse(Protocol):
    def __call__(self, key: LinkKey, text: str, code: ProblemCode = "refused") -> None: ...


class Sizes:
    """One resolution's judgement of MTUs; each refusal is handed to `refuse`."""

    def __init__(self, scene: Scene, refuse: Refuse) -> None:
        self.requests, self.world, _, self.record, self.found = scene
        self.refuse = refuse
        self.keys = {device.index: key for key, device in scene.found.items()}
        self.children: dict[int, list[Device]] = defaultdict(list)
        for device in scene.world.devices.values():
            self.children[device.lower].append(device)

    def of(self, key: LinkKey, links: Mapping[LinkKey, Link]) -> int:
        """The MTU that a link will have.

        The default of a bridge is the lowest of its ports' (br_mtu_auto_adjust), that of a VLAN
        the one of its lower device.
        """
        link, found = links.get(key), self.found.get(key)
        if link and link.mtu:
            return link.mtu
        default = found.mtu if found else USUAL_MTU
        if key.vlan_id is not None and not found:
            return self.of(key.nic, links)
        if link is None or link.virtual is None or key.kind != "bridge":
            return default
        ports = (port for port in link.virtual.members if port in links)
        return min((self.of(port, links) for port in ports), default=default)

    def nic(self, key: LinkKey, mtu: Optional[int], device: Device) -> Optional[int]:
        """The MTU to set, None if it is refused: outside the device's limits, or too low for an
        upper device that is not ours.
        """
        if mtu is None:
            return None
        least, most, why = device.min_mtu, device.max_mtu, ""
        if device.infiniband:
            mode = self._mode(key, device)
            least, most, why = LEAST_IPOIB_MTU, _most(mode, device), f" in {mode} mode"
        asked = f'MTU {mtu} requested, but "{device.name}"'
        if most and mtu > most:
            self.refuse(key, f"{asked} supports at most {most}{why}", "mtu")
        elif mtu < least:
            self.refuse(key, f"{asked} requires at least {least}{why}", "mtu")
        else:
            foreign = self._foreign_above(device, mtu)
            if foreign is None:
                return self.with_ipv6(key, mtu, device)
            above = f'"{foreign.name}" on "{device.name}" was not created by neucad'
            self.refuse(key, f"MTU {mtu} requested, but {above} and has MTU {foreign.mtu}")
        return None

    def vlan(self, key: LinkKey, mtu: Optional[int], parent: Link, most: int) -> Optional[int]:
        """The MTU of a VLAN to set, at most that of its lower device (`most`); None if it is
        refused.
        """
        found = self.found.get(key)
        if mtu is not None and mtu > most:
            lower = f'{key.made or "NIC"} "{parent.name}"'
            self.refuse(key, f"MTU {mtu} requested, but its {lower} has {most}", "mtu")
            return None
        if mtu and found:
            return self.with_ipv6(key, mtu, found)
        return mtu

    def made(self, key: LinkKey, virtual: Virtual, links: Mapping[LinkKey, Link]) -> Optional[int]:
        """The MTU of a virtual link to set, None to leave it.

        A bond sets the MTU of its members; a bridge has at most that of its ports, a VXLAN or
        macvlan what its parent leaves.
        """
        mtu, found = self.requests[key].mtu, self.found.get(key)
        if key.kind == "bond":
            mtu = self._bond(key, virtual, links, mtu)
        elif key.kind == "bridge" and mtu:
            mtu = self._bridge(key, virtual, links, mtu)
        elif key.kind == "ipoib" and virtual.parent:
            mtu = self._child(key, virtual, links[virtual.parent], mtu)
        elif virtual.parent:
            parent, size = links[virtual.parent], self.of(virtual.parent, links)
            mtu = self._over(key, virtual, parent, size, mtu)
        if found and not mtu and Written("mtu", key) in self.record.written:
            mtu = self._default(key, virtual, links)
        if mtu and found:
            return self.with_ipv6(key, mtu, found)
        return mtu

    def _default(
        self, key: LinkKey, virtual: Virtual, links: Mapping[LinkKey, Link]
    ) -> Optional[int]:
        """The MTU of a link of ours that no longer requests one; None if that is not known."""
        if key.kind == "vrf":
            return self.found[key].max_mtu
        ports = [self.of(port, links) for port in virtual.members if port in links]
        defaults = {"bond": USUAL_MTU, "bridge": min(ports, default=USUAL_MTU)}
        return defaults.get(key.kind)

    def _mode(self, key: LinkKey, device: Device) -> str:
        """The mode of IPoIB that a port will have."""
        request = self.requests.get(key, LinkRequest(key))
        asked = dict(request.device).get(IPOIB_MODE)
        if asked and IPOIB_MODE not in self.record.declined.get(key, {}):
            return asked
        original = self.record.originals.get(key, UNCHANGED)
        return original.device.get(IPOIB_MODE) or device.mode or "datagram"

    def _child(
        self, key: LinkKey, virtual: Virtual, parent: Link, mtu: Optional[int]
    ) -> Optional[int]:
        """The MTU of an IPoIB child, which has a mode of its own."""
        mode = virtual.option("mode")
        most = _most(mode, self.found[parent.key])
        if mtu is None or mtu <= most:
            return mtu
        text = f"MTU {mtu} requested, but an IPoIB child supports at most {most} in {mode} mode"
        self.refuse(key, text, "mtu")
        return None

    def _bridge(
        self, key: LinkKey, virtual: Virtual, links: Mapping[LinkKey, Link], mtu: int
    ) -> Optional[int]:
        for port in filter(links.__contains__, virtual.members):
            size = self.of(port, links)
            if size < mtu:
                name = links[port].name
                self.refuse(key, f'MTU {mtu} requested, but its port "{name}" has {size}', "mtu")
                return None
        return mtu

    def _bond(
        self, key: LinkKey, virtual: Virtual, links: Mapping[LinkKey, Link], mtu: Optional[int]
    ) -> Optional[int]:
        """The MTU of a bond: the requested one, otherwise the lowest that a member requests."""
        asked = {member: self.requests[member].mtu for member in virtual.members if member in links}
        mtu = mtu or min(filter(None, asked.values()), default=None)
        for member in asked:
            most = self.found[member].max_mtu
            if mtu and 0 < most < mtu:
                name = links[member].name
                text = f'MTU {mtu} requested, but its member "{name}" supports at most {most}'
                self.refuse(key, text, "mtu")
                return None
        for member, theirs in asked.items():
            if theirs != mtu and self._names_mtu(member):
                text = f'MTU {theirs} requested, but it is in "{key.given_name}", which has {mtu}'
                self.refuse(member, text, "mtu")
        return mtu

    def _names_mtu(self, key: LinkKey) -> bool:
        """Whether a document or the configuration gives the link an MTU; a profile's does not
        count.
        """
        origins = [one for one in self.requests[key].origins if one.setting == "mtu"]
        return not all(one.where.startswith(PROFILE) for one in origins)

    def _over(
        self, key: LinkKey, virtual: Virtual, parent: Link, size: int, mtu: Optional[int]
    ) -> int:
        taken = link_kinds.overhead(virtual)
        most = size - taken
        if mtu is None or mtu <= most:
            return mtu or most
        why = ""
        if taken:
            why = f", which leaves {most} to a VXLAN over IPv{4 if taken == 50 else 6}"
        below = f'"{parent.name}" below it has {size}{why}'
        self.refuse(key, f"MTU {mtu} requested, but {below}", "mtu")
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
        loss = f'"{device.name}" would lose its IPv6 address {address}'
        self.refuse(key, f"MTU {mtu} requested, but {loss}", "mtu")
        return None

    def _foreign_above(self, device: Device, mtu: int) -> Optional[Device]:
        """An upper device that the kernel would clamp, and that we did not create and are not asked
        to set.
        """
        for child in self.children[device.index]:
            # That of an IPoIB child does not depend on its port's.
            if child.mtu > mtu and child.kind != "ipoib" and not self._is_set_by_us(child):
                return child
        return None

    def _is_set_by_us(self, device: Device) -> bool:
        key = self.keys.get(device.index)
        if key is None:
            return False
        return key in self.record.owned.vlans or (
            key in self.requests and bool(self.requests[key].mtu)
        )
