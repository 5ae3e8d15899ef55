"""A request to everybody on the network, and who answers how soon: UDP to 255.255.255.255 or ff02::1.

A host that answers broadcasts can be made to send to a third one. Three rules prevent that. Every
message carries an HMAC over its kind, the addresses and ports that it comes from and goes to, and
the asker's random number: a request that is sent again from another address is not one. A host
answers only an asker that has returned the random number which was sent to its address:

    asker      query      to everybody: the first WARM numbers of a run
    responder  challenge  to the asker, with a random number of its own
    asker      return     of that random number to the responder: the address is the asker's
    asker      request    to everybody, one number after the other
    responder  answer     once to each number, and only if it is higher than the last

So whatever is sent again is not answered, by this responder or by one that starts later. All
messages have the same size, and a responder sends no more than so many of them a second.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_bytes
from typing import NamedTuple, Optional, Union

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Broadcast
from neuca_tools.selftest.measure.helper.answering import (
    ANSWER,
    CHALLENGE,
    QUERY,
    REQUEST,
    RETURN,
    SIZE,
    Answering,
    Endpoints,
    endpoint,
    message,
    read,
)
from neuca_tools.selftest.measure.host.kernel import FAMILIES
from neuca_tools.selftest.measure.probes.roundtrip import latency

EVERYBODY = {
    4: "255.255.255.255",
    6: "ff02::1",
}  # RFC 919; RFC 4291, 2.7.1: neither leaves the network
COUNT, EVERY = 50, 0.1  # requests, seconds between them
WARM = 3  # queries, which are not counted: addresses are proved, and resolved
LATE = 1.0  # seconds after the last request
MOST = 1024  # who may be expected: the ports of a bridge (BR_PORT_BITS)
ROOM = 2048  # bytes of a receive buffer that an answer takes, with what the kernel adds
MANY = 64  # datagrams that are taken in one turn
IPV6_FREEBIND = (
    78  # linux/in6.h: of an address that is new the kernel still tries whether somebody else has it
)
SO_RCVBUFFORCE = 33  # asm-generic/socket.h


class LocalAddress(NamedTuple):
    """An address to answer from, and its device."""

    address: Address
    device: str
    number: int


class _Post(NamedTuple):
    """A socket of a responder, where its datagrams are sent to, and the socket that answers."""

    heard: socket.socket
    where: bytes
    sender: socket.socket


class Responder:
    """Answers at these addresses, one for each device and family. Raises OSError where it cannot listen."""

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
        """Answer what has come at these descriptors."""
        for descriptor in ready & self._posts.keys():
            post = self._posts[descriptor]
            own = endpoint(post.sender.getsockname())
            with suppress(OSError):  # nothing more for now, or an answer that cannot be sent
                for _ in range(MANY):
                    datagram, asker = post.heard.recvfrom(SIZE + 1)
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
    """So many requests, and all answers to them. Raises OSError."""
    with _datagrams(place.address) as asking:
        _to(asking, place)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        with suppress(OSError):  # for root
            asking.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM * (expected or MOST))
        asking.bind((str(place.address), 0))
        run = _Run(asking, secret, _everybody(place, port))
        for number in range(1, count + WARM + 1):
            run.send(number)
            run.take(run.sent[number] + EVERY)
        enough = len(run.sent) * expected if expected else None
        run.take(time.monotonic() + LATE, enough)
    return judged(run.sent, run.came, expected)


class _Run:
    """One asker: when each number was sent, and when each host has answered it."""

    def __init__(
        self,
        asking: socket.socket,
        secret: bytes,
        everybody: Union[tuple[str, int], tuple[str, int, int, int]],
    ) -> None:
        self._socket, self._secret, self._everybody = asking, secret, everybody
        self._own, self._nonce = endpoint(asking.getsockname()), token_bytes(16)
        self.sent: dict[int, float] = {}
        self.came: dict[str, dict[int, float]] = {}

    def send(self, number: int) -> None:
        kind = QUERY if number <= WARM else REQUEST
        route = Endpoints(self._own, endpoint(self._everybody))
        datagram = message(kind, self._nonce, number, route, self._secret)
        self.sent[number] = time.monotonic()
        with suppress(OSError):  # a full queue: it is lost like any other
            self._socket.sendto(datagram, self._everybody)

    def take(self, until: float, enough: Optional[int] = None) -> None:
        """Answers up to a time, or until there are enough of them."""
        while enough is None or sum(map(len, self.came.values())) < enough:
            left = max(0.0, until - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                return
            with suppress(OSError):
                for _ in range(MANY):
                    self._hear(*self._socket.recvfrom(SIZE + 1))
            if time.monotonic() >= until:
                return

    def _hear(self, datagram: bytes, sender: tuple[str, int]) -> None:
        now, theirs = time.monotonic(), endpoint(sender)
        route = Endpoints(theirs, self._own)
        known = sender[0] in self.came or len(self.came) < 2 * MOST
        answer = read(datagram, ANSWER, route, self._secret)
        challenge = read(datagram, CHALLENGE, route, self._secret, self._nonce)
        if not known or (challenge is None and (answer is None or answer[0] != self._nonce)):
            return
        if challenge is not None:
            number, back = challenge[1], Endpoints(self._own, theirs)
            proof = message(RETURN, self._nonce, number, back, self._secret, challenge[0])
            with suppress(OSError):
                self._socket.sendto(proof, sender)
        elif answer is not None:
            number = answer[1]
        self.came.setdefault(sender[0], {}).setdefault(number, now)


def judged(
    sent: Mapping[int, float], came: Mapping[str, Mapping[int, float]], expected: Optional[int]
) -> Broadcast:
    """Times are of every answer; lost is what each of those expected did not answer, and of whoever has answered once."""
    counted = [number for number in sent if number > WARM]
    times = [
        answers[number] - sent[number]
        for answers in came.values()
        for number in counted
        if number in answers
    ]
    lost = max(expected or 0, len(came)) * len(counted) - len(times)
    return Broadcast(expected, len(came), latency(times, lost))


def _datagrams(address: Address) -> socket.socket:
    found = socket.socket(
        FAMILIES[address.version], socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    )
    if address.version == 6:
        found.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    return found


def _to(one: socket.socket, place: LocalAddress) -> None:
    """Of this device alone."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, place.device.encode() + b"\0")


def _everybody(place: LocalAddress, port: int) -> Union[tuple[str, int], tuple[str, int, int, int]]:
    return (
        (EVERYBODY[4], port)
        if place.address.version == 4
        else (EVERYBODY[6], port, 0, place.number)
    )
