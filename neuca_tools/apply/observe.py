"""The present state in terms of the desired state: links, their settings, routes and our files."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_network
from typing import Optional

from neuca_tools.desired.dhcp_files import link_of_label
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import find_links
from neuca_tools.desired.router_advertisements import is_lasting
from neuca_tools.model import (
    ACCEPT_RA,
    OWN,
    UNCHANGED,
    UNRECORDED,
    Address,
    Device,
    Hop,
    Link,
    LinkKey,
    NetworkState,
    Record,
    Route,
    Virtual,
    World,
)
from neuca_tools.model.device_settings import DeviceSettings
from neuca_tools.model.provenance import RTPROT_KERNEL, is_advertised, is_automatic, without_guesses
from neuca_tools.model.routing import NOWHERE, Rule
from neuca_tools.model.topology import automatic_default_routes


def observed_state(resolution: Resolution, world: World, record: Record) -> NetworkState:
    """The present state for a plan: dataplane links, and those that the agent once changed.

    So are the lower devices of all these. Protected links are never among them.
    """
    devices = _observed_devices(world, resolution, record)
    keys = {device.index: key for key, device in find_links(world, resolution.roles).items()}
    masters = {device.index: LinkKey(mac) for mac, device in resolution.roles.made.devices.items()}
    links = {
        key: _observed_link(key, device, resolution, world, record)._replace(
            virtual=_composition(key, device, keys, world),
            master=masters.get(device.master),
        )
        for key, device in devices.items()
    }
    defaults = _default_sysctls(resolution, record)
    paths = {*resolution.desired.sysctls, *record.original_sysctls, *defaults}
    present = {device.index: key for key, device in devices.items()}
    return NetworkState(
        links,
        _observed_routes(world, present, resolution, record),
        sysctls=_pick_values(world.sysctls, sorted(paths)),
        files={path: world.files.get(path) for path in resolution.desired.files},
        manager_by_file=_informed_managers(resolution, world, record),
        # The request of each of our DHCP clients; empty for one that has ended.
        clients={
            label: request if label in world.own_clients.running else ""
            for label, request in world.own_clients.requests.items()
        },
        rules=_observed_rules(world, resolution, present, record),
        foreign_routes=_routes_of_others(world, present),
        read_at=world.read_at,
    )


def _observed_devices(
    world: World, resolution: Resolution, record: Record
) -> dict[LinkKey, Device]:
    """The devices of links that are requested, ours, or changed by us, and the NICs below them.

    They include the devices of our routes and DHCP clients, and the members and ports of our links.
    """
    everything = _accessible_links(world, resolution)
    relevant = {*resolution.desired.links, *resolution.removable.vlans, *record.owned.vlans}
    relevant |= {*record.originals, *record.made, *(key for key, _ in record.owned.addresses)}
    relevant |= {key.nic for key in relevant}
    relevant.update(filter(None, map(link_of_label, world.own_clients.requests)))
    used = _routed_devices(world) | {everything[key].lower for key in relevant & everything.keys()}
    masters = {device.index for device in resolution.roles.made.devices.values()}
    return {
        key: device
        for key, device in everything.items()
        if key in relevant or device.index in used or device.master in masters
    }


def _routes_of_others(world: World, indexes: Collection[int]) -> tuple[Route, ...]:
    """The routes of other programs through these devices only."""
    foreign = (route for route in (*world.routes, *world.other_routes) if route.message)
    return tuple(route for route in foreign if all(index in indexes for index in route.indexes))


def _default_sysctls(resolution: Resolution, record: Record) -> Iterator[str]:
    """The sysctls that a new virtual link takes its own from."""
    for key, link in (*resolution.desired.links.items(), *record.made.items()):
        if key.rank:
            yield from (template.replace(OWN, "default") for template in link.sysctls)


def _accessible_links(world: World, resolution: Resolution) -> dict[LinkKey, Device]:
    """The links that are not protected, and NICs to create a VLAN for management on."""
    roles = resolution.roles
    carriers = {key.nic for key in resolution.desired.links if key.mac in roles.guard.vlans}
    links, guarded = find_links(world, roles).items(), roles.guard.devices
    return {key: device for key, device in links if key in carriers or device.index not in guarded}


def _pick_values(values: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The values with these names, as far as they are known."""
    return {name: values[name] for name in names if name in values}


