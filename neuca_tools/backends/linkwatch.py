"""Watches for changes of links and addresses, and for devices that appear or disappear.

Reads only the headers of the kernel's messages (rtnetlink(7)), so that an idle daemon does not need
pyroute2, which takes 20 MiB.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Optional

from neuca_tools.backends.wire import parse_messages
from neuca_tools.errors import ObserveError
from neuca_tools.files import text_of
from neuca_tools.model.addresses import Host
from neuca_tools.model.provenance import RTPROT_DHCP
from neuca_tools.model.routing import ROUTE_PROTOCOL

RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100  # linux/rtnetlink.h
RTM_NEWLINK, RTM_DELLINK = 16, 17
RTM_NEWROUTE, RTM_DELROUTE = 24, 25
# RTNLGRP_IPV4_RULE, _IPV6_RULE; RTNLGRP_IPV4_ROUTE, _IPV6_ROUTE
RULE_GROUPS, ROUTE_GROUPS = (8, 19), (7, 11)
SOL_NETLINK, ADD_MEMBERSHIP, DROP_MEMBERSHIP = 270, 1, 2  # linux/netlink.h
LENGTH_AT, PROTOCOL_AT = 1, 5  # offsets of rtm_dst_len and rtm_protocol in struct rtmsg
IFINFOMSG = struct.Struct("=BxHiII")  # family, device type, index, flags, change mask
_KERNEL = 0  # its port
AF_UNSPEC = 0  # a bridge reports its ports once more as AF_BRIDGE
MAX_DATAGRAM_BYTES = 1 << 16
_TENTATIVE, _NOT_READY = 0x40, 0x48  # IFA_F_TENTATIVE, with IFA_F_DADFAILED (linux/if_addr.h)
_ADDRESSES = Path("/proc/net/if_inet6")
SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python has no name for it
RECEIVE_BUFFER = 8 << 20  # bytes; the default overruns at about 200 links (systemd #14417)


def index_by_interface() -> dict[str, int]:
    """The index of every interface of this network namespace, by name (if_nameindex(3))."""
    return {name: index for index, name in socket.if_nameindex()}


def await_link_local(index: int, seconds: float) -> None:
    """Wait until the device has a link-local IPv6 address that is in use, or the time is up."""
    _wait_for(lambda: has_link_local(index), seconds)


def has_link_local(index: int, table: Path = _ADDRESSES) -> bool:
    """Whether one is neither tentative nor a duplicate."""
    flags = _flags_by_address(index, table).items()
    return any(text.startswith("fe80") and not value & _NOT_READY for text, value in flags)


def await_detection(index: int, address: Optional[Host], seconds: float) -> None:
    """Wait until an address is no longer checked for duplicates (RFC 4862), or the time is up."""
    _wait_for(lambda: _detection_state(index, address) != _TENTATIVE, seconds)


def is_unusable(index: int, address: Optional[Host]) -> bool:
    """Whether an IPv6 address is still being checked for duplicates, or is a duplicate."""
    return bool(_detection_state(index, address))


def _detection_state(index: int, address: Optional[Host]) -> int:
    return _flags_by_address(index).get(address.packed.hex(), 0) & _NOT_READY if address else 0


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with Watch() as watch:
        while not condition() and time.monotonic() < deadline:
            select.select([watch], [], [], max(0.0, deadline - time.monotonic()))
            watch.clear()


def _flags_by_address(index: int, table: Path = _ADDRESSES) -> dict[str, int]:
    """The flags of the device's IPv6 addresses, these in hexadecimal digits (proc(5))."""
    rows = (line.split() for line in text_of(table).splitlines())
    return {row[0]: int(row[4], 16) for row in rows if len(row) == 6 and int(row[1], 16) == index}


class Watch(AbstractContextManager["Watch"]):
    """A socket that becomes readable when some link or address changes. Raises ObserveError."""

    def __init__(self) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        try:
            self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
            # Without CAP_NET_ADMIN the size stays the default; an overflow counts as a change.
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
            self._socket.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))
        except OSError as error:
            raise ObserveError(f"watch links and addresses: {error.strerror}") from error

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def wait(self, seconds: float) -> None:
        """Wait until something changes from now on, or until the time is up."""
        self.clear()
        select.select([self._socket], [], [], max(0.0, seconds))

    def clear(self) -> None:
        """Read all messages, whatever they say."""
        for _ in self._datagrams():
            pass

    def _datagrams(self) -> Iterator[Optional[bytes]]:
        """The datagrams of the kernel so far; None for an overflow (ENOBUFS, netlink(7))."""
        while True:
            try:
                data, (port, _) = self._socket.recvfrom(MAX_DATAGRAM_BYTES)
                if port == _KERNEL:
                    yield data
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None


