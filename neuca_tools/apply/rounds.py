"""Which operations of a plan a pass carries out: not those that were done or failed, nor those that wait for room on the disk.

While the state cannot be saved, what a NIC lacks is added: it is lost at the next boot in any case, as the kernel's state is.
What it would lose stays: the old state on the disk would bring it back at the next boot.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neuca_tools.apply.execute import Result
from neuca_tools.desired.device_settings import restorable
from neuca_tools.desired.router_advertisements import lasting
from neuca_tools.model import Link, World
from neuca_tools.plan.device_operation import SetDevice
from neuca_tools.plan.link_operations import DeleteLink, SetMaster
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import (
    AddAddress,
    DeleteAddress,
    DeleteRoute,
    Tell,
    Unmanage,
    WriteFile,
)


def unfinished(left: Sequence[Operation], result: Result) -> tuple[Operation, ...]:
    """What is still to do, less what failed already, and less the files and managers that cost no NIC anything."""
    failed = {identity(failure.operation)[:2] for failure in result.failures}
    return tuple(
        operation
        for operation in left
        if not operation.domains & result.lost_nics
        and not isinstance(operation, (WriteFile, Unmanage, Tell))
        and identity(operation)[:2] not in failed
    )


def identity(operation: Operation) -> tuple[object, ...]:
    """What tells one operation from another, whatever the value was before."""
    before, after = operation.change
    kind = operation.kind
    if isinstance(operation, SetDevice):
        kind = f"{kind} {operation.group}"
    return kind, operation.target, before if after is None else after


def as_it_was(link: Link, world: World) -> Link:
    """Without the addresses that the kernel gives a link by itself, nor what cannot be put back."""
    return replace(link, device=restorable(link.device), addresses=lasting(link, world))


def waiting(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """What waits until the state can be saved: whatever takes something away.

    A NIC that would lose a VLAN, its place in a bond, or an address to another NIC waits as a whole: what the plan has for it
    counts on that.
    """
    leaving = [one for one in operations if isinstance(one, DeleteAddress)]
    held = {
        mac
        for one in operations
        if isinstance(one, DeleteLink)
        or (isinstance(one, SetMaster) and one.before)
        or (isinstance(one, AddAddress) and _moves(one, leaving))
        for mac in one.fate
    }
    while True:  # with a NIC waits what it is put together with
        more = {mac for one in operations if one.fate & held for mac in one.fate} - held
        if not more:
            break
        held |= more
    return tuple(
        one
        for one in operations
        if one.fate & held or isinstance(one, (DeleteAddress, DeleteRoute, DeleteLink))
    )


def _moves(added: AddAddress, leaving: Sequence[DeleteAddress]) -> bool:
    return any(one.address.ip == added.address.ip and one.on.key != added.on.key for one in leaving)
