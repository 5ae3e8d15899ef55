"""Makes HTTP requests to literal addresses: one deadline, no proxy or redirect, limited sizes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import select
import socket
import zlib
from collections.abc import Mapping
from pathlib import Path

from neuca_tools import __version__
from neuca_tools.dataclass import dataclass, field
from neuca_tools.errors import SourceError
from neuca_tools.sources.base import BODY_LIMIT, Deadline, SourceTimeoutError
from neuca_tools.sources.http_answer import (
    ClosedError,
    MalformedError,
    UnusableError,
    read_body,
    read_head,
)
from neuca_tools.sources.url import Url
from neuca_tools.typed import TYPE_CHECKING, Any, Optional, Union

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

UNPACKED_LIMIT = 4 << 20
"""Bytes of a body after `Content-Encoding: gzip`; the same limit applies to gzipped user-data."""
_WIRE_LIMIT = 2 * BODY_LIMIT
Peer = Union[Url, Path]
"""Where a service is: a URL, or the path of a UNIX socket."""


@dataclass(frozen=True)
class Response:
    """The status, and the body if it is 200; the bodies of errors are not read.

    The names of the headers are in lower case.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def content(self) -> Optional[bytes]:
        """The body, None unless the status is 200."""
        return self.body if self.status == 200 else None


class _Connection(socket.socket):
    """A socket with an overall deadline that receives at most _WIRE_LIMIT bytes.

    The timeout of a socket restarts with each byte of a slow server, and a server can repeat
    "100 Continue" or chunks of one byte.
    """

    deadline: Deadline
    received = 0

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
        self.settimeout(self._patience())

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        self._wait(select.POLLIN)
        self.settimeout(self._patience())
        count = super().recv_into(buffer, nbytes, flags)
        self.received += count
        if self.received > _WIRE_LIMIT:
            raise UnusableError(f"the response is larger than {_WIRE_LIMIT} bytes")
        return count

    def _wait(self, event: int) -> None:
        """Wait for an event; raise at the deadline or when the response is no longer needed."""
        ready = select.poll()
        ready.register(self, event)
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


def request(
    method: str, url: Url, path: str, headers: Mapping[str, str], deadline: Deadline
) -> Response:
    """Make a request and read the whole answer.

    Raises SourceTimeoutError at the deadline, and SourceError for any other failure.
    """
    what = f"{method} {url}{path}"
    if url.device and "%" not in url.address:
        what += f" through {url.device}"
    return _exchange(what, url, _head(method, url, path, headers), deadline)


def get_from_socket(place: Path, path: str, deadline: Deadline) -> Response:
    """Make a GET request at a UNIX socket, with the limits and errors of `request`."""
    head = _head("GET", Url("localhost"), path, {})
    return _exchange(f"GET {path} from {place}", place, head, deadline)


def _exchange(what: str, peer: Peer, head: bytes, deadline: Deadline) -> Response:
    missing = "no connection"
    try:
        with _Connection(_family(peer), socket.SOCK_STREAM) as connection:
            connection.start(peer, deadline)
            missing = "no complete response"
            connection.sendall(head)
            return _response(connection)
    except socket.timeout:
        raise SourceTimeoutError(f"{what}: {missing} within {deadline.budget:g} s") from None
    except ClosedError:
        raise SourceError(f"{what}: the connection was closed without a response") from None
    except OSError as error:
        raise SourceError(f"{what}: {error.strerror or error}") from error
    except MalformedError as error:
        raise SourceError(f"{what}: the response is incomplete or malformed HTTP") from error
    except UnusableError as error:
        raise SourceError(f"{what}: {error}") from error


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


def _head(method: str, url: Url, path: str, headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": url.authority,
        "User-Agent": f"neuca-guest-tools/{__version__}",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **headers,
    }
    if method == "PUT":
        fields["Content-Length"] = "0"
    lines = [f"{method} {url.prefix}{path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _response(connection: _Connection) -> Response:
    with connection.makefile("rb") as stream:
        status, headers = read_head(stream)
        if 300 <= status < 400:
            target = headers.get("location", "nowhere")[:200]
            raise UnusableError(
                f"HTTP {status} leads to {target!r}, and redirects are not followed"
            )
        if status != 200:
            return Response(status)
        encoding = headers.get("content-encoding", "identity")
        return Response(200, _decoded(read_body(stream, headers), encoding), headers)


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
