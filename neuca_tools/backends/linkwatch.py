"""Tells the daemon that a network device has come or gone, from the head of the kernel's messages alone.

Its own few lines, so that an idle daemon does without pyroute2 (20 MiB): message head, interface index and flags (rtnetlink(7)).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100  # linux/rtnetlink.h
RTM_NEWLINK, RTM_DELLINK = 16, 17
HEAD = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence number, port
INFO = struct.Struct("=BxHiII")  # struct ifinfomsg: family, device type, index, flags, change mask
AF_UNSPEC = 0  # a bridge reports its ports a second time, with its own family
LARGEST = 1 << 16  # bytes of one datagram


def interfaces() -> dict[str, int]:
    """The index of every interface of this network namespace, by name (if_nameindex(3))."""
    return {name: index for index, name in socket.if_nameindex()}


class LinkWatch:
    """`attentive`: any link message matters, not only a device that comes or goes. `stirred`: there was one."""

    def __init__(self) -> None:
        self.attentive = self.stirred = False
        self._known = {index for index, _ in socket.if_nameindex()}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
                                     socket.NETLINK_ROUTE)
        self._socket.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def drain(self, addresses: bool = False) -> bool:
        """Whether there was anything to look into. An overflow is: what was lost is not known (ENOBUFS, netlink(7))."""
        seen = False
        while True:
            try:
                data = self._socket.recv(LARGEST)
            except BlockingIOError:
                return seen
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._known = {index for index, _ in socket.if_nameindex()}
                seen = True
                continue
            for kind, body in _messages(data):
                seen = self._matters(kind, body, addresses) or seen

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
            yield kind, data[at + HEAD.size:at + length]
            at += (length + 3) & ~3
