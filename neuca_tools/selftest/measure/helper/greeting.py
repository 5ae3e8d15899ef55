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

from __future__ import annotations

import hmac
import re
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Callable, NamedTuple, Optional

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
# Bytes; the client's line is the longest, with 153.
LONGEST_LINE = 192
HELLO = re.compile(rb'\{"neuca-selftest":([0-9]{1,4}),"nonce":"([0-9a-f]{64})"\}\n')
CLAIM = re.compile(rb'\{"nonce":"([0-9a-f]{64})","proof":"([0-9a-f]{64})"\}\n')
WELCOME = re.compile(rb'\{(?:"(busy)":true,)?"proof":"([0-9a-f]{64})"\}\n')
REFUSAL = b'{"error":"another secret"}\n'
# The role in the proof of a server that is serving another client.
BUSY = "busy"


class ImpostorError(ChannelError):
    """The peer has another secret."""


class BusyError(ChannelError):
    """The server is serving another client."""


def session_proof(secret: bytes, what: str, ours: str, theirs: str) -> str:
    """64 hexadecimal digits that only a holder of the secret can compute.

    `what` is the role it is for; `ours` is the server's random number, `theirs` the client's.
    """
    text = f"neuca-selftest {PROTOCOL} {what} {ours} {theirs}"
    return hmac.new(secret, text.encode(), DIGEST).hexdigest()


def new_nonce() -> str:
    return secrets.token_hex(32)


class Greeting:
    """The server's side of one handshake. Raises ChannelError, as does `turn`."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self._nonce, self._line = connection, new_nonce(), b""
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
        theirs = claim[1].decode()
        if not hmac.compare_digest(claim[2], self._proof_for(secret, CLIENT, theirs)):
            self._send(REFUSAL)
            raise ImpostorError("another secret")
        if busy:
            self._send(b'{"busy":true,"proof":"%s"}\n' % self._proof_for(secret, BUSY, theirs))
            raise BusyError("busy")
        self._send(b'{"proof":"%s"}\n' % self._proof_for(secret, SERVER, theirs))
        return _signed_channel(self.connection, SERVER, secret, self._nonce, theirs)

    def _proof_for(self, secret: bytes, what: str, theirs: str) -> bytes:
        return session_proof(secret, what, self._nonce, theirs).encode()

    def _send(self, line: bytes) -> None:
        """Send a line at once, for which a new connection has room."""
        try:
            sent = self.connection.send(line)
        except OSError as error:
            raise ChannelError(f"answer it: {error.strerror}") from error
        if sent < len(line):
            raise ChannelError("answer it: it accepts nothing")


def greet_server(connection: socket.socket, secret: bytes, seconds: float) -> Channel:
    """The client's side, on a connected socket: the signed channel.

    Raises ChannelError, and of its subclasses ImpostorError if the secrets differ, BusyError if
    the server is serving another client.
    """
    deadline = time.monotonic() + seconds
    connection.setblocking(False)
    ours, own = _server_nonce(_read_line(connection, deadline, seconds)), new_nonce()
    own_proof = session_proof(secret, CLIENT, ours, own).encode()
    claim = b'{"nonce":"%s","proof":"%s"}\n' % (own.encode(), own_proof)
    try:
        connection.send(claim)
    except OSError as error:
        raise ChannelError(f"greet the peer: {error.strerror}") from error
    line = _read_line(connection, deadline, seconds)
    welcome = WELCOME.fullmatch(line)
    if welcome is None and line != REFUSAL:
        raise ChannelError("greet the peer: its response is not one of neuca-selftest --serve")
    what = SERVER
    if welcome and welcome[1]:
        what = BUSY
    known = session_proof(secret, what, ours, own).encode()
    if welcome is None or not hmac.compare_digest(welcome[2], known):
        raise ImpostorError("the host at the peer's address has another secret")
    if what == BUSY:
        raise BusyError("the peer: it is busy with another test")
    return _signed_channel(connection, CLIENT, secret, ours, own)


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
    connection: socket.socket, role: str, secret: bytes, ours: str, theirs: str
) -> Channel:
    channel = Channel(connection.fileno(), connection.fileno(), role)
    channel.lock(bytes.fromhex(session_proof(secret, "session", ours, theirs)))
    return channel


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
# Seconds for the handshake: one and a half round trips, with a lost segment.
HANDSHAKE_SECONDS = 5.0
# Refused connections that are logged.
MAX_REFUSALS = 100


class Proven(NamedTuple):
    """A connection whose other side knows the secret."""

    channel: Channel
    connection: socket.socket
    address: Address


class _Guest(NamedTuple):
    greeting: Greeting
    address: Address
    network: bytes
    deadline: float


class Lobby:
    """If it is full, the oldest connection of the network with the most connections is closed.

    A host that opens many connections therefore closes only its own.
    """

    def __init__(self, secret: bytes, log: Callable[[str], None]) -> None:
        self._secret, self._log = secret, log
        # By descriptor, the oldest first.
        self._guests: dict[int, _Guest] = {}
        self._refused = 0

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(self._guests)

    def due(self) -> float:
        """When the next handshake times out, by the monotonic clock; infinity without any."""
        return min((guest.deadline for guest in self._guests.values()), default=float("inf"))

    def add(self, connection: socket.socket) -> None:
        """Begin the handshake on a connection that was accepted."""
        try:
            address = ip_address(connection.getpeername()[0].partition("%")[0])
            guest = _Guest(
                Greeting(connection),
                address,
                network_of(address),
                time.monotonic() + HANDSHAKE_SECONDS,
            )
        except (OSError, ChannelError):
            # The client has closed it already.
            connection.close()
            return
        self._make_room(guest.network)
        self._guests[connection.fileno()] = guest

    def turn(self, ready: set[int], busy: bool) -> Iterator[Proven]:
        """Continue the handshakes at these descriptors, and close those that have timed out.

        `busy`: refuse clients that know the secret, because another one is being served.
        """
        for descriptor in [descriptor for descriptor in self._guests if descriptor in ready]:
            guest = self._guests[descriptor]
            try:
                channel = guest.greeting.turn(self._secret, busy)
            except ChannelError as reason:
                self._log_refusal(f"{guest.address}: refused, {reason}")
                self._close_guest(descriptor)
                continue
            if channel is not None:
                del self._guests[descriptor]
                busy = True
                yield Proven(channel, guest.greeting.connection, guest.address)
        now = time.monotonic()
        for descriptor in [key for key, guest in self._guests.items() if now >= guest.deadline]:
            self._close_guest(descriptor)

    def close(self) -> None:
        for descriptor in list(self._guests):
            self._close_guest(descriptor)

    def _make_room(self, newcomer: bytes) -> None:
        count = Counter(guest.network for guest in self._guests.values())
        if count[newcomer] >= MAX_PER_NETWORK:
            crowded = newcomer
        elif len(self._guests) >= MAX_CONNECTIONS:
            crowded = count.most_common(1)[0][0]
        else:
            return
        self._close_guest(
            next(key for key, guest in self._guests.items() if guest.network == crowded)
        )

    def _close_guest(self, descriptor: int) -> None:
        with suppress(OSError):
            self._guests.pop(descriptor).greeting.connection.close()

    def _log_refusal(self, text: str) -> None:
        self._refused += 1
        if self._refused <= MAX_REFUSALS:
            self._log(text)
        if self._refused == MAX_REFUSALS:
            self._log("further refused connections are not logged")


def network_of(address: Address) -> bytes:
    """The network of which a single host can use every address: a /32, or an IPv6 /64."""
    return address.packed if address.version == 4 else address.packed[:8]
