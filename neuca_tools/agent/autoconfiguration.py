"""Autoconfigures a dataplane link (RFC 4862), where neither the kernel nor a manager may do it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv6Address, IPv6Interface, IPv6Network, ip_interface
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from neuca_tools.backends import dhcplease
from neuca_tools.backends.advertisements import Advertisement, Listener, Prefix
from neuca_tools.backends.dhcplease import EVERYTHING6, FOR_EVER, LeaseContent, TimedAddress
from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import applying
from neuca_tools.model import Route
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
    until: float  # on the monotonic clock


class State:
    """What routers have said so far. All moments are those of a monotonic clock, in seconds."""

    def __init__(self, addresses: Mapping[str, int], now: float, today: float) -> None:
        """`addresses`: those from before, with the second `today` at which each ends."""
        self._routers: dict[IPv6Address, _Router] = {}
        self._prefixes: dict[IPv6Network, tuple[Prefix, float]] = {}
        self._mtu = 0
        for text, until in addresses.items():
            network, left = ip_interface(text).network, int(until - today)
            if isinstance(network, IPv6Network) and left > 0:
                self._prefixes[network] = (Prefix(network, False, True, left, left), now)

    def hear(self, advertisement: Advertisement, now: float) -> None:
        """Store an advertisement. Only the first MAX_ROUTERS routers count."""
        self._drop_expired(now)
        self._mtu = advertisement.mtu
        self._routers.pop(advertisement.router, None)
        if advertisement.lifetime and len(self._routers) < MAX_ROUTERS:
            self._routers[advertisement.router] = _Router(
                advertisement.preference, now + advertisement.lifetime
            )
        for prefix in advertisement.prefixes:
            if prefix.network in self._prefixes or len(self._prefixes) < MAX_PREFIXES:
                valid = max(
                    prefix.valid, min(self._left(prefix.network, now), SHORTEST_VALID_SECONDS)
                )
                if not prefix.autonomous:
                    valid = prefix.valid
                self._prefixes[prefix.network] = (prefix._replace(valid=valid), now)

    def _left(self, network: IPv6Network, now: float) -> int:
        """The seconds for which the address in a network is still valid."""
        prefix, heard = self._prefixes.get(network, (None, now))
        return int(heard + prefix.valid - now) if prefix and prefix.autonomous else 0

    def _drop_expired(self, now: float) -> None:
        self._routers = {
            host: router for host, router in self._routers.items() if router.until > now
        }
        self._prefixes = {
            network: (prefix, heard)
            for network, (prefix, heard) in self._prefixes.items()
            if prefix.valid == FOR_EVER or heard + prefix.valid > now
        }

    def next_end(self) -> float:
        """When the next router or prefix ends; infinity for never."""
        ends = [router.until for router in self._routers.values()]
        ends += [heard + prefix.valid for prefix, heard in self._prefixes.values()]
        return min(ends, default=math.inf)

    def link_settings(self, mac: str, request: Mapping[str, Any], now: float) -> LeaseContent:
        """The settings for the link with this MAC address."""
        self._drop_expired(now)
        addresses = tuple(self._addresses(mac, now))
        routes = tuple(self._advertised_routes(request)) if request["routes"] else ()
        return LeaseContent(addresses, self._mtu, routes, 6)

    def _addresses(self, mac: str, now: float) -> Iterator[TimedAddress]:
        """An address in each prefix of 64 bits (RFC 2464, 4)."""
        for network, (prefix, heard) in self._prefixes.items():
            if prefix.autonomous and network.prefixlen == 64:
                host = network.network_address + interface_identifier(mac)
                past = int(now - heard)
                valid = min(prefix.valid - past, FOR_EVER - 1)
                if valid > 0 and dhcplease.is_unicast(host):
                    preferred = min(max(prefix.preferred - past, 0), valid)
                    yield TimedAddress(IPv6Interface((host, 64)), valid, preferred)

    def _advertised_routes(self, request: Mapping[str, Any]) -> Iterator[Route]:
        """The networks on the link, and the default route through the preferred router."""
        index, metric = int(request["index"]), int(request["metric"]) or IPV6_ROUTE_METRIC
        traits = Traits(int(request["table"]))
        for network, (prefix, _) in self._prefixes.items():
            if prefix.on_link:
                yield Route(network, index, None, metric, RTPROT_DHCP, traits=traits)
        best = max((router.preference for router in self._routers.values()), default=0)
        via = next(
            (host for host, router in self._routers.items() if router.preference == best), None
        )
        if via is not None:
            yield Route(EVERYTHING6, index, via, metric, RTPROT_DHCP, traits=traits)


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
    state = State(
        dhcplease.addresses_of_lease(dhcplease.read_lease(place)), time.monotonic(), time.time()
    )
    with applying(f'listen on "{interface}"'), Listener(interface, index) as listener:
        _follow_routers(listener, state, lambda: _set_on_link(state, path, request))


def _follow_routers(listener: Listener, state: State, change: Callable[[], None]) -> NoReturn:
    """Hear routers, and `change` the link for what they say, and for what ends. Raises OSError."""
    pause, ask, due, calm = FIRST_SOLICITATION_SECONDS, time.monotonic(), math.inf, 0.0
    while True:
        now = time.monotonic()
        if now >= ask:
            listener.solicit()
            ask, pause = now + pause, min(2 * pause, LONGEST_SOLICITATION_SECONDS)
        if now >= due:
            try:
                change()
            except (ApplyError, ObserveError) as error:  # of one router; the others still count
                print(f"dhcp-helper: {error.text}, ignoring", file=sys.stderr)
            calm = now + SECONDS_BETWEEN_CHANGES
            due = max(state.next_end(), calm)
        listener.wait(min(ask, due) - now)
        advertisement = listener.received()
        if advertisement is not None:
            state.hear(advertisement, time.monotonic())
            ask, due = math.inf, min(due, max(calm, now))


def _set_on_link(state: State, path: Path, request: Mapping[str, Any]) -> None:
    """Set what was advertised, unless the request is withdrawn. Raises ApplyError, ObserveError."""
    with Netlink() as netlink:
        device = netlink.look(()).devices.get(int(request["index"]))
    if device is not None and path.exists():
        given = state.link_settings(device.mac, request, time.monotonic())
        dhcplease.accept_lease(given, request, path.with_suffix(dhcplease.LEASE))
