"""Reads and sets the leases and autoconfigured addresses that the agent's clients report.

The clients themselves set nothing, and what is harmful is refused. All
routes go into the link's own table, as those of a network manager do (`desired.dhcp`). Anybody on
the link can be the server: every value is untrusted.
"""

# SPDX-License-Identifier: MIT

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    ip_interface,
    ip_network,
)
from pathlib import Path
from typing import Any, NamedTuple, Optional

from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import names_in, read_bytes, write_files
from neuca_tools.model import Address, Device, Host, Route, World
from neuca_tools.model.addresses import broadcast_of
from neuca_tools.model.provenance import RTPROT_DHCP
from neuca_tools.model.routing import Traits
from neuca_tools.model.shapes import Shapes
from neuca_tools.model.topology import METADATA_HOSTS, PLATFORM_HOSTS

LEASE = ".lease"
DHCP6, ADVERTISEMENTS = "dhcp6", "ra"  # the protocols of a request; one without has DHCPv4
FOR_EVER = 0xFFFFFFFF  # RFC 2131, 3.3; the kernel's INFINITY_LIFE_TIME too
# RFC 2132, 5.1 allows 68; with less than 1280 the kernel takes IPv6 from a link (RFC 8200, 5).
SMALLEST_MTU, LARGEST_MTU = 1280, 65535
MAX_LEASE_BYTES = 1 << 16
MAX_ROUTES = 64  # of one lease
_ADDRESS = "dhcp6_ia_na1_ia_addr1"  # without "new_" or "old_" (dhcpcd-run-hooks(8))
_LINK_LOCAL = {4: "RFC 3927, 1.6", 6: "RFC 4862, 5.3"}


class TimedAddress(NamedTuple):
    """An address, and for how many seconds it is valid and preferred (RFC 4862, 5.5.4)."""

    address: Address
    valid: int
    preferred: int


class LeaseContent(NamedTuple):
    """What a client wants to set."""

    addresses: tuple[TimedAddress, ...]
    mtu: int = 0  # in bytes, 0 if there is none
    routes: tuple[Route, ...] = ()
    family: int = 0  # of the routes, 0 if this client sets none, as they share a table


# No NamedTuple: the field `index` would hide a method of tuples.
@dataclass
class LeaseRecord:
    """What a lease has set, as its file has it."""

    index: int
    protocol: Optional[str] = None
    table: int = 0
    family: int = 4
    mtu: int = 0
    mtu_before: int = 0  # to restore, 0 for none
    addresses: Mapping[str, int] = field(default_factory=dict)  # the second of their end, 0: never
    refused: str = ""
    address: str = ""  # the only one in files of earlier releases, which ends at `until`
    until: int = 0


def variable_number(environment: Mapping[str, str], name: str) -> int:
    """The value of a variable, 0 if it is absent or no number of 32 bits."""
    text = environment.get(name, "")
    if text.isascii() and text.isdecimal() and len(text) <= 10:
        return min(int(text), FOR_EVER)
    return 0


# --- reading --------------------------------------------------------------------------------------


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
    """The routes of a DHCPv4 lease: with classless ones, routers do not count (RFC 3442)."""
    # dhcpcd writes classless routes as `10.0.0.0/8 10.9.0.1 ...`.
    words = environment.get("new_classless_static_routes", "").split()
    for to, via in list(zip(words[::2], words[1::2]))[:MAX_ROUTES]:
        with suppress(ValueError):
            yield IPv4Network(to, strict=False), IPv4Address(via)
    if not words:
        with suppress(ValueError):
            router = environment.get("new_routers", "").partition(" ")[0]
            yield IPv4Network("0.0.0.0/0"), IPv4Address(router)


def read_dhcp6_lease(environment: Mapping[str, str]) -> Optional[LeaseContent]:
    """The address of a lease, with a prefix length of 128; None if there is no usable one."""
    address = lost_address(environment, "new")
    # An address without an end would not be told from one of an administrator.
    valid = min(variable_number(environment, f"new_{_ADDRESS}_vltime"), FOR_EVER - 1)
    if address is None or not is_unicast(address) or not valid:
        return None
    preferred = min(variable_number(environment, f"new_{_ADDRESS}_pltime"), valid)
    # DHCPv6 says nothing of what is on the link (RFC 5942, 3), and has no routes and no MTU.
    return LeaseContent((TimedAddress(IPv6Interface((address, 128)), valid, preferred),))


