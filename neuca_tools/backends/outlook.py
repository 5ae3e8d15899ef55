"""Reads the links, addresses and routes that are needed to choose how to reach the metadata.

A compact reader without pyroute2: the sources are asked every few seconds, and importing pyroute2
takes 80 ms, several times as long as the request. Formats: rtnetlink(7),
include/uapi/linux/rtnetlink.h and if_link.h.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterable
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Optional

from neuca_tools.backends import wire
from neuca_tools.backends.hostid import boot_id
from neuca_tools.errors import ObserveError
from neuca_tools.model import Address, Device, Route, World

GET_LINK, GET_ADDRESS, GET_ROUTE = 18, 22, 26  # RTM_GET*
LINK, ADDRESS = struct.Struct("=BxHiII"), struct.Struct("=BBBBI")  # struct ifinfomsg, ifaddrmsg
ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg
IFF_UP, IFF_LOWER_UP, IFF_SLAVE = 0x1, 0x10000, 0x800
IFA_F_PERMANENT = 0x80
UNICAST, MAIN = 1, 254  # RTN_UNICAST, RT_TABLE_MAIN
MASK, SKIP_STATISTICS = 29, 0x8  # IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS
FAMILIES = (socket.AF_INET, socket.AF_INET6)
VXLAN_LINK, BOND_MEMBER_MAC = 3, 4  # IFLA_VXLAN_LINK, IFLA_BOND_SLAVE_PERM_HWADDR
EXPIRES = 8  # offset of rta_expires in struct rta_cacheinfo

Words = dict[int, bytes]


def look() -> World:
    """The devices, addresses and routes of this network namespace. Raises ObserveError."""
    try:
        with wire.Socket(socket.NETLINK_ROUTE) as kernel:
            mask = wire.number(MASK, SKIP_STATISTICS)
            links = kernel.ask(GET_LINK, wire.DUMP, LINK.pack(0, 0, 0, 0, 0) + mask)
            addresses = kernel.ask(GET_ADDRESS, wire.DUMP, ADDRESS.pack(0, 0, 0, 0, 0))
            routes = [
                message
                for family in FAMILIES
                for message in kernel.ask(GET_ROUTE, wire.DUMP, ROUTE.pack(family, *[0] * 7, 0))
            ]
    except OSError as error:
        raise ObserveError(
            f"ask the kernel for its links, addresses and routes: {error.strerror or error}"
        ) from error
    devices = {one.index: one for one in map(device, links)}
    found, leased = _addresses(addresses)
    return World(
        devices,
        found,
        tuple(route for message in routes for route in _routes(message)),
        boot_id=boot_id(),
        leased=leased,
    )


def _words(data: bytes) -> Words:
    return dict(wire.attributes(data))


def _number(words: Words, kind: int) -> int:
    value = words.get(kind, b"")
    return int.from_bytes(value, sys.byteorder)


def _mac(value: bytes) -> str:
    return value.hex(":")


def _text(value: bytes) -> str:
    return os.fsdecode(value.rstrip(b"\0"))


def device(message: bytes) -> Device:
    """The device that an RTM_NEWLINK message describes, without its altnames and options."""
    _, _, index, flags, _ = LINK.unpack_from(message)
    words = _words(message[LINK.size :])
    info = _words(words.get(18, b""))  # IFLA_LINKINFO: 1 kind, 2 data, 4 and 5 of its master
    kind, data = _text(info.get(1, b"")), _words(info.get(2, b""))
    member = _words(info.get(5, b"")) if _text(info.get(4, b"")) == "bond" else {}
    name = _text(words.get(3, b""))  # IFLA_IFNAME
    elsewhere = kind == "veth" or 37 in words  # IFLA_LINK_NETNSID
    underlay = _number(data, VXLAN_LINK) if kind == "vxlan" else 0
    return Device(
        index=index,
        name=name,
        kind=kind,
        mac=_mac(words.get(1, b"")),  # IFLA_ADDRESS
        permanent_mac=_mac(words.get(54, b"") or member.get(BOND_MEMBER_MAC, b"")),
        lower=0 if elsewhere else _number(words, 5) or underlay,  # IFLA_LINK
        master=_number(words, 10),  # IFLA_MASTER
        slave=bool(flags & IFF_SLAVE),
        hardware=not kind and (56 in words or _on_a_bus(name, index)),  # IFLA_PARENT_DEV_NAME
        vlan_id=_number(data, 1) if kind == "vlan" else None,  # IFLA_VLAN_ID
        up=bool(flags & IFF_UP),
        carrier=bool(flags & IFF_LOWER_UP),
        mtu=_number(words, 4),  # IFLA_MTU
        max_mtu=_number(words, 51),  # IFLA_MAX_MTU
        txqueuelen=_number(words, 13),  # IFLA_TXQLEN
        qdisc=_text(words.get(6, b"")),  # IFLA_QDISC
    )


def _on_a_bus(name: str, index: int) -> bool:
    """Whether sysfs shows a parent device, for kernels before 5.14."""
    node = Path("/sys/class/net") / name
    try:
        here = int((node / "ifindex").read_text(encoding="ascii")) == index
    except (OSError, ValueError):
        return False
    return here and (node / "device").exists()


def _addresses(
    messages: Iterable[bytes],
) -> tuple[dict[int, tuple[Address, ...]], frozenset[tuple[int, Address]]]:
    """The addresses by device, and those that have a lifetime."""
    found: dict[int, tuple[Address, ...]] = {}
    leased = set()
    for message in messages:
        family, length, flags, _, index = ADDRESS.unpack_from(message)
        words = _words(message[ADDRESS.size :])
        local = words.get(2) or words.get(1)  # IFA_LOCAL, IFA_ADDRESS
        if family in FAMILIES and local:
            address = ip_interface(f"{ip_address(local)}/{length}")
            found[index] = (*found.get(index, ()), address)
            if not (_number(words, 8) or flags) & IFA_F_PERMANENT:  # IFA_FLAGS
                leased.add((index, address))
    return found, frozenset(leased)


def _routes(message: bytes) -> Iterable[Route]:
    """A unicast route of the main table, once for each of its next hops."""
    family, length, _, _, table, protocol, _, kind, _ = ROUTE.unpack_from(message)
    words = _words(message[ROUTE.size :])
    if kind != UNICAST or (_number(words, 15) or table) != MAIN:  # RTA_TABLE
        return
    width = 4 if family == socket.AF_INET else 16
    to = ip_network(f"{ip_address(words.get(1, bytes(width)))}/{length}")  # RTA_DST
    info = words.get(12, b"")  # RTA_CACHEINFO
    expires = len(info) >= EXPIRES + 4 and any(info[EXPIRES : EXPIRES + 4])
    metric = _number(words, 6)  # RTA_PRIORITY
    for index, gateway in _hops(words):
        via = ip_address(gateway) if gateway else None
        yield Route(to, index, via, metric, protocol, expires)


def _hops(words: Words) -> Iterable[tuple[int, Optional[bytes]]]:
    """Output device and gateway: RTA_OIF and RTA_GATEWAY, or those of each struct rtnexthop."""
    rest = words.get(9, b"")  # RTA_MULTIPATH
    if not rest:
        yield _number(words, 4), words.get(5)
    while len(rest) >= 8:
        length, index = struct.unpack_from("=HxxI", rest)
        if not 8 <= length <= len(rest):
            return
        yield index, _words(rest[8:length]).get(5)
        rest = rest[length + -length % 4 :]
