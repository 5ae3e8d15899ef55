"""The devices, counters, addresses, routes and neighbours of this network namespace.

They come from rtnetlink, which unlike /sys always shows the namespace of this process. The numbers
are those of linux/rtnetlink.h, linux/if_link.h and linux/neighbour.h.
"""

# SPDX-License-Identifier: MIT

import socket
import struct
from ipaddress import ip_address
from typing import NamedTuple, Optional

from neuca_tools.backends import wire
from neuca_tools.backends.kernel_state import ADDRESS, GET_ADDRESS, GET_LINK, LINK, parse_device
from neuca_tools.backends.routing import FAMILIES, GET_NEIGHBOUR, GET_ROUTE, HEAD, OUTPUT, SOURCE
from neuca_tools.model import Device
from neuca_tools.model import Host as Address

GET_QDISC = 38  # RTM_*
NEIGHBOUR, QDISC = struct.Struct("=BxxxiHBB"), struct.Struct("=BxxxiIII")  # struct ndmsg, tcmsg
IFLA_IFNAME, IFLA_STATS64, IFLA_CARRIER_CHANGES = 3, 23, 35
IFA_ADDRESS, IFA_LOCAL = 1, 2
TCA_STATS2, TCA_STATS_QUEUE = 7, 3
RTA_DST, RTA_SRC, RTA_GATEWAY, RTA_METRICS = 1, 2, 5, 8
# struct rtvia: the gateway of another family, after two bytes that say which.
RTA_VIA, VIA_ADDRESS = 18, 2
RTAX_MTU = 2
NDA_DST = 1
UNICAST, LOCAL = 1, 2  # RTN_UNICAST, RTN_LOCAL
# NUD_*. In every other state, such as stale, the address was valid, so it counts as reachable.
STATES = {0x00: None, 0x01: "incomplete", 0x20: "failed"}
# The fields of struct rtnl_link_stats64, in order.
STATISTICS = (
    "rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped multicast"
    " collisions rx_length_errors rx_over_errors rx_crc_errors rx_frame_errors rx_fifo_errors"
    " rx_missed_errors tx_aborted_errors tx_carrier_errors tx_fifo_errors tx_heartbeat_errors"
    " tx_window_errors rx_compressed tx_compressed rx_nohandler"
).split()


class KernelRoute(NamedTuple):
    """How packets reach an address.

    `mtu`, in bytes, is set by the route or was learned from ICMP. `is_local`: the address is one of
    this host; `is_unicast`: it is that of one other host.
    """

    device_index: int
    source: Optional[Address]
    gateway: Optional[Address]
    mtu: Optional[int]
    is_local: bool
    is_unicast: bool = True


def read_devices() -> dict[int, Device]:
    """All devices by index. Raises OSError."""
    links = map(parse_device, _dump_kernel(GET_LINK, bytes(LINK.size)))
    return {device.index: device for device in links}


def read_addresses() -> list[tuple[int, Address]]:
    """The addresses of this host, each with the index of its device. Raises OSError."""
    pairs = []
    for body in _dump_kernel(GET_ADDRESS, bytes(ADDRESS.size)):
        parts = wire.Attributes(body[ADDRESS.size :])
        address = _parse_address(parts.bytes(IFA_LOCAL) or parts.bytes(IFA_ADDRESS))
        if address is not None:
            pairs.append((ADDRESS.unpack_from(body)[4], address))
    return pairs


def devices_by_address() -> dict[Address, Device]:
    """The devices of this host by their addresses. Raises OSError."""
    devices = read_devices()
    return {address: devices[index] for index, address in read_addresses() if index in devices}


def route_to(peer: Address, source: Optional[Address] = None) -> KernelRoute:
    """The route that the kernel takes, from `source` if given, as `ip route get` shows it.

    Raises OSError, with ENETUNREACH if there is no route.
    """
    bits = peer.max_prefixlen
    request = HEAD.pack(FAMILIES[peer.version], bits, bits if source else 0, *[0] * 6)
    request += wire.encode_attribute(RTA_DST, peer.packed)
    if source:
        request += wire.encode_attribute(RTA_SRC, source.packed)
    with wire.Socket(socket.NETLINK_ROUTE) as netlink:
        body = netlink.ask(GET_ROUTE, 0, request)[0]
    parts = wire.Attributes(body[HEAD.size :])
    return KernelRoute(
        device_index=parts.number(OUTPUT),
        source=source or _parse_address(parts.bytes(SOURCE)),
        gateway=_parse_address(parts.bytes(RTA_GATEWAY) or parts.bytes(RTA_VIA)[VIA_ADDRESS:]),
        mtu=parts.nest(RTA_METRICS).number(RTAX_MTU) or None,
        is_local=body[7] == LOCAL,
        is_unicast=body[7] == UNICAST,
    )


def neighbour_state(peer: Address, index: int) -> Optional[str]:
    """The state of a neighbour: reachable, incomplete or failed; None if it has no entry.

    Raises OSError.
    """
    for body in _dump_kernel(GET_NEIGHBOUR, NEIGHBOUR.pack(FAMILIES[peer.version], 0, 0, 0, 0)):
        _, device, state, _, _ = NEIGHBOUR.unpack_from(body)
        address = wire.Attributes(body[NEIGHBOUR.size :]).bytes(NDA_DST)
        if device == index and address == peer.packed:
            return STATES.get(state, "reachable")
    return None


def read_link_counters() -> dict[str, dict[str, int]]:
    """The counters of each device by its name. Raises OSError."""
    counters_by_name, queue_drops = {}, _read_queue_drops()
    for body in _dump_kernel(GET_LINK, bytes(LINK.size)):
        parts = wire.Attributes(body[LINK.size :])
        name, statistics = parts.text(IFLA_IFNAME), parts.bytes(IFLA_STATS64)
        values = struct.unpack_from(f"={len(statistics) // 8}Q", statistics)
        counters_by_name[name] = dict(zip(STATISTICS, values))
        if IFLA_CARRIER_CHANGES in parts:
            counters_by_name[name]["carrier_changes"] = parts.number(IFLA_CARRIER_CHANGES)
        index = LINK.unpack_from(body)[2]
        if index in queue_drops:
            counters_by_name[name]["qdisc.drops"] = queue_drops[index]
    return counters_by_name


def _read_queue_drops() -> dict[int, int]:
    """The packets that the queueing disciplines of each device dropped, by its index.

    The root of `mq` or `htb` includes the counts of its leaves, so the largest value of a device is
    its total. The structures are those of linux/gen_stats.h.
    """
    drops: dict[int, int] = {}
    for body in _dump_kernel(GET_QDISC, bytes(QDISC.size)):
        index = QDISC.unpack_from(body)[1]
        # struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
        queue = wire.Attributes(body[QDISC.size :]).nest(TCA_STATS2).bytes(TCA_STATS_QUEUE)
        if len(queue) >= 20:
            drops[index] = max(drops.get(index, 0), struct.unpack_from("=5I", queue)[2])
    return drops


def _dump_kernel(kind: int, payload: bytes) -> list[bytes]:
    with wire.Socket(socket.NETLINK_ROUTE) as netlink:
        return netlink.dump(kind, payload)


def _parse_address(value: bytes) -> Optional[Address]:
    return ip_address(value) if value else None
