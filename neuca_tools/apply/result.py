"""What was carried out of a plan, what failed, and what is still to do in a further round.

Operations that failed are left out then, and so are those that wait for the disk. While the state
cannot be saved, settings are added to NICs, as the next boot drops them like all state of the
kernel. Nothing is removed: the old state on the disk would bring it back at the next boot.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
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
    Written,
)
from neuca_tools.plan.link_operations import CreateLink, DeleteLink, SetDevice, SetMaster
from neuca_tools.plan.operation import Operation, joined_domains, of_kind
from neuca_tools.plan.operations import (
    Activate,
    AddAddress,
    ClientOperation,
    DeleteAddress,
    Tell,
    Unmanage,
    WriteFile,
    WriteSysctl,
)
from neuca_tools.plan.route_operations import (
    AddRule,
    DeleteRoute,
    DeleteRule,
    ReplaceRoute,
    RestoreRoute,
)
from neuca_tools.plan.sides import is_other
from neuca_tools.state.store import NO_ROOM

HARMLESS = (
    Unmanage,
    Activate,
    WriteSysctl,
    SetDevice,
    AddRule,
    DeleteRule,
    RestoreRoute,
    ClientOperation,
)
"""Operations whose failure does not count as a failure of the NIC."""


class Failure(NamedTuple):
    """An operation that failed, and why; `files`: it stands for so many that failed alike."""

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
    def is_early(self) -> bool:
        """Whether it is a route whose source address is not in use yet."""
        return isinstance(self.operation, ReplaceRoute) and self.errno == errno.EAGAIN

    @property
    def is_unsaved(self) -> bool:
        """Whether it is a file for which there is no room."""
        return isinstance(self.operation, WriteFile) and self.errno in NO_ROOM


@dataclass(frozen=True)
class Result:
    """What was done, and what failed; after a NIC's first failure nothing more is done to it.

    `declined` are settings that a device does not support, which is no failure. `skipped` was not
    tried, because one of its links had failed.
    """

    done: tuple[Operation, ...] = ()
    failures: tuple[Failure, ...] = ()
    declined: tuple[Failure, ...] = ()
    skipped: tuple[Operation, ...] = ()

    def __add__(self, later: Result) -> Result:
        return Result(
            self.done + later.done,
            self.failures + later.failures,
            self.declined + later.declined,
            self.skipped + later.skipped,
        )

    @property
    def lost_nics(self) -> frozenset[str]:
        """The MACs of the NICs that have to be rolled back, with the NICs that they were joined to.

        Sysctls, device settings and calls to NetworkManager fail alone.
        """
        lost = frozenset().union(
            *(operation.fate for operation in (*self.serious_failures, *self.skipped))
        )
        return joined_domains(lost, {operation.fate for operation in self.done} if lost else ())

    @property
    def reasons(self) -> tuple[Failure, ...]:
        """The failures to report: one for all files that could not be written for one reason."""
        unsaved = Counter(failure.reason for failure in self.failures if failure.is_unsaved)
        return tuple(
            failure._replace(files=unsaved.pop(failure.reason)) if failure.is_unsaved else failure
            for failure in self.failures
            if not failure.is_unsaved or failure.reason in unsaved
        )

    @property
    def tried_operations(self) -> tuple[Operation, ...]:
        """The operations that were carried out, and those that failed."""
        failed = (failure.operation for failure in (*self.failures, *self.declined))
        return (*self.done, *failed)

    @property
    def serious_failures(self) -> tuple[Operation, ...]:
        """The failed operations that count as a failure of their NICs."""
        failed = (failure.operation for failure in self.failures if not failure.is_early)
        return tuple(operation for operation in failed if not _is_harmless(operation))

    @property
    def early_nics(self) -> frozenset[str]:
        """The MACs of the NICs with a route that could not be set yet."""
        early = (failure.operation.domains for failure in self.failures if failure.is_early)
        return frozenset().union(*early)

    @property
    def missing(self) -> frozenset[LinkKey]:
        """The VLANs that could not be created; what needs them is left out."""
        failed = (failure.operation for failure in self.failures)
        created = of_kind(failed, CreateLink)
        return frozenset(link.on.key for link in created if link.spares_others)

    @property
    def to_retry(self) -> tuple[str, ...]:
        """The paths of the sysctls that the kernel refused.

        Values that another program changed again are not retried.
        """
        refused = {
            failure.operation.path
            for failure in self.failures
            if isinstance(failure.operation, WriteSysctl) and failure.errno
        }
        return tuple(sorted(refused))


def _is_harmless(operation: Operation) -> bool:
    if isinstance(operation, CreateLink):
        return operation.spares_others
    return isinstance(operation, HARMLESS)


def without_missing(
    operations: Iterable[Operation], missing: Collection[LinkKey]
) -> list[Operation]:
    """The operations that need none of the missing links, nor a link that needs one of them."""
    gone, left = set(missing), []
    for operation in operations:
        if operation.needed.isdisjoint(gone):
            left.append(operation)
        elif isinstance(operation, CreateLink):
            gone.add(operation.on.key)
    return left


def unfinished_operations(left: Sequence[Operation], result: Result) -> tuple[Operation, ...]:
    """The operations still to do, without failed ones, files, and calls to network managers.

    What needs a VLAN that could not be created is left out too.
    """
    failed = {operation_identity(failure.operation)[:2] for failure in result.failures}
    lost = result.lost_nics
    return tuple(
        operation
        for operation in without_missing(left, result.missing)
        if not operation.domains & lost
        and not isinstance(operation, (WriteFile, Unmanage, Tell))
        and operation_identity(operation)[:2] not in failed
    )


def operation_identity(operation: Operation) -> tuple[object, ...]:
    """A value that is equal for operations that do the same, whatever they change it from."""
    before, after = operation.change
    kind = operation.kind
    if isinstance(operation, SetDevice):
        kind = f"{kind} {operation.group}"
    elif isinstance(operation, (ReplaceRoute, DeleteRoute)):
        kind = f"{kind} {operation.hop.identity}"
    elif isinstance(operation, (AddRule, DeleteRule)):
        kind = f"{kind} {operation.rule}"
    return kind, operation.target, before if after is None else after


def as_it_was(link: Link, made: Optional[Link], world: World) -> Link:
    """The link as a roll-back can restore it; `made` is its request if we created it.

    Automatic addresses, write-only values and the profile of a network manager are left out, and
    so are values that an advertisement may have set: the kernel may refuse them.
    """
    if made is not None and not is_other(link, made):
        link = replace(link, virtual=_as_requested(link, made))
    if link.sysctls.get(ACCEPT_RA, "0") != "0":
        link = replace(link, sysctls=_unadvertised_sysctls(link, world))
    addresses, place = lasting_addresses(link, world), _place_settings(link, world)
    if addresses == link.addresses and not (link.device or place or link.profile):
        return link
    device = restorable_values({**place, **link.device})
    return replace(link, device=device, addresses=addresses, profile="")


def _unadvertised_sysctls(link: Link, world: World) -> dict[str, str]:
    name, values = link.name or "", world.unadvertised
    return {
        template: values.get(template.replace(OWN, name), value)
        for template, value in link.sysctls.items()
    }


def _place_settings(link: Link, world: World) -> dict[str, str]:
    """The settings of the link's place in a bridge or bond, which end with it."""
    device = world.devices.get(link.index)
    if link.master is None or device is None:
        return {}
    place, master = dict(device.port), world.devices.get(device.master)
    if master and master.primary == device.index:
        place[PRIMARY] = "yes"
    return place


