"""The echo that a server session offers its peer, to measure round trips and the path MTU."""

# SPDX-License-Identifier: MIT

import hmac
import socket
import struct
import time
from contextlib import suppress

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
