"""The broadcast messages, and which of them a responder answers.

See `broadcast` for the order of the messages and the reasons.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from ipaddress import ip_address
from secrets import token_bytes
from typing import NamedTuple, Optional, Union

# Kind, a random number of 16 bytes, the request's number, HMAC-SHA256.
FORM = struct.Struct("!4s16sI32s")
SIZE = FORM.size
QUERY, CHALLENGE, RETURN, REQUEST, ANSWER = b"nsQ2", b"nsC2", b"nsR2", b"nsB2", b"nsA2"
# Answers of one responder per second: five times the requests of one asker.
ANSWERS = 50
# The most askers that a responder remembers.
MOST_ASKERS = 64
LABEL = b"neuca-selftest broadcast 2"


class Endpoints(NamedTuple):
    """The source and the destination of a message, in the form of `endpoint`."""

    source: bytes
    destination: bytes


def endpoint(address: Union[tuple[str, int], tuple[str, int, int, int]]) -> bytes:
    """An IP address and a port, without the zone that a link-local address may have."""
    return ip_address(address[0].partition("%")[0]).packed + address[1].to_bytes(2, "big")


def message(
    kind: bytes, nonce: bytes, number: int, route: Endpoints, secret: bytes, known: bytes = b""
) -> bytes:
    """The whole datagram. `known` is what its receiver knows, and is signed but not sent."""
    proof = _proof(kind, nonce, number, route, known=known, secret=secret)
    return FORM.pack(kind, nonce, number, proof)


def read(
    datagram: bytes, kind: bytes, route: Endpoints, secret: bytes, known: bytes = b""
) -> Optional[tuple[bytes, int]]:
    """The nonce and the number of a message of this kind; None for anything else."""
    if len(datagram) != SIZE:
        return None
    found, nonce, number, signature = FORM.unpack(datagram)
    if found != kind:
        return None
    right = _proof(kind, nonce, number, route, known=known, secret=secret)
    return (nonce, number) if hmac.compare_digest(signature, right) else None


def _proof(
    kind: bytes, nonce: bytes, number: int, route: Endpoints, secret: bytes, known: bytes
) -> bytes:
    parts = (LABEL, kind, route.source, route.destination, nonce, number.to_bytes(4, "big"), known)
    # The length before each part keeps IPv4 and IPv6 endpoints apart.
    text = b"".join(len(part).to_bytes(1, "big") + part for part in parts)
    return hmac.new(secret, text, "sha256").digest()


@dataclass
class _Asker:
    """`queried` and `requested` are the highest numbers that were answered.

    `proven`: it has returned the challenge, so it has the address that it sends from.
    """

    challenge: bytes
    queried: int = 0
    requested: int = 0
    proven: bool = False


class Answering:
    """The answers of one responder, which remembers only a few askers that know the secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        # By endpoint and nonce.
        self._askers: dict[tuple[bytes, bytes], _Asker] = {}
        self._second, self._count = float("-inf"), {CHALLENGE: 0, ANSWER: 0}

    def reply(self, datagram: bytes, route: Endpoints, own: bytes, now: float) -> Optional[bytes]:
        """What to send back for a datagram that was sent along `route`; None for nothing.

        `own` is the endpoint to send from, `now` the monotonic time in seconds.
        """
        back = Endpoints(own, route.source)
        if (asked := read(datagram, QUERY, route, self._secret)) is not None:
            return self._challenge(*asked, back, now)
        if (asked := read(datagram, REQUEST, route, self._secret)) is not None:
            return self._answer(*asked, back, now)
        self._prove(datagram, route)
        return None

    def _challenge(self, nonce: bytes, number: int, back: Endpoints, now: float) -> Optional[bytes]:
        asker = self._askers.get((back.destination, nonce)) or _Asker(token_bytes(16))
        if number <= asker.queried or not self._may(CHALLENGE, now):
            return None
        asker.queried = number
        self._remember((back.destination, nonce), asker)
        return message(CHALLENGE, asker.challenge, number, back, self._secret, known=nonce)

    def _prove(self, datagram: bytes, route: Endpoints) -> None:
        nonce = datagram[4:20]
        asker = self._askers.get((route.source, nonce))
        if asker and read(datagram, RETURN, route, self._secret, asker.challenge):
            asker.proven = True

    def _answer(self, nonce: bytes, number: int, back: Endpoints, now: float) -> Optional[bytes]:
        asker = self._askers.get((back.destination, nonce))
        if asker is None or not asker.proven or number <= asker.requested:
            return None
        if not self._may(ANSWER, now):
            return None
        asker.requested = number
        return message(ANSWER, nonce, number, back, self._secret)

    def _may(self, kind: bytes, now: float) -> bool:
        if now - self._second >= 1:
            self._second, self._count = now, {CHALLENGE: 0, ANSWER: 0}
        self._count[kind] += 1
        return self._count[kind] <= ANSWERS

    def _remember(self, key: tuple[bytes, bytes], asker: _Asker) -> None:
        if key not in self._askers and len(self._askers) >= MOST_ASKERS:
            unproven = (one for one, known in self._askers.items() if not known.proven)
            del self._askers[next(unproven, next(iter(self._askers)))]
        self._askers[key] = asker
