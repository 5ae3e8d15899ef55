"""Makes HTTP requests to literal addresses: one deadline, no proxy or redirect, limited sizes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import select
import socket
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from neuca_tools import __version__
from neuca_tools.errors import SourceError
from neuca_tools.sources.base import BODY_LIMIT, Deadline, SourceTimeoutError
from neuca_tools.sources.http_answer import (
    ClosedError,
    Head,
    MalformedError,
    UnusableError,
    error_length,
    is_last,
    read_body,
    read_head,
)
from neuca_tools.sources.url import Url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

UNPACKED_LIMIT = 4 << 20
"""Bytes of a body after `Content-Encoding: gzip`; the same limit applies to gzipped user-data."""
_WIRE_LIMIT = 2 * BODY_LIMIT
Peer = Union[Url, Path]
"""Where a service is: a URL, or the path of a UNIX socket."""


@dataclass(frozen=True)
class Response:
    """The status, and the body if it is 200; the bodies of errors are not returned.

    The names of the headers are in lower case.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def content(self) -> Optional[bytes]:
        """The body, None unless the status is 200."""
        return self.body if self.status == 200 else None


class _Socket(socket.socket):
    """A connected socket with an overall deadline for each request.

    It receives at most _WIRE_LIMIT bytes for a request. The timeout of a socket restarts with each
    byte of a slow server, and a server can repeat "100 Continue" or chunks of one byte.

    `unread` is the length of the last body if that was not read, None if it is unknown, so that no
    other request can follow.
    """

    deadline: Deadline
    received = 0
    waits = True
    is_connected = False
    is_at_end = False
    unread: Optional[int] = None

    def start(self, peer: Peer, deadline: Deadline) -> None:
        self.deadline = deadline
        self._patience()
        # Then no route and no packet of another interface is used, see socket(7).
        if isinstance(peer, Url) and peer.device:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, os.fsencode(peer.device))
        self.setblocking(False)
        code = self.connect_ex(_socket_address(peer))
        if code == errno.EINPROGRESS:
            self._wait(select.POLLOUT)
            code = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.stream, self.is_connected = self.makefile("rb"), True

    def shut(self) -> None:
        """Close the socket, and the stream, which would keep it open."""
        if self.is_connected:
            self.stream.close()
        self.close()

    def ask(self, head: bytes, deadline: Deadline) -> Response:
        """Send a request and read the response."""
        self.deadline, self.received, self.unread = deadline, 0, None
        self.settimeout(self._patience())
        self.sendall(head)
        return self._response(read_head(self.stream))

    def is_ready(self) -> bool:
        """Whether another request can follow: nothing of the last response is left to arrive.

        The body of an error is dropped here if it has arrived; nobody waits for it.
        """
        if self.unread is None:
            return False
        self.waits, self.received = False, 0
        try:
            rest = self.stream.read(self.unread) or b""
            is_whole = len(rest) == self.unread
            return is_whole and not self.stream.peek(1) and not self.is_at_end
        except OSError:
            return False
        finally:
            self.waits = True

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        self._wait(select.POLLIN)
        self.settimeout(self._patience())
        count = super().recv_into(buffer, nbytes, flags)
        self.is_at_end = not count
        self.received += count
        if self.received > _WIRE_LIMIT:
            raise UnusableError(f"the response is larger than {_WIRE_LIMIT} bytes")
        return count

    def _response(self, head: Head) -> Response:
        if 300 <= head.status < 400:
            target = head.headers.get("location", "nowhere")[:200]
            raise UnusableError(
                f"HTTP {head.status} leads to {target!r}, and redirects are not followed"
            )
        if head.status != 200:
            self.unread = error_length(head)
            return Response(head.status)
        encoding = head.headers.get("content-encoding", "identity")
        body = _decoded(read_body(self.stream, head.headers), encoding)
        self.unread = None if is_last(head) else 0
        return Response(200, body, head.headers)

    def _wait(self, event: int) -> None:
        """Wait for an event; raise at the deadline or when the response is no longer needed."""
        ready = select.poll()
        ready.register(self, event)
        if not self.waits:
            if ready.poll(0):
                return
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if self.deadline.stop is not None:
            ready.register(self.deadline.stop, select.POLLIN)
        descriptors = {descriptor for descriptor, _ in ready.poll(1000 * self._patience())}
        if self.deadline.stop in descriptors:
            raise UnusableError("the response is no longer needed")
        if not descriptors:
            raise socket.timeout

    def _patience(self) -> float:
        remaining = self.deadline.remaining()
        if remaining <= 0:
            raise socket.timeout
        return remaining


