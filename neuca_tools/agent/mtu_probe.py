"""The MTU of a virtual machine's NIC: tried with an acknowledged probe before any profile may raise it.

A virtio NIC takes every MTU, and frames die outside. To send a large packet the NIC needs its MTU for the moment of the probe.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple, Optional

from neuca_tools.backends.pathprobe import acknowledged
from neuca_tools.config import Config
from neuca_tools.config.options import listed
from neuca_tools.desired.resolve import Resolution
from neuca_tools.errors import ApplyError
from neuca_tools.model import Host, LinkKey, NetworkState, Record
from neuca_tools.plan.operation import Target, Writer
from neuca_tools.plan.operations import SetMtu
from neuca_tools.state import updates
from neuca_tools.state.records import save_record

TUNNELS = (
    0,
    50,
    100,
)  # bytes that an overlay below may take: none, VXLAN over IPv4 (RFC 7348), two such layers

log = logging.getLogger("neuca")
SILENT = -1  # what is remembered of a neighbour that did not answer at all: it is asked again at the next start


class Candidate(NamedTuple):
    """A NIC that a profile would give another MTU, with a neighbour to ask."""

    target: Target
    now: int
    asked: int
    neighbour: Host

    @property
    def operation(self) -> SetMtu:
        return SetMtu(self.target, self.now, self.asked)


def explore(
    config: Config,
    resolution: Resolution,
    have: NetworkState,
    record: Record,
    writer: Writer,
    start: bool,
) -> bool:
    """Try the MTU that a profile wants of the NICs of a virtual machine; whether a larger one can be had now.

    The record has what was found, and before that what is raised for the moment: it goes back also if this is killed.
    """
    waiting = candidates(resolution, have, peers(config), record.probed, start)
    ready = [one for one in waiting if answers(one)]
    save_record(config.state, updates.record_intentions(record, [one.operation for one in ready]))
    found = {one.target.key.mac: SILENT for one in waiting}
    found.update({one.target.key.mac: probe(one, writer) for one in ready})
    for one in waiting:
        log.info(
            "probed the path of %s to %s: %s",
            one.target.name,
            one.neighbour,
            text(found[one.target.key.mac]),
        )
    save_record(config.state, replace(record, probed={**record.probed, **found}))
    return any(mtu > 0 for mtu in found.values())


def peers(config: Config) -> tuple[Host, ...]:
    """The literal addresses of `[selftest] peers`, entries may be `NAME@ADDRESS`; none where nothing is to be probed."""
    found = []
    for entry in listed(config.selftest.get("peers", "")) if config.mtu_probe else ():
        with suppress(ValueError):
            found.append(ip_address(entry.rpartition("@")[2].strip()))
    return tuple(found)


def candidates(
    resolution: Resolution,
    have: NetworkState,
    peers: Collection[Host],
    probed: Mapping[str, int],
    start: bool,
) -> list[Candidate]:
    """Every NIC that is up, that waits for a probe, and that has a peer on one of its own networks.

    A peer that was silent is asked again at a start; one that acknowledged no larger packet is not, before the next boot.
    """
    layer = resolution.tuning
    tried = {mac for mac, mtu in probed.items() if mtu != SILENT or not start}
    waiting = {
        value.link: int(value.asked)
        for value in layer.values
        if value.setting == "mtu"
        and value.effect
        and value.link is not None
        and value.link.vlan_id is None
        and value.link.mac not in tried
    }
    found = []
    for key in sorted(waiting) if peers and layer.environment.kind != "bare metal" else ():
        link = have.links.get(key)
        neighbour = _neighbour(key, have, peers)
        if link and link.mtu and neighbour and link.state == "up" and waiting[key] > link.mtu:
            found.append(
                Candidate(
                    Target(key, link.name or "", link.index), link.mtu, waiting[key], neighbour
                )
            )
    return found


def _neighbour(key: LinkKey, have: NetworkState, peers: Iterable[Host]) -> Optional[Host]:
    link = have.links.get(key)
    addresses = link.addresses if link else ()
    return next(
        (
            peer
            for peer in peers
            for address in addresses
            if peer.version == address.version and peer in address.network and peer != address.ip
        ),
        None,
    )


def answers(candidate: Candidate) -> bool:
    """Whether the neighbour acknowledges a packet of the size that can be sent now."""
    return acknowledged(candidate.target.name, candidate.neighbour, candidate.now)


def probe(candidate: Candidate, writer: Writer) -> int:
    """The largest MTU that the neighbour acknowledged; 0 if none beyond that of now. The NIC has its MTU again after it."""
    index, name = writer.index(candidate.target), candidate.target.name
    sizes = [
        size for size in (candidate.asked - layer for layer in TUNNELS) if size > candidate.now
    ]
    try:
        writer.set_mtu(index, candidate.asked)
        return next((size for size in sizes if acknowledged(name, candidate.neighbour, size)), 0)
    except ApplyError:
        return 0  # the device does not take it after all
    finally:
        writer.set_mtu(index, candidate.now)


def text(mtu: int) -> str:
    """The outcome of a probe for people."""
    return (
        "no answer"
        if mtu == SILENT
        else f"an MTU of {mtu} is acknowledged"
        if mtu
        else "no larger MTU is acknowledged"
    )