def _routed_devices(world: World) -> set[int]:
    ours = [route for route in (*world.routes, *world.other_routes) if route.is_ours]
    return {index for route in ours for index in route.indexes}


def _informed_managers(resolution: Resolution, world: World, record: Record) -> dict[str, str]:
    """The manager that has read each of our files; "" if it runs and may not have read it."""
    wanted = resolution.desired.manager_by_file.items()
    read = {path: manager for path, manager in wanted if manager in world.managers}
    if any(nic.unheard for nic in record.nics.values()):
        return dict.fromkeys(read, "")
    return read


def _composition(
    key: LinkKey, device: Device, keys: Mapping[int, LinkKey], world: World
) -> Optional[Virtual]:
    """What a virtual link is made of, as far as that is known; the MAC of a VLAN."""
    if key.vlan_id is not None:
        return Virtual(options=(("mac", device.mac),))
    if not key.virtual_kind:
        return None
    inside = (member for member in world.devices.values() if member.master == device.index)
    members = sorted(keys[member.index] for member in inside if member.index in keys)
    return Virtual(tuple(members), keys.get(device.lower), device.options)


def _observed_link(
    key: LinkKey, device: Device, resolution: Resolution, world: World, record: Record
) -> Link:
    """The device as a link, with the settings that are or were requested."""
    wanted = resolution.desired.links.get(key) or Link(key, key.kind, "unlisted")
    original, made = record.originals.get(key, UNCHANGED), record.made.get(key, wanted)
    settings = world.settings.get(device.index, DeviceSettings()).values
    present = world.addresses.get(device.index, ()) if world.bare else ()
    addresses = _present_addresses(device, wanted, world)
    templates = (*wanted.sysctls, *original.sysctls, *made.sysctls)
    return Link(
        key,
        key.kind,
        resolution.roles.role_of(key),
        device.name,
        device.index,
        state="up" if device.up else "down",
        mtu=device.mtu,
        txqueuelen=device.txqueuelen,
        addresses=addresses,
        foreign_addresses=_messages_of_others(key, device.index, addresses, world, record),
        bare=tuple(address for address in present if (device.index, address) in world.bare),
        sysctls=_link_sysctls(device.name, templates, world),
        device=_pick_values(settings, {**wanted.device, **original.device, **made.device}),
        managers={
            manager: words[device.name]
            for manager, words in world.managers.items()
            if device.name in words
        },
        profile=world.profiles.get(device.name, ""),
        unmarked=key in record.owned.vlans and not device.alias,
    )


def _messages_of_others(
    key: LinkKey, index: int, addresses: Iterable[Address], world: World, record: Record
) -> dict[Address, bytes]:
    """The addresses that other programs have set, with the kernel's messages about them."""
    theirs = (own for own in addresses if (key, own) not in record.owned.addresses)
    lasting = (address for address in theirs if is_lasting(index, address, world))
    return {address: world.address_messages.get((index, address), b"") for address in lasting}


def _present_addresses(device: Device, wanted: Link, world: World) -> tuple[Address, ...]:
    """The device's addresses; a requested one counts as absent if it expires or is deprecated."""
    present = world.addresses.get(device.index, ())
    fading = world.leased_addresses | world.deprecated
    if not fading:
        return present
    unlasting = {own for own in wanted.addresses if (device.index, own) in fading}
    return tuple(address for address in present if address not in unlasting)


