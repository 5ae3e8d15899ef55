"""Reads the answer to one HTTP request.

`http.client` would do, but it takes three times as long to load as Python takes to start: it loads
the parsers of mail and, for https, OpenSSL. Every poll would pay for that in a new process.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, NamedTuple, Optional

from neuca_tools.sources.base import BODY_LIMIT

_LONGEST_LINE = 65536  # bytes
_MOST_FIELDS = 100  # header or trailer lines
_MOST_DIGITS = 40  # of a length
_LONGEST_ERROR = 65536  # bytes of the body of an error that is dropped to keep a connection
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


class MalformedError(Exception):
    """The answer is incomplete or no HTTP."""


class ClosedError(MalformedError):
    """The connection was closed before the first byte."""


class UnusableError(Exception):
    """The answer is unusable; the text is the reason alone."""


class Head(NamedTuple):
    """The status, and the headers by their names in lower case; repeated ones are joined."""

    status: int
    headers: Mapping[str, str]


def read_head(stream: BinaryIO) -> Head:
    """The final status and its headers, without interim ones such as "100 Continue" (RFC 9110,
    15.2). Raises MalformedError, OSError.
    """
    while True:
        status = _status(_line(stream))
        headers, is_complete = _fields(stream)
        if not is_complete:
            raise MalformedError
        if status == 101 or not 100 <= status < 200:
            return Head(status, headers)


def _line(stream: BinaryIO) -> bytes:
    """A line with its end; empty at the end of the stream. Raises MalformedError.

    A line without an end may be the beginning of a longer one. A carriage return within a line is
    invalid (RFC 9112, section 2.2): some readers end the line there.
    """
    line = stream.readline(_LONGEST_LINE + 1)
    if not line:
        return line
    if len(line) > _LONGEST_LINE or not line.endswith(b"\n") or b"\r" in line[:-2]:
        raise MalformedError
    return line


def _status(line: bytes) -> int:
    """The code of a status line (RFC 9112, section 4)."""
    if not line:
        raise ClosedError
    version, code = [*line.split(None, 2), b"", b""][:2]
    if not version.startswith((b"HTTP/1.", b"HTTP/0.9")):
        raise MalformedError
    if len(code) != 3 or not code.isdigit() or code < b"100":
        raise MalformedError
    return int(code)


def _fields(stream: BinaryIO) -> tuple[dict[str, str], bool]:
    """Header or trailer lines, and whether an empty one ends them instead of the stream."""
    found: dict[str, str] = {}
    last = ""
    for _ in range(_MOST_FIELDS + 1):
        line = _line(stream)
        if line in (b"\r\n", b"\n", b""):
            return found, bool(line)
        text = line.decode("iso-8859-1")
        if text[0] in " \t" and last:  # the former way to continue a line (RFC 9112, 5.2)
            found[last] += f" {text.strip()}"
            continue
        name, colon, value = text.partition(":")
        if not colon:
            continue
        last = name.strip().lower()
        found[last] = ", ".join(filter(None, (found.get(last, ""), value.strip())))
    raise MalformedError


def read_body(stream: BinaryIO, headers: Mapping[str, str]) -> bytes:
    """The body of at most BODY_LIMIT bytes (RFC 9112, section 6.3).

    Raises MalformedError, UnusableError, OSError.
    """
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if coding.lower() == "chunked":
            return _chunks(stream)
        raise UnusableError(f"Transfer-Encoding is {coding[:40]!r}")
    length = _length(headers)
    if length is None:
        body = stream.read(BODY_LIMIT + 1)
        _demand_room(len(body))
        return body
    _demand_room(length)
    body = stream.read(length)
    if len(body) < length:
        raise UnusableError(f"the body ends after {len(body)} of {length} bytes")
    return body


def _length(headers: Mapping[str, str]) -> Optional[int]:
    text = headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise UnusableError(f"Content-Length is {text[:40]!r}")
    return int(text)


def error_length(head: Head) -> Optional[int]:
    """The length of the body of an error; None if it is unknown or not worth reading."""
    if head.status == 204:
        return 0
    if "transfer-encoding" in head.headers or is_last(head):
        return None
    try:
        length = _length(head.headers)
    except UnusableError:
        return None
    return length if length is not None and length <= _LONGEST_ERROR else None


def is_last(head: Head) -> bool:
    """Whether the service closes the connection after this response."""
    return "close" in head.headers.get("connection", "").lower()


def _demand_room(length: int) -> None:
    if length > BODY_LIMIT:
        raise UnusableError(f"the body is larger than {BODY_LIMIT} bytes")


def _chunks(stream: BinaryIO) -> bytes:
    """A body in chunks; their extensions and the trailers are ignored (RFC 9112, section 7.1).

    With the last chunk the body is complete, even if the trailers are not (section 8).
    """
    body = bytearray()
    while True:
        size = _line(stream).partition(b";")[0].strip().decode("iso-8859-1")
        if not size or not set(size) <= _HEXADECIMAL:
            raise MalformedError
        count = int(size, 16)
        if not count:
            _fields(stream)
            return bytes(body)
        _demand_room(len(body) + count)
        data = stream.read(count + 2)
        if len(data) != count + 2 or not data.endswith(b"\r\n"):
            raise MalformedError
        body += data[:-2]
