"""The MTU in bytes that each link may have, within the limits of its lower and upper devices."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Optional

from neuca_tools.desired.roles import Scene
from neuca_tools.documents.neuca import link_kinds
from neuca_tools.documents.neuca.link_settings import IPOIB_MODE
from neuca_tools.model import (
    UNCHANGED,
    Device,
    Link,
    LinkKey,
    LinkRequest,
    Problem,
    ProblemCode,
    Virtual,
    WrittenSetting,
)
from neuca_tools.tuning.layer import PROFILE

MIN_IPV6_MTU = 1280  # RFC 8200, section 5
USUAL_MTU = 1500  # ETH_DATA_LEN, what the kernel gives a new bond or bridge
# With the four bytes of IPoIB's own header (RFC 4391, 6): the largest and the smallest packet that
# the kernel takes (ipoib.h, ipoib_change_mtu), and the largest InfiniBand MTU, 4096.
DATAGRAM_MTU, CONNECTED_MTU, MIN_IPOIB_MTU = 4092, 65520, 72


def _largest_mtu(mode: str, port: Device) -> int:
    """The largest MTU of IPoIB in this mode, in bytes.

    A port of Omni-Path has a larger datagram than others, which it shows from the start.
    """
    if mode == "connected":
        return CONNECTED_MTU
    if port.mode == "connected":
        return DATAGRAM_MTU
    return max(DATAGRAM_MTU, port.mtu)


class MtuResolver:
    """One resolution's judgement of MTUs; each refusal is added to `problems`.

    `links` are the wanted links so far, lower devices first.
    """

    def __init__(
        self, scene: Scene, links: Mapping[LinkKey, Link], problems: list[Problem]
    ) -> None:
        self.requests, self.world, _, self.record, self.device_by_link = scene
        self.links, self.problems = links, problems
        self.keys = {device.index: key for key, device in scene.device_by_link.items()}
        self.children: dict[int, list[Device]] = defaultdict(list)
        for device in scene.world.devices.values():
            self.children[device.lower].append(device)

    def future_mtu(self, key: LinkKey) -> int:
        """The MTU that a link will have.

        The default of a bridge is the lowest of its ports' (br_mtu_auto_adjust), that of a VLAN
        the one of its lower device.
        """
        link, device = self.links.get(key), self.device_by_link.get(key)
        if link and link.mtu:
            return link.mtu
        if key.vlan_id is not None and not device:
            return self.future_mtu(key.nic)
        default = self._mtu_outside(key, device) if device else USUAL_MTU
        if link is None or link.virtual is None or key.kind != "bridge":
            return default
        return min(self._member_mtus(link.virtual), default=default)

    def _mtu_outside(self, key: LinkKey, device: Device) -> int:
        """The MTU that a link has, or that bond_release restores if its bond is to be deleted."""
        bond = self.keys.get(device.master)
        is_deleted = bond in self.record.owned.vlans and bond not in self.requests
        original = self.record.originals.get(key, UNCHANGED).mtu
        return original if device.slave and is_deleted and original else device.mtu

    def _member_mtus(self, virtual: Virtual) -> list[int]:
        return [self.future_mtu(member) for member in virtual.members if member in self.links]

    def _refuse(self, key: LinkKey, mtu: int, reason: str, code: ProblemCode = "mtu") -> None:
        self.problems.append(Problem(code, f"MTU {mtu} requested, but {reason}", key))

    def nic_mtu(self, key: LinkKey, mtu: Optional[int], device: Device) -> Optional[int]:
        """The MTU to set; None if none is requested or it is refused.

        It is refused outside the device's limits, or if it is too low for an upper device that is
        not ours.
        """
        if mtu is None:
            return None
        least, most, why = device.min_mtu, device.max_mtu, ""
        if device.infiniband:
            mode = self._ipoib_mode(key, device)
            least, most, why = MIN_IPOIB_MTU, _largest_mtu(mode, device), f" in {mode} mode"
        foreign = self._foreign_above(device, mtu)
        if most and mtu > most:
            self._refuse(key, mtu, f'"{device.name}" supports at most {most}{why}')
        elif mtu < least:
            self._refuse(key, mtu, f'"{device.name}" requires at least {least}{why}')
        elif foreign is None:
            return self._keeping_ipv6(key, mtu)
        else:
            above = f'"{foreign.name}" on "{device.name}" was not created by neucad'
            self._refuse(key, mtu, f"{above} and has MTU {foreign.mtu}", "refused")
        return None

    def vlan_mtu(self, key: LinkKey, mtu: Optional[int], parent: Link, most: int) -> Optional[int]:
        """The MTU of a VLAN to set; None if it is refused. `most` is that of its lower device."""
        lower = f'its {key.virtual_kind or "NIC"} "{parent.name}"'
        return self._keeping_ipv6(key, self._at_most(key, mtu, most, f"{lower} has {most}"))

    def _at_most(self, key: LinkKey, mtu: Optional[int], most: int, reason: str) -> Optional[int]:
        if mtu is None or mtu <= most:
            return mtu
        self._refuse(key, mtu, reason)
        return None

    def virtual_mtu(self, key: LinkKey, virtual: Virtual) -> Optional[int]:
        """The MTU of a virtual link to set, None to leave it.

        A bond sets the MTU of its members; a bridge has at most that of its ports, a VXLAN or
        macvlan what its parent leaves.
        """
        mtu = self.requests[key].mtu
        if key.kind == "bond":
            mtu = self._bond_mtu(key, virtual, mtu)
        elif key.kind == "bridge" and mtu:
            mtu = self._bridge_mtu(key, virtual, mtu)
        elif key.kind == "ipoib" and virtual.parent:
            mode = virtual.option("mode")  # a child has one of its own
            most = _largest_mtu(mode, self.device_by_link[virtual.parent])
            reason = f"an IPoIB child supports at most {most} in {mode} mode"
            mtu = self._at_most(key, mtu, most, reason)
        elif virtual.parent:
            mtu = self._mtu_over_parent(key, virtual, virtual.parent, mtu)
        is_written = WrittenSetting("mtu", key) in self.record.written
        if not mtu and is_written and key in self.device_by_link:
            mtu = self._default_mtu(key, virtual)
        return self._keeping_ipv6(key, mtu)

    def _default_mtu(self, key: LinkKey, virtual: Virtual) -> Optional[int]:
        """The default MTU of a link of our own that requests none; None if it is unknown."""
        if key.kind == "vrf":
            return self.device_by_link[key].max_mtu
        ports = self._member_mtus(virtual)
        defaults = {"bond": USUAL_MTU, "bridge": min(ports, default=USUAL_MTU)}
        return defaults.get(key.kind)

    def _ipoib_mode(self, key: LinkKey, device: Device) -> str:
        request = self.requests.get(key, LinkRequest(key))
        asked = dict(request.device).get(IPOIB_MODE)
        if asked and IPOIB_MODE not in self.record.declined.get(key, {}):
            return asked
        original = self.record.originals.get(key, UNCHANGED)
        return original.device.get(IPOIB_MODE) or device.mode or "datagram"

    def _bridge_mtu(self, key: LinkKey, virtual: Virtual, mtu: int) -> Optional[int]:
        for port in filter(self.links.__contains__, virtual.members):
            size = self.future_mtu(port)
            if size < mtu:
                self._refuse(key, mtu, f'its port "{self.links[port].name}" has {size}')
                return None
        return mtu

    def _bond_mtu(self, key: LinkKey, virtual: Virtual, mtu: Optional[int]) -> Optional[int]:
        """The MTU of a bond: the requested one, otherwise the lowest that a member requests."""
        members = filter(self.links.__contains__, virtual.members)
        asked = {member: self.requests[member].mtu for member in members}
        mtu = mtu or min(filter(None, asked.values()), default=None)
        for member in asked:
            most = self.device_by_link[member].max_mtu
            if mtu and 0 < most < mtu:
                name = self.links[member].name
                self._refuse(key, mtu, f'its member "{name}" supports at most {most}')
                return None
        for member, theirs in asked.items():
            if theirs and theirs != mtu and self._names_mtu(member):
                self._refuse(member, theirs, f'it is in "{key.virtual_name}", which has {mtu}')
        return mtu

    def _names_mtu(self, key: LinkKey) -> bool:
        """Whether a document or the configuration gives the link an MTU; profiles do not count."""
        origins = [origin for origin in self.requests[key].origins if origin.setting == "mtu"]
        return not all(origin.where.startswith(PROFILE) for origin in origins)

    def _mtu_over_parent(
        self, key: LinkKey, virtual: Virtual, parent: LinkKey, mtu: Optional[int]
    ) -> int:
        size, taken = self.future_mtu(parent), link_kinds.vxlan_overhead(virtual)
        most = size - taken
        if mtu is None or mtu <= most:
            return mtu or most
        why = ""
        if taken:
            why = f", which leaves {most} to a VXLAN over IPv{4 if taken == 50 else 6}"
        self._refuse(key, mtu, f'"{self.links[parent].name}" below it has {size}{why}')
        return most

    def _keeping_ipv6(self, key: LinkKey, mtu: Optional[int]) -> Optional[int]:
        """The MTU, unless the kernel would drop an IPv6 address of the user for it."""
        device = self.device_by_link.get(key)
        if not mtu or device is None or not mtu < MIN_IPV6_MTU <= device.mtu:
            return mtu
        for address in self.world.addresses.get(device.index, ()):
            is_ours = (key, address) in self.record.owned.addresses
            if address.version == 6 and not (address.is_link_local or is_ours):
                self._refuse(key, mtu, f'"{device.name}" would lose its IPv6 address {address}')
                return None
        return mtu

    def _foreign_above(self, device: Device, mtu: int) -> Optional[Device]:
        """An upper device whose MTU the kernel would lower, if there is one that we do not set."""
        for child in self.children[device.index]:
            # That of an IPoIB child does not depend on its port's.
            if child.mtu > mtu and child.kind != "ipoib" and not self._is_set_by_us(child):
                return child
        return None

    def _is_set_by_us(self, device: Device) -> bool:
        key = self.keys.get(device.index)
        request = self.requests.get(key) if key else None
        return key in self.record.owned.vlans or bool(request and request.mtu)