class Connection:
    """The requests of one query to a service, over one connection where the service allows it.

    A service may close a connection after any response, and ends some bodies in that way; the next
    request then opens another one.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._socket: Optional[_Socket] = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.shut()
            self._socket = None

    def request(
        self, method: str, path: str, headers: Mapping[str, str], deadline: Deadline
    ) -> Response:
        """Make a request and read the whole response.

        Raises SourceTimeoutError at the deadline, and SourceError for any other failure.
        """
        head = _head(method, self._peer, path, headers)
        try:
            return self._ask(head, deadline)
        except (OSError, MalformedError, UnusableError) as error:
            failure = self._failure(f"{method} {_named(self._peer, path)}", error, deadline)
            self.close()
            raise failure from error

    def _ask(self, head: bytes, deadline: Deadline) -> Response:
        if self._socket is not None and self._socket.is_ready():
            # A service may close a connection at any time (RFC 9112, 9.3.1 and 9.5).
            with suppress(ClosedError, ConnectionError):
                return self._socket.ask(head, deadline)
        self.close()
        self._socket = _Socket(_family(self._peer), socket.SOCK_STREAM)
        self._socket.start(self._peer, deadline)
        return self._socket.ask(head, deadline)

    def _failure(self, what: str, error: Exception, deadline: Deadline) -> SourceError:
        if isinstance(error, socket.timeout):
            is_connected = self._socket is not None and self._socket.is_connected
            missing = "no complete response" if is_connected else "no connection"
            return SourceTimeoutError(f"{what}: {missing} within {deadline.budget:g} s")
        if isinstance(error, ClosedError):
            return SourceError(f"{what}: the connection was closed without a response")
        if isinstance(error, MalformedError):
            return SourceError(f"{what}: the response is incomplete or malformed HTTP")
        if isinstance(error, OSError):
            return SourceError(f"{what}: {error.strerror or error}")
        return SourceError(f"{what}: {error}")


def _named(peer: Peer, path: str) -> str:
    """What is asked of whom, for messages."""
    if isinstance(peer, Path):
        return f"{path} from {peer}"
    if peer.device and "%" not in peer.address:
        return f"{peer}{path} through {peer.device}"
    return f"{peer}{path}"


def _family(peer: Peer) -> socket.AddressFamily:
    if isinstance(peer, Path):
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in peer.address else socket.AF_INET


def _socket_address(peer: Peer) -> Union[str, tuple[Any, ...]]:
    if isinstance(peer, Path):
        return os.fspath(peer)
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return socket.getaddrinfo(
        peer.address, peer.port, _family(peer), socket.SOCK_STREAM, flags=numeric
    )[0][4]


def _head(method: str, peer: Peer, path: str, headers: Mapping[str, str]) -> bytes:
    url = Url("localhost") if isinstance(peer, Path) else peer
    fields = {
        "Host": url.authority,
        "User-Agent": f"neuca-guest-tools/{__version__}",
        "Accept-Encoding": "identity",
        **headers,
    }
    if method == "PUT":
        fields["Content-Length"] = "0"
    lines = [f"{method} {url.prefix}{path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _decoded(body: bytes, encoding: str) -> bytes:
    if encoding.lower() == "identity":
        return body
    if encoding.lower() not in ("gzip", "x-gzip"):
        raise UnusableError(f"Content-Encoding is {encoding[:40]!r}")
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(body, UNPACKED_LIMIT + 1)
    except zlib.error as error:
        raise UnusableError(f"its gzip is damaged ({error})") from error
    if len(data) > UNPACKED_LIMIT:
        raise UnusableError(f"the body is larger than {UNPACKED_LIMIT} bytes after gzip")
    if not unpacker.eof:
        raise UnusableError("its gzip is damaged (it stops early)")
    if unpacker.unused_data:
        raise UnusableError("its gzip is damaged (it is followed by other data)")
    return data
