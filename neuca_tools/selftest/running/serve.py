"""The far end: `Server` serves tests for a bounded time, one after the other, and leaves nothing that listens.

Ports, P being that of the tests: P is iperf3's, for one test at a time; P+1 is where a test is asked for (TCP) and where
datagrams come back; P+2 is where connections come back. All of them on the one address that the client has spoken to; at P+2
broadcasts are answered too (UDP), of each device that has such an address.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hmac
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Callable, Optional

from ...model import Host as Address
from .broadcast import IPV6_FREEBIND, Place, Responder
from .channel import (
    CLIENT,
    GREETING,
    PROTOCOL,
    SERVER,
    Channel,
    ChannelError,
    nonce,
    proof,
    small_segments,
)
from .kernel import FAMILIES
from .serving import Session

GREETINGS = 8  # at once, of those who have proved nothing yet
PATIENCE = 10.0  # seconds for a greeting
AFTER = (
    10  # seconds after its time at which the kernel ends this process, if it does not end by itself
)


class Greeting:
    """Somebody who has connected, and has to prove first who he is."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.nonce = connection, nonce()
        self.deadline = time.monotonic() + PATIENCE
        self.channel = Channel(connection.fileno(), connection.fileno(), SERVER)
        self.channel.longest = GREETING
        self.channel.send({"neuca-selftest": PROTOCOL, "nonce": self.nonce}, PATIENCE)

    def proven(self, secret: bytes, busy: bool) -> bool:
        """Whether the handshake is done. Raises ChannelError where it has failed."""
        self.channel.take()
        answer = self.channel.next()
        if answer is None:
            return False
        theirs = str(answer.get("nonce"))
        known = hmac.compare_digest(
            str(answer.get("proof")).encode(), proof(secret, CLIENT, self.nonce, theirs).encode()
        )
        if not known or busy:
            self.channel.send({"busy": True} if known else {"error": "another secret"}, PATIENCE)
            raise ChannelError("busy" if known else "another secret")
        self.channel.send({"proof": proof(secret, SERVER, self.nonce, theirs)}, PATIENCE)
        self.channel.lock(bytes.fromhex(proof(secret, "session", self.nonce, theirs)))
        return True


class Server:
    """Serves whoever has the secret, at these addresses. Raises OSError where it cannot listen."""

    def __init__(
        self,
        addresses: Sequence[Address],
        port: int,
        secret: bytes,
        told: Callable[[str], None],
        places: Sequence[Place] = (),
    ) -> None:
        self._port, self._secret, self._told = port, secret, told
        self._greetings: dict[int, Greeting] = {}
        self._session: Optional[Session] = None
        self._listeners: dict[int, socket.socket] = {}
        self._responder: Optional[Responder] = None
        try:
            for address in addresses:
                listener = _listen(address, port + 1)
                self._listeners[listener.fileno()] = listener
            self._responder = Responder(
                {(one.number, one.address.version): one for one in reversed(places)},
                port + 2,
                secret,
            )
        except OSError:
            self.close()
            raise

    def run(self, seconds: float) -> None:
        """Until the time is over. A test that has begun by then is cut short: its client was told how long there is."""
        end = _bounded(seconds)
        try:
            while time.monotonic() < end:
                self._turn(end)
        finally:
            self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._responder is not None:
            self._responder.close()
        for one in (
            *self._listeners.values(),
            *(greeting.connection for greeting in self._greetings.values()),
        ):
            one.close()

    def _turn(self, end: float) -> None:
        session = self._session
        wake = min(
            [
                end,
                *(one.deadline for one in self._greetings.values()),
                *([session.due()] if session else []),
            ]
        )
        answering = self._responder.waiting if self._responder else ()
        sources = [
            *self._listeners,
            *self._greetings,
            *answering,
            *(session.waiting if session else ()),
        ]
        ready = set(select.select(sources, [], [], max(0.0, wake - time.monotonic()))[0])
        if self._responder:
            self._responder.turn(ready)
        for descriptor in ready & self._listeners.keys():
            self._accept(self._listeners[descriptor])
        for descriptor in [one for one in self._greetings if one in ready]:
            self._hear(descriptor)
        for descriptor in [
            number for number, one in self._greetings.items() if time.monotonic() > one.deadline
        ]:
            self._greetings.pop(descriptor).connection.close()
        if session is not None and not session.turn(ready):
            session.close()
            self._session = None
            self._told(f"{session.peer}: {session.why}")

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError, ChannelError):  # it has gone again
            connection, _ = listener.accept()
            if len(self._greetings) >= GREETINGS:
                connection.close()
                return
            self._greetings[connection.fileno()] = Greeting(connection)

    def _hear(self, descriptor: int) -> None:
        greeting = self._greetings[descriptor]
        try:
            if not greeting.proven(self._secret, self._session is not None):
                return
        except ChannelError as reason:
            self._told(f"{_name(greeting.connection)}: refused, {reason}")
            self._greetings.pop(descriptor).connection.close()
            return
        del self._greetings[descriptor]
        ours, theirs = (
            ip_address(name[0])
            for name in (greeting.connection.getsockname(), greeting.connection.getpeername())
        )
        self._told(f"{theirs}: a test begins")
        self._session = Session(greeting.channel, ours, self._port, theirs, greeting.connection)


def serve_pipes(address: Address, port: int, seconds: float) -> None:
    """One session over standard input and output, for who has come by ssh; until it is closed, or its time is over."""
    end = _bounded(seconds)
    reading, writing = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # nothing but messages goes out there
    session = Session(Channel(reading, writing, SERVER), address, port)
    try:
        while time.monotonic() < end:
            wake = min(end, session.due())
            ready = set(
                select.select(session.waiting, [], [], max(0.0, wake - time.monotonic()))[0]
            )
            if not session.turn(ready):
                return
    finally:
        session.close()


def secret_token() -> bytes:
    return secrets.token_bytes(16)


def _bounded(seconds: float) -> float:
    """When the time is over. A process that hangs all the same is ended by the kernel a little later, with its iperf3."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + AFTER)
    return time.monotonic() + seconds


def _listen(address: Address, port: int) -> socket.socket:
    listener = socket.socket(
        FAMILIES[address.version], socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    )
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        small_segments(listener)
        if address.version == 6:
            listener.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
        listener.bind((str(address), port))
        listener.listen(GREETINGS)
    except OSError:
        listener.close()
        raise
    return listener


def _name(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:
        return "somebody"
