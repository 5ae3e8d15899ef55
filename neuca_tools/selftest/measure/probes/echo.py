"""The echo of a server session, for the datagrams and connections of the peer only."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hmac
import socket
import struct
import time
from contextlib import suppress

from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.host.kernel import FAMILIES

HEADERS = {4: 28, 6: 48}  # bytes of IP and UDP
# IP_MTU_DISCOVER and IPV6_MTU_DISCOVER (linux/in.h, in6.h), for which Python has no names.
MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
PROBE = 3  # IP_PMTUDISC_PROBE: don't fragment, and use the MTU of the device alone
# Bytes of the token, without which nothing is answered.
TOKEN = 16
# Token, number, bytes of the answer's payload.
HEADER = struct.Struct("!16sII")
# Bytes of a datagram's payload (RFC 768, over IPv4).
LARGEST = 65507
# Connections at the same time.
MOST_CONNECTIONS = 64
PIECE = 4096
# Bytes per second by which the answers may exceed their requests. The token can be read on the
# path, so without a limit small requests with a forged source would cause large answers to the
# peer. A search for the path MTU has at most 17 of them.
MOST_GROWTH = 2**20
# Datagrams or connections that one turn handles.
MOST_PER_TURN = 256


class Echo:
    """Echoes datagrams on `port` and connections on the next one.

    The constructor raises OSError if it cannot bind.
    """

    def __init__(self, address: Address, peer: Address, port: int, token: bytes) -> None:
        self._peer, self._token = str(peer), token
        self._second, self._grown = time.monotonic(), 0
        family = FAMILIES[address.version]
        self._datagrams = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._connections: dict[int, socket.socket] = {}
        try:
            self._datagrams.setsockopt(*MTU_DISCOVER[address.version], PROBE)
            self._datagrams.bind((str(address), port))
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((str(address), port + 1))
            self._listener.listen(MOST_PER_TURN)
        except OSError:
            self.close()
            raise

    @property
    def waiting(self) -> tuple[int, ...]:
        return (self._datagrams.fileno(), self._listener.fileno(), *self._connections)

    def turn(self, ready: set[int]) -> None:
        """Answer what has arrived at these descriptors."""
        if self._datagrams.fileno() in ready:
            # No more datagrams for now, or an answer that is too large for this host (EMSGSIZE).
            with suppress(OSError):
                for _ in range(MOST_PER_TURN):
                    self._answer(*self._datagrams.recvfrom(65536))
        if self._listener.fileno() in ready:
            with suppress(OSError):
                for _ in range(MOST_PER_TURN):
                    self._accept(*self._listener.accept())
        for descriptor in ready & self._connections.keys():
            self._echo_request(descriptor)

    def _answer(self, datagram: bytes, sender: tuple[str, int]) -> None:
        if len(datagram) < HEADER.size or sender[0] != self._peer:
            return
        token, number, size = HEADER.unpack_from(datagram)
        size = min(size, LARGEST)
        if hmac.compare_digest(token, self._token) and self._may_grow(size - len(datagram)):
            payload = HEADER.pack(token, number, size).ljust(size, b"\0")
            with suppress(OSError):
                self._datagrams.sendto(payload, sender)

    def _may_grow(self, more: int) -> bool:
        if time.monotonic() - self._second >= 1:
            self._second, self._grown = time.monotonic(), 0
        self._grown += max(0, more)
        return self._grown <= MOST_GROWTH

    def _accept(self, connection: socket.socket, sender: tuple[str, int]) -> None:
        if sender[0] != self._peer or len(self._connections) >= MOST_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[connection.fileno()] = connection

    def _echo_request(self, descriptor: int) -> None:
        """Echo one small request. What the socket does not accept at once is dropped."""
        connection = self._connections[descriptor]
        try:
            piece = connection.recv(PIECE)
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
