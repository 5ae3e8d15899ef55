"""What was carried out of a plan, what failed, and what is still to do in a further round.

A further round leaves out what failed, and what is postponed because the state cannot be saved.
Without a record on the disk, settings can still be added, because they end with this boot like all
state of the kernel. Nothing is removed: the record on the disk would bring it back after a reboot.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from neuca_tools.desired.device_settings import restorable_values
from neuca_tools.desired.router_advertisements import lasting_addresses
from neuca_tools.documents.neuca.link_settings import PRIMARY, is_of_place
from neuca_tools.model import (
    ACCEPT_RA,
    OWN,
    Link,
    LinkKey,
    NetworkState,
    Record,
    Virtual,
    World,
    WrittenSetting,
)
from neuca_tools.plan.link_operations import CreateLink, DeleteLink, SetDevice, SetMaster
from neuca_tools.plan.operation import Operation, Plan, joined_domains, of_kind
from neuca_tools.plan.operations import (
    AddAddress,
    DeleteAddress,
    ReloadManager,
    Unmanage,
    WriteFile,
    WriteSysctl,
)
from neuca_tools.plan.route_operations import AddRule, DeleteRoute, DeleteRule, ReplaceRoute
from neuca_tools.plan.sides import must_recreate
from neuca_tools.state.store import NO_ROOM


class Failure(NamedTuple):
    """An operation that failed, and why; `errno` is 0 if no system call failed.

    `files`: the number of files that this failure stands for, all with the same reason.
    """

    operation: Operation
    reason: str
    errno: int = 0
    files: int = 1

    @property
    def text(self) -> str:
        if self.files > 1:
            place = f'"{self.operation.target}" among them'
            return f"{self.files} files cannot be written, {place}: {self.reason}"
        return f"{self.operation.text}: {self.reason}"

    @property
    def waits_for_address(self) -> bool:
        """Whether it is a route whose source address the kernel still checks for duplicates."""
        return isinstance(self.operation, ReplaceRoute) and self.errno == errno.EAGAIN

    @property
    def is_unsaved(self) -> bool:
        """Whether it is a file that the file system does not take for now (`NO_ROOM`)."""
        return isinstance(self.operation, WriteFile) and self.errno in NO_ROOM


@dataclass(frozen=True)
class Result:
    """What was done, and what failed; after a NIC's first failure nothing more is done to it.

    `declined` are settings that a device does not support, which do not count as failures.
    `skipped` operations were not tried, because an operation on one of their links had failed.
    """

    done: Plan = ()
    failures: tuple[Failure, ...] = ()
    declined: tuple[Failure, ...] = ()
    skipped: Plan = ()

    def __add__(self, later: Result) -> Result:
        return Result(
            self.done + later.done,
            self.failures + later.failures,
            self.declined + later.declined,
            self.skipped + later.skipped,
        )

    @property
    def nics_to_roll_back(self) -> frozenset[str]:
        """The MACs of the NICs with a serious failure, and of those that were joined to them."""
        stopped = (*self.serious_failures, *self.skipped)
        failed = frozenset().union(*(operation.failing_domains for operation in stopped))
        groups = {operation.failing_domains for operation in self.done} if failed else ()
        return joined_domains(failed, groups)

    @property
    def reported_failures(self) -> tuple[Failure, ...]:
        """The failures to report: a single one for all files that were not saved for one reason."""
        unsaved = Counter(failure.reason for failure in self.failures if failure.is_unsaved)
        return tuple(
            failure._replace(files=unsaved.pop(failure.reason)) if failure.is_unsaved else failure
            for failure in self.failures
            if not failure.is_unsaved or failure.reason in unsaved
        )

    @property
    def tried_operations(self) -> Plan:
        """The operations that were carried out, and those that failed."""
        failed = (failure.operation for failure in (*self.failures, *self.declined))
        return (*self.done, *failed)

    @property
    def serious_failures(self) -> Plan:
        """The failed operations that count as a failure of their NICs."""
        failed = (failure.operation for failure in self.failures if not failure.waits_for_address)
        return tuple(operation for operation in failed if not operation.spares_others)

    @property
    def nics_waiting_for_address(self) -> frozenset[str]:
        """The MACs of the NICs with a route that waits for its source address."""
        waiting = (failure for failure in self.failures if failure.waits_for_address)
        return frozenset().union(*(failure.operation.domains for failure in waiting))

    @property
    def missing_vlans(self) -> frozenset[LinkKey]:
        """The VLANs that could not be created; operations that need them are left out."""
        failed = (failure.operation for failure in self.failures)
        failed_creations = of_kind(failed, CreateLink)
        return frozenset(link.on.key for link in failed_creations if link.spares_others)

    @property
    def refused_settings(self) -> tuple[str, ...]:
        """The handles of settings that were refused (with an errno), to be tried again."""
        failed = (failure.operation for failure in self.failures if failure.errno)
        settings = (WriteSysctl, SetDevice)
        return tuple(sorted({each.own_handle for each in failed if isinstance(each, settings)}))


def without_missing(operations: Iterable[Operation], missing: Iterable[LinkKey]) -> list[Operation]:
    """The operations that need none of the missing links, nor a link that needs one of them."""
    absent, possible = set(missing), []
    for operation in operations:
        if operation.needed.isdisjoint(absent):
            possible.append(operation)
        elif isinstance(operation, CreateLink):
            absent.add(operation.on.key)
    return possible


def unfinished_operations(planned: Sequence[Operation], result: Result) -> Plan:
    """The operations of a new plan to carry out in a further round.

    Left out are what failed, also with another value, what belongs to a NIC to be rolled back or
    needs a VLAN that could not be created, and files and calls to managers, which no round repeats.
    """
    failed = {_kind_and_target(failure.operation) for failure in result.failures}
    rolled_back = result.nics_to_roll_back
    return tuple(
        operation
        for operation in without_missing(planned, result.missing_vlans)
        if not operation.domains & rolled_back
        and not isinstance(operation, (WriteFile, Unmanage, ReloadManager))
        and _kind_and_target(operation) not in failed
    )


def operation_identity(operation: Operation) -> tuple[object, ...]:
    """Equal for operations that leave a target with the same value, or remove the same from it."""
    before, after = operation.change
    return *_kind_and_target(operation), before if after is None else after


def _kind_and_target(operation: Operation) -> tuple[str, str]:
    """What the operation changes: equal for operations that give it different values."""
    kind = operation.kind
    if isinstance(operation, SetDevice):
        kind = f"{kind} {operation.group}"
    elif isinstance(operation, (ReplaceRoute, DeleteRoute)):
        kind = f"{kind} {operation.hop.identity}"
    elif isinstance(operation, (AddRule, DeleteRule)):
        kind = f"{kind} {operation.rule}"
    return kind, operation.target


def restorable_link(link: Link, recorded_request: Optional[Link], world: World) -> Link:
    """The link as a roll-back can restore it.

    `recorded_request` is that of a link that we created.
    Automatic addresses, write-only values and the profile of a network manager are left out.
    """
    if recorded_request is not None and not must_recreate(link, recorded_request):
        requested = recorded_request.virtual
        if link.virtual and requested:
            # With its present members and MAC.
            options = {**dict(requested.options), "mac": link.virtual.option("mac")}
            requested = Virtual(link.virtual.members, requested.parent, tuple(options.items()))
            link = link._replace(virtual=requested)
    link = _without_advertised_sysctls(link, world)
    addresses, place = lasting_addresses(link, world), _port_settings(link, world)
    if addresses == link.addresses and not (link.device or place or link.profile):
        return link
    device = restorable_values({**place, **link.device})
    return link._replace(device=device, addresses=addresses, profile="")


def with_other_settings(link: Link, observed: Link) -> Link:
    """The link before an interrupted pass, with the settings that only the present document names.

    The interrupted pass has neither changed nor noted these. Those of a place in a bond or bridge
    are not among them, as the link may have been elsewhere.
    """
    device = {name: value for name, value in observed.device.items() if not is_of_place(name)}
    device.update(link.device)
    return link._replace(sysctls={**observed.sysctls, **link.sysctls}, device=device)


def without_flushed(before: NetworkState, observed: NetworkState) -> NetworkState:
    """The state to roll back to once network managers have released links.

    Addresses and routes of other programs that are gone since were those of a manager, which sets
    them again if it gets the link back. What is ours is restored, also if a manager has flushed it.
    """

    links = {}
    for key, link in before.links.items():
        foreign, now = link.foreign_addresses, observed.links.get(key, link)
        flushed = foreign.keys() - now.foreign_addresses.keys()
        addresses = tuple(address for address in link.addresses if address not in flushed)
        left = {address: foreign[address] for address in foreign.keys() - flushed}
        links[key] = link._replace(addresses=addresses, foreign_addresses=left)
    present_routes = {*observed.foreign_routes}
    routes = tuple(route for route in before.foreign_routes if route in present_routes)
    return before._replace(links=links, foreign_routes=routes)


def _without_advertised_sysctls(link: Link, world: World) -> Link:
    """The link without values of router advertisements, which the kernel may refuse to write."""
    if link.sysctls.get(ACCEPT_RA, "0") == "0":
        return link
    sysctls = {
        template: world.unadvertised.get(template.replace(OWN, link.name or ""), value)
        for template, value in link.sysctls.items()
    }
    return link._replace(sysctls=sysctls)


def _port_settings(link: Link, world: World) -> dict[str, str]:
    """The settings of the link as a port of its bridge or a member of its bond."""
    device = world.devices.get(link.index)
    if link.master is None or device is None:
        return {}
    place, master = dict(device.port), world.devices.get(device.master)
    if master and master.primary == device.index:
        place[PRIMARY] = "yes"
    return place


def restorable_now(desired: NetworkState, observed: NetworkState, record: Record) -> NetworkState:
    """What the next round of a roll-back can restore of `desired`.

    The kernel gives a bridge the lowest MTU of its ports until somebody sets it
    (br_mtu_auto_adjust), so an MTU that we did not set follows from the ports by itself.
    """
    mtus_by_master = defaultdict(list)
    for link in desired.links.values():
        mtus_by_master[link.master].append(link.mtu or 0)

    links = {}
    for key, link in desired.links.items():
        is_lowest = link.mtu == min(mtus_by_master[key], default=0)
        if key.kind == "bridge" and is_lowest and WrittenSetting("mtu", key) not in record.written:
            link = link._replace(mtu=None)
        links[key] = _restorable_in_master(link, desired, observed)
    return desired._replace(links=links)


def _restorable_in_master(link: Link, desired: NetworkState, observed: NetworkState) -> Link:
    """The link, without what has to wait until it is in its bond, bridge or VRF.

    Its settings as a port or member exist only there. A bond sets the MTU of its members, so that
    of a member has to wait until the bond has its own.
    """
    master = link.master
    if master is None:
        return link
    is_in_master = link.key in observed.links and observed.links[link.key].master == master
    is_settled = is_in_master and _mtu_of(observed, master) == _mtu_of(desired, master)
    if master.kind == "bond" and not is_settled:
        link = link._replace(mtu=None)
    if is_in_master:
        return link
    device = {name: value for name, value in link.device.items() if not is_of_place(name)}
    return link._replace(device=device)


def _mtu_of(state: NetworkState, key: LinkKey) -> Optional[int]:
    return state.links[key].mtu if key in state.links else None


def postponed_operations(operations: Sequence[Operation]) -> Plan:
    """The operations to postpone until the state can be saved: all that remove something.

    If a NIC would lose a VLAN, its place in a bond, or an address to another NIC, its whole plan is
    postponed, and so are those of the NICs joined to it: they rely on the removal.
    """
    deletions = of_kind(operations, DeleteAddress)
    parting = (operation for operation in operations if _takes_apart(operation, deletions))
    domains = frozenset().union(*(operation.failing_domains for operation in parting))
    postponed_nics = joined_domains(domains, {each.failing_domains for each in operations})
    return tuple(
        operation
        for operation in operations
        if operation.failing_domains & postponed_nics
        or isinstance(operation, (DeleteAddress, DeleteRoute, DeleteRule, DeleteLink))
    )


def _takes_apart(operation: Operation, deletions: Sequence[DeleteAddress]) -> bool:
    """Whether it deletes a link, takes one out of a bond or bridge, or moves an address."""
    if isinstance(operation, SetMaster):
        return bool(operation.before)
    if isinstance(operation, AddAddress):
        ip = operation.address.ip
        keys = {deletion.on.key for deletion in deletions if deletion.address.ip == ip}
        return bool(keys - {operation.on.key})
    return isinstance(operation, DeleteLink)
