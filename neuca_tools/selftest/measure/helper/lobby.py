"""Connections during their handshake: few at a time, and each for a short time."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Callable, NamedTuple

from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.helper.channel import Channel, ChannelError
from neuca_tools.selftest.measure.helper.greeting import Greeting

# Connections at the same time: in total, and of one IPv4 address or one IPv6 /64, of which a single
# host can use every address.
MOST, MOST_OF_ONE = 64, 8
# Seconds for the handshake: one and a half round trips, with a lost segment.
PATIENCE = 5.0
# Refused connections that are logged.
MOST_REFUSALS = 100


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
        return min((one.deadline for one in self._guests.values()), default=float("inf"))

    def add(self, connection: socket.socket) -> None:
        """Begin the handshake on a connection that was accepted."""
        try:
            address = ip_address(connection.getpeername()[0].partition("%")[0])
            guest = _Guest(
                Greeting(connection), address, network(address), time.monotonic() + PATIENCE
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
        for descriptor in [one for one in self._guests if one in ready]:
            guest = self._guests[descriptor]
            try:
                channel = guest.greeting.turn(self._secret, busy)
            except ChannelError as reason:
                self._log_refusal(f"{guest.address}: refused, {reason}")
                self._drop(descriptor)
                continue
            if channel is not None:
                del self._guests[descriptor]
                busy = True
                yield Proven(channel, guest.greeting.connection, guest.address)
        now = time.monotonic()
        for descriptor in [key for key, one in self._guests.items() if now >= one.deadline]:
            self._drop(descriptor)

    def close(self) -> None:
        for descriptor in list(self._guests):
            self._drop(descriptor)

    def _make_room(self, newcomer: bytes) -> None:
        count = Counter(one.network for one in self._guests.values())
        if count[newcomer] >= MOST_OF_ONE:
            crowded = newcomer
        elif len(self._guests) >= MOST:
            crowded = count.most_common(1)[0][0]
        else:
            return
        self._drop(next(key for key, one in self._guests.items() if one.network == crowded))

    def _drop(self, descriptor: int) -> None:
        with suppress(OSError):
            self._guests.pop(descriptor).greeting.connection.close()

    def _log_refusal(self, text: str) -> None:
        self._refused += 1
        if self._refused <= MOST_REFUSALS:
            self._log(text)
        if self._refused == MOST_REFUSALS:
            self._log("further refused connections are not logged")


def network(address: Address) -> bytes:
    """The network of which a single host can use every address: a /32, or an IPv6 /64."""
    return address.packed if address.version == 4 else address.packed[:8]
