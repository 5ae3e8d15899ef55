"""What the kernel says of this network namespace: devices with their counters, addresses, the way to a peer, its neighbours.

Through rtnetlink, and so of the namespace that this process is in, whatever is mounted at /sys. Numbers: linux/rtnetlink.h,
linux/if_link.h, linux/neighbour.h.
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

GETLINK, GETADDR, GETROUTE, GETNEIGH, GETQDISC = 18, 22, 26, 30, 38  # RTM_*
LINK, ADDRESS, ROUTE, NEIGHBOUR, QDISC = (
    struct.Struct(form) for form in ("=BBHiII", "=BBBBi", "=BBBBBBBBI", "=BBHiHBB", "=BBHiIII")
)
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
UNICAST, LOCAL = 1, 2  # RTN_UNICAST, RTN_LOCAL
UP = 0x1  # IFF_UP
STATES = {
    0x01: "incomplete",
    0x02: "reachable",
    0x04: "reachable",
    0x08: "reachable",
    0x10: "reachable",
    0x20: "failed",
    0x40: "reachable",
    0x80: "reachable",
}  # NUD_*: stale, delay and probe have an address that was good
STATISTICS = (  # struct rtnl_link_stats64
    "rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped multicast collisions rx_length_errors"
    " rx_over_errors rx_crc_errors rx_frame_errors rx_fifo_errors rx_missed_errors tx_aborted_errors tx_carrier_errors"
    " tx_fifo_errors tx_heartbeat_errors tx_window_errors rx_compressed tx_compressed rx_nohandler"
).split()


@dataclass(frozen=True)
class NetDevice:
    """One network device. `parent` is the index of what it is stacked on, 0 for none; a veth's other end is no parent."""

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
    """How packets reach an address: `mtu` is one that the route has, or that the kernel learned; `local`: it is our own."""

    index: int
    source: Optional[Address]
    gateway: Optional[Address]
    mtu: Optional[int]
    local: bool
    unicast: bool = True


def devices() -> dict[int, NetDevice]:
    """Every device by its index. Raises OSError."""
    found = [_device(body) for body in _dump(GETLINK, LINK.pack(0, 0, 0, 0, 0, 0))]
    return {device.index: device for device in found}


def addresses() -> list[tuple[int, Address]]:
    """Index and address of everything that this host answers to. Raises OSError."""
    found = []
    for body in _dump(GETADDR, ADDRESS.pack(0, 0, 0, 0, 0)):
        parts = dict(wire.attributes(body[ADDRESS.size :]))
        value = parts.get(2) or parts.get(1)  # IFA_LOCAL, IFA_ADDRESS
        if value is not None and len(value) in (4, 16):
            found.append((ADDRESS.unpack_from(body)[4], ip_address(value)))
    return found


def way_to(peer: Address) -> Way:
    """What `ip route get` says. Raises OSError: ENETUNREACH where there is no route."""
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
        _number(parts.get(4, b"")), source, gateway, mtu, body[7] == LOCAL, body[7] == UNICAST
    )


def neighbour(peer: Address, index: int) -> Optional[str]:
    """What the kernel holds of a neighbour: reachable, incomplete or failed; None where it has never asked. Raises OSError."""
    for body in _dump(GETNEIGH, NEIGHBOUR.pack(FAMILIES[peer.version], 0, 0, 0, 0, 0, 0)):
        _, _, _, device, state, _, _ = NEIGHBOUR.unpack_from(body)
        if device == index and dict(wire.attributes(body[NEIGHBOUR.size :])).get(1) == peer.packed:
            return STATES.get(state)
    return None


def queues() -> dict[int, dict[str, int]]:
    """Drops, backlog and requeues of each device, all of its queueing disciplines together (gnet_stats.h). Raises OSError.

    What the leaves of `mq` or `htb` count, their root counts again: only the largest of a device's is taken.
    """
    found: dict[int, dict[str, int]] = {}
    for body in _dump(GETQDISC, QDISC.pack(0, 0, 0, 0, 0, 0, 0)):
        index = QDISC.unpack_from(body)[3]
        parts = dict(
            wire.attributes(dict(wire.attributes(body[QDISC.size :])).get(7, b""))
        )  # TCA_STATS2
        queue = parts.get(3, b"")  # TCA_STATS_QUEUE: qlen, backlog, drops, requeues, overlimits
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
    about = dict(wire.attributes(parts.get(18, b"")))
    kind = about.get(1, b"").rstrip(b"\0").decode(errors="replace")
    below = parts.get(5, b"")
    if kind == "vxlan":  # IFLA_VXLAN_LINK: it is not told where every other kind tells it
        below = dict(wire.attributes(about.get(2, b""))).get(3, b"")
    elsewhere = kind == "veth" or 37 in parts  # IFLA_LINK_NETNSID
    statistics = parts.get(23, b"")  # IFLA_STATS64
    values = struct.unpack_from(f"={len(statistics) // 8}Q", statistics)
    counters = dict(zip(STATISTICS, values))
    if 35 in parts:
        counters["carrier_changes"] = _number(parts[35])
    return NetDevice(
        index,
        os.fsdecode(parts.get(3, b"").rstrip(b"\0")),
        kind or ("physical" if 56 in parts else ""),
        ":".join(f"{byte:02x}" for byte in parts.get(1, b"")),
        bool(flags & UP),
        _number(parts.get(4, b"")),
        _number(parts.get(51, b"")),
        _number(parts.get(13, b"")),
        parts.get(6, b"").rstrip(b"\0").decode(errors="replace"),
        0 if elsewhere else _number(below),
        _number(parts.get(10, b"")),
        counters,
    )


def _number(value: bytes) -> int:
    return int(struct.unpack("=I", value)[0]) if len(value) == 4 else 0
