"""The changes of addresses and routes that pyroute2 cannot request, as messages of rtnetlink(7).

Its releases before 0.9 have no IFA_PROTO, by which an address is known as ours. None of them sends
a message of the kernel back as it was: attributes that they do not know are lost.
`netns/test_netns_netlink.py` shows both.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import math
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from itertools import starmap
from typing import Optional

from neuca_tools.backends import routing, wire
from neuca_tools.backends.kernel_state import ADDRESS, BROADCAST, FLAGS, LOCAL, PEER, PROTOCOL
from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error
from neuca_tools.model import Address, Host
from neuca_tools.model.addresses import broadcast_of
from neuca_tools.model.routing import ROUTE_PROTOCOL

IFA_F_NODAD, IFA_F_TENTATIVE = 0x02, 0x40
NEW_ADDRESS, NEW_ROUTE = 20, 24  # RTM_*
_FLAGS = {NEW_ADDRESS: wire.CREATE | wire.REPLACE, NEW_ROUTE: wire.CREATE | wire.APPEND}
_LIFETIMES = 6  # IFA_CACHEINFO
# struct ifa_cacheinfo: preferred, valid, and when the kernel made and changed the address.
_CACHE, _FOR_EVER = struct.Struct("=IIII"), 0xFFFFFFFF
_LIFETIME = 23  # RTA_EXPIRES
_TICKS = 100  # USER_HZ


def add_address(index: int, address: Address, flags: int) -> None:
    """Add an address permanently with these IFA_F_*, marked as ours. Raises ApplyError."""
    network, packed = address.network, address.ip.packed
    family, broadcast = routing.FAMILIES[address.version], broadcast_of(network)
    parts = [
        ADDRESS.pack(family, network.prefixlen, flags & 0xFF, 0, index),
        # The same for both ends: we set no addresses of point-to-point links.
        *(wire.encode_attribute(kind, packed) for kind in (LOCAL, PEER)),
        wire.encode_attribute(BROADCAST, broadcast.packed) if broadcast else b"",
        wire.encode_number(FLAGS, flags),
        wire.encode_attribute(PROTOCOL, bytes([ROUTE_PROTOCOL])),  # ignored before Linux 5.18
    ]
    _send_request(NEW_ADDRESS, b"".join(parts))


def restore_address(index: int, message: bytes, elapsed: float) -> None:
    """Add an address as a dump has described it so many seconds ago, unless it has expired.

    If it was in use, it is so at once, without duplicate address detection, a flag which the second
    request takes back. Raises ApplyError.
    """
    flags = ADDRESS.unpack_from(message)[2]
    for extra in (0,) if flags & IFA_F_TENTATIVE else (IFA_F_NODAD, 0):
        body = _restored_address(index, message, elapsed, extra)
        if body is not None:
            _send_request(NEW_ADDRESS, body)


def _restored_address(index: int, message: bytes, elapsed: float, extra: int) -> Optional[bytes]:
    """The body of a request; None for an address whose lifetime has ended."""
    family, length, flags, scope, _ = ADDRESS.unpack_from(message)
    parts = [ADDRESS.pack(family, length, flags | extra, scope, index)]
    for kind, value in wire.parse_attributes(message[ADDRESS.size :]):
        if kind == FLAGS:
            value = struct.pack("=I", wire.decode_integer(value) | extra)
        elif kind == _LIFETIMES:
            preferred, valid, *_ = (
                seconds if seconds == _FOR_EVER else max(0, int(seconds - elapsed))
                for seconds in _CACHE.unpack(value)
            )
            if not valid:
                return None
            value = _CACHE.pack(preferred, valid, 0, 0)
        parts.append(wire.encode_attribute(kind, value))
    return b"".join(parts)


def source_of(message: bytes) -> Optional[Host]:
    """The preferred source address of a route, if it has one."""
    source = wire.Attributes(message[routing.HEAD.size :]).bytes(routing.SOURCE)
    return ip_address(source) if source else None


def restore_route(message: bytes, indexes: Mapping[int, int], elapsed: float) -> None:
    """Set a route as a dump has described it so many seconds ago. Raises ApplyError.

    `indexes` has the present index of each device for which it may differ from the message. A
    route that would have expired by now is left out, and so is one whose source is no longer an
    address of this host. The kernel drops a next hop object with its device; then the next hops
    that it stood for take its place.
    """
    if any(kind == routing.NEXT_HOP_ID for kind, _ in _attributes(message)):
        *head, _ = routing.HEAD.unpack_from(message)
        # The object, not what it stands for.
        kept = (pair for pair in _attributes(message) if pair[0] not in routing.OF_NEXT_HOP)
        body = b"".join((routing.HEAD.pack(*head, 0), *starmap(wire.encode_attribute, kept)))
        with suppress(ApplyError):  # EINVAL: there is no such object
            _send_request(NEW_ROUTE, body)
            return
    try:
        for body in _restored_routes(message, indexes, elapsed):
            _send_request(NEW_ROUTE, body)
    except ApplyError as error:
        if error.errno != errno.EINVAL or source_of(message) is None:
            raise


def _attributes(message: bytes) -> Iterator[tuple[int, bytes]]:
    return wire.parse_attributes(message[routing.HEAD.size :])


def _restored_routes(message: bytes, indexes: Mapping[int, int], elapsed: float) -> Iterator[bytes]:
    """The bodies of the requests; none for a route that has expired."""
    # One for each next hop of an IPv6 route: for the kernel they are routes by themselves, of which
    # some may be left. NLM_F_REPLACE would not do, as it takes the first of the same metric,
    # through whatever device.
    *head, flags = routing.HEAD.unpack_from(message)
    parts, hops = [routing.HEAD.pack(*head, flags & routing.ONLINK)], [b""]
    for kind, value in _attributes(message):
        if kind == routing.OUTPUT:
            index = wire.decode_integer(value)
            parts.append(wire.encode_number(kind, indexes.get(index, index)))
        elif kind == routing.MULTIPATH:
            rebound = list(_rebound_next_hops(value, indexes))
            joined = [b"".join(rebound)] if head[0] == routing.FAMILIES[4] else rebound
            hops = [wire.encode_attribute(routing.MULTIPATH, hop) for hop in joined]
        elif kind == routing.CACHE:
            lifetime = _restored_lifetime(value, elapsed)
            if lifetime is None:
                return
            parts.append(lifetime)
        elif kind != routing.NEXT_HOP_ID:
            parts.append(wire.encode_attribute(kind, value))
    for hop in hops:
        yield b"".join((*parts, hop))


def _restored_lifetime(cache: bytes, elapsed: float) -> Optional[bytes]:
    """What is left of a lifetime, as an attribute; None for a route that has expired."""
    (expires,) = routing.EXPIRES.unpack_from(cache)
    if not expires:
        return b""
    left = math.ceil(expires / _TICKS - elapsed)
    return wire.encode_number(_LIFETIME, left) if left > 0 else None


def _rebound_next_hops(data: bytes, indexes: Mapping[int, int]) -> Iterator[bytes]:
    """The next hops of a route with several, with these indexes of their devices."""
    next_hop = routing.NEXT_HOP
    while data:
        length, flags, hops, index = next_hop.unpack_from(data)
        head = next_hop.pack(length, flags & routing.ONLINK, hops, indexes.get(index, index))
        yield head + data[next_hop.size : length + -length % 4]
        data = data[length + -length % 4 :]


def _send_request(kind: int, message: bytes) -> None:
    """Make one request; what exists already is fine."""
    try:
        with as_apply_error(), wire.Socket(socket.NETLINK_ROUTE) as kernel:
            kernel.ask(kind, _FLAGS[kind], message)
    except ApplyError as error:
        if error.errno != errno.EEXIST:
            raise
