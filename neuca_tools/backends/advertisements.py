"""Receives and solicits router advertisements (RFC 4861), in place of the kernel.

The kernel would put the prefixes and routes of any router into the main table. dhcpcd would report
what is needed, but runs its hook once for each advertisement, one after the other: a host on the
link would decide how many programs are started, and delay what other routers say (FLOOD in
`tests/netns/test_netns_dhcp_ipv6.py` sends 300 in 6 s).
"""

# SPDX-License-Identifier: MIT

import select
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from ipaddress import IPv6Address, IPv6Network
from typing import NamedTuple, Optional

from neuca_tools.backends import linkwatch

SOLICITATION, ADVERTISEMENT = 133, 134
ALL_ROUTERS = "ff02::2"
MAX_MESSAGE_BYTES = 1 << 16
MAX_WAIT_SECONDS = 3600.0
MAX_PREFIXES = 16  # of one message; as many addresses as the kernel makes (max_addresses)
_HOPS = 255  # RFC 4861, 6.1.2: from no farther than this link
_FILTER, _ALL_BUT = 1, 0xFFFFFFFF  # ICMPV6_FILTER (linux/icmpv6.h): a set bit blocks a type
_HEAD = struct.Struct("!BBHBBHII")  # RFC 4861, 4.2
_PREFIX = struct.Struct("!BBII4x16s")  # RFC 4861, 4.6.2, without type and length
_PREFIX_INFORMATION, _MTU = 3, 5
_ON_LINK, _AUTONOMOUS = 0x80, 0x40
# RFC 4191, 2.1: low, medium, high; the reserved value counts as medium.
_PREFERENCE = {3: -1, 0: 0, 1: 1, 2: 0}


class Prefix(NamedTuple):
    """A prefix, with the seconds for which it is valid and preferred."""

    network: IPv6Network
    on_link: bool
    autonomous: bool
    valid: int
    preferred: int


class Advertisement(NamedTuple):
    """What a router says. `lifetime`: seconds as a default router; `mtu`: 0 if there is none."""

    router: IPv6Address
    lifetime: int
    preference: int = 0
    mtu: int = 0
    prefixes: tuple[Prefix, ...] = ()


def parse_advertisement(router: IPv6Address, message: bytes) -> Optional[Advertisement]:
    """The advertisement in an ICMPv6 message; None if it is invalid (RFC 4861, 6.1.2)."""
    if len(message) < _HEAD.size or not router.is_link_local:
        return None
    kind, code, _, _, flags, lifetime, _, _ = _HEAD.unpack_from(message)
    if (kind, code) != (ADVERTISEMENT, 0):
        return None
    mtu, prefixes = 0, list[Prefix]()
    try:
        for option, body in _parse_options(message[_HEAD.size :]):
            if option == _MTU and len(body) == 6:
                mtu = int.from_bytes(body[2:], "big")
            elif option == _PREFIX_INFORMATION and len(body) == _PREFIX.size:
                prefixes += filter(None, [_parse_prefix(body)])
    except ValueError:
        return None
    preference = _PREFERENCE[flags >> 3 & 3]
    return Advertisement(router, lifetime, preference, mtu, tuple(prefixes[:MAX_PREFIXES]))


def _parse_options(rest: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each option. Raises ValueError for an invalid length."""
    while rest:
        size = 8 * rest[1] if len(rest) > 1 else 0
        if not 8 <= size <= len(rest):
            raise ValueError("an option has no valid length")
        yield rest[0], rest[2:size]
        rest = rest[size:]


def _parse_prefix(body: bytes) -> Optional[Prefix]:
    """None for a prefix that no network has, and one that is preferred for too long."""
    length, flags, valid, preferred, packed = _PREFIX.unpack(body)
    if not 0 < length <= 128 or preferred > valid:
        return None
    network = IPv6Network((packed, length), strict=False)
    if network.is_link_local or network.is_multicast or network.network_address.is_loopback:
        return None
    return Prefix(network, bool(flags & _ON_LINK), bool(flags & _AUTONOMOUS), valid, preferred)


class Listener(AbstractContextManager["Listener"]):
    """A socket for the router advertisements that arrive on one interface. Raises OSError."""

    def __init__(self, interface: str, index: int) -> None:
        self._index = index
        self._watch, self._is_up = linkwatch.Watch(), linkwatch.has_link_local(index)
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_INET6, kind, socket.IPPROTO_ICMPV6)
        blocked = [_ALL_BUT] * 8
        blocked[ADVERTISEMENT // 32] &= ~(1 << ADVERTISEMENT % 32)
        only = struct.pack("=8I", *blocked)
        self._socket.setsockopt(socket.IPPROTO_ICMPV6, _FILTER, only)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        for option in (socket.IPV6_MULTICAST_HOPS, socket.IPV6_UNICAST_HOPS):
            self._socket.setsockopt(socket.IPPROTO_IPV6, option, _HOPS)
        self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)

    def __exit__(self, *_: object) -> None:
        self._watch.close()
        self._socket.close()

    def solicit(self) -> None:
        """Ask the routers. Without a link-local address or a carrier, nothing is sent."""
        with suppress(OSError):
            message = struct.pack("!BBHI", SOLICITATION, 0, 0, 0)
            self._socket.sendto(message, (ALL_ROUTERS, 0, 0, self._index))

    def wait(self, seconds: float) -> bool:
        """Wait for a message, at most so many seconds.

        Returns whether the link has come up again: the kernel dropped its addresses and routes.
        """
        limit = min(max(0.0, seconds), MAX_WAIT_SECONDS)
        if self._watch not in select.select([self._socket, self._watch], [], [], limit)[0]:
            return False
        self._watch.clear()
        was_up, self._is_up = self._is_up, linkwatch.has_link_local(self._index)
        return self._is_up and not was_up

    def received(self) -> Optional[Advertisement]:
        """The next message that has arrived, if it is valid."""
        with suppress(BlockingIOError):
            message, parts, _, source = self._socket.recvmsg(MAX_MESSAGE_BYTES, 64)
            hops = [data for _, kind, data in parts if kind == socket.IPV6_HOPLIMIT]
            if hops and int.from_bytes(hops[0][:4], sys.byteorder) == _HOPS:
                return parse_advertisement(IPv6Address(source[0].partition("%")[0]), message)
        return None