class LinkWatch(Watch):
    """Watches for devices that appear or disappear.

    With `reports_all_changes`, any change of a link counts. With `reports_routing`, these count
    too: any change of a link, an address, a rule or a route from DHCP, the loss of one of our
    routes, and a new default route of another program. A pass decides what has to be watched, and
    may have observed the host before the last changes. So all is received while a job runs:
    `has_seen_change` is set by any message on a link since `begin_job`, and
    `has_seen_routing_change` by one on an address, a rule or such a route, also of the pass itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reports_all_changes = self.reports_routing = self._receives_routes = False
        self.has_seen_change = self.has_seen_routing_change = False
        self._known = set(index_by_interface().values())
        self._gone: set[int] = set()

    def take_gone(self) -> tuple[int, ...]:
        """The indexes of interfaces that have disappeared since the last call."""
        gone, self._gone = tuple(self._gone), set()
        return gone

    def begin_job(self) -> None:
        """Receive everything from now on."""
        self.has_seen_change = self.has_seen_routing_change = False
        self._receive_routes(True)

    def end_job(self) -> None:
        """Receive messages on routes and rules only if they matter: there may be many."""
        self._receive_routes(self.reports_routing)

    def _receive_routes(self, receives: bool) -> None:
        if receives != self._receives_routes:
            self._receives_routes = receives
            option = ADD_MEMBERSHIP if receives else DROP_MEMBERSHIP
            for group in (*RULE_GROUPS, *ROUTE_GROUPS):
                self._socket.setsockopt(SOL_NETLINK, option, group)

    def present(self, indexes: Collection[int]) -> set[int]:
        """Those of the interfaces that have not disappeared, as far as messages were read."""
        return self._known.intersection(indexes)

    def drain(self, addresses: bool = False) -> set[int]:
        """Read all messages; return the indexes of the links with one that matters.

        With `addresses`, any change does. 0 stands for lost messages and those not on links.
        """
        links: set[int] = set()
        for data in self._datagrams():
            if data is None:
                present = set(index_by_interface().values())
                links |= {0} | (present - self._known)
                self._gone |= self._known - present
                self._known = present
                self.has_seen_change = self.has_seen_routing_change = True
            with suppress(OSError):  # of a message that is cut off
                for kind, _, _, body in parse_messages(data or b""):
                    if self._is_relevant(kind, body, addresses):
                        is_link = kind in (RTM_NEWLINK, RTM_DELLINK)
                        links.add(IFINFOMSG.unpack_from(body)[2] if is_link else 0)
        return links

    def _is_relevant(self, kind: int, body: bytes, addresses: bool) -> bool:
        if kind in (RTM_NEWLINK, RTM_DELLINK):
            return self._link_matters(kind, body, addresses)
        is_route = kind in (RTM_NEWROUTE, RTM_DELROUTE)
        if is_route and not _route_matters(kind, body):
            return False
        self.has_seen_routing_change = True
        return self.reports_routing or (addresses and not is_route)

    def _link_matters(self, kind: int, body: bytes, addresses: bool) -> bool:
        family, _, index, _, _ = IFINFOMSG.unpack_from(body)
        if family != AF_UNSPEC:
            return False
        self.has_seen_change = True
        was_known, is_present = index in self._known, kind == RTM_NEWLINK
        if is_present:
            self._known.add(index)
        else:
            self._known.discard(index)
            self._gone.add(index)
        is_news = was_known != is_present
        return is_news or self.reports_all_changes or self.reports_routing or addresses


def _route_matters(kind: int, body: bytes) -> bool:
    protocol = body[PROTOCOL_AT]
    if protocol == ROUTE_PROTOCOL:
        return kind == RTM_DELROUTE
    return protocol == RTPROT_DHCP or (kind == RTM_NEWROUTE and not body[LENGTH_AT])
