"""Requests to a peer and its answers: datagrams to the echo of a helper or, without one, pings.

ping(8) is not used: at an interval of 10 ms (-i 0.01), its 200 requests take 3.3 s instead of 2 s,
it reports no percentiles, and each of the sizes that path_mtu tries would be a process.
"""

# SPDX-License-Identifier: MIT

import socket
import struct
from collections.abc import Callable
from secrets import randbits
from typing import NamedTuple, Optional

from neuca_tools.backends.routing import FAMILIES
from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.probes.echo import HEADER, IP_AND_UDP_BYTES

# Bytes of the IP header without options (RFC 791, RFC 8200), and of a small ping with its ICMP one.
IP_HEADER = {4: 20, 6: 40}
SMALL_PING = 24
# ICMP types (RFC 792, RFC 4443).
PROTOCOLS = {4: socket.IPPROTO_ICMP, 6: socket.IPPROTO_ICMPV6}
ECHO, ANSWER = {4: 8, 6: 128}, {4: 0, 6: 129}


class Requests(NamedTuple):
    """A connected socket, the requests for it, and the numbers in its answers.

    `make` makes the request with a number as a packet of `size` bytes, for an answer of `back`
    bytes; 0 stands for the smallest. An answer to a ping has the size of the ping, whatever `back`
    says. `number_of` reads the number from an answer: 0 for anything else.
    """

    version: int
    socket: socket.socket
    make: Callable[[int, int, int], bytes]
    number_of: Callable[[bytes], int]
    is_ping: bool = False


def echo_requests(peer: Address, port: int, token: bytes, source: Address) -> Requests:
    """Datagrams to the echo of a helper. Raises OSError."""
    headers = IP_AND_UDP_BYTES[peer.version]
    sender = socket.socket(FAMILIES[peer.version], socket.SOCK_DGRAM)
    sender.bind((str(source), 0))
    sender.connect((str(peer), port))

    def make(number: int, size: int, back: int) -> bytes:
        answer = max(HEADER.size, back - headers)
        return HEADER.pack(token, number, answer).ljust(size - headers, b"\0")

    def number_of(answer: bytes) -> int:
        if len(answer) < HEADER.size:
            return 0
        return int(HEADER.unpack_from(answer)[1])

    return Requests(peer.version, sender, make, number_of)


def ping_requests(peer: Address, source: Optional[Address]) -> Requests:
    """Pings from a raw socket, which needs root. Raises OSError."""
    version, identity = peer.version, randbits(16)
    sender = socket.socket(FAMILIES[version], socket.SOCK_RAW, PROTOCOLS[version])
    if source:
        sender.bind((str(source), 0))
    sender.connect((str(peer), 0))
    return Requests(
        version,
        sender,
        lambda number, size, _: echo_request(version, identity, number, size - IP_HEADER[version]),
        lambda packet: answered_number(version, identity, packet),
        is_ping=True,
    )


def echo_request(version: int, identity: int, number: int, size: int) -> bytes:
    """An ICMP echo request of `size` bytes with its header, but of SMALL_PING bytes at least.

    All else is zero, so the checksum (RFC 1071) is that of three words. The kernel adds IPv6's.
    """
    checksum = 0
    if version == 4:
        checksum = 0xFFFF - ((ECHO[version] << 8) + identity + number) % 0xFFFF
    header = struct.pack("!BBHHH", ECHO[version], 0, checksum, identity, number)
    return header.ljust(max(size, SMALL_PING), b"\0")


def answered_number(version: int, identity: int, packet: bytes) -> int:
    """The number of the request that this answers; 0 for anything else.

    An IPv4 raw socket receives the IP header too.
    """
    if version == 4 and packet:
        packet = packet[(packet[0] & 0xF) * 4 :]
    if len(packet) < 8:
        return 0
    kind, _, _, whose, number = struct.unpack_from("!BBHHH", packet)
    if kind != ANSWER[version] or whose != identity:
        return 0
    return int(number)
