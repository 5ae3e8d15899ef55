"""A hostile router and DHCPv6 server on dp1 (RFC 8415): it delegates the prefixes in its arguments to any client."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import socket
import struct
import sys
from contextlib import suppress
from ipaddress import ip_address, ip_network

CLIENT, SERVER, IA_NA, ADDRESS, RAPID_COMMIT, IA_PD, PREFIX = 1, 2, 3, 5, 14, 25, 26
ADVERTISE, REPLY, SOLICIT = 2, 7, 1
LEASE = "fd00:9::51"
MANAGED = struct.pack(
    "!BBHBBHII", 134, 0, 0, 64, 0x80, 1800, 0, 0
)  # an advertisement (RFC 4861, 4.2)


def option(code: int, body: bytes) -> bytes:
    return struct.pack("!HH", code, len(body)) + body


def read_options(rest: bytes) -> dict[int, bytes]:
    found = {}
    while rest:
        code, size = struct.unpack("!HH", rest[:4])
        found[code], rest = rest[4 : 4 + size], rest[4 + size :]
    return found


def answer(message: bytes, prefixes: list[str]) -> bytes:
    asked = read_options(message[4:])
    is_offer = message[0] == SOLICIT and RAPID_COMMIT not in asked
    parts = [option(CLIENT, asked[CLIENT]), option(SERVER, bytes.fromhex("00030001020000006666"))]
    if RAPID_COMMIT in asked:
        parts.append(option(RAPID_COMMIT, b""))
    times, seconds = struct.pack("!II", 300, 500), struct.pack("!II", 3600, 3600)
    if IA_NA in asked:
        given = option(ADDRESS, ip_address(LEASE).packed + seconds)
        parts.append(option(IA_NA, asked[IA_NA][:4] + times + given))
    if IA_PD in asked:
        networks = [ip_network(prefix) for prefix in prefixes]
        given = b"".join(
            option(PREFIX, seconds + bytes([to.prefixlen]) + to.network_address.packed)
            for to in networks
        )
        parts.append(option(IA_PD, asked[IA_PD][:4] + times + given))
    return bytes([ADVERTISE if is_offer else REPLY]) + message[1:4] + b"".join(parts)


def main(prefixes: list[str]) -> None:
    index = socket.if_nametoindex("dp1")
    server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    server.bind(("::", 547))
    group = ip_address("ff02::1:2").packed + struct.pack("@I", index)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
    router = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    while True:
        with suppress(OSError):  # it has no link-local address yet
            router.sendto(MANAGED, ("ff02::1", 0, 0, index))
        if select.select([server], [], [], 1.0)[0]:
            message, client = server.recvfrom(4096)
            server.sendto(answer(message, prefixes), client)


if __name__ == "__main__":
    main(sys.argv[1:])
