"""Netlink messages that configure links, assign addresses and create VLANs (rtnetlink(7)).

They are made here because nearly every pass that changes something needs only these, and importing
pyroute2 takes longer than such a pass. `netlink` has everything else done by pyroute2.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import struct
from typing import Optional

from neuca_tools.backends import wire
from neuca_tools.model import Address
from neuca_tools.model.links import LINK_ALIAS
from neuca_tools.model.routing import ROUTE_PROTOCOL

NEW_LINK, DELETE_LINK, NEW_ADDRESS, DELETE_ADDRESS = 16, 17, 20, 21  # RTM_*
_LINK, _ADDRESS = struct.Struct("=BxHiII"), struct.Struct("=BBBBI")  # struct ifinfomsg, ifaddrmsg
_NAME, _MTU, _PARENT, _TXQLEN, _INFO, _ALIAS = 3, 4, 5, 13, 18, 20  # IFLA_*
_KIND, _DATA, _VLAN_ID = 1, 2, 1  # IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_VLAN_ID
_PER_FAMILY, _GENERATION_MODE = 26, 8  # IFLA_AF_SPEC, IFLA_INET6_ADDR_GEN_MODE
_IFF_UP = 0x1
_PEER, _LOCAL, _BROADCAST, _LIFETIMES, _FLAGS, _PROTOCOL = 1, 2, 4, 6, 8, 11  # IFA_*
# struct ifa_cacheinfo: preferred, valid, and when the kernel made and changed the address.
_CACHE = struct.Struct("=IIII")
_FOR_EVER = 0xFFFFFFFF
IFA_F_NODAD, IFA_F_NOPREFIXROUTE = 0x02, 0x200
FAMILIES = {4: 2, 6: 10}  # AF_INET, AF_INET6


def settings(
    index: int,
    *,
    mtu: Optional[int] = None,
    txqueuelen: Optional[int] = None,
    up: Optional[bool] = None,
) -> bytes:
    """The body of an RTM_NEWLINK that changes an existing device; None leaves a setting alone."""
    change = 0 if up is None else _IFF_UP
    flags = _IFF_UP if up else 0
    values = ((_MTU, mtu), (_TXQLEN, txqueuelen))
    given = [wire.number(kind, value) for kind, value in values if value is not None]
    return b"".join((_LINK.pack(0, 0, index, flags, change), *given))


def new_vlan(name: str, parent: int, vlan_id: int, mtu: Optional[int] = None) -> bytes:
    """The body of an RTM_NEWLINK that creates a VLAN on the device with the index `parent`."""
    parts = [_LINK.pack(0, 0, 0, 0, 0), wire.text(_NAME, name), wire.number(_PARENT, parent)]
    if mtu is not None:
        parts.append(wire.number(_MTU, mtu))
    number = wire.attribute(_VLAN_ID, struct.pack("=H", vlan_id))
    parts.append(wire.nest(_INFO, wire.text(_KIND, "vlan"), wire.nest(_DATA, number)))
    return b"".join(parts)


def marked_link(index: int) -> bytes:
    """The body of an RTM_NEWLINK that marks a device as ours."""
    return _LINK.pack(0, 0, index, 0, 0) + wire.text(_ALIAS, LINK_ALIAS)


def deleted_link(index: int) -> bytes:
    """The body of an RTM_DELLINK."""
    return _LINK.pack(0, 0, index, 0, 0)


def address_generation(index: int, mode: int) -> bytes:
    """The body of an RTM_NEWLINK that sets how a device gets its link-local address."""
    inside = wire.attribute(_GENERATION_MODE, bytes([mode]))
    nested = wire.nest(_PER_FAMILY, wire.nest(FAMILIES[6], inside))
    return _LINK.pack(0, 0, index, 0, 0) + nested


def added(index: int, address: Address, bare: bool = False) -> bytes:
    """The body of an RTM_NEWADDR: permanent, without duplicate address detection (RFC 4862).

    `bare`: its network gets no route. The protocol marks it as ours; before Linux 5.18 it has none.
    """
    flags = IFA_F_NOPREFIXROUTE if bare else 0
    if address.version == 6:
        flags |= IFA_F_NODAD
    parts = [_head(index, address, flags & 0xFF), *_ends(address)]
    if address.version == 4 and address.network.prefixlen < 31:
        parts.append(wire.attribute(_BROADCAST, address.network.broadcast_address.packed))
    if flags:
        parts.append(wire.number(_FLAGS, flags))
    parts.append(wire.attribute(_PROTOCOL, bytes([ROUTE_PROTOCOL])))
    return b"".join(parts)


def leased(index: int, address: Address, valid: int, preferred: int) -> bytes:
    """The body of an RTM_NEWADDR for so many seconds: its network gets no route.

    IPv6 makes sure that no one else has the address (RFC 4862, 5.4).
    """
    lifetimes = wire.attribute(_LIFETIMES, _CACHE.pack(preferred, valid, 0, 0))
    flags = wire.number(_FLAGS, IFA_F_NOPREFIXROUTE)
    return b"".join((_head(index, address, 0), *_ends(address), lifetimes, flags))


def restored(index: int, message: bytes, elapsed: float, nodad: bool) -> Optional[bytes]:
    """The body of an RTM_NEWADDR as a dump has described the address so many seconds ago.

    None for an address whose lifetime has ended. `nodad`: without duplicate address detection.
    """
    family, length, flags, scope, _ = _ADDRESS.unpack_from(message)
    extra = IFA_F_NODAD if nodad else 0
    parts = [_ADDRESS.pack(family, length, flags | extra, scope, index)]
    for kind, value in wire.attributes(message[_ADDRESS.size :]):
        if kind == _FLAGS:
            parts.append(wire.number(kind, wire.integer(value) | extra))
        elif kind == _LIFETIMES:
            preferred, valid, *_ = (_left(one, elapsed) for one in _CACHE.unpack(value))
            if not valid:
                return None
            parts.append(wire.attribute(kind, _CACHE.pack(preferred, valid, 0, 0)))
        else:
            parts.append(wire.attribute(kind, value))
    return b"".join(parts)


def _left(seconds: int, elapsed: float) -> int:
    """What is left of a lifetime."""
    return seconds if seconds == _FOR_EVER else max(0, int(seconds - elapsed))


def deleted(index: int, address: Address) -> bytes:
    """The body of an RTM_DELADDR."""
    return b"".join((_head(index, address, 0), *_ends(address)))


def _head(index: int, address: Address, flags: int) -> bytes:
    return _ADDRESS.pack(FAMILIES[address.version], address.network.prefixlen, flags, 0, index)


def _ends(address: Address) -> tuple[bytes, bytes]:
    """The address itself, for both ends: none of ours is that of a point-to-point link."""
    packed = address.ip.packed
    return wire.attribute(_LOCAL, packed), wire.attribute(_PEER, packed)
