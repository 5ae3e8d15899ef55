"""Settings of a device that are attributes of its link, or of its place in a bridge or bond.

Their present values are part of every look (`outlook`); `netlink` sets them.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable

from neuca_tools.documents.neuca.link_settings import IPOIB_MODE
from neuca_tools.model import Device, World
from neuca_tools.model.device_settings import DeviceSettings, joined, lacking
from neuca_tools.model.topology import MAC_LENGTH

PRIMARY = "bond-primary"
_NO_PORT = "it is in no bridge"
NO_MEMBER = "it is in no bond"
_NO_PORT_OF_IPOIB = "it is not an InfiniBand port"
_GUID = "it is an InfiniBand port, which has a GUID and no MAC address"
_NO_MAC = "its driver reports no permanent MAC address, by which the NIC is known"


def read(world: World, index: int, groups: Iterable[str]) -> DeviceSettings:
    """The value of each group, or the reason why the device has none."""
    return joined(_read(world, index, group) for group in groups)


def _read_mac(device: Device) -> DeviceSettings:
    if device.infiniband:
        return lacking(["mac"], _GUID)
    if len(device.permanent_mac) == MAC_LENGTH:
        return DeviceSettings({"mac": device.mac})
    return lacking(["mac"], _NO_MAC)


def _read(world: World, index: int, group: str) -> DeviceSettings:
    device = world.devices[index]
    if group == "mac":
        return _read_mac(device)
    if group == IPOIB_MODE:
        if device.infiniband and device.mode and not device.kind:
            return DeviceSettings({group: device.mode})
        return lacking([group], _NO_PORT_OF_IPOIB)
    if group == PRIMARY:
        master = world.devices.get(device.master)
        if master is None or master.kind != "bond":
            return lacking([group], NO_MEMBER)
        return DeviceSettings({group: "yes" if master.primary == index else "no"})
    value = dict(device.port).get(group)
    if value is None:
        return lacking([group], _NO_PORT)
    return DeviceSettings({group: value})
