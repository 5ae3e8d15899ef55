"""Who asks for what: the local configuration over the NEuca document over the platform's own documents, setting by setting.

The platform names every NIC, the management NIC too. So it is asked who is what before its requests count, and only those
for dataplane NICs do.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Optional

from neuca_tools.desired.requests import merge
from neuca_tools.desired.roles import Policy, Roles, assign
from neuca_tools.documents.neuca.links import combine, overlay
from neuca_tools.documents.platform.drafts import BY_NAME
from neuca_tools.documents.stacking import lower_of, users
from neuca_tools.model import (
    Document,
    LinkKey,
    LinkRequest,
    ManagementHint,
    NicRecord,
    PlatformDocument,
    Problem,
    Record,
    Role,
    RouteRequest,
    Virtual,
    World,
)
from neuca_tools.model.topology import VIRTUAL_NICS, identity, is_nic

# Seconds after a boot. NetworkManager tries DHCP four times for 45 s each (NetworkManager.conf(5)), systemd-networkd's units wait
# 120 s for the network, dhclient tries for 60 s.
MARKED_FOR = 240.0
ANSWERED = 360.0
HELD = (
    "nothing shows yet which NIC is for management: until something does, and at most for the first"
    f" {ANSWERED / 60:g} minutes after the boot, no NIC is touched for a document's word alone"
)


@dataclass(frozen=True)
class Layers:
    """All that is asked, as one; the role of each NIC; what could not be put to any NIC."""

    requests: Mapping[LinkKey, LinkRequest]
    roles: Roles
    routes: tuple[RouteRequest, ...] = ()
    problems: tuple[Problem, ...] = ()


def stack(
    document: Optional[Document],
    local: Sequence[LinkRequest],
    policy: Policy,
    world: World,
    record: Record,
) -> Layers:
    """The layers of a document and the local configuration over each other."""
    layers = _stacked(document, local, policy, world, record)
    held = _held(layers.roles, {request.key.mac for request in local}, world, record)
    if not held:
        return layers
    roles = layers.roles
    spare = {
        mac
        for mac, device in roles.nics.items()
        if roles.role(mac) == "unlisted" and device.kind not in VIRTUAL_NICS
    }
    roles = replace(
        roles,
        by_mac={**roles.by_mac, **dict.fromkeys(held, "unlisted")},
        held=held,
        reasons={**roles.reasons, **dict.fromkeys(held, HELD)},
        ahead=held if spare and world.age < MARKED_FOR else frozenset(),
    )
    return replace(
        layers,
        roles=roles,
        problems=(
            *layers.problems,
            *(
                Problem("contested", HELD, LinkKey(mac))
                for mac in sorted(held)
                if mac in roles.nics
            ),
        ),
    )


def _held(
    roles: Roles, configured: Collection[str], world: World, record: Record
) -> frozenset[str]:
    """NICs that a document alone names, while this host has no sign of a management NIC and may still be getting one.

    A document of this host's own (a file, a config drive) is there before DHCP has answered, and may name the management NIC.
    One that leaves another NIC out seems to know better: its NICs are marked at first, so that no manager takes them. If that
    brings up no management NIC, the marks go, and managers may try every NIC. A host that has none at all is configured then.
    """
    signs = "management" in roles.by_mac.values() or any(
        route.to.prefixlen == 0 for route in world.routes
    )
    if signs or world.metadata_index or world.age >= ANSWERED:
        return frozenset()
    return frozenset(
        mac
        for mac, role in roles.by_mac.items()
        if role == "dataplane"
        and mac not in configured
        and record.nics.get(mac, NicRecord()).role != "dataplane"
    )


def _stacked(
    document: Optional[Document],
    local: Sequence[LinkRequest],
    policy: Policy,
    world: World,
    record: Record,
) -> Layers:
    links, routes = (document.links, document.routes) if document else ((), ())
    own = merge(links, local)
    named = {key.mac for key in own}
    if document is None or document.platform is None:
        return Layers(own, stacked(assign(world, named, policy, record), own), routes)
    platform, problems = bound(document.platform, world, record)
    configured = {request.key.mac for request in local}
    # On a first boot nothing shows yet which NIC is for management: then the platform's word for one is all there is.
    known = assign(world, (), policy, record).reasons
    hints = _hints(platform.management, named if known else configured, configured)
    theirs = {request.key.mac for request in platform.links} - hints.keys()
    roles = assign(world, named | theirs, policy, record, hints)
    roles = replace(
        roles,
        reasons={
            **_overruled(platform.management, roles),
            **_words(theirs, named, roles),
            **roles.reasons,
        },
    )
    every = {request.key: request for request in (*platform.links, *own.values())}
    roles = stacked(roles, every, hints)
    below = [request for request in platform.links if roles.role(request.key.mac) == "dataplane"]
    taken = {route.to for route in routes}
    more = (
        route
        for route in platform.routes
        if route.link and roles.role(route.link.mac) == "dataplane" and route.to not in taken
    )
    return Layers(merge(combine(below, links), local), roles, (*routes, *more), tuple(problems))


def stacked(
    roles: Roles, requests: Mapping[LinkKey, LinkRequest], hints: Collection[str] = ()
) -> Roles:
    """With the role of each bond and its like: that of what it is made of, or of what a document says of it."""
    below = {lower.mac for request in requests.values() for lower in lower_of(request)}
    managing = users((mac for mac in below if roles.role(mac) == "management"), requests)
    ignored = users((mac for mac in below if roles.role(mac) == "ignored"), requests)
    found: dict[str, Role] = {}
    for mac in {key.mac for key in requests if key.made}:
        if mac in hints or mac in managing:
            found[mac] = "management"
        else:
            found[mac] = "ignored" if mac in ignored else "dataplane"
    return replace(roles, stacked_roles=found)


def _words(theirs: Iterable[str], named: Collection[str], roles: Roles) -> dict[str, str]:
    """Why a NIC is a dataplane one, where the platform's word alone makes it one."""
    return {
        mac: "the platform's document names it, and says nothing of a management NIC"
        for mac in theirs
        if mac not in named and roles.role(mac) == "dataplane"
    }


