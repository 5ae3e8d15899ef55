"""Which NICs are management NICs, and why: by default those through which the guest is reached.

A NIC is a management NIC because it is named (by the configuration, a device tag or the platform's
primary flag), because it is recorded, because the metadata service of this instance has answered
through it, or because of a route that an administrator has set. What a DHCP server or a router has
caused counts only on the NIC that is believed on a first boot (`first_nic`). Every other NIC that
the platform describes is a dataplane NIC, even if its subnet has a gateway or DHCP.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from neuca_tools.desired import first_nic
from neuca_tools.desired.policy import PlatformClaims, Policy
from neuca_tools.model import UNRECORDED, Record, Route, World
from neuca_tools.model.provenance import ADVERTISEMENT, is_automatic, route_provenance
from neuca_tools.model.topology import (
    METADATA_HOSTS,
    best_default_routes,
    identity,
    nics_below,
    nics_in,
)

# Seconds after a boot. NetworkManager tries DHCP four times for 45 s each (NetworkManager.conf(5)),
# the units of systemd-networkd wait 120 s for the network, dhclient tries for 60 s.
MANAGEMENT_DHCP_SECONDS = 360.0

CONFIGURED = "[network] management-macs names it"
RECORDED = "it is recorded as the management NIC"
ANSWERS = "the metadata service of this instance has responded through it"
METADATA = "it carries the route to the metadata service"
DEFAULT = "it carries the default route"
TUNNEL = "it is the first NIC, and a tunnel carries the default route"
FIRST = "it is the first of the NICs with a gateway or DHCP in the platform's document"


class ManagementChoice(NamedTuple):
    """The management NICs, each with the reason.

    `by_automatic_route_only` maps NICs that only automatic default routes make management NICs to
    the address families of those routes (4, 6), `by_document_only` are those that only a document
    makes management NICs. One of the `candidates` will be a management NIC, but nothing on the host
    shows yet which one. `equal_candidates` are NICs that the document does not distinguish from the
    chosen ones. `not_chosen` are further management NICs, which only a route indicates that no DHCP
    server or router has caused. `belief`: the NIC that is believed on a first boot.
    """

    reason_by_mac: Mapping[str, str]
    by_automatic_route_only: Mapping[str, tuple[int, ...]]
    by_document_only: frozenset[str] = frozenset()
    candidates: frozenset[str] = frozenset()
    equal_candidates: frozenset[str] = frozenset()
    not_chosen: frozenset[str] = frozenset()
    belief: first_nic.Belief = first_nic.Belief()


NO_CHOICE = ManagementChoice({}, {})


class ManagementChooser:
    """Compares the signs on the host with the platform's document."""

    def __init__(
        self, world: World, policy: Policy, record: Record, claims: PlatformClaims
    ) -> None:
        self.world, self.policy, self.record, self.claims = world, policy, record, claims
        self._nics_by_index: dict[int, frozenset[str]] = {}
        self.present = {*map(identity, nics_in(world))}
        self.dataplane, self.recorded = record.macs_of("dataplane"), record.macs_of("management")
        self.certain = {mac for mac in self.recorded if not record.nics[mac].doubtful}
        self.gateway_macs = set[str]().union(*claims.gateway_candidates)
        self.belief = self._believed_nic()
        main = [route for route in world.routes if route.is_default]
        self.default_routes = main or self._default_routes_elsewhere()
        # That of a tunnel tells nothing of NICs, and hides the route that its own packets take.
        on_nics = [route for route in self.default_routes if self._nics(route.index)]
        self.has_tunnel = on_nics != self.default_routes
        self.best_routes = best_default_routes(filter(self._is_sign, on_nics))
        self.manual_routes = [*filter(self._is_manual, self.best_routes)]
        self.ipv4_routes = [route for route in self.best_routes if route.to.version == 4]
        self.metadata_macs = self._macs_to_metadata()
        self.proven = self._proven_reasons()
        self.leased_macs = self._macs_by_leased_route()
        self.decided = self._families_of(self.metadata_macs | policy.management | self._origin())
        self.counted_routes = [*filter(self._is_counted, self.best_routes)]

    def outcome(self) -> ManagementChoice:
        """The NICs of one link, and any others that the document does not describe."""
        firm = {**self._beyond_doubt(), **self.proven}
        chosen = self.present & {*firm, *self.claims.marked_as_management} or self._by_routes()
        declared, undecided = dict(self.claims.marked_as_management), frozenset[str]()
        if not chosen:
            chosen, declared, undecided = self._without_routes()
        if not self._has_default(chosen):
            undecided = undecided or self._too_early(chosen)
            chosen |= self._with_the_default(chosen)
        seen = self._seen_reasons(chosen)
        doubtful = seen.keys() - firm.keys() - self._macs_on(self.manual_routes) | self.leased_macs
        return ManagementChoice(
            {**declared, **seen},
            {mac: self._doubtful_families(mac, chosen) for mac in doubtful},
            frozenset(declared.keys() - seen.keys()),
            undecided,
            self._equal_candidates({*seen, *declared}) - undecided,
            frozenset(seen.keys() - chosen - firm.keys() - doubtful),
            self.belief,
        )

    @cached_property
    def tunnel_macs(self) -> set[str]:
        """The NIC that is believed, if a tunnel has a default route."""
        is_below = self.has_tunnel and first_nic.is_addressed(self.world, self.belief.mac)
        return {self.belief.mac} if is_below else set()

    def _believed_nic(self) -> first_nic.Belief:
        """The NIC that is believed; none if a NIC is for management for another reason."""
        known = {*self.policy.management, *self._origin(), *self._beyond_doubt()}
        if known & self.present:
            return first_nic.Belief()
        barred = self.policy.ignored | self.record.released
        candidates = self.present - self.dataplane - barred
        marked = candidates & self.claims.marked_as_management.keys()
        likely = marked or candidates & self.gateway_macs or candidates
        return first_nic.believed_nic(self.world, likely)

    def _default_routes_elsewhere(self) -> list[Route]:
        """Those of other tables, as of a VRF, through NICs known or believed to be management."""
        known = {self.belief.mac, *self.policy.management, *self._origin(), *self.certain}
        routes = (route for route in self.world.other_routes if route.is_default)
        return [route for route in routes if not route.is_ours and known & self._nics(route.index)]

    def _is_sign(self, route: Route) -> bool:
        """Whether the route may show a management NIC, and was not caused by a stranger.

        A lease counts on the NIC that is believed. If that one has no default route after its time,
        or a service has vouched for the document, a lease also counts where the document has DHCP.
        """
        nics = self._nics(route.index)
        if self._is_manual(route) or self.belief.mac in nics:
            return True
        is_documented = bool(nics & self.gateway_macs) and not self._is_advertised(route)
        return is_documented and self._may_trust_hints

    @cached_property
    def _may_trust_hints(self) -> bool:
        if self.belief.mac and self._has_default({self.belief.mac}):
            return False
        return not self.belief.mac or self.world.is_aged(first_nic.LEASE_SECONDS)

    def _without_routes(self) -> tuple[set[str], dict[str, str], frozenset[str]]:
        """The NICs if no route tells them apart, those that are declared, and those in doubt.

        The document's only candidate is declared; of several, it is waited for one to show.
        """
        groups = self._candidate_groups()
        if len(groups) == 1 and groups[0]:
            return {*groups[0]}, dict(groups[0]), frozenset()
        undecided = frozenset().union(*groups)
        if undecided and not self.world.is_aged(MANAGEMENT_DHCP_SECONDS):
            return set(), {}, undecided
        chosen = self._first(filter(self._is_advertised, self.counted_routes))
        declared = {mac: FIRST for group in groups[:1] for mac in group if not chosen}
        return chosen or {*declared}, declared, frozenset()

    def _is_advertised(self, route: Route) -> bool:
        return route_provenance(route, self.world) == ADVERTISEMENT

    def _equal_candidates(self, chosen: Collection[str]) -> frozenset[str]:
        """The other NICs with a gateway or DHCP, unless something stronger than a route decides."""
        if self._is_named() or (self.present & {*self.proven} and self._has_default(self.proven)):
            return frozenset()
        return frozenset(self.gateway_macs - {*chosen})

    def _is_named(self) -> bool:
        """Whether the configuration or the document names a management NIC that is present."""
        return bool(self.present & {*self.policy.management, *self.claims.marked_as_management})

    def _has_default(self, nics: Collection[str]) -> bool:
        return any({*nics} & {*self._nics(route.index)} for route in self.default_routes)

    def _with_the_default(self, chosen: Collection[str]) -> set[str]:
        """The described NICs with the default route, if the chosen ones have none.

        The chosen ones may be on an isolated network with the metadata service; no request may take
        away the default route. If only the record shows them, the others must be in it too.
        """
        if self.service_macs and self.world.is_aged(first_nic.LEASE_SECONDS):
            return {*self.service_macs}
        if not chosen or self._is_named():
            return set()
        nics = self._first([*self.ipv4_routes, *self.manual_routes]) & self.claims.listed
        if self.proven.keys().isdisjoint(chosen):
            nics &= self.recorded
        return nics

    def _too_early(self, chosen: Collection[str]) -> frozenset[str]:
        """The NICs that may still get the default route of this host while nothing has one."""
        if self.service_macs and not self.world.is_aged(first_nic.LEASE_SECONDS):
            return self.service_macs
        if not chosen or self.default_routes or self._is_named():
            return frozenset()
        groups = (group for group in self._candidate_groups() if group.keys().isdisjoint(chosen))
        nics = frozenset[str]().union(*groups)
        return nics if nics and not self.world.is_aged(MANAGEMENT_DHCP_SECONDS) else frozenset()

    # --- signs ---

    def _macs_to_metadata(self) -> frozenset[str]:
        """The NICs that carry the route to the metadata service, if the route proves anything.

        A route from DHCP proves nothing on a NIC for which the document has neither DHCP nor a
        gateway if it has them for other NICs.
        """
        nics = nics_below(self.world, [self.world.metadata_index]) - self.dataplane
        ways = self._ways_to_metadata()
        signs = [*filter(self._is_sign, ways)]
        if (ways and not signs) or (ways and all(map(self._is_advertised, ways))):
            return frozenset()
        agrees = not ways or any(map(self._is_manual, signs)) or self._is_possible(nics)
        return nics if agrees else frozenset()

    def _is_manual(self, route: Route) -> bool:
        return not is_automatic(route, self.world)

    def _ways_to_metadata(self) -> list[Route]:
        """The routes to the metadata service through the device that leads to it."""
        index = self.world.metadata_index
        routes = (route for route in self.world.routes if route.index == index)
        return [route for route in routes if any(host in route.to for host in METADATA_HOSTS)]

    def _macs_by_leased_route(self) -> set[str]:
        """The NICs that only a route from DHCP, which any server can send, shows."""
        nics = {mac for mac, reason in self.proven.items() if reason == METADATA}
        ways = [route for route in self._ways_to_metadata() if route.to.prefixlen]
        if not ways or any(map(self._is_manual, ways)):
            return set()
        known = self._origin() | self._beyond_doubt().keys()
        return nics - known - self._macs_on(self.manual_routes)

    def _origin(self) -> frozenset[str]:
        """The NIC through which the metadata service of this instance has responded."""
        return frozenset({self.policy.origin.partition(".")[0]}) & self.present - self.dataplane

    def _proven_reasons(self) -> dict[str, str]:
        """The NICs that are management beyond doubt, whatever is recorded."""
        if self.policy.management & self.present:
            return dict.fromkeys(self.policy.management, CONFIGURED)
        reasons = dict.fromkeys(self._origin(), ANSWERS)
        if not self.metadata_macs <= self._macs_on(self.best_routes):
            # A route to the service itself, not the default route.
            reasons.update(dict.fromkeys(self.metadata_macs, METADATA))
        return {**reasons, **dict.fromkeys(self.policy.management, CONFIGURED)}

    def _beyond_doubt(self) -> dict[str, str]:
        """The NICs that are recorded as management without a doubt."""
        return {} if self.policy.management else dict.fromkeys(self.certain, RECORDED)

    def _in_doubt(self) -> set[str]:
        """The NICs that are recorded with a doubt that has not ended."""
        doubts = ((mac, self.record.nics[mac].doubtful) for mac in self.recorded - self.certain)
        if self.policy.management:
            return set()
        return {mac for mac, doubt in doubts if not self._has_ended(mac, doubt)}

    def _has_ended(self, mac: str, doubt: Collection[int]) -> bool:
        """Whether another NIC has a better sign in all of these families.

        Of default routes with one metric the kernel uses any whose gateway it can reach
        (fib_select_default): the one that leads to the metadata service for the moment is not
        better than the others.
        """
        is_better = bool(self.proven) or mac not in self._macs_on(self.ipv4_routes)
        return is_better and self.decided.issuperset(doubt)

    @cached_property
    def service_macs(self) -> frozenset[str]:
        """The MACs of the NICs that lead to the metadata service and have the best default route.

        They are for management too if the NIC that the document names has no default route.
        """
        named = self.present & self.claims.marked_as_management.keys()
        if not named or self.policy.management & self.present or self._has_default(named):
            return frozenset()
        ways = best_default_routes(route for route in self.default_routes if route.to.version == 4)
        service = nics_below(self.world, [self.world.metadata_index])
        return service & self._macs_on(ways) - self.dataplane

    def _is_possible(self, nics: Collection[str]) -> bool:
        """Whether an automatic route of these NICs agrees with the document."""
        return not (self.gateway_macs and self.gateway_macs.isdisjoint(nics))

    # --- choices ---

    def _by_routes(self) -> set[str]:
        """The NICs that the best route shows: IPv4 before IPv6, and no advertised route."""
        first = self._first(self.ipv4_routes)
        if first & self._macs_on(filter(self._is_manual, self.ipv4_routes)):
            return first
        return (
            self._in_doubt_here()
            or {*self.metadata_macs}
            or self._first(filter(self._is_counted, self.ipv4_routes))
            or self._first(self.manual_routes)
            or self.tunnel_macs
        )

    def _is_counted(self, route: Route) -> bool:
        """Whether the route shows a management NIC, because its family has no stronger sign."""
        return self._is_manual(route) or route.to.version not in self.decided

    def _first(self, routes: Iterable[Route]) -> set[str]:
        """The NICs of the first of these routes, which is the one that the kernel uses.

        The route to the metadata service shows it. Automatic routes have to agree with the
        document.
        """
        for route in sorted(routes, key=lambda route: route.index != self.world.metadata_index):
            nics = nics_below(self.world, [route.index]) - self.dataplane
            if nics and (self._is_manual(route) or self._is_possible(nics)):
                return {*nics}
        return set()

    def _in_doubt_here(self) -> set[str]:
        """The likeliest of the present NICs that are recorded with a doubt, and all of its link."""
        nics = [mac for mac in self._in_doubt() & self.present if self._is_possible([mac])]
        carriers = self._macs_on(self.best_routes)
        nics.sort(key=lambda mac: (mac not in self.metadata_macs, mac not in carriers, mac))
        lowers = (self._nics(route.index) for route in self.best_routes)
        links = [{*nics[:1]}, *self.claims.gateway_candidates, *lowers]
        return {mac for mac in nics if any({mac, nics[0]} <= {*link} for link in links)}

    def _candidate_groups(self) -> list[Mapping[str, str]]:
        """The links with a gateway or DHCP that may be management; only present ones if any are."""
        listed = self.claims.gateway_candidates
        groups = [group for group in listed if self.dataplane.isdisjoint(group)]
        return [group for group in groups if group.keys() & self.present] or groups

    def _seen_reasons(self, chosen: Collection[str]) -> dict[str, str]:
        """What the host and the configuration show; of the described NICs, only the chosen ones."""
        barred = self.claims.listed.difference(chosen)
        recorded = {**dict.fromkeys(self._in_doubt() - barred, RECORDED), **self._beyond_doubt()}
        carriers = self._macs_on(self.counted_routes) | self.service_macs
        carriers |= self._macs_on(self.best_routes) & {*chosen}
        return {
            **self.proven,
            **recorded,
            **dict.fromkeys(self.metadata_macs - barred, METADATA),
            **dict.fromkeys(carriers - self.dataplane - barred, DEFAULT),
            **dict.fromkeys(self.policy.management, CONFIGURED),
            **dict.fromkeys(self.tunnel_macs & {*chosen}, TUNNEL),
        }

    def _macs_on(self, routes: Iterable[Route]) -> frozenset[str]:
        return nics_below(self.world, (route.index for route in routes))

    def _nics(self, index: int) -> frozenset[str]:
        """The MACs of the NICs of one device, looked up once."""
        if index not in self._nics_by_index:
            self._nics_by_index[index] = nics_below(self.world, [index])
        return self._nics_by_index[index]

    def _doubtful_families(self, mac: str, chosen: Collection[str]) -> tuple[int, ...]:
        """The families whose automatic default route makes it management, now or as recorded."""
        routes = self.counted_routes
        if mac in chosen:
            routes = [route for route in self.best_routes if not self._is_manual(route)]
        now = {route.to.version for route in routes if mac in self._nics(route.index)}
        if mac in self.service_macs:
            now |= {4}
        if mac in self.leased_macs:
            now |= {route.to.version for route in self._ways_to_metadata()}
        before = self.record.nics.get(mac, UNRECORDED).doubtful
        return tuple(sorted(now | ({*before} - self.decided)))

    def _families_of(self, macs: Collection[str]) -> set[int]:
        """The address families whose automatic default routes do not make a NIC management.

        With any other sign of a management NIC that includes IPv6: any host on the link can send
        router advertisements.
        """
        families: set[int] = {
            route.to.version for route in self.default_routes if self._nics(route.index) & {*macs}
        }
        signs = filter(self._is_sign, self.default_routes)
        counted = (route for route in signs if not self._is_advertised(route))
        is_shown = bool(self.certain & self.present or self._macs_on(counted) - self.dataplane)
        return families | ({6} if macs or is_shown else set())
