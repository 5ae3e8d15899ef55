"""Which operations of a plan are carried out in a round.

Operations that failed are left out, and so are those that wait for the disk. While the state cannot
be saved, settings are added to NICs, as the next boot drops them like all state of the kernel.
Nothing is removed: the old state on the disk would bring it back at the next boot.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.apply.execute import without
from neuca_tools.apply.result import Result
from neuca_tools.desired.device_settings import restorable
from neuca_tools.desired.router_advertisements import lasting
from neuca_tools.model import ACCEPT_RA, OWN, Link, Virtual, World
from neuca_tools.plan.link_operations import DeleteLink, SetDevice, SetMaster
from neuca_tools.plan.operation import Operation, joined
from neuca_tools.plan.operations import (
    AddAddress,
    DeleteAddress,
    Tell,
    Unmanage,
    WriteFile,
)
from neuca_tools.plan.route_operations import AddRule, DeleteRoute, DeleteRule, ReplaceRoute
from neuca_tools.plan.sides import is_other


def unfinished(left: Sequence[Operation], result: Result) -> tuple[Operation, ...]:
    """The operations still to do, without failed ones, files, and calls to network managers.

    What needs a VLAN that could not be created is left out too.
    """
    failed = {identity(failure.operation)[:2] for failure in result.failures}
    lost = result.lost_nics
    return tuple(
        operation
        for operation in without(left, result.missing)
        if not operation.domains & lost
        and not isinstance(operation, (WriteFile, Unmanage, Tell))
        and identity(operation)[:2] not in failed
    )


def identity(operation: Operation) -> tuple[object, ...]:
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
    """The link as a roll-back can restore it; `made` is its request, if it is one of ours.

    Automatic addresses, write-only values and the profile of a network manager are left out, and
    so are values that an advertisement may have set: the kernel may refuse them.
    """
    changed = {
        template: world.unadvertised.get(template.replace(OWN, link.name or ""), value)
        for template, value in link.sysctls.items()
    }
    if made is not None and not is_other(link, made):
        link = replace(link, virtual=_as_requested(link, made))
    if link.sysctls.get(ACCEPT_RA, "0") != "0" and changed != link.sysctls:
        link = replace(link, sysctls=changed)
    addresses = lasting(link, world)
    if addresses == link.addresses and not link.device and not link.profile:
        return link
    return replace(link, device=restorable(link.device), addresses=addresses, profile="")


def _as_requested(link: Link, made: Link) -> Optional[Virtual]:
    """What the link is made of by its request, with its present members and MAC."""
    if link.virtual is None or made.virtual is None:
        return link.virtual
    options = {**dict(made.virtual.options), "mac": link.virtual.option("mac")}
    return made.virtual._replace(members=link.virtual.members, options=tuple(options.items()))


def waiting(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations that wait until the state can be saved: all that remove something.

    A NIC that would lose a VLAN, its place in a bond, or an address to another NIC waits as a
    whole, with the NICs that share its fate: the rest of its plan relies on the removal.
    """
    held = _held(operations)
    return tuple(
        one
        for one in operations
        if one.fate & held or isinstance(one, (DeleteAddress, DeleteRoute, DeleteRule, DeleteLink))
    )


def _held(operations: Sequence[Operation]) -> frozenset[str]:
    """The NICs for which nothing can be done now."""
    leaving = [one for one in operations if isinstance(one, DeleteAddress)]
    apart = [one.fate for one in operations if _takes_apart(one, leaving)]
    return joined(frozenset().union(*apart), {one.fate for one in operations})


def _takes_apart(operation: Operation, leaving: Sequence[DeleteAddress]) -> bool:
    """Whether it deletes a link, takes one out of a bond or bridge, or moves an address."""
    if isinstance(operation, SetMaster):
        return bool(operation.before)
    if isinstance(operation, AddAddress):
        return _is_moved(operation, leaving)
    return isinstance(operation, DeleteLink)


def _is_moved(added: AddAddress, leaving: Sequence[DeleteAddress]) -> bool:
    return any(one.address.ip == added.address.ip and one.on.key != added.on.key for one in leaving)
