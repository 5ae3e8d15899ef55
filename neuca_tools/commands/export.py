"""`neuca export`: prints a document that requests what the dataplane NICs of this host have now.

Routes of other programs are comments: requested beside them, they would be there twice.
"""

# SPDX-License-Identifier: MIT

import argparse
from collections.abc import Iterator, Mapping

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import survey_host
from neuca_tools.commands.context import exit_code, load_configuration
from neuca_tools.desired.roles import find_links
from neuca_tools.documents.neuca.values import UnusableError, address, link_name
from neuca_tools.model import Device, LinkKey, World
from neuca_tools.model.printable import printable_lines
from neuca_tools.model.provenance import RTPROT_DHCP, RTPROT_KERNEL, RTPROT_RA
from neuca_tools.model.routing import PLAIN, ROUTE_PROTOCOL
from neuca_tools.state.active_document import last_confirmed

EXPORTED_ROLES = ("dataplane", "unlisted")
AUTOMATIC_PROTOCOLS = frozenset({RTPROT_KERNEL, RTPROT_RA, RTPROT_DHCP})
"""Of routes that nobody has set on purpose."""


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    survey = survey_host(config, last_confirmed(config.state, config.run_directory))
    # The name of an interface may have control characters.
    print(printable_lines(document_lines(survey)))
    return exit_code(config)


def document_lines(survey: Decision) -> Iterator[str]:
    """The lines of the document: NICs and their VLANs; what is left out is a comment."""
    world, devices = survey.world, _exported_devices(survey)
    for key, device in devices.items():
        yield from _link_lines(key, device, world)
    names = {device.index: device.name for device in devices.values()}
    for device in world.devices.values():
        if device.index not in names and device.lower in names:
            yield f"# not exported: {device.name} ({device.kind or 'device'})"
    yield from _route_lines(world, names)


def _exported_devices(survey: Decision) -> dict[LinkKey, Device]:
    """The dataplane NICs and those of which nothing is requested, with their VLANs."""
    roles = survey.resolution.roles
    known = sorted(find_links(survey.world, roles).items())
    nics = {key.mac for key, _ in known if not key.rank and roles.role_of(key) in EXPORTED_ROLES}
    return {
        key: device
        for key, device in known
        if key.mac in nics and key == LinkKey(key.mac, key.vlan_id)
    }


def _link_lines(key: LinkKey, device: Device, world: World) -> Iterator[str]:
    vlan = "" if key.vlan_id is None else f" {key.vlan_id}"
    yield f"[{'vlan' if vlan else 'interface'} {key.mac}{vlan}]"
    try:
        yield f"name = {link_name(device.name)}"
    except UnusableError as reason:
        yield f"# not exported: {reason}"
    yield f"state = {'up' if device.up else 'down'}"
    yield f"mtu = {device.mtu}"
    yield from _address_lines(device, world)
    yield ""


def _address_lines(device: Device, world: World) -> Iterator[str]:
    """The addresses that somebody has set, without those that no document can request."""
    automatic = world.leased_addresses | world.endless_leases | world.autoconfigured
    lasting = []
    for present in world.addresses.get(device.index, ()):
        if (device.index, present) in automatic:
            yield f"# not exported: {present}, which was leased or advertised"
        elif not present.is_link_local:
            try:
                lasting.append(str(address(str(present))))
            except UnusableError as reason:
                yield f"# not exported: {reason}"
    if lasting:
        yield f"addresses = {', '.join(lasting)}"


def _route_lines(world: World, names: Mapping[int, str]) -> Iterator[str]:
    yield "[routes]"
    for route in world.routes:
        if route.index not in names or route.protocol in AUTOMATIC_PROTOCOLS:
            continue
        is_simple = route.via and route.traits == PLAIN and not route.others
        if route.protocol == ROUTE_PROTOCOL and is_simple:
            yield f"{route.to} = {route.via} metric {route.metric}"
        else:
            where = f"via {route.via}" if route.via else f"dev {names[route.index]}"
            yield f"# not exported: {route.to} {where} metric {route.metric}"
