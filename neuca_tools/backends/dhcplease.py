"""What dhclient or dhcpcd has leased for a link, as far as it is harmless.

The clients themselves set nothing. All routes go into the link's own table, as those of a network
manager do (`desired.dhcp`). Anybody on the link can be the server: every value is untrusted.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_interface
from pathlib import Path
from typing import Any, Optional

from neuca_tools.backends import routing
from neuca_tools.backends.netlink import Netlink
from neuca_tools.dataclass import dataclass
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import names_in, read_bytes, write_files
from neuca_tools.model import Route, World
from neuca_tools.model.routing import Traits
from neuca_tools.model.topology import METADATA_HOSTS

LEASE = ".lease"
DHCP = 16  # RTPROT_DHCP
MOST_ROUTES = 64
FOR_EVER = 0xFFFFFFFF  # RFC 2131, 3.3; the kernel's INFINITY_LIFE_TIME too
# RFC 2132, 5.1 allows 68; with less than 1280 the kernel takes IPv6 from a link (RFC 8200, 5).
SMALLEST_MTU, LARGEST_MTU = 1280, 65535
EVERYTHING = IPv4Network("0.0.0.0/0")
# Azure's wireserver, Alibaba's metadata service.
PLATFORM_HOSTS = (IPv4Address("168.63.129.16"), IPv4Address("100.100.100.200"))
LARGEST = 1 << 16  # bytes of a file


@dataclass(frozen=True)
class Offer:
    """A lease. `seconds`: its length. `mtu`: 0 if there is none."""

    address: IPv4Interface
    server: str = ""
    seconds: int = FOR_EVER
    mtu: int = 0
    routes: tuple[tuple[IPv4Network, IPv4Address], ...] = ()


# --- reading --------------------------------------------------------------------------------------


def offer(environment: Mapping[str, str]) -> Optional[Offer]:
    """The lease in the environment of a hook (dhclient-script(8), dhcpcd-run-hooks(8)).

    None if its address is unusable. Values that are malformed count as absent.
    """
    mask = environment.get("new_subnet_mask", "255.255.255.255")
    try:
        address = IPv4Interface(f"{IPv4Address(environment.get('new_ip_address', ''))}/{mask}")
    except ValueError:
        return None
    if not _is_unicast(address.ip):
        return None
    server = _host(environment.get("new_dhcp_server_identifier", ""))
    return Offer(
        address,
        str(server or ""),
        _number(environment, "new_dhcp_lease_time") or FOR_EVER,
        _number(environment, "new_interface_mtu"),
        tuple(_offered(environment)),
    )


def _offered(environment: Mapping[str, str]) -> Iterator[tuple[IPv4Network, IPv4Address]]:
    """The routes: with classless ones, routers do not count (RFC 3442)."""
    numbers = environment.get("new_rfc3442_classless_static_routes", "")
    words = environment.get("new_classless_static_routes", "").split()
    found = list(_of_numbers(numbers.split())) or list(_of_words(words))
    if not found and not numbers.strip() and not words:
        routers = map(_host, environment.get("new_routers", "").split()[:1])
        found = [(EVERYTHING, via) for via in routers if via is not None]
    yield from found[:MOST_ROUTES]


def _of_numbers(words: list[str]) -> Iterator[tuple[IPv4Network, IPv4Address]]:
    """The routes of option 121 as dhclient gives an array of bytes."""
    if not all(word.isdecimal() and int(word) < 256 for word in words):
        return
    octets = [int(word) for word in words]
    while octets:
        length = octets.pop(0)
        size = (length + 7) // 8
        if length > 32 or len(octets) < size + 4:
            return
        to, via, octets = octets[:size], octets[size : size + 4], octets[size + 4 :]
        prefix = bytes(to + [0] * (4 - size))
        yield IPv4Network((prefix, length), strict=False), IPv4Address(bytes(via))


def _of_words(words: list[str]) -> Iterator[tuple[IPv4Network, IPv4Address]]:
    """The routes as dhcpcd gives them: `10.0.0.0/8 10.9.0.1 ...`."""
    for to, via in zip(words[::2], words[1::2]):
        with suppress(ValueError):
            yield IPv4Network(to, strict=False), IPv4Address(via)


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if text.isascii() and text.isdecimal() and len(text) <= 10:
        return min(int(text), FOR_EVER)
    return 0


def _host(text: str) -> Optional[IPv4Address]:
    with suppress(ValueError):
        return IPv4Address(text)
    return None


def _is_unicast(host: IPv4Address) -> bool:
    return not (host.is_multicast or host.is_loopback or host.is_unspecified or host.is_reserved)


def _is_elsewhere(address: IPv4Interface, index: int, world: World) -> bool:
    """Whether another interface has this address."""
    others = (found for other, found in world.addresses.items() if other != index)
    return any(address.ip == one.ip for found in others for one in found)


def _is_reserved(address: IPv4Interface, index: int, world: World) -> bool:
    """Whether this is an address of the platform, or the default gateway of another interface."""
    gateways = {
        route.via for route in world.routes if route.to.prefixlen == 0 and route.index != index
    }
    return address.ip in (*METADATA_HOSTS, *PLATFORM_HOSTS) or address.ip in gateways


def refusal(address: IPv4Interface, index: int, world: World, before: str = "") -> str:
    """Why an address must not be set on this link; empty if it may be.

    `before` is the address of the last lease: another one that is there without a lifetime would
    get one, and go with the lease.
    """
    lasting = {one.ip for one in world.addresses.get(index, ()) if (index, one) not in world.leased}
    if str(address) != before and address.ip in lasting:
        return "it is set on the link in another way"
    if _is_elsewhere(address, index, world):
        return "it is an address of another interface"
    if _is_reserved(address, index, world):
        return f"it would take over {address.ip}, which is reached through the management NIC"
    if address.ip.is_link_local:
        # Clouds have DNS and NTP servers there.
        return "it is link-local, which none from a server is (RFC 3927, 1.6)"
    return ""


# --- setting --------------------------------------------------------------------------------------


def accept(environment: Mapping[str, str], request: Mapping[str, Any], place: Path) -> None:
    """Set what a lease has for the link of a request, and remember it in the file at `place`.

    Raises ApplyError, ObserveError.
    """
    found, index = offer(environment), int(request["index"])
    before = _read(place)
    if found is None:
        return
    with Netlink() as netlink:
        world = netlink.look(())
        if index not in world.devices:
            return
        reason = refusal(found.address, index, world, str(before.get("address", "")))
        if reason:
            _remove(netlink, world, before)
            refused = {"index": index, "refused": f"{found.address.ip}: {reason}"}
            write_files({place: json.dumps(refused).encode()})
            return
        lease = _lease(found, request, world, before)
        # First of all, so that all that follows is known to be ours.
        write_files({place: json.dumps(lease).encode()})
        _set(netlink, world, lease, found, _routes(found, request, index))
        old = str(before.get("address") or found.address)
        if old != str(found.address):
            netlink.delete_address(index, ip_interface(old))


def _lease(
    found: Offer, request: Mapping[str, Any], world: World, before: Mapping[str, Any]
) -> dict[str, Any]:
    """What is remembered of a lease. `mtu_before` is to be restored; 0 if the MTU is not set."""
    index = int(request["index"])
    mtu = _mtu(found, request, index, world)
    was = int(before.get("mtu_before", 0))
    if mtu and not was:
        was = world.devices[index].mtu
    return {
        "index": index,
        "table": int(request["table"]),
        "address": str(found.address),
        "server": found.server,
        "until": int(time.time()) + found.seconds if found.seconds != FOR_EVER else 0,
        "mtu": mtu,
        "mtu_before": was,
    }


def _set(
    netlink: Netlink, world: World, lease: Mapping[str, Any], found: Offer, routes: list[Route]
) -> None:
    index = int(lease["index"])
    netlink.lease_address(index, found.address, found.seconds, found.seconds)
    for route in routes:
        routing.replace_route(route)
    _remove_routes(world, lease, {_identity(route) for route in routes})
    if lease["mtu"] and lease["mtu"] != world.devices[index].mtu:
        netlink.set_mtu(index, int(lease["mtu"]))


def _routes(found: Offer, request: Mapping[str, Any], index: int) -> list[Route]:
    """The routes of a lease in the link's own table; gateways off the link get one of their own."""
    own, metric = found.address.network, int(request["metric"])
    traits = Traits(int(request["table"]), source=found.address.ip)
    routes = []
    if own.prefixlen < own.max_prefixlen:
        routes.append(Route(own, index, None, metric, DHCP, traits=traits))
    wanted = found.routes if request["routes"] else ()
    for to, via in wanted:
        if via == found.address.ip or not (_is_unicast(via) or int(via) == 0):
            continue
        if int(via) == 0:  # on the link (RFC 3442)
            routes.append(Route(to, index, None, metric, DHCP, traits=traits))
            continue
        if via not in own:
            routes.append(Route(IPv4Network(via), index, None, metric, DHCP, traits=traits))
        routes.append(Route(to, index, via, metric, DHCP, traits=traits))
    unique = {(route.to, route.metric): route for route in reversed(routes)}
    return sorted(unique.values(), key=lambda route: route.via is not None)