def _link_sysctls(name: str, templates: Iterable[str], world: World) -> dict[str, str]:
    """The values of these sysctls of the link called `name`, as far as they can be read.

    Without IPv6, as below an MTU of 1280, it will have the `accept_ra` of a new link.
    """
    paths = {template: template.replace(OWN, name) for template in templates}
    known = world.sysctls
    values = {template: known[path] for template, path in paths.items() if path in known}
    if ACCEPT_RA in paths and world.accept_ra is not None:
        values.setdefault(ACCEPT_RA, world.accept_ra)
    return values


def _observed_routes(
    world: World, keys: Mapping[int, LinkKey], resolution: Resolution, record: Record
) -> tuple[Hop, ...]:
    """Our routes, those that a manager or router left behind, and other routes to a banned prefix.

    The network of a link itself is never among the last. If an address was added before the
    management NIC was known to be in the same network, the kernel's route to it is one to delete.
    """
    world, banned = without_guesses(world), set(resolution.desired.banned)
    kept = automatic_default_routes(world, resolution.roles.guard.management)
    hops = []
    for route in world.routes:
        key = keys.get(route.index)
        if key is None or route.is_ours:
            continue
        left_over = key in resolution.without_advertisements and is_advertised(route, world)
        left_over = left_over or _is_left_behind(route, key, world, record, kept)
        shadow = _is_shadow(route, resolution.desired.links.get(key), world)
        if left_over or shadow or (route.to in banned and route.via is not None):
            hops.append(Hop(route.to, key, route.via, route.metric, False, left_over, shadow))
    return (*_own_hops(world, keys), *hops)


def _is_shadow(route: Route, wanted: Optional[Link], world: World) -> bool:
    """Whether it is the kernel's route for an address that should have none in the main table."""
    if wanted is None or not wanted.bare:
        return False
    if route.via is not None or route.protocol != RTPROT_KERNEL:
        return False
    there = world.addresses.get(route.index, ())
    own = {address for address in there if address.network == route.to}
    return bool(own) and own <= {*wanted.bare} & {*wanted.addresses}


def _own_hops(world: World, keys: Mapping[int, LinkKey]) -> Iterator[Hop]:
    """Our routes in every table, without those through devices that are not ours to change."""
    keys = {**keys, 0: NOWHERE}
    for route in (*world.routes, *world.other_routes):
        if route.is_ours and all(index in keys for index in route.indexes):
            others = tuple((keys[index], via) for index, via in route.others)
            link = keys[route.index]
            yield Hop(route.to, link, route.via, route.metric, traits=route.traits, others=others)


def _observed_rules(
    world: World, resolution: Resolution, keys: Mapping[int, LinkKey], record: Record
) -> dict[Rule, LinkKey]:
    """Our rules, each with its link if known; those for addresses of a protected device stay."""
    ours = [seen.rule for seen in world.rules if seen.is_ours and seen.plain]
    if not ours:
        return {}
    present = {*keys.values()}
    link_by_table = {table: key for key, table in record.tables.items() if key in present}
    owners = _link_by_source(world, keys)
    protected = _link_by_source(world, dict.fromkeys(resolution.roles.guard.devices, NOWHERE))
    link_by_rule = {}
    for rule in ours:
        guess = link_by_table.get(rule.table) or owners.get(rule.source, NOWHERE)
        if rule.source not in protected:
            link_by_rule[rule] = resolution.desired.rules.get(rule, guess)
    return link_by_rule


def _link_by_source(world: World, keys: Mapping[int, LinkKey]) -> dict[str, LinkKey]:
    """The link of each address, by the prefix that a rule has as its source."""
    return {
        str(ip_network(address.ip)): keys[index]
        for index in keys
        for address in world.addresses.get(index, ())
    }


def _is_left_behind(
    route: Route, key: LinkKey, world: World, record: Record, kept: Collection[tuple[int, int]]
) -> bool:
    """Whether the manager that leaves the NIC set the route. `kept`: default routes that stay."""
    if key.vlan_id is not None or (route.index, route.to.version) in kept:
        return False
    return bool(record.nics.get(key.mac, UNRECORDED).leaving) and is_automatic(route, world)
