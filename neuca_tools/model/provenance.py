"""Who put a route there: the one place that tells what a stranger on the link can have caused.

Roles, outlets, lifelines and what is removed from dataplane links depend on it. Any host on a link
can send router advertisements or respond to DHCP. What comes from either is therefore no sign by
itself that a NIC is for management, whatever its prefix, metric, protocol number or lifetime.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable

from neuca_tools.model import Address, Host, Network, Route, World
from neuca_tools.model.routing import ROUTE_PROTOCOL

AGENT = "agent"
ADMINISTRATOR = "administrator"  # or another program than a DHCP client
KERNEL = "kernel"  # for an address of the device
ADVERTISEMENT = "advertisement"
LEASE = "lease"

# RTPROT_KERNEL, RTPROT_RA and RTPROT_DHCP (linux/rtnetlink.h).
RTPROT_KERNEL, RTPROT_RA, RTPROT_DHCP = 2, 9, 16


def provenance(route: Route, world: World) -> str:
    """Who added this route: AGENT, ADMINISTRATOR, KERNEL, ADVERTISEMENT or LEASE."""
    if route.protocol == ROUTE_PROTOCOL:
        return AGENT
    if route.protocol == RTPROT_DHCP:
        return LEASE
    if is_advertised(route, world):
        return ADVERTISEMENT
    if route.to.version == 4 and _is_of_lease(route, world):
        return LEASE
    return KERNEL if route.protocol == RTPROT_KERNEL else ADMINISTRATOR


def is_automatic(route: Route, world: World) -> bool:
    """Whether a router advertisement or a DHCP server has caused the route."""
    return provenance(route, world) in (ADVERTISEMENT, LEASE)


def is_advertised(route: Route, world: World) -> bool:
    """Whether a router advertisement has caused the route.

    Default routes and routes to other prefixes have RTPROT_RA. The route to an on-link prefix,
    which may be ::/0, belongs to the kernel, although no address of the device that an
    administrator or the agent has set is in that network (net/ipv6/addrconf.c,
    addrconf_prefix_rcv). Only advertised routes have a lifetime.
    """
    if route.to.version == 4 or route.protocol == ROUTE_PROTOCOL:
        return False
    if route.protocol == RTPROT_RA or route.expires:
        return True
    if route.protocol != RTPROT_KERNEL or route.via is not None:
        return False
    return not (route.to.is_link_local or route.to.is_multicast or route.to in _own(route, world))


def _own(route: Route, world: World) -> set[Network]:
    """The networks of the addresses of the route's device that were not autoconfigured."""
    index = route.index
    networks: set[Network] = {
        address.network
        for address in world.addresses.get(index, ())
        if (index, address) not in world.autoconf
    }
    return networks | {network for device, network in world.peers if device == index}


def _is_of_lease(route: Route, world: World) -> bool:
    """Whether an IPv4 route came with a lease, although its protocol does not say so.

    The script of dhclient adds its routes like an administrator. They are told apart by the
    address: its route goes through a device with a leased address, and its gateway is in no network
    of an address that was set by hand.
    """
    index = route.index
    addresses = [address for address in world.addresses.get(index, ()) if address.version == 4]
    leased = {address.network for address in addresses if is_leased(index, address, world)}
    if not leased:
        return False
    manual = [address.network for address in addresses if not is_leased(index, address, world)]
    if route.protocol == RTPROT_KERNEL:
        return route.to in leased and route.to not in manual
    return not manual or (route.via is not None and not _contains(manual, route.via))


def is_leased(index: int, address: Address, world: World) -> bool:
    """Whether the address of this device came from a DHCP server or a router advertisement."""
    return (index, address) in world.leased or (index, address) in world.endless


def _contains(networks: Iterable[Network], host: Host) -> bool:
    return any(host in network for network in networks)
