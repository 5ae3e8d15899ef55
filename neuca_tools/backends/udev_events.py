"""The events of network interfaces from udevd, read without libudev.

All that an idle daemon does with udev is to wait for an event, and pyudev takes 2 MiB for that. The
format is libudev's own (monitor_netlink_header, src/libsystemd/sd-device/device-monitor.c of
systemd), the same in all versions since udev 150.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import array
import errno
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Optional

from neuca_tools.backends.linkwatch import LARGEST, RECEIVE_BUFFER, SO_RCVBUFFORCE
from neuca_tools.errors import ObserveError

_NETLINK_KOBJECT_UEVENT = 15  # linux/netlink.h
_UDEVD = 2  # the multicast group of processed events; the kernel's own are in group 1
_HEAD = struct.Struct("=8s4sIII")  # prefix, magic, size of the header, offset and size of the body
_PREFIX, _MAGIC = b"libudev\0", b"\xfe\xed\xca\xfe"
_MAGIC_AT, _SUBSYSTEM_AT = 8, 24  # offsets in the header
_MURMUR_OF_NET = 0xA74D3CC8  # MurmurHash2("net"), by which libudev tells the subsystem
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET
_CREDENTIALS = struct.Struct("=III")  # struct ucred: process, user, group
_MOST = 4096  # events read at once


class Event(NamedTuple):
    """A processed event; its action is `add`, `remove`, `change`, `move` (renamed), `bind`, …"""

    action: str
    interface: str
    ifindex: int


class Monitor:
    """Receives events of network interfaces after udevd processed its rules.

    If `overflowed`, events were lost.
    """

    def __init__(self) -> None:
        """Start to receive events. Raises OSError."""
        self.overflowed = False
        self._socket = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
            _NETLINK_KOBJECT_UEVENT,
        )
        # Without CAP_NET_ADMIN the size stays the default.
        with suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        _attach_filter(self._socket)
        self._socket.bind((0, _UDEVD))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def drain(self) -> set[Event]:
        """The pending events, at most _MOST; the next call returns more. Never blocks."""
        events: set[Event] = set()
        for _ in range(_MOST):
            data = self._receive()
            if data is None:
                break
            event = parse(data)
            if event:
                events.add(event)
        return events

    def _receive(self) -> Optional[bytes]:
        """The next message, empty if it is not of udevd; None if there is none or some are lost."""
        if self.overflowed:
            return None
        space = socket.CMSG_SPACE(_CREDENTIALS.size)
        try:
            data, credentials, _, sender = self._socket.recvmsg(LARGEST, space)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise ObserveError(f"read the events of udev: {error.strerror}") from error
            self.overflowed = True
            return None
        return data if sender[1] == _UDEVD and _is_of_root(credentials) else b""


def open_monitor() -> Monitor:
    """Start to receive events. Raises ObserveError."""
    try:
        return Monitor()
    except OSError as error:
        raise ObserveError(f"listened for the events of udev: {error.strerror}") from error


def parse(data: bytes) -> Optional[Event]:
    """The event of a message; None if it is not about a network interface, or not of udevd."""
    if len(data) < _HEAD.size:
        return None
    prefix, magic, _, begin, size = _HEAD.unpack_from(data)
    if (prefix, magic) != (_PREFIX, _MAGIC):
        return None
    words = data[begin : begin + size].decode("utf-8", "replace").split("\0")
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if values.get("SUBSYSTEM") != "net" or not values.get("IFINDEX", "").isdecimal():
        return None
    return _event(values)


def _event(values: Mapping[str, str]) -> Event:
    interface = values.get("DEVPATH", "").rpartition("/")[2]
    return Event(values.get("ACTION", ""), interface, int(values["IFINDEX"]))


def _is_of_root(credentials: Iterable[tuple[int, int, bytes]]) -> bool:
    """Whether the kernel says that root has sent the message (SCM_CREDENTIALS, unix(7))."""
    return any(
        (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
        and _CREDENTIALS.unpack(data)[1] == 0
        for level, kind, data in credentials
    )


def _attach_filter(receiver: socket.socket) -> None:
    """Have the kernel drop what is not about network interfaces, as libudev does.

    Otherwise each event of a disk would wake up the daemon.
    """
    program = (
        (_LOAD, 0, 0, _MAGIC_AT),
        (_EQUAL, 0, 3, int.from_bytes(_MAGIC, "big")),
        (_LOAD, 0, 0, _SUBSYSTEM_AT),
        (_EQUAL, 0, 1, _MURMUR_OF_NET),
        (_RETURN, 0, 0, LARGEST),
        (_RETURN, 0, 0, 0),
    )
    code = array.array("B", b"".join(struct.pack("=HBBI", *one) for one in program))
    # struct sock_fprog: the number of instructions and their address
    described = struct.pack("HP", len(program), code.buffer_info()[0])
    receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
