"""Who put a route there: the one place that tells what a stranger on the link can have caused.

Roles, outlets, lifelines and what is removed from dataplane links depend on it. Any host on a link
can send router advertisements or respond to DHCP. What comes from either is therefore no sign by
itself that a NIC is for management, whatever its prefix, metric, protocol number or lifetime.
"""

# SPDX-License-Identifier: MIT

from dataclasses import replace

from neuca_tools.model import Route, World
from neuca_tools.model.routing import ROUTE_PROTOCOL

AGENT = "agent"
ADMINISTRATOR = "administrator"  # or a program other than a DHCP client
KERNEL = "kernel"  # for an address of the device
ADVERTISEMENT = "advertisement"
LEASE = "lease"

# Seconds after the boot within which a router answers, as the kernel solicits one three times at
# intervals of 4 s (ip-sysctl.rst, router_solicitations) once a link is up.
ROUTER_SECONDS = 60.0
# RTPROT_KERNEL, RTPROT_RA and RTPROT_DHCP (linux/rtnetlink.h).
RTPROT_KERNEL, RTPROT_RA, RTPROT_DHCP = 2, 9, 16


def route_provenance(route: Route, world: World) -> str:
    """Who added this route: AGENT, ADMINISTRATOR, KERNEL, ADVERTISEMENT or LEASE."""
    if route.protocol == ROUTE_PROTOCOL:
        return AGENT
    if route.protocol == RTPROT_DHCP:
        return LEASE
    if is_advertised(route, world):
        return ADVERTISEMENT
    if route.expires or (route.to.version == 4 and _is_of_lease(route, world)):
        return LEASE
    return KERNEL if route.protocol == RTPROT_KERNEL else ADMINISTRATOR


def is_automatic(route: Route, world: World) -> bool:
    """Whether a router advertisement or a DHCP server has caused the route."""
    return route_provenance(route, world) in (ADVERTISEMENT, LEASE)


def without_guesses(world: World) -> World:
    """The world for removals, in which no link-local IPv4 address counts as leased.

    As a sign of the management NIC it does, but an administrator may have set it. Before Linux 5.18
    (IFA_PROTO), addresses that the agent has set cannot be told from it.
    """
    leases = frozenset(pair for pair in world.endless_leases if not pair[1].is_link_local)
    return world if leases == world.endless_leases else replace(world, endless_leases=leases)


def is_advertised(route: Route, world: World) -> bool:
    """Whether a router advertisement has caused the route.

    Default routes and routes to other prefixes have RTPROT_RA. The route to an on-link prefix,
    which may be ::/0, belongs to the kernel, although no address of the device that an
    administrator or the agent has set is in that network (net/ipv6/addrconf.c,
    addrconf_prefix_rcv). The kernel adds none with a gateway under its own protocol number; only a
    program that handles advertisements could. Its route to the network of an address has the
    lifetime of the address; of other routes, only advertised ones have one.
    """
    if route.to.version == 4 or route.protocol == ROUTE_PROTOCOL:
        return False
    if route.protocol != RTPROT_KERNEL:
        return route.protocol == RTPROT_RA or route.expires
    is_configured = (route.index, route.to) in world.configured_networks
    return not (route.to.is_link_local or route.to.is_multicast or is_configured)


def _is_of_lease(route: Route, world: World) -> bool:
    """Whether an IPv4 route came with a lease, although its protocol does not say so.

    The scripts of dhclient and udhcpc add routes like an administrator. They are told apart by the
    address: its route goes through a device with a leased address, and its gateway is in no network
    of an address that was set by hand.
    """
    manual = world.manual_networks.get(route.index)
    if manual is None:
        return False
    if route.protocol == RTPROT_KERNEL and route.via is None:
        return route.to not in manual
    if not manual:
        return True
    return route.via is not None and not any(route.via in network for network in manual)
