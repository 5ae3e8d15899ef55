"""What a network manager had put on a NIC before a document made it ours: it goes, and status tells of it until the next boot.

On the first boot of an image nobody knows yet which NIC is whose, and a manager asks a DHCP server on each. Only what such a
server or a router says is taken away: addresses with a lifetime, routes of the protocols `dhcp` and `ra`. What a hand set stays.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from .model import Device, LinkKey, NetworkState, NicRecord, Owned, Record, World

TITLES = {"networkmanager": "NetworkManager", "networkd": "systemd-networkd"}


def leave(record: Record, nics: Mapping[str, Device], dataplane: Iterable[str],
          words: Mapping[str, Mapping[str, str]], silent: Collection[str] = ()) -> Record:
    """Note which manager has to leave: it holds a NIC that becomes dataplane only now. `words`: manager, name, word.

    One that runs and gives no answer (`silent`) may hold it as well, and is told to leave until it has heard.
    """
    known = dict(record.nics)
    for mac in dataplane:
        nic, device = known.get(mac, NicRecord()), nics.get(mac)
        holders = [name for name, said in words.items() if device and said.get(device.name) == "managed"]
        holders += sorted(silent) if device else []
        if holders and nic.role != "dataplane" and not nic.leaving:
            known[mac] = replace(nic, leaving=holders[0], unheard=bool(silent))
    return replace(record, nics=known)


def removable(owned: Owned, record: Record, have: NetworkState, world: World) -> Owned:
    """What may be taken away: what is ours, and the addresses that a leaving manager had from a lease."""
    return replace(owned, addresses=owned.addresses | {
        (key, address) for key, link in have.links.items() if _leaving(key, record)
        for address in link.addresses if (link.index, address) in world.leased})


def left(record: Record, have: NetworkState, world: World) -> frozenset[str]:
    """A sentence for each thing that is still there."""
    return frozenset(_sentences(record, have, world))


def settled(record: Record, have: NetworkState, world: World, silent: Collection[str] = ()) -> Record:
    """The record, once managers have left, and nothing of theirs is there any more: all of them answer."""
    held = {key.mac for key, link in have.links.items() if "managed" in link.managers.values()}
    held |= {hop.link.mac for hop in have.hops if hop.left_over}
    held |= {key.mac for key, _ in removable(Owned(), record, have, world).addresses}
    unheard = {mac for mac, nic in record.nics.items() if silent and nic.unheard}
    return replace(record, nics={mac: replace(nic, leaving=nic.leaving if mac in held | unheard else "", unheard=mac in unheard)
                                 for mac, nic in record.nics.items()})


def _leaving(key: LinkKey, record: Record) -> str:
    return record.nics.get(key.mac, NicRecord()).leaving if key.vlan_id is None else ""


def _sentences(record: Record, have: NetworkState, world: World) -> Iterator[str]:
    for key, link in have.links.items():
        holder = TITLES.get(_leaving(key, record))
        if holder:
            found = [f"the address {one}" for one in link.addresses if (link.index, one) in world.leased]
            found += [f"the route to {hop.to}" + (f" via {hop.via}" if hop.via else "") for hop in have.hops
                      if hop.left_over and hop.link == key]
            yield from (f"{holder} had put {what} on {link.name} before a document named it" for what in found)
