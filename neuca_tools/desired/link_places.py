"""Device settings that depend on other links: the MAC of a NIC, its place in a bond or bridge."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from neuca_tools.desired.roles import Roles
from neuca_tools.desired.safety import mac_reason
from neuca_tools.documents.neuca.link_settings import is_of_place
from neuca_tools.model import Device, LinkKey, LinkRequest, Record, World
from neuca_tools.model.topology import is_nic

MAC, PRIMARY = "mac", "bond-primary"


@dataclass(frozen=True)
class Places:
    """The requests of all links, the bond or bridge that each is to be in (`masters`), and the
    device of each present link (`found`).
    """

    requests: Mapping[LinkKey, LinkRequest]
    masters: Mapping[LinkKey, LinkKey]
    found: Mapping[LinkKey, Device]
    world: World
    roles: Roles
    record: Record

    def master(self, key: LinkKey) -> str:
        """The kind of what the link is to be in; empty for none."""
        if key not in self.masters:
            return ""
        return self.masters[key].kind

    def is_joined(self, key: LinkKey) -> bool:
        """Whether the link is in the bond or bridge that it is to be in."""
        if key not in self.masters:
            return False
        device, master = self.found.get(key), self.found.get(self.masters[key])
        return device is not None and master is not None and device.master == master.index

    def refused(self, key: LinkKey, asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Each of these settings that is refused, with the reason."""
        reasons = {}
        if MAC in asked:
            reasons[MAC] = self._mac_reason(key, asked[MAC])
        if asked.get(PRIMARY) == "yes":
            reasons[PRIMARY] = self._primary_reason(key)
        for setting, reason in reasons.items():
            if reason:
                yield setting, reason

    def restorable(self, key: LinkKey, original: Mapping[str, str]) -> dict[str, str]:
        """Those of the original values that can be restored where the link is now.

        The bond sets the MAC of its members, and a port has its settings as long as it is one.
        """
        device = self.found.get(key)
        in_bond = device is not None and device.slave
        return {
            name: value
            for name, value in original.items()
            if not (name == MAC and in_bond) and (not is_of_place(name) or self.is_joined(key))
        }

    @cached_property
    def _by_requested_mac(self) -> Mapping[str, list[LinkKey]]:
        """The NICs that are requested to have each MAC."""
        found = defaultdict(list)
        for key, request in self.requests.items():
            mac = dict(request.device).get(MAC)
            if mac and not key.rank:
                found[mac].append(key)
        return found

    @cached_property
    def _primary(self) -> Mapping[LinkKey, list[LinkKey]]:
        """The links that are requested to be the primary member of each bond."""
        found = defaultdict(list)
        for key, master in self.masters.items():
            if dict(self.requests[key].device).get(PRIMARY) == "yes":
                found[master].append(key)
        return found

    def _mac_reason(self, key: LinkKey, mac: str) -> Optional[str]:
        """Why a NIC may not have this MAC."""
        device = self.found.get(key)
        if self.master(key) == "bond" or (device is not None and device.slave):
            return "it is in a bond, which sets the MAC address of its members"
        if mac == key.mac:
            return None
        for other in self._by_requested_mac.get(mac, ()):
            if other != key:
                return f"it is requested for {other} too, so it is set on none of them"
        reason = mac_reason(mac, (key.mac,), self.world, self.roles)
        return reason or self._owner_reason(key, mac)

    def _owner_reason(self, key: LinkKey, mac: str) -> Optional[str]:
        """Whether it is that of a NIC that is absent, or the present one of another NIC."""
        if mac in self.record.nics or LinkKey(mac) in self.requests:
            return f"the MAC address {mac} is that of another NIC"
        for device in self.world.devices.values():
            if is_nic(device) and device.mac == mac and device != self.found.get(key):
                return f'the MAC address {mac} is that of "{device.name}"'
        return None

    def _primary_reason(self, key: LinkKey) -> Optional[str]:
        """Why a member may not be the primary one: another one is requested to be that."""
        beside: Sequence[LinkKey] = ()
        if key in self.masters:
            beside = self._primary.get(self.masters[key], ())
        for other in beside:
            if other != key:
                return f"{other} is requested as the primary member too, so none of them is"
        return None
