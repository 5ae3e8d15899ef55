"""Netlink messages without pyroute2: for the readers of a look, and for ethtool and qdiscs.

`kernel_state`, `ethtool` and `queues` say what the library costs or lacks. The format is that of
netlink(7): an attribute is length, type and value, padded to 4 bytes. All numbers are in the byte
order of the host (include/uapi/linux/netlink.h).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Callable

REQUEST, ACK, REPLACE, CREATE, APPEND = 0x1, 0x4, 0x100, 0x400, 0x800  # NLM_F_*
DUMP = 0x300  # NLM_F_ROOT | NLM_F_MATCH
NESTED = 0x8000  # NLA_F_NESTED
_TYPE = 0x3FFF  # NLA_TYPE_MASK
_ERROR, _DONE, _OVERRUN = 2, 3, 4  # NLMSG_*
_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR: a change made the dump inconsistent
_TRIES = 5  # of a dump
_CAPPED, _HAS_ATTRIBUTES = 0x100, 0x200  # NLM_F_CAPPED, NLM_F_ACK_TLVS
_ERROR_MESSAGE = 1  # NLMSGERR_ATTR_MSG
_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _STRICT = 270, 10, 11, 12
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_CODE = struct.Struct("=i")
_ORDER = sys.byteorder
_FILE_NAMES = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_ANSWER_SECONDS = 5  # the kernel answers at once unless a driver has to reset its NIC
_BUFFER_BYTES = 65536  # the kernel sends at most 32 KiB


def encode_attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute."""
    return _ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def encode_number(kind: int, value: int) -> bytes:
    """Encode an attribute of 32 bits."""
    return encode_attribute(kind, struct.pack("=I", value))


def encode_text(kind: int, value: str) -> bytes:
    """Encode a string attribute."""
    return encode_attribute(kind, os.fsencode(value) + b"\0")


def encode_nest(kind: int, *attributes: bytes) -> bytes:
    """Encode an attribute that contains attributes."""
    return encode_attribute(kind | NESTED, b"".join(attributes))


def parse_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The type and value of each attribute. Raises OSError if one is truncated."""
    at, end = 0, len(data)
    head, unpack = _ATTRIBUTE.size, _ATTRIBUTE.unpack_from
    while end - at >= head:
        length, kind = unpack(data, at)
        if not head <= length <= end - at:
            raise truncated_error("an attribute")
        yield kind & _TYPE, data[at + head : at + length]
        at += length + 3 & ~3


def truncated_error(what: str) -> OSError:
    """The error for a message that is not what netlink(7) describes: never an empty answer."""
    return OSError(errno.EBADMSG, f"{what} of its response is truncated")


def decode_integer(value: bytes) -> int:
    """Decode a number of any width; no bytes are 0."""
    return int.from_bytes(value, sys.byteorder)


class Attributes(dict[int, bytes]):
    """The attributes of a message or a nest, by type. An absent attribute reads as empty or 0."""

    def __init__(self, data: bytes) -> None:
        super().__init__(parse_attributes(data))

    def bytes(self, kind: int) -> bytes:
        return self.get(kind, b"")

    def number(self, kind: int) -> int:
        return int.from_bytes(self.get(kind, b""), _ORDER)

    def text(self, kind: int) -> str:
        # As os.fsdecode() does in three times as long.
        return self.get(kind, b"").rstrip(b"\0").decode(*_FILE_NAMES)

    def nest(self, kind: int) -> Attributes:
        return Attributes(self[kind]) if kind in self else NO_ATTRIBUTES


NO_ATTRIBUTES = Attributes(b"")


class Socket(AbstractContextManager["Socket"]):
    """A netlink socket. Errors are raised as OSError with the message of the kernel, if any.

    `strict`: the kernel filters dumps by the attributes of the request (Linux 4.20; earlier ones
    return everything).
    """

    def __init__(self, protocol: int, *, strict: bool = False) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.settimeout(_ANSWER_SECONDS)
        for option in (_CAP_ACK, _EXT_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        if strict:
            with suppress(OSError):
                self._socket.setsockopt(_SOL_NETLINK, _STRICT, 1)
        # Then the kernel refuses messages of other processes (netlink_getsockbyportid()).
        self._socket.connect((0, 0))
        self._sequence = 0
        self._buffer = bytearray(_BUFFER_BYTES)

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def dump(self, kind: int, payload: bytes, keep: Callable[[bytes], bool] = bool) -> list[bytes]:
        """The payloads of a consistent dump, repeated if a change interrupts it. Raises OSError.

        Those that are not to `keep` take no memory.
        """
        for _ in range(_TRIES):
            answers = self.ask(kind, DUMP, payload, keep)
            if not self._is_interrupted:
                return answers
        raise OSError(errno.EAGAIN, f"they changed {_TRIES} times meanwhile")

    def ask(
        self, kind: int, flags: int, payload: bytes, keep: Callable[[bytes], bool] = bool
    ) -> list[bytes]:
        """Send a request and return the payloads of all answers. Raises OSError."""
        self._is_interrupted = False
        self._sequence += 1
        flags |= REQUEST if flags & DUMP == DUMP else REQUEST | ACK
        size = _HEADER.size + len(payload)
        self._socket.send(_HEADER.pack(size, kind, flags, self._sequence, 0) + payload)
        answers: list[bytes] = []
        while True:
            size = self._socket.recv_into(self._buffer, 0, socket.MSG_TRUNC)
            if size > len(self._buffer):
                raise truncated_error("a datagram")
            datagram = bytes(memoryview(self._buffer)[:size])
            for what, options, sequence, body in parse_messages(datagram):
                if sequence != self._sequence:
                    continue
                self._is_interrupted |= bool(options & _INTERRUPTED)
                if what in (_ERROR, _DONE):
                    _raise_kernel_error(what, body, options)
                    return answers
                if what == _OVERRUN:
                    raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
                if keep(body):
                    answers.append(body)


def parse_messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, flags, sequence number and body of each message of a datagram. Raises OSError."""
    at, end = 0, len(data)
    while at < end:
        if end - at < _HEADER.size:
            raise truncated_error("a header")
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= end - at:
            raise truncated_error("a message")
        yield kind, flags, sequence, data[at + _HEADER.size : at + length]
        at += length + -length % 4


def _raise_kernel_error(what: int, body: bytes, flags: int) -> None:
    """Raise OSError for the error in an NLMSG_ERROR or NLMSG_DONE message, if any."""
    if what == _ERROR and len(body) < _CODE.size:
        raise truncated_error("the error number")
    code = -_CODE.unpack_from(body)[0] if len(body) >= _CODE.size else 0
    if code:
        text, message = os.strerror(code), b""
        if flags & _CAPPED and flags & _HAS_ATTRIBUTES:
            message = Attributes(body[_CODE.size + _HEADER.size :]).bytes(_ERROR_MESSAGE)
        reason = message.rstrip(b"\0").decode(errors="replace")
        raise OSError(code, f"{text} ({reason})" if reason not in ("", text) else text)