def restorable_now(want: NetworkState, have: NetworkState, record: Record) -> NetworkState:
    """What a roll-back can restore now: each link once it is in its bond or bridge.

    The settings of its place begin with that, and a bond sets the MTU of its members. The kernel
    gives a bridge the lowest MTU of its ports until somebody sets it (br_mtu_auto_adjust).
    """
    port_mtus = defaultdict(list)
    for link in want.links.values():
        port_mtus[link.master].append(link.mtu or 0)
    links = {key: _restorable_link(link, want, have) for key, link in want.links.items()}
    for key, link in links.items():
        follows = key.kind == "bridge" and Written("mtu", key) not in record.written
        if follows and link.mtu == min(port_mtus[key], default=0):
            links[key] = replace(link, mtu=None)
    return want._replace(links=links)


def _restorable_link(link: Link, want: NetworkState, have: NetworkState) -> Link:
    """The link without what it can have only once it is in its bond or bridge."""
    if link.master is None:
        return link
    has_place = link.key in have.links and have.links[link.key].master == link.master
    has_mtu = has_place and _mtu_of(have, link.master) == _mtu_of(want, link.master)
    if link.is_in_bond and not has_mtu:
        link = replace(link, mtu=None)
    if has_place:
        return link
    device = {name: link.device[name] for name in link.device if not is_of_place(name)}
    return replace(link, device=device)


def _mtu_of(state: NetworkState, key: LinkKey) -> Optional[int]:
    return state.links[key].mtu if key in state.links else None


def _as_requested(link: Link, made: Link) -> Optional[Virtual]:
    """What the link is made of by its request, with its present members and MAC."""
    if link.virtual is None or made.virtual is None:
        return link.virtual
    options = {**dict(made.virtual.options), "mac": link.virtual.option("mac")}
    return made.virtual._replace(members=link.virtual.members, options=tuple(options.items()))


def waiting_operations(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations that wait until the state can be saved: all that remove something.

    A NIC that would lose a VLAN, its place in a bond, or an address to another NIC waits as a
    whole, with the NICs that share its fate: the rest of its plan relies on the removal.
    """
    held = _waiting_nics(operations)
    return tuple(
        operation
        for operation in operations
        if operation.fate & held
        or isinstance(operation, (DeleteAddress, DeleteRoute, DeleteRule, DeleteLink))
    )


def _waiting_nics(operations: Sequence[Operation]) -> frozenset[str]:
    """The NICs for which nothing can be done now."""
    leaving = of_kind(operations, DeleteAddress)
    apart = [operation.fate for operation in operations if _takes_apart(operation, leaving)]
    return joined_domains(frozenset().union(*apart), {operation.fate for operation in operations})


def _takes_apart(operation: Operation, leaving: Sequence[DeleteAddress]) -> bool:
    """Whether it deletes a link, takes one out of a bond or bridge, or moves an address."""
    if isinstance(operation, SetMaster):
        return bool(operation.before)
    if isinstance(operation, AddAddress):
        keys = {left.on.key for left in leaving if left.address.ip == operation.address.ip}
        return bool(keys - {operation.on.key})
    return isinstance(operation, DeleteLink)
