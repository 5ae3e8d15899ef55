"""Router advertisements: whether dataplane links accept them, what they have left, and forwarding.

Any host on the link can send one. What the kernel has added because of one can be recognized:
routes as `model.provenance` describes, addresses by the flags of address autoconfiguration.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping

from neuca_tools.desired.dhcp_files import MANAGERS
from neuca_tools.desired.dhcp_files import OWN as OWN_CLIENT
from neuca_tools.desired.roles import Roles
from neuca_tools.model import (
    ACCEPT_RA,
    ADVERTISED,
    IPV6_MTU,
    OWN,
    Address,
    Device,
    Link,
    LinkKey,
    LinkRequest,
    NetworkState,
    OwnedObjects,
    Problem,
    Requests,
    Router,
    World,
)
from neuca_tools.model.provenance import ROUTER_SECONDS
from neuca_tools.model.topology import identity, is_nic


def removable_addresses(
    owned: OwnedObjects,
    observed: NetworkState,
    world: World,
    without_advertisements: Collection[LinkKey],
) -> OwnedObjects:
    """What may be removed, including the autoconfigured addresses on these links."""
    keys = {
        observed.links[key].index: key for key in observed.links.keys() & without_advertisements
    }
    made = {(keys[index], address) for index, address in world.autoconfigured if index in keys}
    return owned._replace(addresses=owned.addresses | made)


def links_without_advertisements(
    requests: Requests, roles: Roles, world: World, configured: Collection[LinkKey]
) -> frozenset[LinkKey]:
    """The dataplane links on which the kernel must not accept router advertisements.

    These are all, present or not, except those that are left to the user. Where the configuration
    requests advertisements (`configured`), the kernel accepts them unless a client handles them.
    """
    accepted = {*configured} - ipv6_clients(requests, roles)
    return frozenset(
        key
        for key, request in requests.items()
        if roles.role_of(key) == "dataplane" and request.state != "user"
        if key not in accepted and world.accept_ra is not None
    )


def ipv6_clients(requests: Requests, roles: Roles) -> frozenset[LinkKey]:
    """The links on which a client handles router advertisements instead of the kernel.

    A network manager always does; we do so where advertisements or DHCPv6 are requested.
    """
    served = roles.dhcp.links_of([OWN_CLIENT]) & requests.keys()
    own = {key for key in served if requests[key].leases.has_ipv6}
    return roles.dhcp.links_of(MANAGERS) | own


def manager_takes_advertisements(request: LinkRequest, roles: Roles) -> bool:
    """Whether a network manager sets on the link what routers advertise, such as the hop limit."""
    has_manager = request.key in roles.dhcp.links_of(MANAGERS)
    return has_manager and request.leases.takes_advertisements


def advertisements_off(link: Link, world: World, mtu: int, *, by_manager: bool) -> dict[str, str]:
    """The sysctls that turn off advertisements on a link, and undo what they may have set.

    A link that does not exist yet needs none if the kernel creates it with advertisements off. The
    values are those without advertisements, unless they are set `by_manager`; `mtu` is the MTU that
    the link will have. Nothing is reset later: a value on a link without advertisements is an
    administrator's.
    """
    device, off = world.devices.get(link.index), {ACCEPT_RA: "0"}
    if device is None:
        return {} if world.accept_ra == "0" else off
    accepts = world.sysctls.get(ACCEPT_RA.replace(OWN, device.name), "0")
    if by_manager or accepts == "0":
        return off
    values = _unadvertised_values(device, world)
    if int(values.get(IPV6_MTU, 0)) >= min(device.mtu, mtu):
        # The kernel refuses more than the MTU of the device, which this pass may change.
        values[IPV6_MTU] = str(mtu)
    return {**off, **values}


def _unadvertised_values(device: Device, world: World) -> dict[str, str]:
    """The sysctls of the device that an advertisement may have set, as they are without one."""
    paths = {template: template.replace(OWN, device.name) for template in (*ADVERTISED, IPV6_MTU)}
    if world.sysctls.get(paths[IPV6_MTU]) == str(device.mtu):
        del paths[IPV6_MTU]  # it follows the MTU of the device
    known = world.unadvertised
    return {template: known[path] for template, path in paths.items() if path in known}


def restored_sysctls(original: Mapping[str, str], link: Link, world: World) -> dict[str, str]:
    """The original sysctls of a link: a default of the kernel stands for that of this host."""
    device = world.devices.get(link.index)
    name = device.name if device else ""
    return {
        template: world.unadvertised.get(template.replace(OWN, name), value)
        if value == ADVERTISED.get(template)
        else value
        for template, value in original.items()
    }


def lasting_addresses(link: Link, world: World) -> tuple[Address, ...]:
    """The addresses of the link without link-local and autoconfigured IPv6 addresses."""
    return tuple(address for address in link.addresses if is_lasting(link.index, address, world))


def is_lasting(index: int, address: Address, world: World) -> bool:
    """Whether the kernel does not make the address again by itself."""
    is_made_again = address.is_link_local or (index, address) in world.autoconfigured
    return address.version == 4 or not is_made_again


# --- Forwarding -----------------------------------------------------------------------------------

# It is switched on in both families, unless a NIC that is not dataplane would lose its routes: one
# that forwards IPv6 ignores the routes in router advertisements unless its accept_ra is 2, and the
# kernel drops those that it has when forwarding is switched on for all NICs. Switching on dataplane
# NICs alone has no effect: without conf/all no packet is forwarded (ip-sysctl.rst; ip6_forward in
# net/ipv6/ip6_output.c). Linux 6.17 has force_forwarding for that.
_FORWARD_IPV4, _FORWARD_IPV6 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"
_VALUES = {"true": "1", "false": "0"}


def forwarding_sysctls(router: Router) -> dict[str, str]:
    """The sysctls that `router` requests: none for `user`, which leaves or restores the user's."""
    if router not in _VALUES:
        return {}
    return dict.fromkeys((_FORWARD_IPV4, _FORWARD_IPV6), _VALUES[router])


def allowed_forwarding(
    router: Router, roles: Roles, world: World
) -> tuple[dict[str, str], list[Problem]]:
    """The requested sysctls that may be set, and a problem if one may not."""
    wanted = forwarding_sysctls(router)
    listening = sorted(
        device.name
        for device in map(world.devices.__getitem__, world.advertised & world.devices.keys())
        if device.index in roles.guard.devices
        or (device.up and is_nic(device) and roles.role(identity(device)) != "dataplane")
    )
    if router != "true" or not listening:
        return wanted, []
    del wanted[_FORWARD_IPV6]
    name = listening[0]
    if not world.is_aged(ROUTER_SECONDS):
        soon = f"until {ROUTER_SECONDS:g} s after the boot, in case {name} gets its default route"
        reason = f"IPv6 forwarding remains off {soon} from router advertisements"
        return wanted, [Problem("pending", reason)]
    reason = (
        f"IPv6 forwarding remains off: {name} gets its default route from router advertisements"
        " (accept_ra = 1), which a forwarding host ignores; to use both,"
        f" set net.ipv6.conf.{name}.accept_ra = 2, then run neuca apply"
    )
    return wanted, [Problem("contested", reason)]
