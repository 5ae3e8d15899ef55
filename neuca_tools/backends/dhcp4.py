"""What dhcpcd reports of a DHCPv4 lease."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any, NamedTuple, Optional

from neuca_tools.backends.dhcplease import (
    EVERYTHING,
    FOR_EVER,
    Given,
    Timed,
    is_unicast,
    number,
)
from neuca_tools.model import Route
from neuca_tools.model.provenance import RTPROT_DHCP
from neuca_tools.model.routing import Traits

MOST_ROUTES = 64


class Offer(NamedTuple):
    """A lease. `seconds`: its length. `mtu`: 0 if there is none."""

    address: IPv4Interface
    server: str = ""
    seconds: int = FOR_EVER
    mtu: int = 0
    routes: tuple[tuple[IPv4Network, IPv4Address], ...] = ()


def offer(environment: Mapping[str, str]) -> Optional[Offer]:
    """The lease in the environment of a hook (dhcpcd-run-hooks(8)).

    None if its address is unusable. Values that are malformed count as absent.
    """
    mask = environment.get("new_subnet_mask", "255.255.255.255")
    try:
        address = IPv4Interface(f"{IPv4Address(environment.get('new_ip_address', ''))}/{mask}")
    except ValueError:
        return None
    if not is_unicast(address.ip):
        return None
    server = _host(environment.get("new_dhcp_server_identifier", ""))
    return Offer(
        address,
        str(server or ""),
        number(environment, "new_dhcp_lease_time") or FOR_EVER,
        number(environment, "new_interface_mtu"),
        tuple(_offered(environment)),
    )


def _offered(environment: Mapping[str, str]) -> Iterator[tuple[IPv4Network, IPv4Address]]:
    """The routes: with classless ones, routers do not count (RFC 3442).

    dhcpcd writes the former as `10.0.0.0/8 10.9.0.1 ...`.
    """
    words = environment.get("new_classless_static_routes", "").split()
    for to, via in list(zip(words[::2], words[1::2]))[:MOST_ROUTES]:
        with suppress(ValueError):
            yield IPv4Network(to, strict=False), IPv4Address(via)
    router = _host(environment.get("new_routers", "").partition(" ")[0])
    if not words and router is not None:
        yield EVERYTHING, router


def _host(text: str) -> Optional[IPv4Address]:
    with suppress(ValueError):
        return IPv4Address(text)
    return None


def given(environment: Mapping[str, str], request: Mapping[str, Any]) -> Optional[Given]:
    """What a DHCPv4 lease in the environment of a hook asks to set; None for no usable lease."""
    found = offer(environment)
    if found is None:
        return None
    routes = tuple(_routes(found, request, int(request["index"])))
    timed = Timed(found.address, found.seconds, found.seconds)
    return Given((timed,), found.server, found.mtu, routes, 4)


def _routes(found: Offer, request: Mapping[str, Any], index: int) -> list[Route]:
    """The routes of a lease in the link's own table; gateways off the link get one of their own."""
    own, metric = found.address.network, int(request["metric"])
    traits = Traits(int(request["table"]), source=found.address.ip)
    routes = []
    if own.prefixlen < own.max_prefixlen:
        routes.append(Route(own, index, None, metric, RTPROT_DHCP, traits=traits))
    wanted = found.routes if request["routes"] else ()
    for to, via in wanted:
        if via == found.address.ip or not (is_unicast(via) or int(via) == 0):
            continue
        if int(via) == 0:  # on the link (RFC 3442)
            routes.append(Route(to, index, None, metric, RTPROT_DHCP, traits=traits))
            continue
        if via not in own:
            routes.append(Route(IPv4Network(via), index, None, metric, RTPROT_DHCP, traits=traits))
        routes.append(Route(to, index, via, metric, RTPROT_DHCP, traits=traits))
    unique = {(route.to, route.metric): route for route in reversed(routes)}
    return sorted(unique.values(), key=lambda route: route.via is not None)
