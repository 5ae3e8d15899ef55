"""Autoconfigures a dataplane link (RFC 4862), where neither the kernel nor a manager may do it."""

# SPDX-License-Identifier: MIT

import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from ipaddress import IPv6Address, IPv6Interface, IPv6Network, ip_interface
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from neuca_tools.backends import dhcplease
from neuca_tools.backends.advertisements import Advertisement, Listener
from neuca_tools.backends.dhcplease import FOR_EVER, LeaseContent, TimedAddress
from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import as_apply_error
from neuca_tools.model import Host, Route
from neuca_tools.model.addresses import EVERYTHING
from neuca_tools.model.provenance import RTPROT_DHCP
from neuca_tools.model.routing import Traits

# Between solicitations, doubled each time (RFC 7559, 2).
FIRST_SOLICITATION_SECONDS, LONGEST_SOLICITATION_SECONDS = 4.0, 3600.0
SECONDS_BETWEEN_CHANGES = 3.0  # however many advertisements arrive
SHORTEST_VALID_SECONDS = 7200  # no router shortens an address below them (RFC 4862, 5.5.3)
MAX_ROUTERS, MAX_PREFIXES = 8, 16  # of one link: any host there can send advertisements
IPV6_ROUTE_METRIC = 1024  # the kernel's for a route of IPv6


class _Router(NamedTuple):
    preference: int
    until: float


class _Lifetime(NamedTuple):
    """Until when an address is valid and preferred."""

    until: float
    preferred_until: float


class State:
    """What routers have said so far. All times are those of a monotonic clock, in seconds."""

    def __init__(self, addresses: Mapping[str, int], now: float, wall_clock: float) -> None:
        """`addresses` are those of an earlier run, each with the end of its lifetime.

        The ends are times of the wall clock, in seconds, which is at `wall_clock` now.
        """
        self._routers: dict[IPv6Address, _Router] = {}
        self._networks: dict[IPv6Network, float] = {}  # on the link, until when
        self._addresses: dict[IPv6Network, _Lifetime] = {}  # by the network of each
        self._mtu = 0
        for text, until in addresses.items():
            network, end = ip_interface(text).network, now + until - wall_clock
            if isinstance(network, IPv6Network):
                self._addresses[network] = _Lifetime(end, end)

    def hear(self, advertisement: Advertisement, now: float) -> None:
        """Store an advertisement; what it does not say stays as before (RFC 4861, 6.3.4)."""
        self._drop_expired(now)
        self._mtu = advertisement.mtu or self._mtu
        router, lifetime = advertisement.router, advertisement.lifetime
        if router in self._routers or len(self._routers) < MAX_ROUTERS:
            self._routers[router] = _Router(advertisement.preference, now + lifetime)
        for prefix in advertisement.prefixes:
            network = prefix.network
            if prefix.on_link and _has_room(self._networks, network):
                self._networks[network] = now + prefix.valid
            is_for_addresses = prefix.autonomous and network.prefixlen == 64
            if is_for_addresses and _has_room(self._addresses, network):
                left = self._addresses.get(network, _Lifetime(now, now)).until - now
                valid = max(prefix.valid, min(left, SHORTEST_VALID_SECONDS))
                self._addresses[network] = _Lifetime(now + valid, now + prefix.preferred)

    def _drop_expired(self, now: float) -> None:
        routers, networks, addresses = self._routers, self._networks, self._addresses
        self._routers = {host: router for host, router in routers.items() if router.until > now}
        self._networks = {network: until for network, until in networks.items() if until > now}
        self._addresses = {
            network: lifetime
            for network, lifetime in addresses.items()
            if lifetime.until >= now + 1
        }

    def forget_routers(self, own: Collection[Host]) -> None:
        """Forget routers with an address of this host: the kernel refuses it as a gateway."""
        self._routers = {host: router for host, router in self._routers.items() if host not in own}

    def next_end(self) -> float:
        """When the next router, network or address ends; infinity for never."""
        ends = [router.until for router in self._routers.values()]
        ends += [lifetime.until for lifetime in self._addresses.values()]
        return min([*ends, *self._networks.values()], default=math.inf)

    def link_settings(self, mac: str, request: Mapping[str, Any], now: float) -> LeaseContent:
        self._drop_expired(now)
        addresses = tuple(self._timed_addresses(mac, now))
        routes = tuple(self._advertised_routes(request)) if request["routes"] else ()
        return LeaseContent(addresses, self._mtu, routes, 6)

    def _timed_addresses(self, mac: str, now: float) -> Iterator[TimedAddress]:
        """An address in each prefix of 64 bits (RFC 2464, 4)."""
        for network, lifetime in self._addresses.items():
            host = network.network_address + interface_identifier(mac)
            valid = min(int(lifetime.until - now), FOR_EVER - 1)
            preferred = min(max(int(lifetime.preferred_until - now), 0), valid)
            if dhcplease.is_unicast(host):
                yield TimedAddress(IPv6Interface((host, 64)), valid, preferred)

    def _advertised_routes(self, request: Mapping[str, Any]) -> Iterator[Route]:
        """The networks on the link, and the default route through the preferred router."""
        index, metric = int(request["index"]), int(request["metric"]) or IPV6_ROUTE_METRIC
        traits = Traits(int(request["table"]))
        for network in self._networks:
            yield Route(network, index, None, metric, RTPROT_DHCP, traits=traits)
        # Of several, the first: it stays while it advertises itself.
        routers = sorted(self._routers, key=lambda host: -self._routers[host].preference)
        for router in routers[:1]:
            yield Route(EVERYTHING[6], index, router, metric, RTPROT_DHCP, traits=traits)


