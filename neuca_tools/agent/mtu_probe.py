"""Probes the path of a virtual machine's NIC before a profile may raise the NIC's MTU.

A virtio NIC accepts any MTU, but the network behind it may drop large frames. Sending a large
packet takes the larger MTU, so the NIC has it for the time of the probe.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple, Optional

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import Host as HostHandles
from neuca_tools.backends.pathprobe import acknowledged
from neuca_tools.config import Config
from neuca_tools.config.options import split_list
from neuca_tools.desired.resolve import Resolution
from neuca_tools.errors import ApplyError
from neuca_tools.model import Host, Link, LinkKey, NetworkState
from neuca_tools.plan.operation import Target, Writer
from neuca_tools.plan.operations import SetMtu
from neuca_tools.state import intentions
from neuca_tools.state.records import save_record

log = logging.getLogger("neuca")

# Bytes of overhead of an overlay network: none, VXLAN over IPv4 (RFC 7348), two such layers.
TUNNEL_OVERHEADS = (0, 50, 100)
NO_RESPONSE = -1  # is recorded for a neighbour that did not respond at all


class Candidate(NamedTuple):
    """A NIC for which a profile wants a larger MTU (bytes), with a neighbour to send probes to."""

    target: Target
    now: int
    asked: int
    neighbour: Host

    @property
    def operation(self) -> SetMtu:
        return SetMtu(self.target, self.now, self.asked)

    @property
    def mac(self) -> str:
        return self.target.key.mac

    def is_acknowledged(self, mtu: int) -> bool:
        """Whether the neighbour acknowledges a packet of this size."""
        return acknowledged(self.target.name, self.neighbour, mtu)


def probe_paths(handles: HostHandles, decision: Decision, *, start: bool) -> bool:
    """Probe the paths of a virtual machine's NICs; returns whether a larger MTU is possible.

    The MTUs to be raised are recorded first, so that they are restored even if this is killed,
    and the results afterwards. Raises ApplyError.
    """
    config, record, writer = handles.config, decision.record, handles.writer(decision)
    waiting = probe_candidates(
        decision.resolution, decision.have, configured_peers(config), record.probed, start
    )
    if not waiting:
        return False
    ready = [candidate for candidate in waiting if candidate.is_acknowledged(candidate.now)]
    raised = intentions.record_intentions(record, [candidate.operation for candidate in ready])
    save_record(config.state, raised)
    mtu_by_mac = {candidate.mac: NO_RESPONSE for candidate in waiting}
    mtu_by_mac.update({candidate.mac: probe_path(candidate, writer) for candidate in ready})
    for candidate in waiting:
        name, outcome = candidate.target.name, describe_outcome(mtu_by_mac[candidate.mac])
        log.info("probed the path of %s to %s: %s", name, candidate.neighbour, outcome)
    save_record(config.state, record._replace(probed={**record.probed, **mtu_by_mac}))
    return any(mtu > 0 for mtu in mtu_by_mac.values())


def configured_peers(config: Config) -> tuple[Host, ...]:
    """The addresses in `[selftest] peers` (`ADDRESS`, `NAME@ADDRESS`); none without probes."""
    if not config.mtu_probe:
        return ()
    peers = []
    for entry in split_list(config.selftest.get("peers", "")):
        with suppress(ValueError):
            peers.append(ip_address(entry.rpartition("@")[2].strip()))
    return tuple(peers)


def probe_candidates(
    resolution: Resolution,
    have: NetworkState,
    peers: Collection[Host],
    probed: Mapping[str, int],
    start: bool,
) -> list[Candidate]:
    """Every NIC that is up, waits for a probe, and has a peer on one of its own networks.

    `probed` has the outcome of the probes since the boot, by MAC. A neighbour that did not respond
    is probed again at a start; one that acknowledged no larger packet is not.
    """
    if not peers or resolution.tuning.environment.kind == "bare metal":
        return []
    tried = {mac for mac, mtu in probed.items() if mtu != NO_RESPONSE or not start}
    candidates = [
        _candidate_of(have.links.get(key), mtu, peers)
        for key, mtu in sorted(_waiting_mtus(resolution).items())
        if key.mac not in tried
    ]
    return [candidate for candidate in candidates if candidate]


def _candidate_of(link: Optional[Link], mtu: int, peers: Collection[Host]) -> Optional[Candidate]:
    """None for a link that is absent or down, has this MTU already, or has no neighbour."""
    if link is None or not link.mtu or link.state != "up" or mtu <= link.mtu:
        return None
    neighbour = next((peer for peer in peers if _is_neighbour(peer, link)), None)
    if neighbour is None:
        return None
    return Candidate(Target(link.key, link.name or "", link.index), link.mtu, mtu, neighbour)


def _waiting_mtus(resolution: Resolution) -> dict[LinkKey, int]:
    """The MTU that a profile wants but does not set yet, for each NIC."""
    return {
        value.link: int(value.asked)
        for value in resolution.tuning.values
        if value.setting == "mtu" and value.effect and value.link and value.link.vlan_id is None
    }


def _is_neighbour(peer: Host, link: Link) -> bool:
    """Whether a peer is on one of the link's networks, and is not this host."""
    networks = [address for address in link.addresses if address.version == peer.version]
    return any(peer in address.network and peer != address.ip for address in networks)


def probe_path(candidate: Candidate, writer: Writer) -> int:
    """The largest MTU that the neighbour acknowledged; 0 if none above the current one.

    The NIC has its current MTU again when this returns.
    """
    index, now = writer.index(candidate.target), candidate.now
    sizes = [candidate.asked - overhead for overhead in TUNNEL_OVERHEADS]
    try:
        writer.links.set_attributes(index, {"mtu": candidate.asked})
        larger = (size for size in sizes if size > now and candidate.is_acknowledged(size))
        return next(larger, 0)
    except ApplyError:
        return 0  # the device refuses it
    finally:
        writer.links.set_attributes(index, {"mtu": now})


def describe_outcome(mtu: int) -> str:
    """The outcome of a probe for people."""
    if mtu == NO_RESPONSE:
        return "no response"
    return f"an MTU of {mtu} is acknowledged" if mtu else "no larger MTU is acknowledged"