def _overruled(hints: Iterable[ManagementHint], roles: Roles) -> dict[str, str]:
    return {
        hint.mac: f"a NEuca document or the configuration names it, though {hint.reason}"
        for hint in hints
        if roles.role(hint.mac) == "dataplane"
    }


def _hints(
    hints: Iterable[ManagementHint], named: Collection[str], local: Collection[str]
) -> dict[str, str]:
    """The hints that hold: one that is firm gives way to the configuration alone, the others to a NEuca document too."""
    return {
        hint.mac: hint.reason
        for hint in sorted(hints, key=lambda hint: hint.firm)
        if hint.mac not in (local if hint.firm else named)
    }


def bound(
    platform: PlatformDocument, world: World, record: Record
) -> tuple[PlatformDocument, list[Problem]]:
    """The document with the MAC of each NIC that it knows by its name alone; the names that nothing here has are problems."""
    known = {mac for mac in _macs(platform) if mac.startswith(BY_NAME)}
    if not known:
        return platform, []
    found = {mac: _called(mac[len(BY_NAME) :], world, record) for mac in known}
    problems = [
        Problem("absent", f'no NIC is called "{mac[len(BY_NAME) :]}"')
        for mac in sorted(known)
        if not found[mac]
    ]
    links: dict[LinkKey, LinkRequest] = {}
    for request in platform.links:
        for mac in found.get(request.key.mac, (request.key.mac,)):
            key = LinkKey(mac, request.key.vlan_id)
            moved = replace(request, key=key, virtual=_with_macs(request.virtual, found))
            links[key] = overlay(moved, links[key]) if key in links else moved
    routes = tuple(
        replace(route, link=LinkKey(mac, route.link.vlan_id))
        for route in platform.routes
        if route.link
        for mac in found.get(route.link.mac, (route.link.mac,))
    )
    hints = tuple(
        hint._replace(mac=mac)
        for hint in platform.management
        for mac in found.get(hint.mac, (hint.mac,))
    )
    return replace(platform, links=tuple(links.values()), routes=routes, management=hints), problems


def _with_macs(
    virtual: Optional[Virtual], found: Mapping[str, Collection[str]]
) -> Optional[Virtual]:
    if virtual is None:
        return None
    members = tuple(
        LinkKey(mac, key.vlan_id)
        for key in virtual.members
        for mac in found.get(key.mac, (key.mac,))
    )
    return replace(
        virtual,
        members=members,
        parent=virtual.parent
        and LinkKey(
            next(iter(found.get(virtual.parent.mac, ())), virtual.parent.mac),
            virtual.parent.vlan_id,
        ),
    )


def _macs(platform: PlatformDocument) -> Iterable[str]:
    yield from (request.key.mac for request in platform.links)
    yield from (hint.mac for hint in platform.management)


def _called(pattern: str, world: World, record: Record) -> tuple[str, ...]:
    """The NICs of these names: those that they keep, for a name in force may be another NIC's for now."""
    names = {identity(device): device.name for device in world.devices.values() if is_nic(device)}
    names.update(
        {
            mac: record.nics[mac].name
            for mac in names
            if mac in record.nics and record.nics[mac].name
        }
    )
    return tuple(sorted(mac for mac, name in names.items() if fnmatchcase(name, pattern)))
