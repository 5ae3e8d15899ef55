"""What has to be done to get from one state to another: apply, dry run, verify and roll back are four uses of it.

The order within a phase is the order in which this module makes the operations: what is above before what is below on the
way down, the other way round on the way up. What is made of links is made again where it cannot be changed.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Optional

from neuca_tools.desired.device_settings import DEFAULT, to_do
from neuca_tools.model import OWN, Address, Hop, Link, LinkKey, NetworkState, Owned, Virtual
from neuca_tools.plan.device_operation import SetDevice
from neuca_tools.plan.link_operations import CreateLink, DeleteLink, SetMaster
from neuca_tools.plan.operation import Operation, Phase, Target
from neuca_tools.plan.operations import (
    AddAddress,
    DeleteAddress,
    DeleteRoute,
    Rename,
    ReplaceRoute,
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

    `owned` is what may be taken away. `scope` holds the handles (`Operation.handles`) of what may change, None for all.
    `rename_while_up`: the kernel renames a device that is up (6.2 and later); before, it has to go down for it.
    """
    scope = None if scope is None else _widened(frozenset(scope), have, want)
    sides = renamed(have, want, owned, scope, rename_while_up)
    operations = (
        *_files(sides),
        *_marks(sides),
        *_renames(sides),
        *_shrink(sides),
        *_grow(sides),
        *_sysctls(sides),
        *_raise_up(sides),
        *_stale_addresses(sides),
        *_addresses(sides),
        *_routes(sides),
    )
    return in_scope(sorted(operations, key=lambda operation: operation.order), scope)


def in_scope(
    operations: Collection[Operation], scope: Optional[Collection[str]]
) -> tuple[Operation, ...]:
    """The operations that a scope has by one of their handles, and files."""
    return tuple(
        operation
        for operation in operations
        if scope is None
        or isinstance(operation, (WriteFile, Tell))
        or operation.handles & frozenset(scope)
    )


def _widened(scope: frozenset[str], have: NetworkState, want: NetworkState) -> frozenset[str]:
    """With all that is made of what may change."""
    for key in sorted({*have.links, *want.links}, key=lambda key: key.order):
        made = [
            link.virtual
            for link in (have.links.get(key), want.links.get(key))
            if link and link.virtual
        ]
        if any(lower.mac in scope for virtual in made for lower in virtual.lower):
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
    """What goes: routes, members, links; then lower MTUs, the highest links' first; then links that should be down."""
    yield from _stale_routes(sides)
    yield from _taken_out(sides)
    for key in sorted(sides.gone, key=lambda key: key.order, reverse=True):
        target = Target(key, sides.names.get(key, ""), sides.have.links[key].index)
        yield DeleteLink(target)
    for key, found, wanted in reversed(list(sides.both())):
        if found and wanted.mtu and found.mtu and wanted.mtu < found.mtu and not sides.moves(key):
            yield SetMtu(sides.target(key), found.mtu, wanted.mtu, Phase.SHRINK)
    for key, found, wanted in reversed(list(sides.both())):
        if (
            found
            and wanted.state == "down"
            and found.state == "up"
            and key.mac not in sides.bounced
        ):
            yield SetState(sides.target(key), False, Phase.SHRINK)


def _taken_out(sides: Sides) -> Iterator[Operation]:
    """The members that a bond or bridge of ours should not have any more; one that goes itself lets them all go."""
    for key in sorted(sides.have.links):
        master = sides.leaves(key)
        if master and not {master, key} & sides.gone:
            yield SetMaster(sides.target(key), sides.target(master), None, Phase.SHRINK)


def _joined(sides: Sides, master: LinkKey) -> Iterator[Operation]:
    """Its members; one of a bond has to be down for that (bond_enslave)."""
    for key, found, _ in sides.both():
        if sides.joins(key) == master:
            if master.kind == "bond" and found and found.state == "up":
                yield SetState(sides.target(key), False, Phase.VLAN)
            yield SetMaster(sides.target(key), None, sides.target(master))


def _stale_routes(sides: Sides) -> Iterator[Operation]:
    kept = {(hop.to, hop.metric) for hop in sides.want.hops}
    for hop in sides.have.hops:
        stale = hop.ours and sides.owned.routes and (hop.to, hop.metric) not in kept
        stale = stale or hop.left_over or hop.to in sides.want.banned
        if stale and hop.link not in sides.gone:
            yield DeleteRoute(sides.target(hop.link), hop.to, hop.via, hop.metric)


