"""Two hosts, A and B, and what is between them, R, as shell scripts: a switch, or a router; and what its path does to packets.

Pure. A and B have no segmentation offload, so that what R delays, drops and counts is packets of the MTU and not of 64 KiB.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from typing import NamedTuple

NEAR, FAR = "10.0.0.1", "10.0.0.2"  # behind a switch
ROUTED_FAR = "10.0.2.1"
PACKET = 1514  # bytes on the wire

# A veth and its peer with the same index look like no pair to the kernel: hence the index.
_HOSTS = """for ns in A R B; do ip netns add $ns; ip -n $ns link set lo up
ip netns exec $ns sysctl -qw net.ipv6.conf.all.disable_ipv6={no_ipv6} net.ipv6.conf.default.disable_ipv6={no_ipv6}; done
ip link add a0 index 11 netns A address fe:16:3e:00:0a:01 mtu {mtu} type veth peer index 12 name ra netns R mtu {mtu}
ip link add b0 index 13 netns B address fe:16:3e:00:0b:01 mtu {mtu} type veth peer index 14 name rb netns R mtu {mtu}
ip netns exec A ethtool -K a0 tso off gso off gro off >/dev/null; ip netns exec B ethtool -K b0 tso off gso off gro off >/dev/null
for port in ra rb; do ip -n R link set $port up; done; ip -n A link set a0 up; ip -n B link set b0 up
"""
_SWITCH = """ip -n R link add br0 type bridge; ip -n R link set br0 up
for port in ra rb; do ip -n R link set $port master br0; done
"""
_SWITCHED = f"ip -n A address add {NEAR}/24 dev a0; ip -n B address add {FAR}/24 dev b0\n"
_ROUTED = f"""ip netns exec R sysctl -qw net.ipv4.ip_forward=1
ip -n R address add 10.0.1.254/24 dev ra; ip -n R address add 10.0.2.254/24 dev rb
ip -n A address add 10.0.1.1/24 dev a0; ip -n B address add {ROUTED_FAR}/24 dev b0
ip -n A route add default via 10.0.1.254; ip -n B route add default via 10.0.2.254
"""


class Path(NamedTuple):
    """What a path does: Mbit/s, milliseconds of the round trip, and the packets that it queues (None: a usual number), of which
    each has so many bytes."""

    rate: float
    rtt: float
    queue: int | None = None
    packet: int = PACKET

    @property
    def expect(self) -> str:
        return f"{self.rate:g}M"

    @property
    def packets(self) -> float:
        """That are on their way when the path is full: the bandwidth-delay product."""
        return self.rate * 1e6 * self.rtt / 1e3 / 8 / self.packet

    def netem(self, more: str = "") -> str:
        """One direction. The usual queue: one round trip, 10 ms and 10 packets at the least; a deeper one is a cause (D14)."""
        usual = max(10.0, self.packets, self.rate * 1e6 * 0.010 / 8 / self.packet)
        limit = (
            math.ceil(self.packets / 2 + (usual if self.queue is None else self.queue))
            if self.rate
            else 100_000
        )
        delay = f"delay {self.rtt / 2:g}ms" if self.rtt and "delay" not in more else ""
        rate = f"rate {self.rate:g}mbit" if self.rate and "rate" not in more else ""
        return f"netem {delay} {more} {rate} limit {limit}"

    def both(self, there: str = "", back: str = "") -> str:
        return f"tc -n R qdisc add dev rb root {self.netem(there)}\ntc -n R qdisc add dev ra root {self.netem(back)}\n"


def hosts(mtu: int = 1500, ipv6: bool = False) -> str:
    return _HOSTS.format(mtu=mtu, no_ipv6=int(not ipv6))


def switched(path: Path, there: str = "", back: str = "", mtu: int = 1500) -> str:
    return hosts(mtu) + _SWITCH + _SWITCHED + path.both(there, back)


def routed(path: Path, there: str = "", back: str = "", mtu: int = 1500) -> str:
    return hosts(mtu) + _ROUTED + path.both(there, back)


def bare_switch(mtu: int = 1500, ipv6: bool = False) -> str:
    """Without addresses, and without a word about its path."""
    return hosts(mtu, ipv6) + _SWITCH
