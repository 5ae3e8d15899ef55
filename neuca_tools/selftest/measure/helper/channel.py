"""Messages between the two ends of a self-test: one JSON object on a line, in order, over a connection or over ssh's pipes.

Over a connection a handshake (`greeting`) comes first. From then on each message carries an HMAC
over its number and its text: nobody in between can add, change or repeat one. They are no secret.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hmac
import json
import os
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Optional

from neuca_tools.errors import SelftestError

LONGEST = 32 * 1024 * 1024  # bytes of a message: an hour of looks at 128 streams
PIECE = 65536
DIGEST = "sha256"
CLIENT, SERVER = "client", "server"
SEGMENT = 536  # bytes: messages get through a path that loses large packets (RFC 1122: what everybody takes)
Message = dict[str, Any]


class ChannelError(SelftestError):
    """The other end does not answer, not in time, or not as it should."""


class Channel:
    """Two descriptors, which may be one; both are left to the caller. Every method raises ChannelError."""

    def __init__(self, reading: int, writing: int, role: str) -> None:
        self._reading, self._writing, self._role = reading, writing, role
        self._came = bytearray()
        self._key = b""
        self._sent = self._received = 0
        self.longest = LONGEST  # bytes of a message
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def fileno(self) -> int:
        return self._reading

    def lock(self, key: bytes) -> None:
        """From now on every message is signed."""
        self._key = key

    def send(self, message: Mapping[str, Any], seconds: float = 10.0) -> None:
        text = json.dumps(message, separators=(",", ":")).encode()
        line = self._signature(self._role, self._sent, text) + text + b"\n"
        self._sent += 1
        deadline = time.monotonic() + seconds
        while line:
            if not select.select([], [self._writing], [], max(0.0, deadline - time.monotonic()))[1]:
                raise ChannelError(f"tell the other end: it took nothing for {seconds:g} s")
            try:
                line = line[os.write(self._writing, line[:PIECE]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelError(f"tell the other end: {error.strerror}") from error

    def receive(self, seconds: float) -> Message:
        """The next message, waited for."""
        deadline = time.monotonic() + seconds
        while True:
            message = self.next()
            if message is not None:
                return message
            if not select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ChannelError(f"ask the other end: no answer in {seconds:g} s")
            self.take()

    def take(self) -> None:
        """Read what is there."""
        try:
            piece = os.read(self._reading, PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelError(f"ask the other end: {error.strerror}") from error
        if not piece:
            raise ChannelError("ask the other end: it has closed the connection")
        self._came += piece
        if len(self._came) > self.longest:
            raise ChannelError(
                f"ask the other end: its message is longer than {self.longest} bytes"
            )

    def next(self) -> Optional[Message]:
        """A whole message of what was read; None where there is none yet."""
        line, end, rest = self._came.partition(b"\n")
        if not end:
            return None
        self._came = rest
        other = SERVER if self._role == CLIENT else CLIENT
        signature, text = (bytes(line[:65]), bytes(line[65:])) if self._key else (b"", bytes(line))
        if not hmac.compare_digest(signature, self._signature(other, self._received, text)):
            raise ChannelError("ask the other end: a message is not signed as it should be")
        self._received += 1
        with suppress(ValueError, RecursionError):
            found = json.loads(text)
            if isinstance(found, dict):
                return found
        raise ChannelError("ask the other end: what it says is no message of neuca-selftest")

    def _signature(self, role: str, number: int, text: bytes) -> bytes:
        if not self._key:
            return b""
        return (
            hmac.new(self._key, f"{role} {number} ".encode() + text, DIGEST).hexdigest().encode()
            + b" "
        )


def small_segments(connection: socket.socket) -> None:
    """Before it is connected, or on the socket that listens: nothing larger than 536 bytes goes either way."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
