"""The handshake: both sides prove that they know the shared secret before anything else is read.

Three lines of a fixed form and length. Whatever a stranger sends is compared with a regular
expression of bytes and never parsed. Each side's proof is an HMAC (RFC 2104) of both sides'
random numbers, so that a recorded handshake is of no use:

    server  {"neuca-selftest":2,"nonce":"<64 hexadecimal digits>"}
    client  {"nonce":"<64>","proof":"<64>"}
    server  {"proof":"<64>"}, or {"busy":true,"proof":"<64>"}, or {"error":"another secret"}

A client of protocol 1 reads the first line as JSON and reports that it does not understand it.
"""

# SPDX-License-Identifier: MIT

import hmac
import re
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Callable, Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.helper.channel import (
    CLIENT,
    DIGEST,
    SERVER,
    Channel,
    ChannelError,
)
from neuca_tools.selftest.measure.wait import wait_readable

PROTOCOL = 2  # version of the protocol between the two hosts
LONGEST_LINE = 192  # bytes; the client's line is the longest, with 153
HELLO = re.compile(rb'\{"neuca-selftest":([0-9]{1,4}),"nonce":"([0-9a-f]{64})"\}\n')
CLAIM = re.compile(rb'\{"nonce":"([0-9a-f]{64})","proof":"([0-9a-f]{64})"\}\n')
WELCOME = re.compile(rb'\{(?:"(busy)":true,)?"proof":"([0-9a-f]{64})"\}\n')
REFUSAL = b'{"error":"another secret"}\n'
BUSY = "busy"  # the role in the proof of a server that is serving another client
# Seconds for the handshake: one and a half round trips, with a lost segment.
HANDSHAKE_SECONDS = 5.0


class ImpostorError(ChannelError):
    """The peer has another secret."""


class BusyError(ChannelError):
    """The server is serving another client."""


def session_proof(secret: bytes, role: str, server_nonce: str, client_nonce: str) -> bytes:
    """64 hexadecimal digits for a role, which only a holder of the secret can compute."""
    text = f"neuca-selftest {PROTOCOL} {role} {server_nonce} {client_nonce}"
    return hmac.new(secret, text.encode(), DIGEST).hexdigest().encode()


class ServerHandshake:
    """The server's side of one handshake with the client at `address`, within HANDSHAKE_SECONDS.

    Raises ChannelError, as does `turn`. `deadline` is by the monotonic clock.
    """

    def __init__(self, connection: socket.socket, address: Address) -> None:
        self.connection, self.address = connection, address
        self.deadline = time.monotonic() + HANDSHAKE_SECONDS
        self._nonce, self._line = secrets.token_hex(32), b""
        connection.setblocking(False)
        self._send(b'{"neuca-selftest":%d,"nonce":"%s"}\n' % (PROTOCOL, self._nonce.encode()))

    def turn(self, secret: bytes, busy: bool) -> Optional[Channel]:
        """Read what has arrived: the signed channel, or None while the line is incomplete."""
        self._line += _receive_bytes(self.connection, LONGEST_LINE + 1 - len(self._line))
        if not _is_complete(self._line):
            return None
        claim = CLAIM.fullmatch(self._line)
        if claim is None:
            raise ChannelError("it does not speak the protocol of neuca-selftest")
        nonces = self._nonce, claim[1].decode()
        if not hmac.compare_digest(claim[2], session_proof(secret, CLIENT, *nonces)):
            self._send(REFUSAL)
            raise ImpostorError("a different secret")
        proof = session_proof(secret, BUSY if busy else SERVER, *nonces)
        if busy:
            self._send(b'{"busy":true,"proof":"%s"}\n' % proof)
            raise BusyError("busy")
        self._send(b'{"proof":"%s"}\n' % proof)
        return _signed_channel(self.connection, SERVER, secret, nonces)

    def _send(self, line: bytes) -> None:
        """Send a line at once, for which a new connection has room."""
        try:
            sent = self.connection.send(line)
        except OSError as error:
            raise ChannelError(f"answer it: {error.strerror}") from error
        if sent < len(line):
            raise ChannelError("answer it: it accepts no data")


def client_handshake(connection: socket.socket, secret: bytes, seconds: float) -> Channel:
    """The client's side, on a connected socket: the signed channel.

    Raises ChannelError, and of its subclasses ImpostorError if the secrets differ, BusyError if
    the server is serving another client.
    """
    deadline = time.monotonic() + seconds
    connection.setblocking(False)
    nonces = _server_nonce(_read_line(connection, deadline, seconds)), secrets.token_hex(32)
    proof = session_proof(secret, CLIENT, *nonces)
    try:
        connection.send(b'{"nonce":"%s","proof":"%s"}\n' % (nonces[1].encode(), proof))
    except OSError as error:
        raise ChannelError(f"greet the peer: {error.strerror}") from error
    line = _read_line(connection, deadline, seconds)
    welcome = WELCOME.fullmatch(line)
    if welcome is None and line != REFUSAL:
        raise ChannelError("greet the peer: its response is not one of neuca-selftest --serve")
    role = BUSY if welcome and welcome[1] else SERVER
    expected = session_proof(secret, role, *nonces)
    if welcome is None or not hmac.compare_digest(welcome[2], expected):
        raise ImpostorError("the host at the peer's address has a different secret")
    if role == BUSY:
        raise BusyError("the peer: it is busy with another test")
    return _signed_channel(connection, CLIENT, secret, nonces)