def _mtu(found: Offer, request: Mapping[str, Any], index: int, world: World) -> int:
    """The MTU to set in bytes; 0 for none: it never rises above that of the link."""
    device = world.devices.get(index)
    if device is None or not request["mtu"] or not SMALLEST_MTU <= found.mtu <= LARGEST_MTU:
        return 0
    return min(found.mtu, device.max_mtu or found.mtu)


def drop(place: Path) -> None:
    """Remove what a lease has set, and the file that remembers it. Raises ApplyError."""
    before = _read(place)
    if not before:
        return
    try:
        with Netlink() as netlink:
            _remove(netlink, netlink.look(()), before)
    except ObserveError as error:
        raise ApplyError(error.text) from error
    write_files({place: None})


def _remove(netlink: Netlink, world: World, lease: Mapping[str, Any]) -> None:
    device = world.devices.get(int(lease.get("index", 0)))
    if device is None:
        return
    _remove_routes(world, lease, ())
    with suppress(ValueError):
        netlink.delete_address(device.index, ip_interface(str(lease.get("address", ""))))
    was = int(lease.get("mtu_before", 0))
    if was and device.mtu == int(lease.get("mtu", 0)):
        netlink.set_mtu(device.index, was)


def _identity(route: Route) -> tuple[object, ...]:
    return route.to, route.metric, route.via


def _remove_routes(world: World, lease: Mapping[str, Any], kept: Collection[object]) -> None:
    """Delete the routes from DHCP in the link's own table, those through a gateway first."""
    own = [
        route
        for route in world.tables
        if route.protocol == DHCP
        and (route.index, route.traits.table) == (lease.get("index"), lease.get("table"))
        and _identity(route) not in kept
    ]
    for route in sorted(own, key=lambda route: route.via is None):
        routing.delete_route(route)


def _read(place: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(read_bytes(place, LARGEST) or b"{}")
        if isinstance(found, dict):
            return found
    return {}


def refusals(place: Path) -> Iterator[tuple[int, str]]:
    """Why leases are not used, by interface index."""
    for name in names_in(place):
        if name.endswith(LEASE):
            found = _read(place / name)
            if found.get("refused"):
                yield int(found["index"]), str(found["refused"])
