"""Foreign probes: a connection to the helper's echo, and a byte there and back, beside a test."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.host.kernel import FAMILIES

# Seconds between probes, so that at most 20 begin in a second. The draft allows 100 (MPS).
PROBE_SECONDS = 0.05
# Bytes of a probe on the wire, there or back, and the part of the capacity that the probes may
# use: the draft's PTC.
PROBE_BYTES, CAPACITY_SHARE = 700, 0.05
# Probes at the same time, fewer than the connections that an echo accepts; probes of one test.
MOST_OPEN, MOST_PROBES = 32, 1000
# Seconds after which a probe has failed.
FAILED_SECONDS = 5.0


class Times(NamedTuple):
    """When each answered probe began, by the monotonic clock, and how long its parts took.

    All in seconds. `failed` probes had no answer in time, or were refused.
    """

    begun: tuple[float, ...] = ()
    connected: tuple[float, ...] = ()
    answered: tuple[float, ...] = ()
    failed: int = 0


@dataclass
class _Probe:
    socket: socket.socket
    begun: float
    connected: Optional[float] = None


def probe_interval(rate: Optional[float]) -> float:
    """Seconds between probes on a path of `rate` bit/s; None if that is not known."""
    if not rate:
        return PROBE_SECONDS
    return max(PROBE_SECONDS, PROBE_BYTES * 8 / (CAPACITY_SHARE * rate))


class ForeignProbes:
    """A probe every `every` seconds, independent of the answers; see `RoundTrips` for its use.

    The constructor raises OSError.
    """

    def __init__(
        self, peer: Address, port: int, source: Address, every: float = PROBE_SECONDS
    ) -> None:
        self._peer, self._source, self._every = (str(peer), port), str(source), every
        self._family = FAMILIES[peer.version]
        self._poll = select.epoll()
        self._open: dict[int, _Probe] = {}
        self._rows: list[tuple[float, float, float]] = []
        self._failed = self._begun_count = 0
        self._next_due = time.monotonic()

    def fileno(self) -> int:
        """The descriptor on which something happens to a probe."""
        return self._poll.fileno()

    def due(self) -> float:
        """When `turn` is needed in any case, by the monotonic clock in seconds."""
        return self._next_due

    def turn(self) -> None:
        """Handle what has happened, and begin a probe if that is due."""
        for descriptor, _ in self._poll.poll(0):
            self._advance_probe(descriptor)
        now = time.monotonic()
        for descriptor in [
            descriptor
            for descriptor, probe in self._open.items()
            if now > probe.begun + FAILED_SECONDS
        ]:
            self._close(descriptor)
            self._failed += 1
        if now >= self._next_due:
            self._next_due = max(self._next_due + self._every, now)
            if len(self._open) < MOST_OPEN and self._begun_count < MOST_PROBES:
                self._begin(now)

    def end(self) -> Times:
        """Close everything. Probes under way are not counted."""
        for descriptor in list(self._open):
            self._close(descriptor)
        self._poll.close()
        if not self._rows:
            return Times(failed=self._failed)
        begun, connected, answered = zip(*self._rows)
        return Times(begun, connected, answered, self._failed)

    def _begin(self, now: float) -> None:
        self._begun_count += 1
        connection = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # Closed by a reset, so that its port does not stay in TIME_WAIT.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.bind((self._source, 0))
            with suppress(BlockingIOError):
                connection.connect(self._peer)
        except OSError:
            connection.close()
            self._failed += 1
            return
        self._open[connection.fileno()] = _Probe(connection, now)
        self._poll.register(connection.fileno(), select.EPOLLOUT)

    def _advance_probe(self, descriptor: int) -> None:
        """The connection is there, or the answer, or neither."""
        probe, now = self._open[descriptor], time.monotonic()
        try:
            if probe.connected is None:
                # Raises the error of the connection, if it has failed.
                probe.socket.send(b"?")
                probe.connected = now
                self._poll.modify(descriptor, select.EPOLLIN)
                return
            if probe.socket.recv(1):
                taken = (probe.connected - probe.begun, now - probe.connected)
                self._rows.append((probe.begun, *taken))
            else:
                self._failed += 1
        except OSError:
            self._failed += 1
        self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._open.pop(descriptor).socket.close()
