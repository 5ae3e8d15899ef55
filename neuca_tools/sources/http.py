"""Makes HTTP requests to literal addresses: one deadline, no proxy or redirect, limited sizes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import email.errors
import errno
import io
import os
import select
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, RemoteDisconnected
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from neuca_tools import __version__
from neuca_tools.documents.envelope import MAX_UNZIPPED_BYTES, gunzip
from neuca_tools.errors import SourceError, SourceTimeoutError
from neuca_tools.sources.base import BODY_LIMIT, Deadline, Url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_WIRE_LIMIT = 2 * BODY_LIMIT  # bytes received for one request, headers included
_ERROR_LIMIT = 65536  # bytes of the body of an error that is dropped to keep a connection
_LENGTH_DIGITS = 40  # of Content-Length
# What email.parser, which http.client uses, does not raise; the fields that follow may be lost.
_HEADER_DEFECTS = (
    email.errors.FirstHeaderLineIsContinuationDefect,
    email.errors.InvalidHeaderDefect,
    email.errors.MisplacedEnvelopeHeaderDefect,
    email.errors.MissingHeaderBodySeparatorDefect,
)
Peer = Union[Url, Path]  # where a service is: a URL, or the path of a UNIX socket


class _NothingYetError(Exception):
    """Nothing has arrived, and nothing is waited for."""


class Response(NamedTuple):
    """The status, and the body if it is 200. The names of the headers are in lower case."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}

    @property
    def content(self) -> Optional[bytes]:
        """The body, None unless the status is 200."""
        return self.body if self.status == 200 else None


class _Stream(io.BufferedReader):
    """What arrives on a connection, for one response after the other.

    http.client takes a line without an end, and the end of the stream, for the end of the headers.
    """

    last_line = b""

    def readline(self, size: Optional[int] = -1) -> bytes:
        """A line with its end; empty at the end of the stream. Raises HTTPException."""
        # A line without an end may be the beginning of a longer one. A carriage return within a
        # line is invalid (RFC 9112, section 2.2): some readers end the line there.
        self.last_line = line = super().readline(size)
        if line and (not line.endswith(b"\n") or b"\r" in line[:-2]):
            raise HTTPException("a line is cut off or has a carriage return")
        return line

    def close(self) -> None:
        """Keep it open: http.client closes it after each response."""


