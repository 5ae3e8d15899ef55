"""The devices, counters, addresses, routes and neighbours of this network namespace, from rtnetlink.

Unlike /sys, rtnetlink always shows the namespace that the process is in. The numbers are those of
linux/rtnetlink.h, linux/if_link.h and linux/neighbour.h.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Optional

from neuca_tools.backends import wire
from neuca_tools.model import Host as Address

# RTM_*.
GETLINK, GETADDR, GETROUTE, GETNEIGH, GETQDISC = 18, 22, 26, 30, 38
# struct ifinfomsg, ifaddrmsg, rtmsg, ndmsg and tcmsg.
LINK, ADDRESS, ROUTE, NEIGHBOUR, QDISC = (
    struct.Struct(form) for form in ("=BBHiII", "=BBBBi", "=BBBBBBBBI", "=BBHiHBB", "=BBHiIII")
)
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_QDISC, IFLA_MASTER = 1, 3, 4, 5, 6, 10
IFLA_TXQLEN, IFLA_LINKINFO, IFLA_STATS64, IFLA_CARRIER_CHANGES = 13, 18, 23, 35
IFLA_LINK_NETNSID, IFLA_MAX_MTU, IFLA_PARENT_DEV_NAME = 37, 51, 56
# Within IFLA_LINKINFO, and within its data for a VXLAN.
IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_VXLAN_LINK = 1, 2, 3
IFA_ADDRESS, IFA_LOCAL = 1, 2
TCA_STATS2, TCA_STATS_QUEUE = 7, 3
# RTN_UNICAST, RTN_LOCAL.
UNICAST, LOCAL = 1, 2
# IFF_UP.
UP = 0x1
# NUD_*. In the states stale, delay and probe the address was valid, so they count as reachable.
STATES = {
    0x01: "incomplete",
    0x02: "reachable",
    0x04: "reachable",
    0x08: "reachable",
    0x10: "reachable",
    0x20: "failed",
    0x40: "reachable",
    0x80: "reachable",
}
# The fields of struct rtnl_link_stats64, in order.
STATISTICS = (
    "rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped multicast collisions rx_length_errors"
    " rx_over_errors rx_crc_errors rx_frame_errors rx_fifo_errors rx_missed_errors tx_aborted_errors tx_carrier_errors"
    " tx_fifo_errors tx_heartbeat_errors tx_window_errors rx_compressed tx_compressed rx_nohandler"
).split()


@dataclass(frozen=True)
class NetDevice:
    """One network device.

    `parent` is the index of its lower device, 0 for none; the peer of a veth is none. `master` is
    that of its bridge or bond. `kind` is empty for an unknown one. The MTUs are in bytes, and
    `max_mtu` is 0 if the driver does not limit it.
    """

    index: int
    name: str
    kind: str
    mac: str
    up: bool
    mtu: int
    max_mtu: int
    txqueuelen: int
    qdisc: str
    parent: int
    master: int
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Way:
    """How packets reach an address.

    `index` is that of the device. `mtu`, in bytes, is set by the route or was learned from ICMP.
    `local`: the address is one of this host; `unicast`: it is that of one other host.
    """

    index: int
    source: Optional[Address]
    gateway: Optional[Address]
    mtu: Optional[int]
    local: bool
    unicast: bool = True


def devices() -> dict[int, NetDevice]:
    """All devices by index. Raises OSError."""
    found = [_device(body) for body in _dump(GETLINK, LINK.pack(0, 0, 0, 0, 0, 0))]
    return {device.index: device for device in found}


def addresses() -> list[tuple[int, Address]]:
    """The addresses of this host, each with the index of its device. Raises OSError."""
    found = []
    for body in _dump(GETADDR, ADDRESS.pack(0, 0, 0, 0, 0)):
        parts = dict(wire.attributes(body[ADDRESS.size :]))
        value = parts.get(IFA_LOCAL) or parts.get(IFA_ADDRESS)
        if value is not None and len(value) in (4, 16):
            found.append((ADDRESS.unpack_from(body)[4], ip_address(value)))
    return found


def way_to(peer: Address) -> Way:
    """The route that the kernel takes, as `ip route get` shows it.

    Raises OSError, with ENETUNREACH if there is no route.
    """
    bits = peer.max_prefixlen
    payload = ROUTE.pack(FAMILIES[peer.version], bits, 0, 0, 0, 0, 0, 0, 0) + wire.attribute(
        1, peer.packed
    )
    with wire.Socket(socket.NETLINK_ROUTE) as asked:
        body = asked.ask(GETROUTE, 0, payload)[0]
    parts = dict(wire.attributes(body[ROUTE.size :]))
    metrics = dict(wire.attributes(parts.get(8, b"")))
    source, gateway = (ip_address(parts[kind]) if kind in parts else None for kind in (7, 5))
    mtu = _number(metrics.get(2, b"")) or None
    return Way(
        index=_number(parts.get(4, b"")),
        source=source,
        gateway=gateway,
        mtu=mtu,
        local=body[7] == LOCAL,
        unicast=body[7] == UNICAST,
    )


def neighbour(peer: Address, index: int) -> Optional[str]:
    """The state of a neighbour: reachable, incomplete or failed; None if it has no entry.

    Raises OSError.
    """
    for body in _dump(GETNEIGH, NEIGHBOUR.pack(FAMILIES[peer.version], 0, 0, 0, 0, 0, 0)):
        _, _, _, device, state, _, _ = NEIGHBOUR.unpack_from(body)
        if device == index and dict(wire.attributes(body[NEIGHBOUR.size :])).get(1) == peer.packed:
            return STATES.get(state)
    return None


def queues() -> dict[int, dict[str, int]]:
    """Drops, backlog (bytes) and requeues of each device's queueing disciplines. Raises OSError.

    The root of `mq` or `htb` includes the counts of its leaves, so the largest value of a device is
    its total. The structures are those of linux/gen_stats.h.
    """
    found: dict[int, dict[str, int]] = {}
    for body in _dump(GETQDISC, QDISC.pack(0, 0, 0, 0, 0, 0, 0)):
        index = QDISC.unpack_from(body)[3]
        statistics = dict(wire.attributes(body[QDISC.size :])).get(TCA_STATS2, b"")
        # struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
        queue = dict(wire.attributes(statistics)).get(TCA_STATS_QUEUE, b"")
        if len(queue) >= 20:
            _, backlog, drops, requeues, _ = struct.unpack_from("=5I", queue)
            before = found.get(index, {})
            values = {"drops": drops, "backlog": backlog, "requeues": requeues}
            found[index] = {name: max(value, before.get(name, 0)) for name, value in values.items()}
    return found


def _dump(kind: int, payload: bytes) -> list[bytes]:
    with wire.Socket(socket.NETLINK_ROUTE) as asked:
        return asked.ask(kind, wire.DUMP, payload)


def _device(body: bytes) -> NetDevice:
    _, _, _, index, flags, _ = LINK.unpack_from(body)
    parts = dict(wire.attributes(body[LINK.size :]))
    about = dict(wire.attributes(parts.get(IFLA_LINKINFO, b"")))
    kind = about.get(IFLA_INFO_KIND, b"").rstrip(b"\0").decode(errors="replace")
    lower = parts.get(IFLA_LINK, b"")
    if kind == "vxlan":
        # Every other kind has its lower device in IFLA_LINK.
        lower = dict(wire.attributes(about.get(IFLA_INFO_DATA, b""))).get(IFLA_VXLAN_LINK, b"")
    if kind == "veth" or IFLA_LINK_NETNSID in parts:
        # The index belongs to the peer, or to another namespace.
        lower = b""
    if not kind and IFLA_PARENT_DEV_NAME in parts:
        kind = "physical"
    return NetDevice(
        index=index,
        name=os.fsdecode(parts.get(IFLA_IFNAME, b"").rstrip(b"\0")),
        kind=kind,
        mac=parts.get(IFLA_ADDRESS, b"").hex(":"),
        up=bool(flags & UP),
        mtu=_number(parts.get(IFLA_MTU, b"")),
        max_mtu=_number(parts.get(IFLA_MAX_MTU, b"")),
        txqueuelen=_number(parts.get(IFLA_TXQLEN, b"")),
        qdisc=parts.get(IFLA_QDISC, b"").rstrip(b"\0").decode(errors="replace"),
        parent=_number(lower),
        master=_number(parts.get(IFLA_MASTER, b"")),
        counters=_counters(parts),
    )


def _counters(parts: Mapping[int, bytes]) -> dict[str, int]:
    statistics = parts.get(IFLA_STATS64, b"")
    values = struct.unpack_from(f"={len(statistics) // 8}Q", statistics)
    counters = dict(zip(STATISTICS, values))
    if IFLA_CARRIER_CHANGES in parts:
        counters["carrier_changes"] = _number(parts[IFLA_CARRIER_CHANGES])
    return counters


def _number(value: bytes) -> int:
    return int(struct.unpack("=I", value)[0]) if len(value) == 4 else 0
