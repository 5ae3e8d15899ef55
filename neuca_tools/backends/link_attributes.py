"""Settings of a device that are attributes of its link, or of its place in a bridge or bond.

Their present values are part of every look (`outlook`). Formats: include/uapi/linux/if_link.h.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Optional

from neuca_tools.backends import outlook, wire
from neuca_tools.backends.kinds import PORT
from neuca_tools.documents.neuca.link_settings import IPOIB_MODE
from neuca_tools.documents.neuca.values import IPOIB_MODES
from neuca_tools.errors import ApplyError
from neuca_tools.model import Device, World
from neuca_tools.model.device_settings import DeviceSettings, joined, lacking
from neuca_tools.model.topology import MAC_LENGTH

NEW_LINK = 16  # RTM_NEWLINK
PRIMARY = "bond-primary"
_MODE = 2  # IFLA_IPOIB_MODE
_NO_PORT = "it is in no bridge"
_NO_MEMBER = "it is in no bond"
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
            return lacking([group], _NO_MEMBER)
        return DeviceSettings({group: "yes" if master.primary == index else "no"})
    value = dict(device.port).get(group)
    if value is None:
        return lacking([group], _NO_PORT)
    return DeviceSettings({group: value})


def write(index: int, group: str, value: str) -> None:
    """Set one value. Raises ApplyError."""
    try:
        with wire.Socket(socket.NETLINK_ROUTE) as kernel:
            if group == PRIMARY:
                _set_primary(kernel, index, value == "yes")
            else:
                _change(kernel, index, _encoded(group, value))
    except OSError as error:
        number = error.errno or 0
        if (group, number) == ("mac", errno.EBUSY):
            reason = "its driver changes the MAC address only while the NIC is down"
            raise ApplyError(reason, errno.EOPNOTSUPP) from error
        raise ApplyError(error.strerror or str(error), number) from error


def _encoded(group: str, value: str) -> bytes:
    if group == "mac":
        return wire.attribute(outlook.MAC, bytes.fromhex(value.replace(":", "")))
    if group == IPOIB_MODE:
        mode = struct.pack("=H", IPOIB_MODES.index(value))
        data = wire.nest(outlook.DATA, wire.attribute(_MODE, mode))
        return wire.nest(outlook.INFO, wire.text(outlook.KIND, "ipoib"), data)
    number, width = PORT[group]
    setting = wire.attribute(number, int(value).to_bytes(width, sys.byteorder))
    kind = wire.text(outlook.MEMBER_KIND, "bridge")
    return wire.nest(outlook.INFO, kind, wire.nest(outlook.MEMBER_DATA, setting))


def _set_primary(kernel: wire.Socket, index: int, primary: bool) -> None:
    """Make a member the primary one of its bond. A bond has at most one."""
    member = _link(kernel, index)
    master = member.number(outlook.MASTER)
    info = _link(kernel, master).nest(outlook.INFO) if master else None
    if info is None or info.text(outlook.KIND) != "bond":
        raise OSError(errno.EOPNOTSUPP, _NO_MEMBER)
    present = info.nest(outlook.DATA).number(outlook.BOND_PRIMARY)
    wanted = _primary_after(index, present, primary)
    if wanted is not None:
        data = wire.nest(outlook.DATA, wire.number(outlook.BOND_PRIMARY, wanted))
        kind = wire.text(outlook.KIND, "bond")
        _change(kernel, master, wire.nest(outlook.INFO, kind, data))


def _primary_after(index: int, present: int, primary: bool) -> Optional[int]:
    """The index to set, 0 for none; None if there is nothing to do."""
    if primary == (present == index):
        return None
    return index if primary else 0


def _link(kernel: wire.Socket, index: int) -> wire.Attributes:
    header = outlook.LINK.pack(0, 0, index, 0, 0)
    answer = kernel.ask(outlook.GET_LINK, 0, header)[0]
    return wire.Attributes(answer[outlook.LINK.size :])


def _change(kernel: wire.Socket, index: int, attributes: bytes) -> None:
    kernel.ask(NEW_LINK, 0, outlook.LINK.pack(0, 0, index, 0, 0) + attributes)
