"""Which interfaces metadata may be requested through, and in which order.

Any host on a dataplane network can answer at the addresses of a metadata service. Therefore it is
requested only through NICs that are for management, and on a first boot only through the one that
is believed to be (`first_nic`). What a DHCP server or a router has caused is not evidence.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Optional

from neuca_tools.desired.first_nic import Belief, bus_order
from neuca_tools.desired.policy import Policy
from neuca_tools.model import Device, NicRecord, Record, Route, World, topology
from neuca_tools.model.addresses import EVERYTHING, LINK_LOCAL
from neuca_tools.model.machine import MetadataService, Outlet
from neuca_tools.model.ports import identity_forms
from neuca_tools.model.provenance import ADMINISTRATOR, KERNEL, route_provenance

if TYPE_CHECKING:  # a poll does without it
    from neuca_tools.desired.roles import Roles

# Ranks of candidates, by what makes them likely; FIRST is the NIC that is believed on a first boot.
NAMED, RECORDED, DEFAULT_ROUTE, HOST_ROUTE, FIRST, UNVOUCHED, ROUTED = range(7)


class _Candidate(NamedTuple):
    """An interface with the NICs below it; the lowest rank is most likely for management."""

    device: Device
    nics: frozenset[str]
    rank: int
    metric: int = 0

    @property
    def order(self) -> tuple[object, ...]:
        return self.rank, self.metric, bus_order(self.device)


class _Known(NamedTuple):
    """What is known of NICs: by the configuration, the record, and on a first boot."""

    policy: Policy
    record: Record
    belief: Belief

    def rank(self, nics: Collection[str]) -> int:
        """The rank of an interface with these NICs, as far as its routes do not decide."""
        if not self.policy.management.isdisjoint(nics):
            return NAMED
        recorded = (self.record.nics.get(mac, NicRecord()) for mac in nics)
        if any(nic.role == "management" and not nic.doubtful for nic in recorded):
            return RECORDED
        if self.belief.mac in nics:
            return FIRST
        return ROUTED if {*self.belief.unvouched}.isdisjoint(nics) else UNVOUCHED


def is_overruled(origin: MetadataService, policy: Policy, configured: Collection[str]) -> bool:
    """Whether the configuration by now rules out that metadata comes through that NIC.

    `configured` are the MACs of NICs that it configures.
    """
    mac = origin.mac.partition(".")[0]
    macs = identity_forms([mac])
    is_management = bool(macs & policy.management)
    is_dataplane = not is_management and bool(policy.management or macs & {*configured})
    return bool(mac) and (is_dataplane or bool(macs & policy.ignored))


def pinned_outlets(origin: MetadataService, world: World, record: Record) -> tuple[Outlet, ...]:
    """The interface through which the service has answered; none while it is absent."""
    outlets = []
    for device in world.devices.values():
        nics = topology.nics_below(world, [device.index])
        is_released = any(record.nics.get(mac, NicRecord()).released for mac in nics)
        is_usable = nics and device.up and not device.master and not is_released
        if is_usable and outlet_identity(world, device) == origin.mac:
            macs = _all_macs(world, device)
            outlets.append(Outlet(device.name, origin.mac, tuple(EVERYTHING.values()), macs=macs))
    return tuple(outlets)


def likely_outlets(
    world: World, roles: Roles, policy: Policy, record: Record, without: Collection[str] = ()
) -> tuple[Outlet, ...]:
    """The interfaces to try while no service has answered yet, the most likely ones first.

    Those on NICs with a MAC in `without` are left out.
    """
    known = _Known(policy, record, roles.choice.belief)
    candidates = []
    for device in world.devices.values():
        macs = _usable_nics(world, roles, device)
        if macs and not macs & {*without}:
            candidates.append(_candidate_of(device, macs, world, known))
    ordered = sorted(filter(None, candidates), key=lambda candidate: candidate.order)
    tried = (candidate for candidate in ordered if _is_tried(candidate, ordered[0]))
    if policy.management:
        tried = (candidate for candidate in ordered if candidate.rank == NAMED)
    return tuple(_outlet_of(candidate, world) for candidate in tried)


def _is_tried(candidate: _Candidate, best: _Candidate) -> bool:
    """Whether the candidate is tried beside the best one.

    No other NIC is, if only a route or the order of the bus makes the best one likely. A candidate
    of the rank ROUTED is always tried: a URL that an administrator has set may lead there.
    """
    if candidate.rank == UNVOUCHED:
        return best.rank >= FIRST
    if candidate.rank != best.rank or best.rank <= RECORDED:
        return candidate.rank in (best.rank, ROUTED)
    return candidate.rank == ROUTED or bool(candidate.nics & best.nics)


def _outlet_of(candidate: _Candidate, world: World) -> Outlet:
    """The outlet with the networks behind it.

    If only its routes make it a candidate, only routes and addresses of administrators count.
    """
    device, is_likely = candidate.device, candidate.rank < ROUTED
    networks = [LINK_LOCAL] if is_likely else []
    networks += [
        route.to
        for route in topology.routes_through(world, [device.index])
        if is_likely or route_provenance(route, world) in (ADMINISTRATOR, KERNEL)
    ]
    mac, is_vouched = outlet_identity(world, device), candidate.rank != UNVOUCHED
    macs = _all_macs(world, device)
    return Outlet(device.name, mac, tuple(networks), is_likely, is_vouched, macs=macs)


def outlet_identity(world: World, device: Device) -> str:
    """The MAC of the NIC below the interface, and its VLAN ID; empty without a NIC."""
    mac = min(topology.nics_below(world, [device.index]), default="")
    return f"{mac}.{device.vlan_id}" if mac and device.kind == "vlan" else mac


def _all_macs(world: World, device: Device) -> frozenset[str]:
    """Its own address, and the present and permanent ones of everything below it."""
    lowers = (
        world.devices.get(index) for index in topology.with_lower_devices(world, [device.index])
    )
    macs = {mac for lower in lowers if lower for mac in (lower.mac, topology.identity(lower))}
    return identity_forms(filter(None, macs))


def _usable_nics(world: World, roles: Roles, device: Device) -> frozenset[str]:
    """The MACs of the NICs below it; empty if one is dataplane or ignored, or the link is ours."""
    nics = topology.nics_below(world, [device.index])
    lowers = topology.with_lower_devices(world, [device.index])
    current = {world.devices[index].mac for index in lowers if index in world.devices}
    is_ours = not lowers.isdisjoint(device.index for device in roles.made.devices.values())
    is_refused = {"dataplane", "ignored"} & {roles.role(mac) for mac in nics | current}
    if is_ours or is_refused or roles.waiting_nics & nics or device.master or not device.up:
        return frozenset()
    return nics


def _candidate_of(
    device: Device, nics: frozenset[str], world: World, known: _Known
) -> Optional[_Candidate]:
    """The interface with its rank; None if it has neither a route nor an address."""
    rank = known.rank(nics)
    if rank <= RECORDED:
        return _Candidate(device, nics, rank)
    routes = [*topology.routes_through(world, [device.index])]
    if not routes and not world.addresses.get(device.index):
        return None
    manual = [route for route in routes if route_provenance(route, world) == ADMINISTRATOR]
    rank_by_routes, metric = _rank_by_routes(manual)
    return _Candidate(device, nics, min(rank, rank_by_routes), metric)


def _rank_by_routes(routes: Collection[Route]) -> tuple[int, int]:
    """The rank and metric of an interface with these routes, which administrators have set."""
    defaults = [route for route in routes if route.is_default]
    metrics = [route.metric for route in defaults if route.to.version == 4]
    if metrics:
        return DEFAULT_ROUTE, min(metrics)
    if defaults or any(map(_leads_to_service, routes)):
        return HOST_ROUTE, 0
    return ROUTED, 0


def _leads_to_service(route: Route) -> bool:
    """Whether the route is specific to the service, unlike 169.254.0.0/16, which is common."""
    is_specific = route.via is not None or route.to.prefixlen == route.to.max_prefixlen
    return is_specific and topology.METADATA_HOSTS[0] in route.to
