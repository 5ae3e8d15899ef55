"""The decision of a pass: what it has to read, the desired state, and the plan that leads there.

No later stage reads from the host: `Interest` is what a look reads, an `Observation` its result.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Optional

from neuca_tools.apply.observe import observed_state
from neuca_tools.desired import coverage, dhcp_requests, manager_files, router_advertisements
from neuca_tools.desired.common_settings import OF_EACH_LINK
from neuca_tools.desired.dhcp_files import MANAGERS, link_of_label
from neuca_tools.desired.manager_files import Places
from neuca_tools.desired.resolve import Resolution, Settings, resolve_state
from neuca_tools.documents.neuca.link_settings import SETTINGS, group_of, groups_through
from neuca_tools.documents.platform import BY_NAME
from neuca_tools.model import (
    IPV6_MTU,
    OWN,
    Document,
    Hop,
    Host,
    LinkKey,
    LinkRequest,
    NetworkState,
    OwnedObjects,
    Problem,
    Record,
    World,
)
from neuca_tools.model.ports import is_guid, short_guid
from neuca_tools.model.routing import MAIN_TABLE, POLICY_ROUTING, ROUTES_OF
from neuca_tools.model.topology import METADATA_HOSTS, key_of
from neuca_tools.plan.operation import Plan, Scope
from neuca_tools.plan.plan import plan_operations
from neuca_tools.state import changes, leftovers, updates
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.layer import TuningInputs, judge_profiles

ANY_LINK = LinkKey("")
"""The key of requests for NICs by a name pattern, which may be about any NIC."""


class Interest(NamedTuple):
    """What has to be read for one decision.

    `hosts`: addresses whose route is requested. `sysctls`: paths of settings of the whole host.
    `templates`: for each link the sysctls that its requests name. `groups`: for each link the
    groups of device settings. `advertised`: whether devices that take router advertisements matter.
    """

    hosts: tuple[Host, ...]
    sysctls: frozenset[str]
    templates: Mapping[LinkKey, frozenset[str]]
    groups: Mapping[LinkKey, frozenset[str]]
    advertised: bool
    choice: Choice

    def sysctls_of(self, world: World) -> set[str]:
        """The paths to read, those of links by the names that their devices have now."""
        paths = {*self.sysctls}
        for device in world.devices.values():
            templates = _applying_to(self.templates, key_of(device, world))
            paths.update(template.replace(OWN, device.name) for template in templates)
        return paths

    def groups_of(self, world: World) -> dict[int, frozenset[str]]:
        """The groups of device settings to read, by the index of the device."""
        if not self.groups:
            return {}
        keys = {index: key_of(device, world) for index, device in world.devices.items()}
        groups = {index: _applying_to(self.groups, key) for index, key in keys.items()}
        return {index: names for index, names in groups.items() if names}


class Observation(NamedTuple):
    """One complete look at the host. `tuning` is what the profiles are judged by."""

    world: World
    tuning: TuningInputs = TuningInputs()


def _applying_to(table: Mapping[LinkKey, frozenset[str]], key: LinkKey) -> frozenset[str]:
    """What is to be read of a link. A document may name it by the short form of its GUID, too."""
    keys = {key, ANY_LINK}
    if is_guid(key.mac):
        keys.add(LinkKey(short_guid(key.mac), key.vlan_id))
    return frozenset().union(*(table[name] for name in keys & table.keys()))


def what_to_read(
    document: Optional[Document],
    links: Iterable[LinkRequest],
    record: Record,
    hosts: Iterable[Host] = (),
    choice: Optional[Choice] = None,
) -> Interest:
    """What has to be read to decide about this document, these configured links and this record."""
    requests = [*links]
    if document is not None:
        requests += [*document.links, *(document.platform.links if document.platform else ())]
    templates, groups = _settings_of(requests, record)
    router = document.router if document else "user"
    forwarded = router_advertisements.forwarding_sysctls(router)
    return Interest(
        hosts=(*hosts, *METADATA_HOSTS),
        sysctls=frozenset((*_host_sysctls(templates), *record.original_sysctls, *forwarded)),
        templates={key: frozenset(paths) for key, paths in templates.items()},
        groups={key: frozenset(names) for key, names in groups.items() if names},
        advertised=router == "true",
        choice=choice or Choice(),
    )


def _host_sysctls(templates: Mapping[LinkKey, Collection[str]]) -> Iterator[str]:
    """The host-wide settings, and those that a new virtual link takes its own from."""
    for key, paths in templates.items():
        yield from (path for path in paths if OWN not in path)
        if key.rank:
            yield from (path.replace(OWN, "default") for path in paths)


def _settings_of(
    requests: Iterable[LinkRequest], record: Record
) -> tuple[dict[LinkKey, set[str]], dict[LinkKey, set[str]]]:
    """The sysctls and device setting groups of each link, requested now or before."""
    templates: dict[LinkKey, set[str]] = defaultdict(set)
    groups: dict[LinkKey, set[str]] = defaultdict(set)
    for request in requests:
        key = ANY_LINK if request.key.mac.startswith(BY_NAME) else request.key
        templates[key].update(template for template, _ in request.sysctls)
        templates[key].update(OF_EACH_LINK)
        templates[key.nic].update(OF_EACH_LINK)
        groups[key].update(group for group, _ in request.device)
        if request.txqueuelen is not None:
            groups[key].add("qdisc")  # some have a limit of that length
        if request.dns == "per-link":
            groups[key].update(groups_through("resolved", SETTINGS))
    for key, original in record.originals.items():
        templates[key].update(original.sysctls)
        groups[key].update(map(group_of, original.device))
    for key, link in record.made.items():
        templates[key].update(link.sysctls)
        groups[key].update(map(group_of, link.device))
    return templates, groups


class Policies(NamedTuple):
    """The parts of the configuration that a decision depends on."""

    settings: Settings
    places: Places
    choice: Choice = Choice()


@dataclass(frozen=True)
class Difference:
    """The observed and the desired state, and the plan that leads from one to the other.

    Only what is `owned` may be removed. The plan does not depend on the record of the decision.
    """

    observed: NetworkState
    desired: NetworkState
    owned: OwnedObjects
    rename_while_up: bool

    @cached_property
    def whole_plan(self) -> Plan:
        # A pass needs it twice: for what there is to do, and for what the status shows as left.
        return self.plan_for(None)

    def plan_for(self, scope: Scope) -> Plan:
        renames_while_up = self.rename_while_up
        return plan_operations(
            self.observed, self.desired, self.owned, scope=scope, rename_while_up=renames_while_up
        )


class Decision(NamedTuple):
    """What is observed, what is desired, and the record without stale parts."""

    world: World
    record: Record
    resolution: Resolution
    difference: Difference

    @property
    def observed(self) -> NetworkState:
        return self.difference.observed

    @property
    def desired(self) -> NetworkState:
        return self.difference.desired

    def plan(self, scope: Scope = None) -> Plan:
        """The operations that lead to the desired state; with `scope` those on these NICs only."""
        return self.difference.whole_plan if scope is None else self.difference.plan_for(scope)

    def _has_tables(self) -> bool:
        """Whether there are rules, shadows or routes of other tables, present or desired."""
        hops = (*self.observed.hops, *self.desired.hops)
        is_used = any(hop.shadow or (hop.ours and hop.traits.table != MAIN_TABLE) for hop in hops)
        return is_used or bool(self.observed.rules or self.desired.rules)

    def unapplied_scope(self) -> frozenset[str]:
        """The links with a new request and those that have appeared (`changes.changed_scope`)."""
        scope = changes.changed_scope(self.record, self.resolution, self.world)
        present = {hop.identity for hop in self.observed.hops if hop.ours}
        new = {hop.link for hop in self.desired.hops if hop.identity not in present}
        routed = (key for key in new if f"{ROUTES_OF}{key.mac}" in scope)
        return scope | {key.mac for key in routed if not self._can_carry_routes(key)}

    def _can_carry_routes(self, key: LinkKey) -> bool:
        """Whether the link is up with its requested addresses, or is not requested to be."""
        observed, desired = self.observed.links.get(key), self.desired.links[key]
        if observed is None:
            return False
        is_up = desired.state != "up" or observed.state == "up"
        return is_up and set(desired.addresses) <= set(observed.addresses)

    def host_scope(self) -> frozenset[str]:
        """The scope of the part of the document that belongs to no NIC."""
        routes = (f"{ROUTES_OF}{hop.to}" for hop in self._unwanted_routes())
        return changes.host_scope(self.resolution).union(routes)

    def changed(self, left_out: Collection[str] = ()) -> frozenset[str]:
        """The scope of a pass: what is not applied yet; always rules, copied routes and clients.

        Our default route, if it is no longer wanted, gives way to one of the host. `left_out` are
        the parts that this pass does not try.
        """
        # A client of a link that is only down goes on, as what was changed by hand stays.
        present, clients = self.observed.links.keys(), self.observed.clients
        absent = {label for label in clients if link_of_label(label) not in present}
        scope = self.unapplied_scope().difference(left_out) | self.desired.clients.keys() | absent
        if "" in scope:
            scope |= self.host_scope()
        if self._has_tables():
            scope |= {POLICY_ROUTING}
        scope |= {f"{ROUTES_OF}{key.mac}" for key in self.resolution.roles.dhcp.clients}
        scope = scope.union(self._reset_ipv6_mtus())
        ours = (hop.to for hop in self._unwanted_routes() if hop.ours and not hop.to.prefixlen)
        return scope.union(f"{ROUTES_OF}{to}" for to in ours).difference(left_out)

    def enforced(self, left_out: Collection[str]) -> Optional[frozenset[str]]:
        """The scope of a pass that corrects all drift but that of `left_out`; None: everything."""
        if not left_out:
            return None
        nothing_applied = self._replace(record=Record())
        return self.changed(left_out) | nothing_applied.changed(left_out)

    def _reset_ipv6_mtus(self) -> Iterator[str]:
        """The sysctl of each IPv6 MTU that the kernel has reset to the MTU of its link.

        It does so when the link gets its carrier, often after the pass (addrconf_notify).
        """
        for key, wanted in self.desired.links.items():
            current = self.observed.links.get(key, wanted)
            is_reset = current.sysctls.get(IPV6_MTU) == str(current.mtu)
            if current.name and is_reset and IPV6_MTU in wanted.sysctls:
                yield IPV6_MTU.replace(OWN, current.name)

    def _unwanted_routes(self) -> Iterator[Hop]:
        kept = {hop.identity for hop in self.desired.hops}
        return (hop for hop in self.observed.hops if not hop.ours or hop.identity not in kept)


def decide_pass(
    observation: Observation, document: Optional[Document], policies: Policies, record: Record
) -> Decision:
    """Answer every policy question of a pass. Reads nothing and changes nothing."""
    world, inputs = observation
    record = changes.forget_stale(record, world)
    record = manager_files.with_lost_nics(record, world, policies.places)
    tuning = judge_profiles(policies.choice, inputs, record)
    settings = policies.settings._replace(tuning=tuning)
    resolution = resolve_state(document, settings, world, record)
    record = updates.remember_tables(record, resolution)
    marks = manager_files.wanted_files(resolution, record, policies.places, world.files)
    links = {**resolution.desired.links}
    for key in links.keys() & marks.profiles.keys():
        links[key] = links[key]._replace(profile=marks.profiles[key])
    clients = dhcp_requests.client_requests(resolution, record, world, settings.metadata_hosts)
    desired = resolution.desired._replace(
        links=links, files=marks.files, manager_by_file=marks.manager_by_file, clients=clients
    )
    notes = (*resolution.notes, *dhcp_requests.unused_override_notes(resolution))
    resolution = resolution._replace(desired=desired, notes=notes)
    managed = resolution.roles.dhcp.links_of(MANAGERS)
    leased = {key.mac for key in managed if not key.rank}
    dataplane = manager_files.marked_macs(resolution, record) - leased
    record = leftovers.change_nics(record, leased, leaving="")
    record = leftovers.record_leaving(record, resolution.roles.nics, dataplane, world)
    observed = observed_state(resolution, world, record)
    bypasses = coverage.bypassing_routes(resolution.roles, world, observed)
    problems = (*resolution.problems, *bypasses, *_duplicate_problems(observed, desired, world))
    resolution = resolution._replace(problems=problems)
    # networkd marks its addresses in the same way as the kernel.
    quiet = {key for key in resolution.without_advertisements if key not in managed}
    made = router_advertisements.removable_addresses(resolution.removable, observed, world, quiet)
    removable = leftovers.removable_things(made, record, observed, world, resolution.roles)
    difference = Difference(observed, desired, removable, world.rename_while_up)
    return Decision(world, record, resolution, difference)


def _duplicate_problems(
    observed: NetworkState, desired: NetworkState, world: World
) -> Iterator[Problem]:
    """A problem for each requested address that another host has (RFC 4862, 5.4.5)."""
    if not world.duplicate_addresses:
        return
    for key in sorted(desired.links.keys() & observed.links.keys()):
        for address in desired.links[key].addresses:
            if (observed.links[key].index, address) in world.duplicate_addresses:
                text = f"address {address}: not in use, because another host has it (dadfailed)"
                yield Problem("contested", text, key)
