"""What a network manager had put on a NIC before a document made it ours: it goes, and status tells of it until the next boot.

On the first boot of an image nobody knows yet which NIC is whose, and a manager asks a DHCP server on each. Only what such a
server or a router says is taken away: addresses with a lifetime, routes of the protocols `dhcp` and `ra`. What a hand set stays.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from neuca_tools.desired.roles import Roles
from neuca_tools.model import (
    Address,
    Device,
    LinkKey,
    NetworkState,
    NicRecord,
    Owned,
    Record,
    World,
)
from neuca_tools.model.topology import automatic, lifelines

TITLES = {"networkmanager": "NetworkManager", "networkd": "systemd-networkd"}


def leave(
    record: Record,
    nics: Mapping[str, Device],
    dataplane: Iterable[str],
    words: Mapping[str, Mapping[str, str]],
    silent: Collection[str] = (),
) -> Record:
    """Note which manager has to leave: it holds a NIC that becomes dataplane only now. `words`: manager, name, word.

    One that runs and gives no answer (`silent`) may hold it as well, and is told to leave until it has heard.
    """
    known = dict(record.nics)
    for mac in dataplane:
        nic, device = known.get(mac, NicRecord()), nics.get(mac)
        holders = [
            name for name, said in words.items() if device and said.get(device.name) == "managed"
        ]
        holders += sorted(silent) if device else []
        if holders and nic.role != "dataplane" and not nic.leaving:
            known[mac] = replace(nic, leaving=holders[0], unheard=bool(silent))
    return replace(record, nics=known)


def removable(
    owned: Owned, record: Record, have: NetworkState, world: World, roles: Roles
) -> Owned:
    """What may be taken away: what is ours, and the addresses that a leaving manager had from a lease.

    But none that the only default route of its family goes with: a host is not cut off for a neat NIC.
    """
    kept = lifelines(world, roles.management)
    return replace(
        owned,
        addresses=owned.addresses
        | {
            (key, address)
            for key, address in _leased(record, have, world)
            if (have.links[key].index, address.version) not in kept
        },
    )


def left(record: Record, have: NetworkState, world: World) -> frozenset[str]:
    """A sentence for each thing that is still there."""
    return frozenset(_sentences(record, have, world))


def settled(
    record: Record, have: NetworkState, world: World, silent: Collection[str] = ()
) -> Record:
    """The record, once managers have left, and nothing of theirs is there any more: all of them answer."""
    held = {key.mac for key, link in have.links.items() if "managed" in link.managers.values()}
    held |= {key.mac for key, _ in _leased(record, have, world)}
    routed = {route.index for route in world.routes if automatic(route)}
    held |= {
        key.mac for key, link in have.links.items() if key.vlan_id is None and link.index in routed
    }
    unheard = {mac for mac, nic in record.nics.items() if silent and nic.unheard}
    return replace(
        record,
        nics={
            mac: replace(
                nic, leaving=nic.leaving if mac in held | unheard else "", unheard=mac in unheard
            )
            for mac, nic in record.nics.items()
        },
    )


def kept(record: Record, have: NetworkState, world: World, roles: Roles) -> Iterator[str]:
    """A sentence for each NIC on which something has to stay."""
    lines = lifelines(world, roles.management)
    for key, link in have.links.items():
        holder = TITLES.get(_leaving(key, record))
        for family in (4, 6):
            if holder and (link.index, family) in lines:
                yield (
                    f"what {holder} had put on {link.name} before a document named it stays:"
                    f" the only IPv{family} default route of this host is there"
                )


def _leased(record: Record, have: NetworkState, world: World) -> set[tuple[LinkKey, Address]]:
    return {
        (key, address)
        for key, link in have.links.items()
        if _leaving(key, record)
        for address in link.addresses
        if (link.index, address) in world.leased
    }


def _leaving(key: LinkKey, record: Record) -> str:
    return record.nics.get(key.mac, NicRecord()).leaving if key.vlan_id is None else ""


def _sentences(record: Record, have: NetworkState, world: World) -> Iterator[str]:
    for key, link in have.links.items():
        holder = TITLES.get(_leaving(key, record))
        if holder:
            found = [
                f"the address {one}" for one in link.addresses if (link.index, one) in world.leased
            ]
            found += [
                f"the route to {hop.to}" + (f" via {hop.via}" if hop.via else "")
                for hop in have.hops
                if hop.left_over and hop.link == key
            ]
            yield from (
                f"{holder} had put {what} on {link.name} before a document named it"
                for what in found
            )
