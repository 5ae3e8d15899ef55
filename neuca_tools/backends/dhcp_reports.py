"""What dhcpcd reports of a DHCPv4 lease, and of a DHCPv6 lease: one address."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface
from typing import Any, Optional

from neuca_tools.backends.dhcplease import (
    EVERYTHING,
    FOR_EVER,
    LeaseContent,
    TimedAddress,
    is_unicast,
    variable_number,
)
from neuca_tools.model import Route
from neuca_tools.model.provenance import RTPROT_DHCP
from neuca_tools.model.routing import Traits

MAX_ROUTES = 64
_ADDRESS = "dhcp6_ia_na1_ia_addr1"  # without "new_" or "old_" (dhcpcd-run-hooks(8))


def read_dhcp4_lease(
    environment: Mapping[str, str], request: Mapping[str, Any]
) -> Optional[LeaseContent]:
    """What a DHCPv4 lease in the environment of a hook asks to set (dhcpcd-run-hooks(8)).

    None if its address is unusable. Values that are malformed count as absent.
    """
    mask = environment.get("new_subnet_mask", "255.255.255.255")
    try:
        address = IPv4Interface(f"{IPv4Address(environment.get('new_ip_address', ''))}/{mask}")
    except ValueError:
        return None
    if not is_unicast(address.ip):
        return None
    seconds = variable_number(environment, "new_dhcp_lease_time") or FOR_EVER
    routes = tuple(_lease_routes(address, environment, request))
    mtu = variable_number(environment, "new_interface_mtu")
    return LeaseContent((TimedAddress(address, seconds, seconds),), mtu, routes, 4)


def _lease_routes(
    address: IPv4Interface, environment: Mapping[str, str], request: Mapping[str, Any]
) -> list[Route]:
    """The routes of a lease in the link's own table; gateways off the link get one of their own."""
    own, metric, index = address.network, int(request["metric"]), int(request["index"])
    traits = Traits(int(request["table"]), source=address.ip)
    route = partial(Route, index=index, metric=metric, protocol=RTPROT_DHCP, traits=traits)
    routes = [route(own)] if own.prefixlen < own.max_prefixlen else []
    for to, via in offered_routes(environment) if request["routes"] else ():
        if int(via) == 0:  # on the link (RFC 3442)
            routes.append(route(to))
        elif via != address.ip and is_unicast(via):
            routes += [route(IPv4Network(via))] if via not in own else []
            routes.append(route(to, via=via))
    unique = {(route.to, route.metric): route for route in reversed(routes)}
    return sorted(unique.values(), key=lambda route: route.via is not None)


def offered_routes(environment: Mapping[str, str]) -> Iterator[tuple[IPv4Network, IPv4Address]]:
    """The routes of a DHCPv4 lease: with classless ones, routers do not count (RFC 3442).

    dhcpcd writes the former as `10.0.0.0/8 10.9.0.1 ...`.
    """
    words = environment.get("new_classless_static_routes", "").split()
    for to, via in list(zip(words[::2], words[1::2]))[:MAX_ROUTES]:
        with suppress(ValueError):
            yield IPv4Network(to, strict=False), IPv4Address(via)
    router = _ipv4_address(environment.get("new_routers", "").partition(" ")[0])
    if not words and router is not None:
        yield EVERYTHING, router


def _ipv4_address(text: str) -> Optional[IPv4Address]:
    with suppress(ValueError):
        return IPv4Address(text)
    return None


def read_dhcp6_lease(environment: Mapping[str, str]) -> Optional[LeaseContent]:
    """The address of a lease, with a prefix length of 128; None if there is no usable one.

    DHCPv6 says nothing of what is on the link (RFC 5942, 3), and has no routes and no MTU.
    """
    address = lost_address(environment, "new")
    if address is None or not is_unicast(address):
        return None
    # An address without an end would not be told from one of an administrator.
    valid = min(variable_number(environment, f"new_{_ADDRESS}_vltime"), FOR_EVER - 1)
    if not valid:
        return None
    preferred = min(variable_number(environment, f"new_{_ADDRESS}_pltime"), valid)
    timed = TimedAddress(IPv6Interface((address, 128)), valid, preferred)
    return LeaseContent((timed,))


def lost_address(environment: Mapping[str, str], prefix: str = "old") -> Optional[IPv6Address]:
    """The address that a report is about; None if it names none, or something else."""
    with suppress(ValueError):
        return IPv6Address(environment.get(f"{prefix}_{_ADDRESS}", ""))
    return None
