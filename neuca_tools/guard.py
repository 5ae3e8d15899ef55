"""What a document may not ask for, since it would cut off the management NIC, the metadata service or the default route.

Each function returns the reason for a refusal, or None.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Optional

from .model import OWN, Address, Host, Network, Route, World
from .roles import Roles, above, best_default_routes

# IPv4: RFC 3927 link-local literal that every cloud uses; IPv6: the EC2 one (facts: metadata, section 3).
METADATA_HOSTS: tuple[Host, ...] = (ip_address("169.254.169.254"), ip_address("fd00:ec2::254"))
LINK_LOCAL = ip_network(
    "fe80::/64"
)  # RFC 4291, 2.5.6: on every link, so it is no management prefix
NOTHING: Mapping[Host, str] = {}
SHORTEST_PREFIX = 2  # a prefix of length 0 or 1 is a default route, or half of one


@dataclass(frozen=True)
class Fence:
    """The ground that is taken: the management prefixes, and for each guarded host how closely it is routed now."""

    prefixes: tuple[Network, ...] = ()
    hosts: Mapping[Host, int] = field(default_factory=dict)
    allow_default_route: bool = False
    default_routes: frozenset[int] = frozenset()
    twice: Mapping[Host, str] = field(default_factory=dict)

    def address(self, address: Address) -> Optional[str]:
        """Why this address is refused: several links ask for it, it is in a management prefix, or takes over what is guarded."""
        if address.ip in self.twice:
            return f"it is asked for on {self.twice[address.ip]}, so none of them gets it"
        for prefix in self.prefixes:
            if address.version == prefix.version and address.ip in prefix:
                return f"it lies inside the management network {prefix}"
        return self._too_short(address.network) or self._takes_over(address.network)

    def route(self, to: Network) -> Optional[str]:
        """Why a route to this prefix is refused."""
        for prefix in self.prefixes:
            if _inside(to, prefix):
                same = "is" if to == prefix else "lies inside"
                return f"it {same} the management network {prefix}"
        if to.prefixlen == 0 and self.allow_default_route:
            taken = to.version in self.default_routes
            return "this host has a default route already" if taken else None
        return self._too_short(to) or self._takes_over(to)

    def _too_short(self, to: Network) -> Optional[str]:
        return (
            "a prefix of length 0 or 1 would take the default route's place"
            if to.prefixlen < SHORTEST_PREFIX
            else None
        )

    def _takes_over(self, to: Network) -> Optional[str]:
        for host, now in self.hosts.items():
            if host.version == to.version and host in to and to.prefixlen >= now:
                return f"it would take over {host}, which is reached through the management NIC"
        return None


def _inside(inner: Network, outer: Network) -> bool:
    same_family = inner.version == outer.version
    return same_family and inner.prefixlen >= outer.prefixlen and inner.network_address in outer


def fence(
    world: World,
    roles: Roles,
    metadata_hosts: Iterable[Host],
    allow_default_route: bool = False,
    ground: Iterable[str] = (),
    twice: Mapping[Host, str] = NOTHING,
) -> Fence:
    """Survey the host. Routes through dataplane NICs do not count as "now": they may be ours. `ground`: as it was before."""
    dataplane = _dataplane_indexes(world, roles)
    foreign = [route for route in world.routes if route.index not in dataplane]
    defaults = best_default_routes(foreign)
    gateways = [route.via for route in foreign if route.to.prefixlen == 0 and route.via is not None]
    before = [ip_network(text) for text in ground]
    gateways += [
        network.network_address for network in before if network.prefixlen == network.max_prefixlen
    ]
    guarded = {*METADATA_HOSTS, *metadata_hosts, *gateways}
    prefixes = {
        address.network for index in roles.management for address in world.addresses.get(index, ())
    }
    prefixes |= {
        route.to
        for route in world.routes  # a /32 or /128 address has its network as a route (DHCP, RA)
        if route.index in roles.management
        and route.via is None
        and route.to.prefixlen >= SHORTEST_PREFIX
    }
    prefixes = {prefix for prefix in {*prefixes, *before} if prefix != LINK_LOCAL}
    return Fence(
        tuple(sorted(prefixes, key=str)),
        {host: _length_now(host, foreign) for host in guarded if not host.is_loopback},
        allow_default_route,
        frozenset(route.to.version for route in defaults),
        twice,
    )


def ground(world: World, roles: Roles) -> tuple[str, ...]:
    """The management networks and gateways as they are now, to be remembered; empty while they have no address."""
    now = fence(world, roles, ())
    if not now.prefixes:
        return ()
    gateways = {
        str(ip_network(route.via))
        for route in world.routes
        if route.to.prefixlen == 0 and route.via is not None and route.index in roles.management
    }
    return tuple(sorted({*map(str, now.prefixes), *gateways}))


def _dataplane_indexes(world: World, roles: Roles) -> frozenset[int]:
    named = {mac for mac, role in roles.by_mac.items() if role == "dataplane"}
    ours = above(
        world, (device.index for device in roles.stacked.values())
    )  # a VXLAN has a MAC of its own
    return frozenset(
        device.index
        for device in world.devices.values()
        if (device.index in ours or (device.permanent_mac or device.mac) in named)
        and device.index not in roles.protected
    )


def _length_now(host: Host, routes: Iterable[Route]) -> int:
    """Length of the longest prefix that routes this host now; 0 where it is the default route or nothing."""
    lengths = [
        route.to.prefixlen
        for route in routes
        if route.to.version == host.version and host in route.to
    ]
    return max(lengths, default=0)


# --- sysctls --------------------------------------------------------------------------------------------------------

PER_INTERFACE = (
    ("net", "ipv4", "conf"),
    ("net", "ipv6", "conf"),
    ("net", "ipv4", "neigh"),
    ("net", "ipv6", "neigh"),
    ("net", "mpls", "conf"),
)


def sysctl_reason(key: str) -> Optional[str]:
    """Why this key (a path below /proc/sys, `{interface}` in it) may not be set for one link; None if it may.

    `conf/all`, `conf/default` and `ip_forward` change every NIC, the management NIC with them (kernel: ip-sysctl.rst).
    """
    parts = tuple(key.split("/"))
    if parts[:3] in PER_INTERFACE and len(parts) > 4 and parts[3] == OWN:
        return None
    if parts[:3] in PER_INTERFACE:
        table = parts[3] if len(parts) > 3 else ""
        harmless = parts[2] == "neigh" and table == "default"  # the table's own limits, not a NIC's
        return None if harmless else f'it would change "{table}", not this interface alone'
    if key == "net/ipv4/ip_forward":
        return "it changes every interface; ask with router in [global]"
    if parts[-1] == "flush":
        return "it is an order, not a setting"
    return "{interface} does not belong in it" if OWN in key else None
