"""Netlink messages for what no version of pyroute2 from 0.7.2 to 0.9 speaks alike: ethtool's rings, fq's rate.

The format: netlink(7); an attribute is length, type and value, padded to 4 bytes (include/uapi/linux/netlink.h). All numbers
are in the byte order of the host.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Optional

REQUEST, ACK, REPLACE, CREATE = 0x1, 0x4, 0x100, 0x400  # NLM_F_*
DUMP = 0x300  # NLM_F_ROOT | NLM_F_MATCH
NESTED = 0x8000  # NLA_F_NESTED
_TYPE = 0x3FFF  # NLA_TYPE_MASK
_ERROR, _DONE, _OVERRUN = 2, 3, 4  # NLMSG_*
_CAPPED, _WITH_WORDS = 0x100, 0x200  # NLM_F_CAPPED, NLM_F_ACK_TLVS
_WORDS = 1  # NLMSGERR_ATTR_MSG
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_LIMIT = 5.0  # seconds; the kernel answers at once, but for a driver that resets its NIC first
_ROOM = 65536  # bytes of one datagram: the kernel makes none longer than 32 KiB


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute."""
    return _ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    """An attribute of 32 bits."""
    return attribute(kind, struct.pack("=I", value))


def text(kind: int, value: str) -> bytes:
    """An attribute that is a string."""
    return attribute(kind, os.fsencode(value) + b"\0")


def nest(kind: int, *attributes: bytes) -> bytes:
    """An attribute made of attributes."""
    return attribute(kind | NESTED, b"".join(attributes))


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute; what is cut off is left out."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if not _ATTRIBUTE.size <= length <= len(data):
            return
        yield kind & _TYPE, data[_ATTRIBUTE.size : length]
        data = data[length + -length % 4 :]


class Socket:
    """One netlink socket of a protocol. Every error is an OSError with the kernel's own words where it has any."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol
        )
        self._socket.settimeout(_LIMIT)
        for option in (_CAP_ACK, _EXT_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._sequence = 0

    def __enter__(self) -> Socket:  # noqa: PYI034 - typing.Self is newer than Python 3.9
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._socket.close()

    def ask(self, kind: int, flags: int, payload: bytes) -> list[bytes]:
        """One request, and the payloads of all that answers it. Raises OSError."""
        self._sequence += 1
        flags |= REQUEST if flags & DUMP == DUMP else REQUEST | ACK
        self._socket.send(
            _HEADER.pack(_HEADER.size + len(payload), kind, flags, self._sequence, 0) + payload
        )
        answers: list[bytes] = []
        while True:
            for what, options, sequence, body in _messages(self._socket.recv(_ROOM)):
                if sequence != self._sequence:
                    continue
                if what in (_ERROR, _DONE):
                    _check(body, options)
                    return answers
                answers.append(body)


def _messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data)
        if length < _HEADER.size:
            return
        yield kind, flags, sequence, data[_HEADER.size : length]
        data = data[length + -length % 4 :]


def _check(body: bytes, flags: int) -> None:
    """Raise what an answer of type NLMSG_ERROR or NLMSG_DONE says; 0 is success."""
    code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
    if not code:
        return
    rest = body[4 + _HEADER.size :] if flags & _CAPPED and flags & _WITH_WORDS else b""
    said = next(
        (
            value.rstrip(b"\0").decode(errors="replace")
            for kind, value in attributes(rest)
            if kind == _WORDS
        ),
        "",
    )
    name = os.strerror(code)
    raise OSError(code, f"{name} ({said})" if said and said != name else name)