def lost_address(environment: Mapping[str, str], prefix: str = "old") -> Optional[IPv6Address]:
    """The address that a report is about; None if it names none, or something else."""
    with suppress(ValueError):
        return IPv6Address(environment.get(f"{prefix}_{_ADDRESS}", ""))
    return None


# --- refusing -------------------------------------------------------------------------------------


def is_unicast(host: Host) -> bool:
    """Whether a host can have this address."""
    # Python 3.13 takes an IPv4-mapped one (RFC 4291, 2.5.5.2) for the IPv4 address in it.
    if host.version == 6 and host.ipv4_mapped:
        return False
    return not (host.is_multicast or host.is_loopback or host.is_unspecified or host.is_reserved)


def reason_to_refuse(
    address: Address, index: int, world: World, before: str = "", guarded: Iterable[str] = ()
) -> str:
    """Why an address must not be set on this link; empty if it may be.

    `before` is the address of the last lease: another one that is there without a lifetime would
    get one, and go with the lease. `guarded` are networks without addresses for this link.
    """
    if str(address) != before and address.ip in _hosts_set_otherwise(index, world):
        return "the link already has it from another source"
    hosts, networks = _hosts_elsewhere(index, world), [*map(ip_network, guarded)]
    for host in filter(None, (address.ip, broadcast_of(address.network))):
        if host in hosts:
            what = "it" if host == address.ip else f"its broadcast address {host}"
            return f"{what} is an address of another interface"
        if host in _guarded_hosts(index, world) or any(host in network for network in networks):
            return f"it would take over {host}, which is reached through the management NIC"
    if address.ip.is_link_local:  # Clouds have DNS and NTP servers there.
        return f"it is link-local, which no server may offer ({_LINK_LOCAL[address.version]})"
    return ""


def _hosts_set_otherwise(index: int, world: World) -> set[Host]:
    """The addresses of the link without a lifetime."""
    addresses = world.addresses.get(index, ())
    return {address.ip for address in addresses if (index, address) not in world.leased_addresses}


def _hosts_elsewhere(index: int, world: World) -> set[Host]:
    """The addresses of other interfaces."""
    others = world.addresses.keys() - {index}
    return {address.ip for other in others for address in world.addresses[other]}


def _guarded_hosts(index: int, world: World) -> set[Optional[Host]]:
    """The metadata services, and the gateways of the default routes through other interfaces."""
    ways = (route for route in world.routes if route.index != index and route.is_default)
    return {*METADATA_HOSTS, *PLATFORM_HOSTS, *(route.via for route in ways)}


# --- setting --------------------------------------------------------------------------------------


def accept_lease(lease: LeaseContent, request: Mapping[str, Any], place: Path) -> None:
    """Set a lease on the link of a request; keep it at `place`. Raises ApplyError, ObserveError."""
    index, before = int(request["index"]), read_lease(place)
    with Netlink() as netlink:
        world = netlink.look(())
        if index not in world.devices:
            return
        accepted, refused = _accepted_addresses(lease, request, world, before.addresses)
        if refused and not accepted:
            _remove_lease(netlink, world, before)
            _write_record(place, LeaseRecord(index, request.get("protocol"), refused=refused))
            return
        lease = lease._replace(addresses=accepted)
        record = replace(_lease_record(lease, request, world, before), refused=refused)
        if request["mtu"] and not record.mtu:
            _restore_mtu(netlink, world.devices[index], before)
        # First of all, so that all that follows is known to be ours, whatever fails.
        begun = replace(record, addresses={**before.addresses, **record.addresses})
        _write_record(place, begun)
        _set_lease(netlink, world, record, lease)
        for address in begun.addresses.keys() - record.addresses.keys():
            netlink.delete_address(index, ip_interface(address))
        if begun != record:
            _write_record(place, record)


def _accepted_addresses(
    lease: LeaseContent, request: Mapping[str, Any], world: World, before: Collection[str]
) -> tuple[tuple[TimedAddress, ...], str]:
    """The addresses that may be set, and why another one must not be."""
    accepted, refused = [], ""
    index, guarded = int(request["index"]), request.get("guarded", ())
    for timed in lease.addresses:
        text = str(timed.address)
        before_text = text if text in before else ""
        reason = reason_to_refuse(timed.address, index, world, before_text, guarded)
        if reason:
            refused = f"{timed.address.ip}: {reason}"
        else:
            accepted.append(timed)
    return tuple(accepted), refused


