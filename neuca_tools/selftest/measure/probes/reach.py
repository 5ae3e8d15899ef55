"""Whether the peer can be reached: ARP, ping, and how many connections a second it accepts."""

# SPDX-License-Identifier: MIT

import select
import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import Optional

from neuca_tools.backends.routing import FAMILIES
from neuca_tools.model import Device
from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Connections, Reach
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.kernel import KernelRoute
from neuca_tools.selftest.measure.probes.echo import ping_requests
from neuca_tools.selftest.measure.probes.roundtrip import RoundTrips, measure_latency
from neuca_tools.selftest.measure.wait import wait_readable

ARP, REQUEST, REPLY = 0x0806, 1, 2  # ethertype and operations of RFC 826
BROADCAST = b"\xff" * 6
ARP_TRIES, ARP_SECONDS = 3, 0.4  # ARP requests, and seconds to wait for all answers to one
# Pings, the seconds between them, and the seconds after which there are no more.
PINGS, PING_EVERY, PING_SECONDS = 5, 0.05, 1.0
CONNECT_SECONDS = 3.0  # for one connection
# Connections that show a lost path, and seconds for each: its SYN is sent after 0, 1 and 3 s.
FLOWS, FLOW_SECONDS = 16, 4.0
MAX_FAILED = 100  # failed connections after which the test ends


def check_reach(peer: Address, route: KernelRoute, device: Device) -> Reach:
    """The MACs that answer for the peer, its state as a neighbour, and whether it answers a ping.

    Raises nothing: what cannot be found out stays unknown.
    """
    macs = answering_macs(peer, route, device)
    ping = _answers_ping(peer, route.source)
    state = None
    with suppress(OSError):
        state = kernel.neighbour_state(route.gateway or peer, route.device_index)
    gateway = str(route.gateway) if route.gateway else None
    return Reach("reachable" if macs else state, macs, ping, route=device.name, gateway=gateway)


def _answers_ping(peer: Address, source: Optional[Address]) -> Optional[bool]:
    try:
        pings = RoundTrips(ping_requests(peer, source), PING_EVERY)
    except OSError:
        # Only root may open a raw socket.
        return None
    measure_latency(pings, PINGS, PING_SECONDS)
    return pings.answer_count > 0


def answering_macs(peer: Address, route: KernelRoute, device: Device) -> tuple[str, ...]:
    """Every MAC that answers an ARP request for the peer's address.

    None if the peer is behind a gateway or has an IPv6 address, if the device is not an Ethernet
    device, or if this process may not send the request.
    """
    own_mac = bytes.fromhex(device.mac.replace(":", ""))
    if route.gateway or route.source is None or peer.version != 4 or len(own_mac) != 6:
        return ()
    macs: set[str] = set()
    addresses = own_mac + route.source.packed + bytes(6) + peer.packed
    request = struct.pack("!HHBBH", 1, 0x0800, 6, 4, REQUEST) + addresses
    with suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as arp:
        arp.bind((device.name, ARP))
        for _ in range(ARP_TRIES):
            arp.sendto(request, (device.name, ARP, 0, 0, BROADCAST))
            deadline = time.monotonic() + ARP_SECONDS
            while wait_readable([arp], deadline):
                macs |= _mac_in_reply(arp.recv(128), peer)
            if macs:
                break
    return tuple(sorted(macs))


def _mac_in_reply(packet: bytes, peer: Address) -> set[str]:
    if len(packet) < 28:
        return set()
    _, _, _, _, operation, mac, address, _, _ = struct.unpack_from("!HHBBH6s4s6s4s", packet)
    return {mac.hex(":")} if (operation, address) == (REPLY, peer.packed) else set()


def unanswered_flows(peer: Address, port: int, source: Address) -> int:
    """The number of FLOWS connections from different ports without any response. Raises OSError."""
    with ExitStack() as stack:
        poll, waiting = select.poll(), set[int]()
        for _ in range(FLOWS):
            connection = socket.socket(FAMILIES[peer.version], socket.SOCK_STREAM)
            waiting.add(stack.enter_context(connection).fileno())
            poll.register(connection, select.POLLOUT)
            connection.setblocking(False)
            connection.bind((str(source), 0))
            connection.connect_ex((str(peer), port))
        deadline = time.monotonic() + FLOW_SECONDS
        while waiting and (seconds := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(seconds * 1000):
                poll.unregister(descriptor)
                waiting.remove(descriptor)
        return len(waiting)


def connection_rate(peer: Address, port: int, source: Address, seconds: float) -> Connections:
    """Connect and close, one connection after the other, for `seconds`.

    Each is closed by a reset, so that its port does not stay in TIME_WAIT.
    """
    made = failed = 0
    began = time.monotonic()
    while time.monotonic() < began + seconds and failed < MAX_FAILED:
        try:
            with socket.socket(FAMILIES[peer.version], socket.SOCK_STREAM) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.settimeout(CONNECT_SECONDS)
                connection.bind((str(source), 0))
                connection.connect((str(peer), port))
                made += 1
        except OSError:
            failed += 1
    return Connections(made / max(1e-6, time.monotonic() - began), failed)
