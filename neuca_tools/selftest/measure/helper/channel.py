"""Messages between the two ends of a self-test: one JSON object on each line, over TCP or ssh.

A connection begins with a handshake (`handshake`). After it, each message carries an HMAC over its
number and text, so that no one on the path can add, change or repeat one. Nothing is encrypted.
"""

# SPDX-License-Identifier: MIT

import hmac
import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.measure.wait import PIECE, parse_message, wait_readable, write_all

LONGEST_MESSAGE = 32 * 1024 * 1024  # bytes; see series.MAX_CONNECTIONS
DIGEST = "sha256"
CLIENT, SERVER = "client", "server"
# Bytes of a segment, so that messages pass a path that loses large packets. RFC 1122 requires every
# host to accept this size.
SEGMENT = 536
Message = dict[str, Any]


class ChannelError(SelftestError):
    """The peer did not respond in time, or its response is invalid."""


class Channel:
    """Messages over two descriptors, which may be the same. The caller closes them.

    They are signed with the `key`, if there is one. Every method raises ChannelError.
    """

    def __init__(self, reading: int, writing: int, role: str, key: bytes = b"") -> None:
        self._reading, self._writing, self._role, self._key = reading, writing, role, key
        self._buffer = bytearray()
        self._sent = self._received = 0
        # The longest message that is accepted, in bytes.
        self.max_bytes = LONGEST_MESSAGE
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def fileno(self) -> int:
        return self._reading

    def send(self, message: Mapping[str, Any], seconds: float = 10.0) -> None:
        text = json.dumps(message, separators=(",", ":")).encode()
        line = self._signature_of(self._role, self._sent, text) + text + b"\n"
        self._sent += 1
        try:
            write_all(self._writing, line, seconds)
        except OSError as error:
            raise ChannelError(f"send to the peer: {error.strerror}") from error

    def receive(self, seconds: float) -> Message:
        deadline = time.monotonic() + seconds
        while True:
            message = self.next_message()
            if message is not None:
                return message
            if not wait_readable([self._reading], deadline):
                raise ChannelError(f"query the peer: no response in {seconds:g} s")
            self.read_available()

    def read_available(self) -> None:
        """Read what has arrived, without waiting."""
        try:
            piece = os.read(self._reading, PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelError(f"query the peer: {error.strerror}") from error
        if not piece:
            raise ChannelError("query the peer: it closed the connection")
        self._buffer += piece
        if len(self._buffer) > self.max_bytes:
            raise ChannelError(f"query the peer: its message is longer than {self.max_bytes} bytes")

    def next_message(self) -> Optional[Message]:
        """The next complete message that was read; None if there is none yet."""
        line, end, rest = self._buffer.partition(b"\n")
        if not end:
            return None
        self._buffer = rest
        signature_size = 65 if self._key else 0  # 64 hexadecimal digits and a blank
        signature, text = bytes(line[:signature_size]), bytes(line[signature_size:])
        other = SERVER if self._role == CLIENT else CLIENT
        if not hmac.compare_digest(signature, self._signature_of(other, self._received, text)):
            raise ChannelError("query the peer: a message has a wrong signature")
        self._received += 1
        message = parse_message(text)
        if message is None:
            raise ChannelError("query the peer: its response is not a message of neuca-selftest")
        return message

    def _signature_of(self, role: str, number: int, text: bytes) -> bytes:
        if not self._key:
            return b""
        signature = hmac.new(self._key, f"{role} {number} ".encode() + text, DIGEST).hexdigest()
        return f"{signature} ".encode()


def small_segments(connection: socket.socket) -> None:
    """Limit the segments of a connection to SEGMENT bytes both ways.

    Takes effect only on a socket that is not connected yet, or on one that listens.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