def _lease_record(
    lease: LeaseContent, request: Mapping[str, Any], world: World, before: LeaseRecord
) -> LeaseRecord:
    device = world.devices[int(request["index"])]
    is_usable = request["mtu"] and SMALLEST_MTU <= lease.mtu <= LARGEST_MTU
    limits, lower = [device.max_mtu], world.devices.get(device.lower)
    if lower and device.kind in ("vlan", "macvlan", "ipvlan"):
        limits.append(lower.mtu)  # vlan_dev_change_mtu, macvlan_change_mtu and ipvlan of the kernel
    mtu = min(lease.mtu, *filter(None, limits)) if is_usable else 0
    ends = {
        str(timed.address): int(time.time()) + timed.valid if timed.valid != FOR_EVER else 0
        for timed in lease.addresses
    }
    return LeaseRecord(
        index=device.index,
        protocol=request.get("protocol"),
        table=int(request["table"]),
        family=lease.family,
        mtu=mtu,
        mtu_before=(before.mtu_before or device.mtu) if mtu else 0,
        addresses=ends,
    )


def _set_lease(netlink: Netlink, world: World, record: LeaseRecord, lease: LeaseContent) -> None:
    for timed in lease.addresses:
        # An address without an end would not be told from one of an administrator.
        valid, preferred = (min(seconds, FOR_EVER - 1) for seconds in timed[1:])
        netlink.lease_address(record.index, timed.address, valid, preferred)
    for route in lease.routes:
        netlink.replace_route(route)
    _remove_routes(netlink, world, record, {_route_identity(route) for route in lease.routes})
    if record.mtu and record.mtu != world.devices[record.index].mtu:
        netlink.set_attributes(record.index, {"mtu": record.mtu})


def drop_lease(place: Path) -> None:
    """Remove what a lease has set, and the file that remembers it. Raises ApplyError."""
    before = read_lease(place)
    if not before.index:
        return
    try:
        with Netlink() as netlink:
            _remove_lease(netlink, netlink.look(()), before)
    except ObserveError as error:
        raise ApplyError(error.text) from error
    write_files({place: None})


def _remove_lease(netlink: Netlink, world: World, record: LeaseRecord) -> None:
    device = world.devices.get(record.index)
    if device is not None:
        _remove_routes(netlink, world, record, ())
        for text in record.addresses:
            netlink.delete_address(device.index, ip_interface(text))
        _restore_mtu(netlink, device, record)


def _restore_mtu(netlink: Netlink, device: Device, record: LeaseRecord) -> None:
    """Set the MTU from before a lease, unless it has been changed since."""
    if record.mtu_before and device.mtu == record.mtu:
        netlink.set_attributes(device.index, {"mtu": record.mtu_before})


def _route_identity(route: Route) -> tuple[object, ...]:
    return route.to, route.metric, route.via


def _remove_routes(
    netlink: Netlink, world: World, record: LeaseRecord, kept: Collection[object]
) -> None:
    """Delete the routes from DHCP in the link's own table, those through a gateway first."""
    own = [
        route
        for route in world.other_routes
        if route.protocol == RTPROT_DHCP
        and route.to.version == record.family
        and (route.index, route.traits.table) == (record.index, record.table)
        and _route_identity(route) not in kept
    ]
    for route in sorted(own, key=lambda route: route.via is None):
        netlink.delete_route(route)


def read_lease(place: Path) -> LeaseRecord:
    """What is remembered in a file; nothing if it is absent or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_bytes(place, MAX_LEASE_BYTES) or b"{}")
        record = Shapes({}, strict=False).read(LeaseRecord, content)
        if record.address:
            ends = {record.address: record.until}
            record = replace(record, addresses=ends, address="", until=0)
        for text in record.addresses:
            ip_interface(text)  # raises ValueError
        return record
    return LeaseRecord(0)


def _write_record(place: Path, record: LeaseRecord) -> None:
    write_files({place: json.dumps(vars(record)).encode()})


def refused_leases(place: Path) -> Iterator[tuple[int, str]]:
    """Why leases are not used, as the beginning of a sentence, by interface index."""
    for record in (read_lease(place / name) for name in names_in(place) if name.endswith(LEASE)):
        if record.refused:
            is_advertised = record.protocol == ADVERTISEMENTS
            what = "autoconfigured address" if is_advertised else "DHCP lease of"
            yield record.index, f"the {what} {record.refused}"
