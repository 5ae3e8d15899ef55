"""Removes what a network manager had set on a NIC before it became a dataplane NIC.

On the first boot of an image, a manager tries DHCP on every NIC. Only what a DHCP server or router
has assigned is removed: addresses with a lifetime, and routes with the protocols `dhcp` and `ra`.
Manual settings stay.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from neuca_tools.desired.roles import Roles
from neuca_tools.model import (
    UNRECORDED,
    Address,
    Device,
    Link,
    LinkKey,
    NetworkState,
    OwnedObjects,
    Record,
    World,
)
from neuca_tools.model.provenance import is_automatic, without_guesses
from neuca_tools.model.topology import automatic_default_routes

TITLES = {"networkmanager": "NetworkManager", "networkd": "systemd-networkd"}


def record_leaving(
    record: Record, nics: Mapping[str, Device], dataplane: Iterable[str], world: World
) -> Record:
    """Record which manager has to release a NIC that is now a dataplane NIC.

    One that does not respond may manage the NIC as well, and is asked until it responds.
    """
    nics_to_record, silent = dict(record.nics), world.silent_managers
    for mac in nics.keys() & dataplane:
        nic, name = nics_to_record.get(mac, UNRECORDED), nics[mac].name
        managers = world.managers.items()
        holders = [manager for manager, states in managers if states.get(name) == "managed"]
        holders += sorted(silent)
        if holders and nic.role != "dataplane" and not nic.leaving:
            nics_to_record[mac] = nic._replace(leaving=holders[0], unheard=bool(silent))
    return record._replace(nics=nics_to_record)


def removable_things(
    owned: OwnedObjects, record: Record, observed: NetworkState, world: World, roles: Roles
) -> OwnedObjects:
    """What may be removed: what is ours, and the leased addresses of a manager that leaves.

    Those stay that the only default route of their family depends on: the host stays reachable.
    """
    only_routes = automatic_default_routes(world, roles.guard.management)
    leased = {
        (key, address)
        for key, address in _leased_addresses(record, observed, world)
        if (observed.links[key].index, address.version) not in only_routes
    }
    return owned._replace(addresses=owned.addresses | leased)


def change_nics(record: Record, macs: Collection[str], **changes: Any) -> Record:  # noqa: ANN401 - fields
    """The record with these changes of the recorded NICs among these."""
    nics = {mac: record.nics[mac]._replace(**changes) for mac in record.nics.keys() & macs}
    return record._replace(nics={**record.nics, **nics}) if nics else record


def describe_leftovers(record: Record, observed: NetworkState, world: World) -> Iterator[str]:
    """A sentence for each address and route that is still present."""
    for link, manager in _leaving_links(record, observed):
        texts = [f"address {address}" for address in _leased_on(link, world)]
        hops = (hop for hop in observed.hops if hop.left_over and hop.link == link.key)
        texts += (f"route to {hop.to}{f' via {hop.via}' if hop.via else ''}" for hop in hops)
        for text in texts:
            yield f"{manager} had added the {text} to {link.name} before a document named it"


def without_settled(
    record: Record,
    observed: NetworkState,
    world: World,
    silent: Collection[str] = (),
    heard: Collection[str] = (),
) -> Record:
    """The record without managers that have left.

    A manager has left once all managers respond and nothing of it is present. A `silent` one that
    has reloaded its files in this pass was `heard`, even if it does not report yet what it manages.
    """
    held_nics = _nics_still_held(record, observed, world)
    nics = dict(record.nics)
    for mac, nic in record.nics.items():
        if nic.unheard:
            nics[mac] = nic._replace(unheard=bool({*silent} - {*heard}))
        if nic.leaving and not (nic.unheard and silent) and mac not in held_nics:
            nics[mac] = nics[mac]._replace(leaving="")
    return record._replace(nics=nics)


def _nics_still_held(record: Record, observed: NetworkState, world: World) -> set[str]:
    """The NICs that a manager manages, or that have leased addresses or automatic routes."""
    if not any(nic.leaving for nic in record.nics.values()):
        return set()
    certain = without_guesses(world)
    routed = {route.index for route in world.routes if is_automatic(route, certain)}
    held_nics = {key.mac for key, _ in _leased_addresses(record, observed, world)}
    for key, link in observed.links.items():
        is_routed = key.vlan_id is None and link.index in routed
        if is_routed or "managed" in link.managers.values():
            held_nics.add(key.mac)
    return held_nics


def describe_kept(
    record: Record, observed: NetworkState, world: World, roles: Roles
) -> Iterator[str]:
    """A sentence for each NIC whose automatic settings have to stay."""
    lines = automatic_default_routes(world, roles.guard.management)
    for link, manager in _leaving_links(record, observed):
        for family in (4, 6):
            if (link.index, family) in lines:
                yield (
                    f"what {manager} had added to {link.name} before a document named it is kept:"
                    f" it has the only IPv{family} default route of this host"
                )


def _leased_addresses(
    record: Record, observed: NetworkState, world: World
) -> set[tuple[LinkKey, Address]]:
    """The addresses with a lifetime on the links that a manager is leaving."""
    links = [link for link, _ in _leaving_links(record, observed)]
    return {(link.key, address) for link in links for address in _leased_on(link, world)}


def _leased_on(link: Link, world: World) -> list[Address]:
    leased = world.leased_addresses
    return [address for address in link.addresses if (link.index, address) in leased]


def _leaving_links(record: Record, observed: NetworkState) -> Iterator[tuple[Link, str]]:
    """The NICs that a manager is leaving, with its name for people."""
    for key, link in observed.links.items():
        leaving = record.nics.get(key.mac, UNRECORDED).leaving
        if leaving in TITLES and key.vlan_id is None:
            yield link, TITLES[leaving]
