"""Netlink messages that assign addresses (rtnetlink(7)).

They are made here because nearly every pass that changes something needs only these, and importing
pyroute2 takes longer than such a pass. `netlink` has everything else done by pyroute2.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import struct

from neuca_tools.backends import wire
from neuca_tools.model import Address

NEW_ADDRESS, DELETE_ADDRESS = 20, 21  # RTM_*
_ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg
_PEER, _LOCAL, _BROADCAST, _LIFETIMES, _FLAGS = 1, 2, 4, 6, 8  # IFA_*
# struct ifa_cacheinfo: preferred, valid, and when the kernel made and changed the address.
_CACHE = struct.Struct("=IIII")
IFA_F_NODAD, IFA_F_NOPREFIXROUTE = 0x02, 0x200
FAMILIES = {4: 2, 6: 10}  # AF_INET, AF_INET6


def added(index: int, address: Address, bare: bool = False) -> bytes:
    """The body of an RTM_NEWADDR: permanent, without duplicate address detection (RFC 4862).

    `bare`: its network gets no route.
    """
    flags = IFA_F_NOPREFIXROUTE if bare else 0
    if address.version == 6:
        flags |= IFA_F_NODAD
    parts = [_head(index, address, flags & 0xFF), *_ends(address)]
    if address.version == 4 and address.network.prefixlen < 31:
        parts.append(wire.attribute(_BROADCAST, address.network.broadcast_address.packed))
    if flags:
        parts.append(wire.number(_FLAGS, flags))
    return b"".join(parts)


def leased(index: int, address: Address, valid: int, preferred: int) -> bytes:
    """The body of an RTM_NEWADDR for so many seconds: its network gets no route.

    IPv6 makes sure that no one else has the address (RFC 4862, 5.4).
    """
    lifetimes = wire.attribute(_LIFETIMES, _CACHE.pack(preferred, valid, 0, 0))
    flags = wire.number(_FLAGS, IFA_F_NOPREFIXROUTE)
    return b"".join((_head(index, address, 0), *_ends(address), lifetimes, flags))


def deleted(index: int, address: Address) -> bytes:
    """The body of an RTM_DELADDR."""
    return b"".join((_head(index, address, 0), *_ends(address)))


def _head(index: int, address: Address, flags: int) -> bytes:
    return _ADDRESS.pack(FAMILIES[address.version], address.network.prefixlen, flags, 0, index)


def _ends(address: Address) -> tuple[bytes, bytes]:
    """The address itself, for both ends: none of ours is that of a point-to-point link."""
    packed = address.ip.packed
    return wire.attribute(_LOCAL, packed), wire.attribute(_PEER, packed)
