"""Tells that links or addresses have changed, and that a device has come or gone, from the heads of the kernel's messages.

Its own few lines, so that an idle daemon does without pyroute2 (20 MiB): message head, interface index and flags (rtnetlink(7)).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Optional

RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100  # linux/rtnetlink.h
RTM_NEWLINK, RTM_DELLINK = 16, 17
HEAD = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence number, port
INFO = struct.Struct("=BxHiII")  # struct ifinfomsg: family, device type, index, flags, change mask
AF_UNSPEC = 0  # a bridge reports its ports a second time, with its own family
LARGEST = 1 << 16  # bytes of one datagram
SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python has no name for it
RECEIVE_BUFFER = 8 << 20  # bytes; the default overruns at about 200 links (systemd #14417)


def interfaces() -> dict[str, int]:
    """The index of every interface of this network namespace, by name (if_nameindex(3))."""
    return {name: index for index, name in socket.if_nameindex()}


class Watch:
    """A socket that becomes readable when a link or an address changes; what changed is for the next look to find out."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
            socket.NETLINK_ROUTE,
        )
        with suppress(
            OSError
        ):  # without CAP_NET_ADMIN the default size has to do; an overflow means: look again
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self._socket.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))

    def __enter__(self) -> Watch:  # noqa: PYI034 - typing.Self is newer than Python 3.9
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def wait(self, seconds: float) -> None:
        """Until something changes from now on, at most so long."""
        deadline = time.monotonic() + seconds
        for _ in self._datagrams():
            pass
        select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))

    def _datagrams(self) -> Iterator[Optional[bytes]]:
        """All that is there; None for an overflow: what was lost is not known (ENOBUFS, netlink(7))."""
        while True:
            try:
                yield self._socket.recv(LARGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None


class LinkWatch(Watch):
    """`attentive`: any link message matters, not only a device that comes or goes. `stirred`: there was one."""

    def __init__(self) -> None:
        super().__init__()
        self.attentive = self.stirred = False
        self._known = set(interfaces().values())

    def drain(self, addresses: bool = False) -> bool:
        """Whether there was anything to look into; `addresses`: a change of those is."""
        seen = False
        for data in self._datagrams():
            if data is None:
                self._known = set(interfaces().values())
                seen = True
            for kind, body in _messages(data or b""):
                seen = self._matters(kind, body, addresses) or seen
        return seen

    def _matters(self, kind: int, body: bytes, addresses: bool) -> bool:
        if kind not in (RTM_NEWLINK, RTM_DELLINK):
            return addresses
        family, _, index, _, _ = INFO.unpack_from(body)
        if family != AF_UNSPEC:
            return False
        self.stirred = True
        new = kind == RTM_NEWLINK and index not in self._known
        gone = kind == RTM_DELLINK and index in self._known
        (self._known.discard if kind == RTM_DELLINK else self._known.add)(index)
        return new or gone or self.attentive or addresses


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message of a datagram; messages start at multiples of four bytes (NLMSG_ALIGN)."""
    at = 0
    with suppress(struct.error):
        while at + HEAD.size <= len(data):
            length, kind, *_ = HEAD.unpack_from(data, at)
            if length < HEAD.size:
                return
            yield kind, data[at + HEAD.size : at + length]
            at += (length + 3) & ~3
