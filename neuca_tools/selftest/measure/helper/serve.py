"""The far end: `Server` serves tests for a bounded time, one after the other, and leaves nothing that listens.

Ports, P being that of the tests: P is iperf3's, for one test at a time; P+1 is where a test is asked for (TCP) and where
datagrams come back; P+2 is where connections come back. All of them on the one address that the client has spoken to; at P+2
broadcasts are answered too (UDP), of each device that has such an address.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Callable, Optional

from neuca_tools.backends.peerfilter import PeerFilter
from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.helper.channel import SERVER, Channel, small_segments
from neuca_tools.selftest.measure.helper.lobby import Lobby, Proven
from neuca_tools.selftest.measure.helper.serving import ServerSession
from neuca_tools.selftest.measure.host.kernel import FAMILIES
from neuca_tools.selftest.measure.probes.broadcast import IPV6_FREEBIND, LocalAddress, Responder

BACKLOG = 128  # connections that the kernel keeps until they are accepted
AFTER = (
    10  # seconds after its time at which the kernel ends this process, if it does not end by itself
)


class Server:
    """Serves whoever has the secret, at these addresses. Raises OSError where it cannot listen."""

    def __init__(
        self,
        addresses: Sequence[Address],
        port: int,
        secret: bytes,
        told: Callable[[str], None],
        places: Sequence[LocalAddress] = (),
    ) -> None:
        self._port, self._told = port, told
        self._lobby = Lobby(secret, told)
        self._filtered = can_filter(addresses[0], told)
        self._session: Optional[ServerSession] = None
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
        self._lobby.close()
        for one in self._listeners.values():
            one.close()

    def _turn(self, end: float) -> None:
        session, responder = self._session, self._responder
        sources = [*self._listeners, *self._lobby.waiting]
        wake = min(end, self._lobby.due())
        if responder:
            sources += responder.waiting
        if session:
            sources += session.waiting
            wake = min(wake, session.due())
        ready = set(select.select(sources, [], [], max(0.0, wake - time.monotonic()))[0])
        if responder:
            responder.turn(ready)
        for proven in self._lobby.turn(ready, session is not None):
            self._begin(proven)
        for descriptor in ready & self._listeners.keys():
            self._accept(self._listeners[descriptor])
        if session is not None and not session.turn(ready):
            session.close()
            self._session = None
            self._told(f"{session.peer}: {session.why}")

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # no more for now, or it is gone again
            for _ in range(BACKLOG):
                self._lobby.add(listener.accept()[0])

    def _begin(self, proven: Proven) -> None:
        ours = ip_address(proven.connection.getsockname()[0].partition("%")[0])
        self._told(f"{proven.address}: a test begins")
        self._session = ServerSession(
            proven.channel, ours, self._port, self._filtered, proven.address, proven.connection
        )


def serve_pipes(address: Address, port: int, seconds: float, told: Callable[[str], None]) -> None:
    """One session over standard input and output, for who has come by ssh; until it is closed, or its time is over."""
    end = _bounded(seconds)
    reading, writing = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # nothing but messages goes out there
    filtered = can_filter(address, told)
    session = ServerSession(Channel(reading, writing, SERVER), address, port, filtered)
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


def can_filter(address: Address, told: Callable[[str], None]) -> bool:
    """Whether this kernel can restrict a program to one peer; where it cannot, that is reported."""
    try:
        PeerFilter(address).close()
    except OSError as error:
        told(f"iperf3 will accept any host, not its client alone: BPF: {error.strerror}")
        return False
    return True


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
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
