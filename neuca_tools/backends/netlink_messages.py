"""Converts the messages of rtnetlink, as pyroute2 decodes them, to devices and routes of the model."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Optional

from neuca_tools.backends import kinds
from neuca_tools.model import Device, Route
from neuca_tools.model.links import KINDS

# linux/rtnetlink.h and linux/if.h
UNICAST = 1  # RTN_UNICAST
IFF_UP, IFF_SLAVE, IFF_LOWER_UP = 0x1, 0x800, 0x10000
FAMILIES = (socket.AF_INET, socket.AF_INET6)


def device(message: Any) -> Device:
    """The device that an RTM_NEWLINK message describes."""
    info = message.get_attr("IFLA_LINKINFO")
    kind = _attribute(info, "IFLA_INFO_KIND", "")
    data = None
    if kind in ("vlan", *KINDS):
        data = _attribute(info, "IFLA_INFO_DATA", None)
    mac = message.get_attr("IFLA_ADDRESS") or ""
    flags = message["flags"]
    return Device(
        index=message["index"],
        name=os.fsdecode(_attribute(message, "IFLA_IFNAME", "")),
        kind=kind,
        mac=mac,
        permanent_mac=message.get_attr("IFLA_PERM_ADDRESS") or _mac_before_bonding(info),
        lower=_lower_index(message, kind, data),
        master=_attribute(message, "IFLA_MASTER", 0),
        slave=bool(flags & IFF_SLAVE),
        hardware=not kind and _has_parent_device(message),
        vlan_id=_attribute(data, "IFLA_VLAN_ID", None) if kind == "vlan" else None,
        up=bool(flags & IFF_UP),
        carrier=bool(flags & IFF_LOWER_UP),
        mtu=_attribute(message, "IFLA_MTU", 0),
        min_mtu=_attribute(message, "IFLA_MIN_MTU", 0),
        max_mtu=_attribute(message, "IFLA_MAX_MTU", 0),
        txqueuelen=_attribute(message, "IFLA_TXQLEN", 0),
        qdisc=_attribute(message, "IFLA_QDISC", ""),
        altnames=tuple(_altnames(message)),
        options=kinds.options(kind, mac, data.get_attr) if data else (),
    )


def _attribute(message: Any, name: str, default: Any) -> Any:
    """An attribute of a message or of a nest; `default` if that is None or has no such attribute."""
    value = message.get_attr(name) if message else None
    return default if value is None else value


def _mac_before_bonding(info: Any) -> str:
    """The MAC that a member of a bond had before; a virtual NIC has no permanent one."""
    if _attribute(info, "IFLA_INFO_SLAVE_KIND", "") != "bond":
        return ""
    data = _attribute(info, "IFLA_INFO_SLAVE_DATA", None)
    mac: str = _attribute(data, "IFLA_BOND_SLAVE_PERM_HWADDR", "")
    return mac


def _lower_index(message: Any, kind: str, data: Any) -> int:
    """The index of the lower device, 0 for none and for one in another network namespace."""
    if kind == "veth" or message.get_attr("IFLA_LINK_NETNSID") is not None:
        return 0
    lower: int = _attribute(message, "IFLA_LINK", 0)
    if not lower and kind == "vxlan":
        # vxlan_fill_info() reports it as an attribute of its own.
        lower = _attribute(data, "IFLA_VXLAN_LINK", 0)
    return lower


def _altnames(message: Any) -> Iterator[str]:
    properties = message.get_attr("IFLA_PROP_LIST")
    if properties:
        for name, value in properties["attrs"]:
            if name == "IFLA_ALT_IFNAME":
                yield os.fsdecode(value)


def _has_parent_device(message: Any) -> bool:
    """Whether the device is attached to a bus.

    The kernel reports that since 5.14; before, sysfs shows it if it belongs to this namespace.
    """
    if message.get_attr("IFLA_PARENT_DEV_NAME"):
        return True
    node = Path("/sys/class/net") / os.fsdecode(_attribute(message, "IFLA_IFNAME", ""))
    with suppress(OSError, ValueError):
        here = int((node / "ifindex").read_text(encoding="ascii")) == message["index"]
        return here and (node / "device").exists()
    return False


def routes(message: Any) -> Iterator[Route]:
    """A unicast route, once for each of its next hops."""
    if message["type"] != UNICAST or message["family"] not in FAMILIES:
        return
    anywhere = "0.0.0.0" if message["family"] == socket.AF_INET else "::"
    to = ip_network(f"{_attribute(message, 'RTA_DST', anywhere)}/{message['dst_len']}")
    metric, protocol = _attribute(message, "RTA_PRIORITY", 0), message["proto"]
    expires = bool(_attribute(message, "RTA_CACHEINFO", {}).get("rta_expires"))
    for index, gateway in _next_hops(message):
        via = ip_address(gateway) if gateway else None
        yield Route(to, index, via, metric, protocol, expires)


def _next_hops(message: Any) -> Iterator[tuple[int, Optional[str]]]:
    """The index of the output device and the gateway of each next hop."""
    hops = message.get_attr("RTA_MULTIPATH")
    if not hops:
        yield _attribute(message, "RTA_OIF", 0), message.get_attr("RTA_GATEWAY")
        return
    for hop in hops:
        yield hop.get("oif") or 0, hop.get_attr("RTA_GATEWAY")