def _stale_addresses(sides: Sides) -> Iterator[Operation]:
    """Old addresses, last of all; but a link has an IPv6 address once only (EEXIST), whatever the length of its prefix."""
    for key, found in sorted(sides.have.links.items()):
        wanted = sides.want.links.get(key)
        kept = set(wanted.addresses) if wanted else set()
        for address in found.addresses:
            if (
                address not in kept
                and (key, address) in sides.owned.addresses
                and key not in sides.gone
            ):
                first = address.version == 6 and address.ip in {one.ip for one in kept}
                yield DeleteAddress(
                    sides.target(key), address, Phase.ADDRESS if first else Phase.RETIRE
                )


def _grow(sides: Sides) -> Iterator[Operation]:
    """NICs: raise the MTU, set the queue and the device. All else: create with the MTU in the same request, or raise it."""
    for key, found, wanted in sides.both():
        phase = Phase.VLAN if key.rank else Phase.NIC
        target = sides.target(key)
        if found is None:
            yield _create(sides, key, wanted)
        if key.kind in ("bond", "bridge"):
            yield from _joined(sides, key)
        raises = (
            found is not None
            and found.mtu is not None
            and wanted.mtu
            and wanted.mtu > found.mtu
            and not sides.moves(key)
        )
        if wanted.mtu and (raises or (found is None and key.kind == "bridge")):
            yield SetMtu(target, found.mtu if found else None, wanted.mtu, phase)
        before = found.txqueuelen if found else None
        if wanted.txqueuelen is not None and wanted.txqueuelen != before:
            yield SetTxQueueLen(target, before, wanted.txqueuelen, phase)
        for group, old, new in to_do(found.device if found else {}, wanted.device):
            # The kernel's own choice goes by net.core.default_qdisc, which has to be set first.
            yield SetDevice(
                target,
                group,
                old,
                new,
                Phase.UP if new.get("qdisc", "").startswith(DEFAULT) else phase,
            )


def _create(sides: Sides, key: LinkKey, wanted: Link) -> Operation:
    """A bridge gets its MTU once it has its ports: the kernel sets it with each that comes, until somebody has said one."""
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
    """The kernel reads `02` and writes back `2`: numbers are compared as numbers."""
    if found is None:
        return False
    words = [
        [str(int(word)) if word.isdecimal() else word for word in value.split()]
        for value in (found, wanted)
    ]
    return words[0] == words[1]


def _raise_up(sides: Sides) -> Iterator[Operation]:
    for key, found, wanted in sides.both():
        is_up = found is not None and found.state == "up"
        bounced = is_up and sides.bounces(key) and wanted.state != "down"
        if bounced or (wanted.state == "up" and not is_up):
            yield SetState(sides.target(key), True)
        elif wanted.state == "down" and key.vlan_id is not None and sides.comes_up(key.nic):
            yield SetState(
                sides.target(key), False, Phase.UP
            )  # the kernel brings every VLAN up with its NIC


def _addresses(sides: Sides) -> Iterator[Operation]:
    for key, found, wanted in sides.both():
        lost = sides.goes_down(key)
        kept = (
            {address for address in found.addresses if not (lost and address.version == 6)}
            if found
            else set()
        )
        for address in _asked(key, found, wanted, sides.owned, lost):
            if address not in kept:
                yield AddAddress(sides.target(key), address, address in wanted.addresses)


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


def _routes(sides: Sides) -> Iterator[Operation]:
    ours = {(hop.to, hop.metric): hop for hop in sides.have.hops if hop.ours}
    for hop in sides.want.hops:
        before = ours.get((hop.to, hop.metric))
        if hop.link not in sides.names or not sides.there(hop.link):
            continue
        if (
            before is None
            or _differs(before, hop)
            or before.link in sides.gone
            or sides.goes_down(hop.link)
        ):
            kept = before and _differs(before, hop) and before.link not in sides.gone
            leaves = sides.target(before.link) if before and kept else None
            yield ReplaceRoute(
                sides.target(hop.link),
                hop.to,
                hop.via,
                hop.metric,
                leaves,
                before.via if before else None,
            )


def _differs(before: Hop, hop: Hop) -> bool:
    return (before.link, before.via) != (hop.link, hop.via)
