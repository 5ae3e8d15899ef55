"""Default routes of other programs that lead the traffic of the host past the management NIC.

A DHCP client of the image may have added one before a document named the NIC. It is not removed: it
may be meant, and a client that still runs would add it again.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator

from neuca_tools.desired.roles import Roles
from neuca_tools.model import NetworkState, Problem, Route, World
from neuca_tools.model.routing import ROUTE_PROTOCOL
from neuca_tools.model.topology import best_default_routes, is_nic


def problems(roles: Roles, world: World, have: NetworkState) -> Iterator[Problem]:
    """A problem for each default route of a NIC that is preferred to those of management NICs.

    Those that this pass removes (`have`), and those on links with a client (`dhcp`), are left out.
    """
    removed = {
        (hop.to, have.links[hop.link].index, hop.metric) for hop in have.hops if hop.left_over
    }
    clients = {have.links[key].index for key in roles.clients if key in have.links}
    metrics = _management_metrics(roles, world)
    for route in world.routes:
        metric = metrics.get(route.to.version)
        if route.to.prefixlen or metric is None or route.metric >= metric:
            continue
        if route.protocol == ROUTE_PROTOCOL or route.index in clients | roles.protected:
            continue
        if (route.to, route.index, route.metric) not in removed:
            yield from _problem(route, metric, world)


def _management_metrics(roles: Roles, world: World) -> dict[int, int]:
    """The lowest metric of a default route through a management NIC, by its family."""
    own = best_default_routes(route for route in world.routes if route.index in roles.management)
    return {route.to.version: route.metric for route in own}


def _problem(route: Route, metric: int, world: World) -> Iterator[Problem]:
    device = world.devices.get(route.index)
    if device is None or not is_nic(device):
        return
    way = f"{device.name} via {route.via}" if route.via else device.name
    leases = [
        str(address)
        for address in world.addresses.get(device.index, ())
        if (device.index, address) in world.leased and address.version == route.to.version
    ]
    lease = ""
    if leases:
        lease = f"; {device.name} has {', '.join(leases)} from a DHCP client or router"
    yield Problem(
        "contested",
        f"another program leads the IPv{route.to.version} default route of this host through {way}"
        f" (metric {route.metric}), not through the management NIC (metric {metric}){lease}",
    )