class BoundedSocket(socket.socket):
    """A connected socket with an overall deadline for each request.

    It receives at most _WIRE_LIMIT bytes for a request. The timeout of a socket restarts with each
    byte of a slow server, and a server can repeat "100 Continue" or chunks of one byte.
    """

    deadline: Deadline
    received = 0
    waits = True
    stream: Optional[_Stream] = None  # None until it is connected

    def __init__(self, peer: Peer) -> None:
        """Raises OSError."""
        family, self._address = _endpoint(peer)
        super().__init__(family, socket.SOCK_STREAM)
        self._device = peer.device if isinstance(peer, Url) else ""

    def start(self, deadline: Deadline) -> io.BufferedReader:
        """Connect, prepare for a request, and return what arrives. Raises OSError."""
        self.begin(deadline)
        # Then no route and no packet of another interface is used, see socket(7).
        if self._device:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, os.fsencode(self._device))
        self.setblocking(False)
        code = self.connect_ex(self._address)
        if code == errno.EINPROGRESS:
            self._wait(select.POLLOUT)
            code = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.settimeout(self._patience())
        self.stream = _Stream(super().makefile("rb", buffering=0))
        return self.stream

    def makefile(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - of http.client
        return self.stream

    def close_stream(self) -> None:
        """Close the socket, and the stream, which would keep it open."""
        if self.stream is not None:
            self.stream.raw.close()
        self.close()

    def begin(self, deadline: Deadline) -> None:
        """Prepare for a request. Raises socket.timeout."""
        self.deadline, self.received, self.waits = deadline, 0, True
        self.settimeout(self._patience())

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        self._wait(select.POLLIN)
        self.settimeout(self._patience())
        count = super().recv_into(buffer, nbytes, flags)
        self.received += count
        if self.received > _WIRE_LIMIT:
            raise SourceError(f"the response is larger than {_WIRE_LIMIT} bytes")
        return count

    def _wait(self, event: int) -> None:
        """Wait for an event; raise at the deadline or when the response is no longer needed."""
        deadline = self.deadline if self.waits else Deadline.after(0)
        if not deadline.wait(self.fileno(), event):
            raise socket.timeout if self.waits else _NothingYetError

    def _patience(self) -> float:
        remaining = self.deadline.remaining()
        if remaining <= 0:
            raise socket.timeout
        return remaining


class _HttpResponse(HTTPResponse):
    """A response whose headers have arrived completely and leave no doubt about its length."""

    def begin(self) -> None:
        """Read the headers, without interim responses such as 103 (RFC 9110, section 15.2)."""
        super().begin()
        while 100 <= self.status < 200 and self.status != 101:
            self.headers = self.msg = None  # type: ignore[assignment] # so that it reads the next
            super().begin()
        assert isinstance(self.fp, _Stream)
        is_cut_off = self.fp.last_line not in (b"\r\n", b"\n")
        has_defect = any(isinstance(defect, _HEADER_DEFECTS) for defect in self.headers.defects)
        if is_cut_off or has_defect:
            raise HTTPException("a header is cut off or malformed")

    def field(self, name: str) -> Optional[str]:
        """The value of a header in one line; repeated ones are joined."""
        values = self.headers.get_all(name)
        return None if values is None else ", ".join(" ".join(text.split()) for text in values)

    def content(self) -> bytes:
        """The whole body (RFC 9112, section 6.3). Raises SourceError, HTTPException, OSError."""
        length = self.stated_length()
        body = self.read(BODY_LIMIT + 1)
        if len(body) > BODY_LIMIT:
            raise SourceError(f"the body is larger than {BODY_LIMIT} bytes")
        if length is not None and len(body) < length:
            raise SourceError(f"the body ends after {len(body)} of {length} bytes")
        return _decode_body(body, self.field("content-encoding") or "identity")

    def stated_length(self) -> Optional[int]:
        """The length that the headers state, None if the body ends in another way.

        Raises SourceError: http.client ignores what it does not understand.
        """
        coding, text = self.field("transfer-encoding"), self.field("content-length")
        if coding is not None and coding.lower() != "chunked":
            raise SourceError(f"Transfer-Encoding is {coding[:40]!r}")
        if coding is not None or text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= _LENGTH_DIGITS):
            raise SourceError(f"Content-Length is {text[:40]!r}")
        return int(text)


