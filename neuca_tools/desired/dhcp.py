"""What DHCP and router advertisements give dataplane links (`dhcp_clients`: who does it).

Anybody on the dataplane can answer. So the client puts every route, that of the network of an
address too, into a table of the link that no rule leads to (`table`). From there, the routes that a
document could also request are copied into the main table, and the gateway is used for policy
routing. A default route is never copied, nor a public network, not even that of the address itself.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Optional

from neuca_tools.desired import dhcp_files
from neuca_tools.desired.coverage import count_public
from neuca_tools.desired.roles import Roles, find_links
from neuca_tools.desired.routes import local_hosts, on_link
from neuca_tools.desired.safety import RequestLimits
from neuca_tools.model import (
    Address,
    Device,
    Hop,
    Host,
    Link,
    LinkKey,
    Network,
    Problem,
    Route,
    World,
)
from neuca_tools.model.device_settings import Note
from neuca_tools.model.routing import MAIN_TABLE, Traits
from neuca_tools.model.topology import foreign_routes, hosts_of, routes_through

SETTING = "dhcp"
MOST_ROUTES = 64  # of each NIC: a server or router must not fill the routing table


def learned_gateways(roles: Roles, world: World) -> dict[LinkKey, dict[int, Host]]:
    """The gateways, by family, that the clients have learned."""
    gateways: dict[LinkKey, dict[int, Host]] = {}
    for key, device in devices_with_client(roles, world).items():
        gateways[key] = {}
        for route in _learned_routes(key, device, world):
            if route.is_default and route.via is not None:
                gateways[key].setdefault(route.to.version, route.via)
    return gateways


def devices_with_client(roles: Roles, world: World) -> dict[LinkKey, Device]:
    """The links that are present and have a client, in a fixed order."""
    devices = find_links(world, roles)
    return {
        key: devices[key]
        for key in sorted(roles.dhcp.clients)
        if key in devices and devices[key].index not in roles.guard.devices
    }


def _learned_routes(key: LinkKey, device: Device, world: World) -> list[Route]:
    """The routes in the table of this NIC, the preferred ones first."""
    number = dhcp_files.table_of(key)
    routes = [
        route
        for route in world.tables
        if (route.index, route.traits.table) == (device.index, number)
        and not route.is_ours
        and not (_is_everywhere(route.to) or route.to.is_multicast)
    ]
    return sorted(routes, key=lambda route: (route.metric, route.via is not None, str(route.to)))


class Learned:
    """What the clients have learned on the links so far: addresses, and allowed routes.

    `taken` are the identities of requested routes.
    """

    def __init__(
        self, roles: Roles, world: World, limits: RequestLimits, taken: Collection[object]
    ) -> None:
        self.world, self.limits = world, limits
        self.taken, self.local_hosts = {*taken, *foreign_routes(world)}, local_hosts(world)
        # The main table may have routes already, as for an address from before our file.
        foreign = [route for route in world.routes if not route.is_ours]
        self.present = {(route.to, route.index, route.via, route.metric) for route in foreign}
        self.addresses: dict[LinkKey, tuple[Address, ...]] = {}
        self.hops: list[Hop] = []
        self.notes: list[Note] = []
        self.problems: list[Problem] = []
        for key, device in devices_with_client(roles, world).items():
            self._add(key, device)

    def added_to(self, links: Mapping[LinkKey, Link]) -> dict[LinkKey, Link]:
        """The links with their learned addresses too."""
        extended = dict(links)
        for key in self.addresses.keys() & links.keys():
            asked = links[key].addresses
            more = tuple(address for address in self.addresses[key] if address not in asked)
            extended[key] = replace(links[key], addresses=(*asked, *more))
        return extended

    def _add(self, key: LinkKey, device: Device) -> None:
        """Look at the routes in the table of this NIC, and at its addresses."""
        routes = _learned_routes(key, device, self.world)
        sources = {route.traits.source for route in routes}
        self.addresses[key] = tuple(
            address
            for address in self.world.addresses.get(device.index, ())
            if not _is_everywhere(address.network)
            if (device.index, address) in self.world.leased or address.ip in sources
        )
        self._copy_routes(key, device, [route for route in routes if not route.is_default])
        self._check(key, device)

    def _copy_routes(self, key: LinkKey, device: Device, routes: Collection[Route]) -> None:
        """Copy allowed routes into the main table, those to networks on the link first."""
        present = self.world.addresses.get(device.index, ())
        near = {address.network for address in present}
        near -= {address.network for address in self.addresses[key]}
        hosts = hosts_of(self.world, [device.index])
        for route in sorted(routes, key=lambda route: route.via is not None):
            is_present = (route.to, route.index, route.via, route.metric) in self.present
            reason = None if is_present else self._refusal_reason(route, near)
            if reason:
                text = f"the route to {route.to} that was offered on it is not used: {reason}"
                self.notes.append(Note(SETTING, "not applicable", text, key))
                continue
            if is_present or route.via is None:
                near.add(route.to)
            if not is_present:
                # The kernel refuses a source that the host does not have.
                source = route.traits.source if route.traits.source in hosts else None
                hop = Hop(route.to, key, route.via, route.metric, traits=Traits(source=source))
                self.taken.add(hop.identity)
                self.hops.append(hop)

    def _refusal_reason(self, route: Route, near: Collection[Network]) -> Optional[str]:
        """Why the route is not copied. `near` are the networks on the link in the main table."""
        if (route.to, MAIN_TABLE, route.metric, 0) in self.taken:
            return "there is another route with the same prefix and metric"
        reason = self.limits.route(route.to)
        if reason is None and count_public([route.to], route.to.version):
            reason = "only a document can route public addresses"
        if reason is None and route.via is not None:
            reason = self._hop_reason(route, route.via, near)
        if reason is None and len(self.hops) >= MOST_ROUTES * len(self.addresses):
            reason = f"there are more than {MOST_ROUTES} routes"
        return reason

    def _hop_reason(self, route: Route, via: Host, near: Collection[Network]) -> Optional[str]:
        if route.to.is_link_local:
            return "link-local addresses are not routed"
        if on_link(route.index, via) in self.local_hosts:
            return f"its next hop {via} is this host itself"
        if via.is_link_local or any(via in network for network in near):
            return None
        return f"its next hop {via} is in no network on this link"

    def _check(self, key: LinkKey, device: Device) -> None:
        """Report what a client must not have set: it is left as it is, since it is not ours."""
        for address in self.addresses[key]:
            reason = self.limits.bare_address(address)
            if reason:
                text = f"it got the address {address} from a server or router: {reason}"
                self.problems.append(Problem("contested", text, key))
        for route in routes_through(self.world, [device.index]):
            if route.is_default and not route.is_ours:
                has = f"the main table has an IPv{route.to.version} default route through it"
                text = f"{has} that neucad did not add"
                self.problems.append(Problem("contested", text, key))


def _is_everywhere(network: Network) -> bool:
    """Whether it is a link-local IPv6 network, which the kernel gives every link."""
    return network.version == 6 and network.is_link_local
