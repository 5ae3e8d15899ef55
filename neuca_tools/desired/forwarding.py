"""Forwarding in both families, unless a NIC that is not dataplane would lose its routes.

A NIC that forwards IPv6 ignores the routes in router advertisements unless its accept_ra is 2, and
the kernel drops those that it has when forwarding is switched on for all NICs. Switching on
dataplane NICs alone has no effect: without conf/all no packet is forwarded (ip-sysctl.rst;
ip6_forward in net/ipv6/ip6_output.c). Linux 6.17 has force_forwarding for that.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.desired.roles import Roles
from neuca_tools.model import Problem, Router, World
from neuca_tools.model.provenance import ROUTER_SECONDS
from neuca_tools.model.topology import identity, is_nic

IPV4, IPV6 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"
VALUES = {"true": "1", "false": "0"}


def requested(router: Router) -> dict[str, str]:
    """The sysctls that `router` requests; none for `user`, which leaves or restores the user's
    values.
    """
    if router not in VALUES:
        return {}
    return dict.fromkeys((IPV4, IPV6), VALUES[router])


def allowed(router: Router, roles: Roles, world: World) -> tuple[dict[str, str], list[Problem]]:
    """The requested sysctls that may be set, and a problem if one may not."""
    wanted = requested(router)
    listening = sorted(
        device.name
        for device in world.devices.values()
        if device.index in world.advertised
        and (
            device.index in roles.protected
            or (device.up and is_nic(device) and roles.role(identity(device)) != "dataplane")
        )
    )
    if router != "true" or not listening:
        return wanted, []
    del wanted[IPV6]
    name = listening[0]
    if world.age < ROUTER_SECONDS:
        soon = f"until {ROUTER_SECONDS:g} s after the boot, in case {name} gets its default route"
        reason = f"IPv6 forwarding remains off {soon} from router advertisements"
        return wanted, [Problem("pending", reason)]
    reason = (
        f"IPv6 forwarding remains off: {name} gets its default route from router advertisements"
        " (accept_ra = 1), which a forwarding host ignores; to use both,"
        f" set net.ipv6.conf.{name}.accept_ra = 2, then run neuca apply"
    )
    return wanted, [Problem("contested", reason)]
