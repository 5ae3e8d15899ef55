"""The server: `Server` serves tests, one after the other, for a limited time.

It uses three ports, on the address that the client connected to. P is that of iperf3, during a test
only. P+1 takes requests (TCP) and echoes datagrams. P+2 echoes connections.
"""

# SPDX-License-Identifier: MIT

import os
import resource
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Callable, Optional

from neuca_tools.backends.peerfilter import PeerFilter
from neuca_tools.backends.routing import FAMILIES
from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.helper import handshake
from neuca_tools.selftest.measure.helper.channel import SERVER, Channel, small_segments
from neuca_tools.selftest.measure.helper.serving import ServerSession
from neuca_tools.selftest.measure.wait import wait_readable

# linux/in6.h. Without it a new address cannot be bound during duplicate address detection.
IPV6_FREEBIND = 78
BACKLOG = 128  # connections that the kernel keeps until they are accepted
# Seconds after which a client that has vanished no longer keeps others out, however long its test
# was to be, and between the probes that find out (tcp(7)): a lossy path may drop some of them.
VANISHED_SECONDS, PROBE_SECONDS = 30, 2
ALARM_SECONDS = 10  # beyond its time, after which SIGALRM ends a process that hangs


class Server:
    """Serves every client that knows the secret, on these addresses.

    `log` is called with each line to log. Only hosts in `clients` are accepted, unless that is
    None. The constructor raises OSError if it cannot listen.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        port: int,
        secret: bytes,
        log: Callable[[str], None],
        clients: Optional[frozenset[Address]] = None,
    ) -> None:
        self._port, self._log, self._clients = port, log, clients
        self._pending = handshake.PendingClients(secret, log)
        self._can_filter = can_filter(addresses[0], log)
        self._session: Optional[ServerSession] = None
        self._listeners: dict[int, socket.socket] = {}
        # A host may have more addresses than the usual soft limit of 1024 descriptors.
        # A service may forbid to raise it (SystemCallFilter=): Python raises ValueError for EPERM.
        with suppress(OSError, ValueError):
            hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        try:
            for address in addresses:
                listener = _listen_at(address, port + 1)
                self._listeners[listener.fileno()] = listener
        except OSError:
            self.close()
            raise

    def run(self, seconds: float) -> None:
        """Serve for `seconds`. A test under way at the end is aborted."""
        end = _end_within(seconds)
        try:
            while time.monotonic() < end:
                self._turn(end)
        finally:
            self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._pending.close()
        for listener in self._listeners.values():
            listener.close()

    def _turn(self, end: float) -> None:
        session = self._session
        descriptors = [*self._listeners, *self._pending.waiting]
        wake = min(end, self._pending.due())
        if session:
            descriptors += session.waiting
            wake = min(wake, session.due())
        ready = set(wait_readable(descriptors, wake))
        for channel, client in self._pending.turn(ready, session is not None):
            self._begin_session(channel, client)
        for descriptor in ready & self._listeners.keys():
            self._accept(self._listeners[descriptor])
        if session is not None and not session.turn(ready):
            session.close()
            self._session = None
            self._log(f"{session.peer}: {session.end_reason}")

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            for _ in range(BACKLOG):
                connection, address = listener.accept()
                if self._clients is None or handshake.address_of(address) in self._clients:
                    self._pending.add(connection)
                else:
                    connection.close()

    def _begin_session(self, channel: Channel, client: handshake.ServerHandshake) -> None:
        self._log(f"{client.address}: a test begins")
        self._session = ServerSession(
            channel,
            handshake.address_of(client.connection.getsockname()),
            self._port,
            self._can_filter,
            peer=client.address,
            connection=client.connection,
        )


def serve_pipes(address: Address, port: int, seconds: float, log: Callable[[str], None]) -> None:
    """Serve one session over standard input and output, for a client that came by ssh.

    Returns when the client has ended it, or after `seconds`.
    """
    end = _end_within(seconds)
    reading, writing = os.dup(0), os.dup(1)
    # Other output must not appear among the messages.
    os.dup2(2, 1)
    channel = Channel(reading, writing, SERVER)
    session = ServerSession(channel, address, port, can_filter(address, log))
    try:
        while time.monotonic() < end:
            if not session.turn(set(wait_readable(session.waiting, min(end, session.due())))):
                return
    finally:
        session.close()


def can_filter(address: Address, log: Callable[[str], None]) -> bool:
    """Whether this kernel can restrict a program to one peer; if not, log that."""
    try:
        PeerFilter(address).close()
    except OSError as error:
        log(f"iperf3 will accept any host, not its client alone: BPF: {error.strerror}")
        return False
    return True


def _end_within(seconds: float) -> float:
    """The monotonic time at which `seconds` are over.

    If this process hangs, SIGALRM ends it ALARM_SECONDS seconds later; its iperf3 ends with it.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + ALARM_SECONDS)
    return time.monotonic() + seconds


def _listen_at(address: Address, port: int) -> socket.socket:
    listener = socket.socket(FAMILIES[address.version], socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        small_segments(listener)
        # Connections inherit these.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            listener.setsockopt(socket.IPPROTO_TCP, option, PROBE_SECONDS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, VANISHED_SECONDS * 1000)
        if address.version == 6:
            listener.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
        listener.bind((str(address), port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
