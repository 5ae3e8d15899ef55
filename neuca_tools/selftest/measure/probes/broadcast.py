"""Requests to all hosts on the network, by UDP to 255.255.255.255 or ff02::1, and their answers.

A host that answers broadcasts could be made to send packets to a third host. Three rules prevent
that. Every message carries an HMAC over its kind, its source and destination with their ports, and
the asker's random number, so that it is invalid if it is sent again from another address. A host
answers only an asker that has returned the random number that was sent to its address:

    asker      query      to all: the first WARM numbers of a run
    responder  challenge  to the asker, with a random number of its own
    asker      return     of that random number to the responder: the address is the asker's
    asker      request    to all, one number after the other
    responder  answer     once to each number, and only if it is higher than the last

A repeated message is therefore not answered, by this responder or by one that starts later. All
messages have the same size, and a responder limits how many it sends per second.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_bytes
from typing import NamedTuple, Optional, Union

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Broadcast
from neuca_tools.selftest.measure.helper import answering
from neuca_tools.selftest.measure.helper.answering import Answering, Endpoints, endpoint, message
from neuca_tools.selftest.measure.host.kernel import FAMILIES
from neuca_tools.selftest.measure.probes.roundtrip import latency
from neuca_tools.selftest.measure.wait import readable

# RFC 919, and RFC 4291 section 2.7.1: no router forwards them.
EVERYBODY = {4: "255.255.255.255", 6: "ff02::1"}
# Requests, and seconds between them.
COUNT, EVERY = 50, 0.1
# Queries, which are not counted: they prove and resolve addresses.
WARM = 3
# Seconds to wait after the last request.
LATE = 1.0
# The most hosts that can be expected: the ports of a bridge (BR_PORT_BITS).
MOST = 1024
# Bytes of the receive buffer that an answer takes, with the kernel's overhead.
ROOM = 2048
# Datagrams that one turn handles.
MANY = 64
# linux/in6.h. Without it a new address cannot be bound during duplicate address detection.
IPV6_FREEBIND = 78
# asm-generic/socket.h.
SO_RCVBUFFORCE = 33


Destination = Union[tuple[str, int], tuple[str, int, int, int]]


class LocalAddress(NamedTuple):
    """An address to answer from, and its device."""

    address: Address
    device: str
    number: int


class _Post(NamedTuple):
    """A socket of a responder, the endpoint it receives for, and the socket that answers."""

    heard: socket.socket
    where: bytes
    sender: socket.socket


class Responder:
    """Answers on these addresses, one for each device and IP version.

    The constructor raises OSError if it cannot listen.
    """

    def __init__(
        self, places: Mapping[tuple[int, int], LocalAddress], port: int, secret: bytes
    ) -> None:
        self._answering = Answering(secret)
        self._posts: dict[int, _Post] = {}
        try:
            for place in places.values():
                self._open(place, port)
        except OSError:
            self.close()
            raise

    def _open(self, place: LocalAddress, port: int) -> None:
        listener, sender = _datagrams(place.address), _datagrams(place.address)
        everybody = _everybody(place, port)
        self._posts[listener.fileno()] = _Post(listener, endpoint(everybody), sender)
        self._posts[sender.fileno()] = _Post(sender, b"", sender)
        _to(listener, place)
        listener.bind(everybody)
        sender.bind((str(place.address), 0))
        own = endpoint(sender.getsockname())
        self._posts[sender.fileno()] = _Post(sender, own, sender)

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(self._posts)

    def turn(self, ready: set[int]) -> None:
        """Answer what has arrived at these descriptors."""
        for descriptor in ready & self._posts.keys():
            post = self._posts[descriptor]
            own = endpoint(post.sender.getsockname())
            # No more datagrams for now, or an answer that cannot be sent.
            with suppress(OSError):
                for _ in range(MANY):
                    datagram, asker = post.heard.recvfrom(answering.SIZE + 1)
                    reply = self._answering.reply(
                        datagram, Endpoints(endpoint(asker), post.where), own, time.monotonic()
                    )
                    if reply is not None:
                        post.sender.sendto(reply, asker)

    def close(self) -> None:
        for post in self._posts.values():
            post.heard.close()
        self._posts.clear()


def ask(
    place: LocalAddress, port: int, secret: bytes, expected: Optional[int], count: int = COUNT
) -> Broadcast:
    """Send `count` requests and collect the answers. Raises OSError.

    `expected` is how many hosts should answer; None if that is unknown.
    """
    with _datagrams(place.address) as asking:
        _to(asking, place)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        # Only root may exceed net.core.rmem_max.
        with suppress(OSError):
            asking.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM * (expected or MOST))
        asking.bind((str(place.address), 0))
        run = _Run(asking, secret, _everybody(place, port))
        for number in range(1, count + WARM + 1):
            run.send(number)
            run.take(run.sent[number] + EVERY)
        enough = len(run.sent) * expected if expected else None
        run.take(time.monotonic() + LATE, enough)
    return result_of(run.sent, run.answered, expected)


class _Run:
    """One asker: when each number was sent, and when each host has answered it."""

    def __init__(
        self,
        asking: socket.socket,
        secret: bytes,
        everybody: Destination,
    ) -> None:
        self._socket, self._secret, self._everybody = asking, secret, everybody
        self._own, self._nonce = endpoint(asking.getsockname()), token_bytes(16)
        self.sent: dict[int, float] = {}
        self.answered: dict[str, dict[int, float]] = {}

    def send(self, number: int) -> None:
        kind = answering.REQUEST
        if number <= WARM:
            kind = answering.QUERY
        route = Endpoints(self._own, endpoint(self._everybody))
        datagram = message(kind, self._nonce, number, route, self._secret)
        self.sent[number] = time.monotonic()
        # A full queue loses the request like any other.
        with suppress(OSError):
            self._socket.sendto(datagram, self._everybody)

    def take(self, until: float, enough: Optional[int] = None) -> None:
        """Collect answers until a monotonic time, or until there are `enough`."""
        while enough is None or sum(map(len, self.answered.values())) < enough:
            if not readable([self._socket], until):
                return
            with suppress(OSError):
                for _ in range(MANY):
                    self._hear(*self._socket.recvfrom(answering.SIZE + 1))
            if time.monotonic() >= until:
                return

    def _hear(self, datagram: bytes, sender: tuple[str, int]) -> None:
        now, theirs = time.monotonic(), endpoint(sender)
        route = Endpoints(theirs, self._own)
        known = sender[0] in self.answered or len(self.answered) < 2 * MOST
        answer = answering.read(datagram, answering.ANSWER, route, self._secret)
        challenge = answering.read(datagram, answering.CHALLENGE, route, self._secret, self._nonce)
        if not known or (challenge is None and (answer is None or answer[0] != self._nonce)):
            return
        if challenge is not None:
            number, back = challenge[1], Endpoints(self._own, theirs)
            proof = message(
                answering.RETURN, self._nonce, number, back, self._secret, known=challenge[0]
            )
            with suppress(OSError):
                self._socket.sendto(proof, sender)
        elif answer is not None:
            number = answer[1]
        self.answered.setdefault(sender[0], {}).setdefault(number, now)


def result_of(
    sent: Mapping[int, float], answered: Mapping[str, Mapping[int, float]], expected: Optional[int]
) -> Broadcast:
    """The result of a run.

    Lost are the requests that an expected host, or one that answered others, did not answer.
    """
    counted = [number for number in sent if number > WARM]
    times: list[float] = []
    for answers in answered.values():
        times += [answers[number] - sent[number] for number in counted if number in answers]
    lost = max(expected or 0, len(answered)) * len(counted) - len(times)
    return Broadcast(expected, len(answered), latency(times, lost))


def _datagrams(address: Address) -> socket.socket:
    found = socket.socket(FAMILIES[address.version], socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    if address.version == 6:
        found.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    return found


def _to(one: socket.socket, place: LocalAddress) -> None:
    """Send and receive through this device only."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, place.device.encode() + b"\0")


def _everybody(place: LocalAddress, port: int) -> Destination:
    if place.address.version == 4:
        return EVERYBODY[4], port
    return EVERYBODY[6], port, 0, place.number
