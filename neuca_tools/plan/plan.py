"""The operations that lead from one state to another, for apply, dry run, verification and roll-back.

Within a phase, operations run in the order in which this module creates them: upper devices first
to shrink, lower devices first to grow. A virtual link that cannot be changed is recreated.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Optional

from neuca_tools.desired.device_settings import DEFAULT, to_do
from neuca_tools.model import OWN, Address, Link, LinkKey, NetworkState, Owned, Virtual
from neuca_tools.plan import route_steps
from neuca_tools.plan.device_operation import SetDevice
from neuca_tools.plan.link_operations import CreateLink, DeleteLink, SetMaster
from neuca_tools.plan.operation import Operation, Phase, Target
from neuca_tools.plan.operations import (
    AddAddress,
    DeleteAddress,
    Rename,
    SetMtu,
    SetState,
    SetTxQueueLen,
    Tell,
    Unmanage,
    WriteFile,
    WriteSysctl,
)
from neuca_tools.plan.sides import Sides, renamed

NOTHING = Owned()


def plan(
    have: NetworkState,
    want: NetworkState,
    owned: Owned = NOTHING,
    *,
    scope: Optional[Collection[str]] = None,
    rename_while_up: bool = True,
) -> tuple[Operation, ...]:
    """Every operation that leads from `have` to `want`, in order.

    `owned` is what may be removed. `scope` holds the handles (`Operation.handles`) of what may
    change, None for everything. `rename_while_up`: the kernel renames devices that are up (Linux 6.2
    and later); without it, they are taken down for that.
    """
    scope = None if scope is None else _widened(frozenset(scope), have, want)
    sides = renamed(have, want, owned, scope, rename_while_up)
    stale = list(route_steps.stale_routes(sides))
    late = [one for one in stale if one.order > Phase.SHRINK]
    operations = (
        *_files(sides),
        *_marks(sides),
        *_renames(sides),
        *(one for one in stale if one not in late),
        *_shrink(sides),
        *_grow(sides),
        *_sysctls(sides),
        *_raise_up(sides),
        *route_steps.rules(sides),
        *_stale_addresses(sides),
        *late,
        *_addresses(sides),
        *route_steps.routes(sides),
    )
    ordered = sorted(operations, key=lambda operation: operation.order)
    return route_steps.possible(in_scope(ordered, scope), have)


def in_scope(
    operations: Collection[Operation], scope: Optional[Collection[str]]
) -> tuple[Operation, ...]:
    """The operations with a handle in the scope, and those on files."""
    return tuple(
        operation
        for operation in operations
        if scope is None
        or isinstance(operation, (WriteFile, Tell))
        or operation.handles & frozenset(scope)
    )


def _widened(scope: frozenset[str], have: NetworkState, want: NetworkState) -> frozenset[str]:
    """The scope with the virtual links on top of what may change."""
    for key in sorted({*have.links, *want.links}, key=lambda key: key.order):
        for link in (have.links.get(key), want.links.get(key)):
            lowers = link.virtual.lower if link and link.virtual else ()
            if any(lower.mac in scope for lower in lowers):
                scope |= {key.mac}
    return scope


def _files(sides: Sides) -> Iterator[Operation]:
    for path, content in sorted(sides.want.files.items()):
        before = sides.have.files.get(path)
        if before != content:
            yield WriteFile(path, content, None if before is None else len(before))


def _marks(sides: Sides) -> Iterator[Operation]:
    for key, found, wanted in sides.both():
        for manager, word in sorted(wanted.managers.items()):
            if found and word == "unmanaged" and found.managers.get(manager) == "managed":
                yield Unmanage(Target(key, found.name or "", found.index), manager)
    told = {
        manager
        for path, manager in sides.want.tell.items()
        if path in sides.have.tell
        and (sides.have.files.get(path) != sides.want.files.get(path) or not sides.have.tell[path])
    }
    yield from (Tell(manager) for manager in sorted(told))


def _renames(sides: Sides) -> Iterator[Operation]:
    down: set[LinkKey] = set()
    for step in sides.steps:
        found = sides.have.links[step.key]
        target = Target(step.key, step.old, found.index)
        if step.key.mac in sides.bounced and found.state == "up" and step.key not in down:
            down.add(step.key)
            yield SetState(target, False, Phase.RENAME)
        yield Rename(target, step.new)


def _shrink(sides: Sides) -> Iterator[Operation]:
    """Remove members and links; then lower MTUs, upper devices first; then take links down."""
    yield from _taken_out(sides)
    for key in sorted(sides.gone, key=lambda key: key.order, reverse=True):
        target = Target(key, sides.names.get(key, ""), sides.have.links[key].index)
        yield DeleteLink(target)
    for key, found, wanted in reversed(list(sides.both())):
        if found and wanted.mtu and found.mtu and wanted.mtu < found.mtu and not sides.moves(key):
            yield SetMtu(sides.target(key), found.mtu, wanted.mtu, Phase.SHRINK)
    for key, found, wanted in reversed(list(sides.both())):
        goes_down = found and found.state == "up" and wanted.state == "down"
        if goes_down and key.mac not in sides.bounced:
            yield SetState(sides.target(key), False, Phase.SHRINK)


def _taken_out(sides: Sides) -> Iterator[Operation]:
    """Remove members from our bonds and bridges; deleting a bond or bridge releases its members by itself."""
    for key in sorted(sides.have.links):
        master = sides.leaves(key)
        if master and not {master, key} & sides.gone:
            yield SetMaster(sides.target(key), sides.target(master), None, Phase.SHRINK)


def _joined(sides: Sides, master: LinkKey) -> Iterator[Operation]:
    """Add members; a member of a bond has to be down for that (bond_enslave)."""
    for key, found, _ in sides.both():
        if sides.joins(key) == master:
            if master.kind == "bond" and found and found.state == "up":
                yield SetState(sides.target(key), False, Phase.VLAN)
            yield SetMaster(sides.target(key), None, sides.target(master))


def _stale_addresses(sides: Sides) -> Iterator[Operation]:
    """Delete addresses, last of all, except before an IPv6 address is added again with another prefix length (EEXIST)."""
    for key, found in sorted(sides.have.links.items()):
        if key in sides.gone:
            continue
        wanted = sides.want.links.get(key)
        kept = set(wanted.addresses) if wanted else set()
        for address in found.addresses:
            if address in kept or (key, address) not in sides.owned.addresses:
                continue
            first = address.version == 6 and address.ip in {one.ip for one in kept}
            phase = Phase.ADDRESS if first else Phase.RETIRE
            yield DeleteAddress(sides.target(key), address, phase)


def _grow(sides: Sides) -> Iterator[Operation]:
    """Create links, raise the MTU, set queue length and device settings; lower devices first."""
    for key, found, wanted in sides.both():
        if found is None:
            yield _create(sides, key, wanted)
        if key.kind in ("bond", "bridge"):
            yield from _joined(sides, key)
        yield from _raised_mtu(sides, key, found, wanted)
        yield from _queue_and_device(sides, key, found, wanted)


def _grow_phase(key: LinkKey) -> Phase:
    return Phase.VLAN if key.rank else Phase.NIC


def _raised_mtu(
    sides: Sides, key: LinkKey, found: Optional[Link], wanted: Link
) -> Iterator[Operation]:
    """A new link is created with its MTU, except for a bridge."""
    if not wanted.mtu:
        return
    if found is None:
        if key.kind == "bridge":
            yield SetMtu(sides.target(key), None, wanted.mtu, _grow_phase(key))
    elif found.mtu is not None and wanted.mtu > found.mtu and not sides.moves(key):
        yield SetMtu(sides.target(key), found.mtu, wanted.mtu, _grow_phase(key))


def _queue_and_device(
    sides: Sides, key: LinkKey, found: Optional[Link], wanted: Link
) -> Iterator[Operation]:
    target, phase = sides.target(key), _grow_phase(key)
    before, device = (found.txqueuelen, found.device) if found else (None, {})
    if wanted.txqueuelen is not None and wanted.txqueuelen != before:
        yield SetTxQueueLen(target, before, wanted.txqueuelen, phase)
    for group, old, new in to_do(device, wanted.device):
        # The default qdisc is net.core.default_qdisc, which has to be set first.
        late = new.get("qdisc", "").startswith(DEFAULT)
        yield SetDevice(target, group, old, new, Phase.UP if late else phase)


def _create(sides: Sides, key: LinkKey, wanted: Link) -> Operation:
    """Create the link with its MTU. A bridge gets its MTU after its ports, each of which changes it."""
    virtual = wanted.virtual or Virtual()
    below = key.nic if key.vlan_id is not None else virtual.parent
    mtu = None if key.kind == "bridge" else wanted.mtu
    return CreateLink(sides.target(key), virtual, sides.target(below) if below else None, mtu)


def _sysctls(sides: Sides) -> Iterator[Operation]:
    for path, value in sorted(sides.want.sysctls.items()):
        if not _same(sides.have.sysctls.get(path), value):
            yield WriteSysctl(path, sides.have.sysctls.get(path), value)
    for key, found, wanted in sides.both():
        target = sides.target(key)
        before = found.sysctls if found else {}
        for template, value in sorted(wanted.sysctls.items()):
            if not _same(before.get(template), value):
                yield WriteSysctl(
                    template.replace(OWN, target.name), before.get(template), value, target
                )


def _same(found: Optional[str], wanted: str) -> bool:
    """Whether two values of a sysctl are equal. Numbers are compared as numbers: the kernel reads `02` and shows `2`."""
    return found is not None and list(_words(found)) == list(_words(wanted))


def _words(value: str) -> Iterator[str]:
    for word in value.split():
        yield str(int(word)) if word.isdecimal() else word


def _raise_up(sides: Sides) -> Iterator[Operation]:
    for key, found, wanted in sides.both():
        is_up = found is not None and found.state == "up"
        bounced = is_up and sides.bounces(key) and wanted.state != "down"
        if bounced or (wanted.state == "up" and not is_up):
            yield SetState(sides.target(key), True)
        elif wanted.state == "down" and key.vlan_id is not None and sides.comes_up(key.nic):
            # The kernel sets every VLAN up with its NIC.
            yield SetState(sides.target(key), False, Phase.UP)


def _addresses(sides: Sides) -> Iterator[Operation]:
    for key, found, wanted in sides.both():
        lost = sides.goes_down(key)
        present = found.addresses if found else ()
        kept = {address for address in present if not (lost and address.version == 6)}
        for address in _asked(key, found, wanted, sides.owned, lost):
            if address not in kept:
                bare = address in wanted.bare
                yield AddAddress(sides.target(key), address, address in wanted.addresses, bare)


def _asked(
    key: LinkKey, found: Optional[Link], wanted: Link, owned: Owned, lost: bool
) -> tuple[Address, ...]:
    """The addresses to assert: those asked for, and the user's own IPv6 ones if this plan makes the kernel drop them."""
    if not (lost and found) or wanted.master:
        return wanted.addresses
    theirs = (
        address
        for address in found.addresses
        if address.version == 6
        and not address.is_link_local
        and (key, address) not in owned.addresses
    )
    return (*wanted.addresses, *(address for address in theirs if address not in wanted.addresses))