class Connection:
    """The requests of one query to a service, over one connection where the service allows it.

    A service may close a connection after any response, and ends some bodies in that way; the next
    request then opens another one.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._url = Url("localhost") if isinstance(peer, Path) else peer
        self._socket: Optional[BoundedSocket] = None
        self._last: Optional[_HttpResponse] = None

    def close(self) -> None:
        if self._last is not None:
            self._last.close()  # it flushes the stream, which must be open
        if self._socket is not None:
            self._socket.close_stream()
        self._socket = self._last = None

    def get(
        self,
        path: str,
        deadline: Deadline,
        headers: Mapping[str, str] = {},
        absent: Collection[int] = (404,),
    ) -> Response:
        """GET a path. Raises SourceError for every status but 200 and those in `absent`."""
        response = self.request("GET", path, headers, deadline)
        if response.status not in (200, *absent):
            raise SourceError(f"GET {_request_text(self._peer, path)}: HTTP {response.status}")
        return response

    def request(
        self, method: str, path: str, headers: Mapping[str, str], deadline: Deadline
    ) -> Response:
        """Make a request and read the response. Raises SourceTimeoutError and SourceError."""
        fields = {
            "Host": self._url.authority,
            "User-Agent": f"neuca-guest-tools/{__version__}",
            "Accept-Encoding": "identity",
            **headers,
        }
        try:
            return self._ask(method, self._url.prefix + path, fields, deadline)
        # http.client raises ValueError for chunks of a negative length.
        except (OSError, HTTPException, ValueError, SourceError) as error:
            what = f"{method} {_request_text(self._peer, path)}"
            failure = self._source_error(what, error, deadline)
            self.close()
            raise failure from error

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], deadline: Deadline
    ) -> Response:
        if self._socket is not None and self._is_ready(self._socket):
            # A service may close a connection at any time (RFC 9112, 9.3.1 and 9.5).
            with suppress(ConnectionError):
                self._socket.begin(deadline)
                return self._exchange(self._socket, method, path, headers)
        self.close()
        self._socket = BoundedSocket(self._peer)
        self._socket.start(deadline)
        return self._exchange(self._socket, method, path, headers)

    def _exchange(
        self, connected: BoundedSocket, method: str, path: str, headers: Mapping[str, str]
    ) -> Response:
        client = HTTPConnection("localhost")
        client.sock, client.response_class = connected, _HttpResponse
        client.request(method, path, headers=headers)
        response = client.getresponse()
        assert isinstance(response, _HttpResponse)
        self._last = response
        if 300 <= response.status < 400:
            text = f"leads to {(response.field('location') or 'nowhere')[:200]!r}"
            raise SourceError(f"HTTP {response.status} {text}, and redirects are not followed")
        if response.status != 200:
            return Response(response.status)
        names = {name.lower() for name in response.headers}
        fields = {name: response.field(name) or "" for name in names}
        return Response(200, response.content(), fields)

    def _is_ready(self, connected: BoundedSocket) -> bool:
        """Whether another request can follow: nothing of the last response is left to arrive."""
        response, connected.waits, connected.received = self._last, False, 0
        if response is None or response.will_close:
            return False
        try:
            # The body of an error is dropped if it has arrived; nobody waits for it.
            if not response.isclosed():
                response.stated_length()
                if response.length is None or response.length > _ERROR_LIMIT:
                    return False
                response.read(response.length)
            connected.makefile().peek(1)
        except _NothingYetError:
            return response.isclosed()
        except (OSError, SourceError):
            return False
        return False  # the end of the stream, or more than was asked for

    def _source_error(self, what: str, error: Exception, deadline: Deadline) -> SourceError:
        if isinstance(error, socket.timeout):
            is_connected = self._socket is not None and self._socket.stream is not None
            missing = "no complete response" if is_connected else "no connection"
            return SourceTimeoutError(f"{what}: {missing} within {deadline.budget:g} s")
        if isinstance(error, RemoteDisconnected):
            return SourceError(f"{what}: the connection was closed without a response")
        if isinstance(error, (HTTPException, ValueError)):
            return SourceError(f"{what}: the response is incomplete or malformed HTTP")
        if isinstance(error, OSError):
            return SourceError(f"{what}: {error.strerror or error}")
        return SourceError(f"{what}: {error}")


def _request_text(peer: Peer, path: str) -> str:
    if isinstance(peer, Path):
        return f"{path} from {peer}"
    if peer.device and "%" not in peer.address:
        return f"{peer}{path} through {peer.device}"
    return f"{peer}{path}"


def _endpoint(peer: Peer) -> tuple[socket.AddressFamily, Any]:
    if isinstance(peer, Path):
        return socket.AF_UNIX, os.fspath(peer)
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    address = peer.address.encode()  # a str would load the codec of international domain names
    (first, *_) = socket.getaddrinfo(address, peer.port, type=socket.SOCK_STREAM, flags=numeric)
    return first[0], first[4]


def _decode_body(body: bytes, encoding: str) -> bytes:
    if encoding.lower() == "identity":
        return body
    if encoding.lower() not in ("gzip", "x-gzip"):
        raise SourceError(f"Content-Encoding is {encoding[:40]!r}")
    try:
        data = gunzip(body, MAX_UNZIPPED_BYTES)
    except ValueError as error:
        raise SourceError(str(error)) from None
    if len(data) > MAX_UNZIPPED_BYTES:
        raise SourceError(f"the body is larger than {MAX_UNZIPPED_BYTES} bytes after gzip")
    return data
