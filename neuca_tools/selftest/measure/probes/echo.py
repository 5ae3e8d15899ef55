"""The echo that a server session offers its peer, and requests to it or, without one, pings.

They measure round trips and the path MTU. ping(8) is not used: at an interval of 10 ms (-i 0.01),
its 200 requests take 3.3 s instead of 2 s, it reports no percentiles, and each of the sizes that
path_mtu tries would be a process.
"""

# SPDX-License-Identifier: MIT

import hmac
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import randbits
from typing import NamedTuple, Optional

from neuca_tools.backends.routing import FAMILIES
from neuca_tools.model import Host as Address

IP_AND_UDP_BYTES = {4: 28, 6: 48}  # by IP version, without options
# IP_MTU_DISCOVER and IPV6_MTU_DISCOVER (linux/in.h, in6.h), for which Python has no names.
MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
PMTUDISC_PROBE = 3  # IP_PMTUDISC_PROBE: don't fragment, and use the MTU of the device alone
TOKEN_BYTES = 16  # of the secret of a session, without which nothing is answered
HEADER = struct.Struct("!16sII")  # token, number of the request, bytes of the answer's payload
LARGEST_PAYLOAD = 65507  # bytes of a datagram: 65535 less those of IP and UDP (RFC 768, RFC 791)
MAX_CONNECTIONS = 64  # at the same time
LARGEST_PIECE = 4096  # bytes of a connection that are echoed at once
# Bytes per second by which the answers may exceed their requests. The token can be read on the
# path, so without a limit small requests with a forged source would cause large answers to the
# peer. A search for the path MTU needs less: it has at most 17 large answers.
MAX_GROWTH = 2**20
MAX_PER_TURN = 256  # datagrams or connections


class Echo:
    """Answers datagrams on UDP `port`, and echoes connections on the next TCP port.

    Only the peer is answered, and a datagram only with the token. The size of its answer is that
    which the request asks for. The constructor raises OSError if it cannot bind.
    """

    def __init__(self, address: Address, peer: Address, port: int, token: bytes) -> None:
        self._peer, self._token = str(peer), token
        self._second_began, self._growth = time.monotonic(), 0
        family = FAMILIES[address.version]
        self._datagrams = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._connections: dict[int, socket.socket] = {}
        try:
            self._datagrams.setsockopt(*MTU_DISCOVER[address.version], PMTUDISC_PROBE)
            self._datagrams.bind((str(address), port))
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((str(address), port + 1))
            self._listener.listen(MAX_PER_TURN)
        except OSError:
            self.close()
            raise

    @property
    def waiting(self) -> tuple[int, ...]:
        return (self._datagrams.fileno(), self._listener.fileno(), *self._connections)

    def turn(self, ready: set[int]) -> None:
        """Answer what has arrived at these descriptors, until there is no more (EAGAIN)."""
        if self._datagrams.fileno() in ready:
            with suppress(OSError):
                for _ in range(MAX_PER_TURN):
                    self._answer(*self._datagrams.recvfrom(LARGEST_PAYLOAD))
        if self._listener.fileno() in ready:
            with suppress(OSError):
                for _ in range(MAX_PER_TURN):
                    self._accept(*self._listener.accept())
        for descriptor in ready & self._connections.keys():
            self._echo_request(descriptor)

    def _answer(self, datagram: bytes, sender: tuple[str, int]) -> None:
        if len(datagram) < HEADER.size or sender[0] != self._peer:
            return
        token, number, size = HEADER.unpack_from(datagram)
        size = min(size, LARGEST_PAYLOAD)
        if hmac.compare_digest(token, self._token) and self._may_grow(size - len(datagram)):
            payload = HEADER.pack(token, number, size).ljust(size, b"\0")
            with suppress(OSError):  # such as EMSGSIZE: it does not fit the MTU of this host
                self._datagrams.sendto(payload, sender)

    def _may_grow(self, growth: int) -> bool:
        """Whether an answer that has so many bytes more than its request may be sent."""
        if time.monotonic() - self._second_began >= 1:
            self._second_began, self._growth = time.monotonic(), 0
        self._growth += max(0, growth)
        return self._growth <= MAX_GROWTH

    def _accept(self, connection: socket.socket, sender: tuple[str, int]) -> None:
        if sender[0] != self._peer or len(self._connections) >= MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[connection.fileno()] = connection

    def _echo_request(self, descriptor: int) -> None:
        """Echo what has arrived; what the socket does not take at once is dropped."""
        connection = self._connections[descriptor]
        try:
            piece = connection.recv(LARGEST_PIECE)
            if piece:
                connection.send(piece)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        del self._connections[descriptor]
        connection.close()

    def close(self) -> None:
        for endpoint in (self._datagrams, self._listener, *self._connections.values()):
            endpoint.close()
        self._connections.clear()


# --- Requests and their answers ---

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