def _server_nonce(line: bytes) -> str:
    """The random number in the server's first line. Raises ChannelError."""
    hello = HELLO.fullmatch(line)
    if hello is None:
        raise ChannelError("greet the peer: what listens there is not neuca-selftest --serve")
    if int(hello[1]) != PROTOCOL:
        raise ChannelError(
            f"greet the peer: it speaks protocol {int(hello[1])} of neuca-selftest, this host"
            f" protocol {PROTOCOL}: install the same version of neuca-guest-tools on both"
        )
    return hello[2].decode()


def _signed_channel(
    connection: socket.socket, role: str, secret: bytes, nonces: tuple[str, str]
) -> Channel:
    key = bytes.fromhex(session_proof(secret, "session", *nonces).decode())
    return Channel(connection.fileno(), connection.fileno(), role, key)


def _read_line(connection: socket.socket, deadline: float, seconds: float) -> bytes:
    line = b""
    while not _is_complete(line):
        if not wait_readable([connection], deadline):
            raise ChannelError(f"greet the peer: no response within {seconds:g} s")
        try:
            line += _receive_bytes(connection, LONGEST_LINE + 1 - len(line))
        except ChannelError as error:
            raise ChannelError(f"greet the peer: {error}") from error
    return line


def _is_complete(line: bytes) -> bool:
    """Whether the line has ended, or is longer than any line of the protocol."""
    return b"\n" in line or len(line) > LONGEST_LINE


def _receive_bytes(connection: socket.socket, room: int) -> bytes:
    try:
        piece = connection.recv(room)
    except BlockingIOError:
        return b""
    except OSError as error:
        raise ChannelError(f"{error.strerror}") from error
    if not piece:
        raise ChannelError("it closed the connection")
    return piece


# Connections at the same time: in total, and of one IPv4 address or one IPv6 /64, of which a single
# host can use every address.
MAX_CONNECTIONS, MAX_PER_NETWORK = 64, 8
MAX_REFUSALS = 100  # refused connections that are logged


class PendingClients:
    """The connections whose handshake is under way.

    If there are too many, the oldest one of the network with the most connections is closed, so
    that a host that opens many connections closes only its own.
    """

    def __init__(self, secret: bytes, log: Callable[[str], None]) -> None:
        self._secret, self._log = secret, log
        # By descriptor, the oldest first.
        self._clients: dict[int, ServerHandshake] = {}
        self._refused = 0

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(self._clients)

    def due(self) -> float:
        """When the next handshake times out, by the monotonic clock; infinity without any."""
        return min((client.deadline for client in self._clients.values()), default=float("inf"))

    def add(self, connection: socket.socket) -> None:
        """Begin the handshake on a connection that was accepted."""
        try:
            client = ServerHandshake(connection, address_of(connection.getpeername()))
        except (OSError, ChannelError):
            # The client has closed it already.
            connection.close()
            return
        self._make_room(network_of(client.address))
        self._clients[connection.fileno()] = client

    def turn(self, ready: set[int], busy: bool) -> Iterator[tuple[Channel, ServerHandshake]]:
        """Continue the handshakes at these descriptors, and close those that have timed out.

        Those that are complete leave, each with its channel. `busy`: refuse clients that know the
        secret, because another one is being served.
        """
        for descriptor in [descriptor for descriptor in self._clients if descriptor in ready]:
            client = self._clients[descriptor]
            try:
                channel = client.turn(self._secret, busy)
            except ChannelError as reason:
                self._log_refusal(f"{client.address}: refused, {reason}")
                self._close_client(descriptor)
                continue
            if channel is not None:
                del self._clients[descriptor]
                busy = True
                yield channel, client
        now = time.monotonic()
        for descriptor in [key for key, client in self._clients.items() if now >= client.deadline]:
            self._close_client(descriptor)

    def close(self) -> None:
        for descriptor in list(self._clients):
            self._close_client(descriptor)

    def _make_room(self, network: bytes) -> None:
        """Close the connection, if any, that has to make room for a new one from this network."""
        networks = {key: network_of(client.address) for key, client in self._clients.items()}
        count = Counter(networks.values())
        if count[network] < MAX_PER_NETWORK:
            if len(networks) < MAX_CONNECTIONS:
                return
            network = count.most_common(1)[0][0]
        self._close_client(next(key for key in networks if networks[key] == network))

    def _close_client(self, descriptor: int) -> None:
        with suppress(OSError):
            self._clients.pop(descriptor).connection.close()

    def _log_refusal(self, text: str) -> None:
        self._refused += 1
        if self._refused <= MAX_REFUSALS:
            self._log(text)
        if self._refused == MAX_REFUSALS:
            self._log("further refused connections are not logged")


def address_of(address: tuple[Any, ...]) -> Address:
    """The IP address in the address of a socket."""
    return ip_address(str(address[0]).partition("%")[0])


def network_of(address: Address) -> bytes:
    """The network of which a single host can use every address: a /32, or an IPv6 /64."""
    return address.packed if address.version == 4 else address.packed[:8]
