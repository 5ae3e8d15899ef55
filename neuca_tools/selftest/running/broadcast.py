"""A request to everybody on the network at once, and who answers how soon: UDP to 255.255.255.255 or ff02::1.

Only who has the secret is answered, only to its own address, with as many bytes as it sent, and only so many times a second.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hmac
import select
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_bytes
from typing import NamedTuple, Optional, Union

from ...model import Host as Address
from ..evidence import Broadcast
from .kernel import FAMILIES
from .roundtrip import latency

EVERYBODY = {
    4: "255.255.255.255",
    6: "ff02::1",
}  # RFC 919; RFC 4291, 2.7.1: neither leaves the network
FORM = struct.Struct(
    "!4s16sI32s"
)  # which of the two, the asker's random number, the request's number, HMAC-SHA256
REQUEST, ANSWER = b"nsQ1", b"nsA1"
COUNT, EVERY = 50, 0.1  # requests, seconds between them
WARM = 3  # requests that are not counted: answers resolve addresses first
LATE = 1.0  # seconds after the last request
MOST = 1024  # who may be expected: the ports of a bridge (BR_PORT_BITS)
ROOM = 2048  # bytes of a receive buffer that an answer takes, with what the kernel adds
ANSWERS = 50  # a second, of one responder: five times what one asker asks
MANY = 64  # datagrams that are taken in one turn
IPV6_FREEBIND = (
    78  # linux/in6.h: of an address that is new the kernel still tries whether somebody else has it
)
SO_RCVBUFFORCE = 33  # asm-generic/socket.h


class Place(NamedTuple):
    """An address to answer from, and its device."""

    address: Address
    device: str
    number: int


class Responder:
    """Answers at these addresses, one for each device and family. Raises OSError where it cannot listen."""

    def __init__(self, places: Mapping[tuple[int, int], Place], port: int, secret: bytes) -> None:
        self._secret, self._answered = secret, 0
        self._second = time.monotonic()
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}
        try:
            for place in places.values():
                listener, sender = _datagrams(place.address), _datagrams(place.address)
                self._pairs[listener.fileno()] = listener, sender
                _to(listener, place)
                listener.bind(_everybody(place, port))
                sender.bind((str(place.address), 0))
        except OSError:
            self.close()
            raise

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(self._pairs)

    def turn(self, ready: set[int]) -> None:
        """Answer what has come at these descriptors."""
        for descriptor in ready & self._pairs.keys():
            listener, sender = self._pairs[descriptor]
            with suppress(OSError):  # nothing more for now, or an answer that cannot be sent
                for _ in range(MANY):
                    self._answer(sender, *listener.recvfrom(FORM.size + 1))

    def _answer(self, sender: socket.socket, datagram: bytes, asker: tuple[str, int]) -> None:
        if time.monotonic() - self._second >= 1:
            self._second, self._answered = time.monotonic(), 0
        request = _read(datagram, REQUEST, self._secret)
        if request is not None and self._answered < ANSWERS:
            self._answered += 1
            with suppress(OSError):
                sender.sendto(_message(ANSWER, *request, self._secret), asker)

    def close(self) -> None:
        for pair in self._pairs.values():
            for one in pair:
                one.close()
        self._pairs.clear()


def ask(
    place: Place, port: int, secret: bytes, expected: Optional[int], count: int = COUNT
) -> Broadcast:
    """So many requests, and all answers to them. Raises OSError."""
    nonce, sent = token_bytes(16), dict[int, float]()
    came: dict[str, dict[int, float]] = {}
    with _datagrams(place.address) as asking:
        _to(asking, place)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        with suppress(OSError):  # for root
            asking.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM * (expected or MOST))
        asking.bind((str(place.address), 0))
        for number in range(1, count + WARM + 1):
            sent[number] = time.monotonic()
            with suppress(OSError):  # a full queue: it is lost like any other
                asking.sendto(_message(REQUEST, nonce, number, secret), _everybody(place, port))
            _take(asking, sent[number] + EVERY, nonce, secret, came)
        _take(
            asking,
            time.monotonic() + LATE,
            nonce,
            secret,
            came,
            len(sent) * expected if expected else None,
        )
    return judged(sent, came, expected)


def _take(
    asking: socket.socket,
    until: float,
    nonce: bytes,
    secret: bytes,
    came: dict[str, dict[int, float]],
    enough: Optional[int] = None,
) -> None:
    """Answers up to a time, or until there are enough of them."""
    while enough is None or sum(map(len, came.values())) < enough:
        if not select.select([asking], [], [], max(0.0, until - time.monotonic()))[0]:
            return
        with suppress(OSError):
            for _ in range(MANY):
                datagram, sender = asking.recvfrom(FORM.size + 1)
                now, answer = time.monotonic(), _read(datagram, ANSWER, secret)
                if (
                    answer is not None
                    and answer[0] == nonce
                    and (sender[0] in came or len(came) < 2 * MOST)
                ):
                    came.setdefault(sender[0], {}).setdefault(answer[1], now)
        if time.monotonic() >= until:
            return


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


def _to(one: socket.socket, place: Place) -> None:
    """Of this device alone."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, place.device.encode() + b"\0")


def _everybody(place: Place, port: int) -> Union[tuple[str, int], tuple[str, int, int, int]]:
    return (
        (EVERYBODY[4], port)
        if place.address.version == 4
        else (EVERYBODY[6], port, 0, place.number)
    )


def _message(kind: bytes, nonce: bytes, number: int, secret: bytes) -> bytes:
    return FORM.pack(kind, nonce, number, _proof(kind, nonce, number, secret))


def _read(datagram: bytes, kind: bytes, secret: bytes) -> Optional[tuple[bytes, int]]:
    """The random number and the number of a message of this kind; None for anything else."""
    if len(datagram) != FORM.size:
        return None
    found, nonce, number, signature = FORM.unpack(datagram)
    return (
        (nonce, number)
        if found == kind and hmac.compare_digest(signature, _proof(kind, nonce, number, secret))
        else None
    )


def _proof(kind: bytes, nonce: bytes, number: int, secret: bytes) -> bytes:
    return hmac.new(
        secret, b"neuca-selftest broadcast" + kind + nonce + number.to_bytes(4, "big"), "sha256"
    ).digest()