def _has_room(entries: Mapping[IPv6Network, object], network: IPv6Network) -> bool:
    return network in entries or len(entries) < MAX_PREFIXES


def interface_identifier(mac: str) -> int:
    """The last 64 bits of the addresses of a link (RFC 4291, appendix A).

    >>> hex(interface_identifier("02:00:00:00:00:02"))
    '0xfffe000002'
    """
    octets = bytes.fromhex(mac.replace(":", ""))
    whole = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:6]
    return int.from_bytes(whole, "big")


def run_listener(path: Path, request: Mapping[str, Any]) -> NoReturn:
    """Listen for as long as the link is there. Raises ApplyError."""
    interface, index = str(request["interface"]), int(request["index"])
    place = path.with_suffix(dhcplease.LEASE)
    state = State(dhcplease.read_lease(place).addresses, time.monotonic(), time.time())
    with as_apply_error(f'listen on "{interface}"'), Listener(interface, index) as listener:
        _follow_routers(listener, state, lambda: _set_on_link(state, path, request))


def _follow_routers(listener: Listener, state: State, change: Callable[[], None]) -> NoReturn:
    """Hear routers, and `change` the link for what they say, and for what ends. Raises OSError."""
    interval, next_solicitation = FIRST_SOLICITATION_SECONDS, time.monotonic()
    next_change, earliest_change = math.inf, 0.0
    while True:
        now = time.monotonic()
        if now >= next_solicitation:
            listener.solicit()
            next_solicitation = now + interval
            interval = min(2 * interval, LONGEST_SOLICITATION_SECONDS)
        if now >= next_change:
            try:
                change()
            except (ApplyError, ObserveError) as error:  # of one router; the others still count
                print(f"dhcp-helper: {error.text}, ignoring", file=sys.stderr)
            earliest_change = now + SECONDS_BETWEEN_CHANGES
            next_change = max(state.next_end(), earliest_change)
        if listener.wait(min(next_solicitation, next_change) - now):
            next_solicitation, interval = now, FIRST_SOLICITATION_SECONDS
        advertisement = listener.received()
        if advertisement is not None:
            state.hear(advertisement, time.monotonic())
            next_solicitation = math.inf
            next_change = min(next_change, max(earliest_change, now))


def _set_on_link(state: State, path: Path, request: Mapping[str, Any]) -> None:
    """Set what was advertised, unless the request is withdrawn. Raises ApplyError, ObserveError."""
    with Netlink() as netlink:
        world = netlink.look(())
    device = world.devices.get(int(request["index"]))
    if device is not None and path.exists():
        state.forget_routers([address.ip for address in world.addresses.get(device.index, ())])
        settings = state.link_settings(device.mac, request, time.monotonic())
        dhcplease.accept_lease(settings, request, path.with_suffix(dhcplease.LEASE))
