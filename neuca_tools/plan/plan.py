"""The operations from one state to another, for apply, dry run, verification and roll-back.

Within a phase, operations run in the order in which this module creates them: upper devices first
to shrink, lower devices first to grow. A virtual link that cannot be changed is recreated.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import filterfalse

from neuca_tools.desired.device_settings import to_do
from neuca_tools.desired.dhcp_files import is_our_uuid, link_of_label
from neuca_tools.documents.neuca.link_kinds import MEMBERS
from neuca_tools.documents.neuca.link_settings import IPOIB_MODE, SETTINGS
from neuca_tools.documents.neuca.values import ACCEPT_DAD
from neuca_tools.model import OWN, Address, Link, LinkKey, NetworkState, OwnedObjects, Virtual
from neuca_tools.plan import route_steps
from neuca_tools.plan.link_operations import CreateLink, DeleteLink, MarkLink, SetDevice, SetMaster
from neuca_tools.plan.operation import Operation, Phase, Plan, Scope, Target
from neuca_tools.plan.operations import (
    Activate,
    AddAddress,
    DeleteAddress,
    ReloadManager,
    Rename,
    SetMtu,
    SetState,
    SetTxQueueLen,
    StartClient,
    StopClient,
    Unmanage,
    WriteFile,
    WriteSysctl,
)
from neuca_tools.plan.sides import Sides, sides_after_renames, unrouted_addresses
from neuca_tools.tuning.sysctl_values import is_same_sysctl

NOTHING = OwnedObjects()
# Each port changes the MTU of a bridge; an IPoIB child starts with that of its port.
LATE_MTU_KINDS = ("bridge", "ipoib")


def plan_operations(
    observed: NetworkState,
    desired: NetworkState,
    owned: OwnedObjects = NOTHING,
    *,
    scope: Scope = None,
    rename_while_up: bool = True,
) -> Plan:
    """Every operation that leads from `observed` to `desired`, in order.

    `owned` is what may be removed. `rename_while_up`: the kernel renames devices that are up (Linux
    6.2 and later); without it, they are taken down for that.
    """
    widened = _widened_scope(scope, observed, desired)
    sides = sides_after_renames(observed, desired, owned, widened, rename_while_up)
    stale = list(route_steps.stale_routes(sides))
    late = [operation for operation in stale if operation.phase > Phase.SHRINK]
    operations = (
        *_write_files(sides),
        *_notify_managers(sides),
        *(operation for operation in stale if operation.phase <= Phase.SHRINK),
        *_remove_and_lower(sides),
        *_rename_links(sides),
        *_create_and_raise(sides),
        *_write_sysctls(sides),
        *_raise_up(sides),
        *route_steps.change_rules(sides),
        *_stale_addresses(sides),
        *late,
        *_add_addresses(sides),
        *route_steps.set_routes(sides),
        *route_steps.restore_routes(sides),
        *_change_clients(sides),
    )
    ordered = sorted(operations, key=lambda operation: operation.phase)
    if scope is not None and widened is not None:
        widened = {*widened, *_moving_members(scope, widened, sides)}
    return route_steps.possible_operations(in_scope(ordered, widened), sides)


def in_scope(operations: Collection[Operation], scope: Scope) -> Plan:
    """The operations with a handle in the scope, and those on files and marks."""
    return tuple(
        operation
        for operation in operations
        if scope is None
        or isinstance(operation, (WriteFile, ReloadManager, MarkLink))
        or operation.handles & frozenset(scope)
    )


def _widened_scope(asked: Scope, observed: NetworkState, desired: NetworkState) -> Scope:
    """The scope with the virtual links on top of what may change."""
    if asked is None:
        return None
    scope = {*asked}
    every = (*observed.links.values(), *desired.links.values())
    for link in sorted((link for link in every if link.virtual), key=lambda link: link.key.order):
        if link.virtual and not scope.isdisjoint(lower.mac for lower in link.virtual.lower):
            scope.add(link.key.mac)
    return frozenset(scope)


def _moving_members(asked: Collection[str], scope: Collection[str], sides: Sides) -> Iterator[str]:
    """Links that join or leave what may change itself or is created: no other member changes."""
    for key in {*sides.observed.links, *sides.desired.links}:
        old, new = sides.master_left(key), sides.master_joined(key)
        joins = new and new.mac in scope and (new.mac in asked or not sides.is_present(new))
        if joins or (old and old.mac in asked and old not in sides.deleted):
            yield str(key)


def _write_files(sides: Sides) -> Iterator[Operation]:
    for path, content in sorted(sides.desired.files.items()):
        before = sides.observed.files.get(path)
        if before != content:
            yield WriteFile(path, content, None if before is None else len(before))


def _notify_managers(sides: Sides) -> Iterator[Operation]:
    to_reload = _managers_to_reload(sides.observed, sides.desired)
    manager = "networkmanager"  # networkd releases a link only when it reads its files again
    for _, current, wanted in sides.link_pairs:
        states = current.managers.get(manager), wanted.managers.get(manager)
        if states != ("managed", "unmanaged"):
            continue
        if is_our_uuid(current.profile):
            to_reload.add(manager)  # it releases the NIC when it reads that the profile is gone
        else:
            yield Unmanage(_target_by_present_name(current), manager)
    yield from map(ReloadManager, sorted(to_reload))
    for _, current, wanted in sides.link_pairs:
        if _is_inactive(current, wanted):
            yield Activate(_target_by_present_name(current), wanted.profile)


def _target_by_present_name(link: Link) -> Target:
    """The link, for an operation that is carried out before the renames."""
    return Target(link.key, link.name or "", link.index)


def _is_inactive(current: Link, wanted: Link) -> bool:
    """Whether NetworkManager has to be made to use the profile.

    It uses it by itself on a NIC that it manages and on which it uses no other profile.
    """
    state = current.managers.get("networkmanager")
    if not wanted.profile or state not in ("managed", "unmanaged"):
        return False
    return state == "unmanaged" or current.profile not in ("", wanted.profile)


def _change_clients(sides: Sides) -> Iterator[Operation]:
    observed, desired = sides.observed.clients, sides.desired.clients
    for label in sorted(observed.keys() | desired.keys()):
        key = link_of_label(label)
        if key is None or observed.get(label) == desired.get(label):
            continue
        if label in desired:
            yield StartClient(key, label, desired[label], sides.names.get(key) or str(key))
        else:
            # A protected link is never among the observed ones.
            yield StopClient(key, label, observed[label], key in sides.observed.links)


def _managers_to_reload(observed: NetworkState, desired: NetworkState) -> set[str]:
    """The running managers with a file that changes, or that have to reload it in any case."""
    to_reload = set()
    for path, manager in desired.manager_by_file.items():
        is_changed = observed.files.get(path) != desired.files.get(path)
        if path in observed.manager_by_file and (is_changed or not observed.manager_by_file[path]):
            to_reload.add(manager)
    return to_reload


def _rename_links(sides: Sides) -> Iterator[Operation]:
    up = {*sides.bounced}
    for step in sides.steps:
        target = Target(step.key, step.old, sides.observed.links[step.key].index)
        if step.key in up:
            up.remove(step.key)
            yield SetState(target, False, Phase.RENAME)
        yield Rename(target, step.new)


def _remove_and_lower(sides: Sides) -> Iterator[Operation]:
    """Remove members and links; then lower MTUs, upper devices first; then take links down.

    A link whose name another one gets is deleted before all that.
    """
    yield from _removed_members(sides)
    yield from _deleted_links(sides)
    for _, current, wanted in reversed(sides.link_pairs):
        is_lower = wanted.mtu and current.mtu and wanted.mtu < current.mtu
        if is_lower and sides.is_lowered_first(wanted):
            yield _set_mtu(sides, current, wanted, Phase.SHRINK)
    for key, _, _ in reversed(sides.link_pairs):
        if sides.is_taken_down(key) and not sides.is_bounced(key):
            yield SetState(sides.target(key), False, Phase.SHRINK)


def _deleted_links(sides: Sides) -> Iterator[Operation]:
    new_names = {step.new for step in sides.steps}
    for key in sorted(sides.deleted, key=lambda key: key.order, reverse=True):
        link = sides.observed.links[key]
        phase = Phase.RENAME if link.name in new_names else Phase.SHRINK
        lower = link.virtual.lower if link.virtual else ()
        yield DeleteLink(_target_by_present_name(link), lower, phase)


def _removed_members(sides: Sides) -> Iterator[Operation]:
    """Remove members from our bonds, bridges and VRFs; deleting one releases its members anyway."""
    for key in sorted(sides.observed.links):
        master = sides.master_left(key)
        if master and not {master, key} & sides.deleted:
            yield SetMaster(sides.target(key), sides.target(master), None, Phase.SHRINK)


def _added_members(sides: Sides, master: LinkKey) -> Iterator[Operation]:
    """Add members; a member of a bond has to be down for that (bond_enslave)."""
    for key, current, _ in sides.link_pairs:
        if sides.master_joined(key) == master:
            if master.kind == "bond" and current.state == "up":
                yield SetState(sides.target(key), False, Phase.VLAN)
            mtu = current.mtu if master.kind == "bond" and not key.rank else None  # its original
            yield SetMaster(sides.target(key), None, sides.target(master), mtu=mtu)


def _stale_addresses(sides: Sides) -> Iterator[Operation]:
    """Delete addresses, last of all.

    Those that are added again are deleted before: an IPv6 address with another prefix length,
    whoever has set it (EEXIST), and an IPv4 address that is to get a route to its network
    (devinet.c ignores this). So are all of IPv4 if none remains: the kernel deletes the IPv4 routes
    of the link with the last.
    """
    for key in sorted(sides.observed.links.keys() - sides.deleted):
        observed, desired = sides.current(key), sides.wanted(key)
        for address in unrouted_addresses(observed, desired):
            if address.version == 4:
                yield DeleteAddress(sides.target(key), address, Phase.ADDRESS)
        kept = {*desired.addresses}
        for address in filterfalse(kept.__contains__, observed.addresses):
            is_early = _is_deleted_early(sides, key, address)
            is_ours = (key, address) in sides.owned.addresses
            if is_ours or (is_early and address.version == 6):
                phase = Phase.ADDRESS if is_early else Phase.RETIRE
                yield DeleteAddress(sides.target(key), address, phase)


def _is_deleted_early(sides: Sides, key: LinkKey, address: Address) -> bool:
    if address.version == 4:
        return key in sides.without_ipv4
    return any(own.ip == address.ip for own in sides.wanted(key).addresses)


def _create_and_raise(sides: Sides) -> Iterator[Operation]:
    """Mark and create links, raise MTUs, set queue lengths and devices, lower devices first."""
    for key in sorted(sides.observed.links.keys() - sides.deleted):
        if sides.observed.links[key].unmarked:
            yield MarkLink(sides.target(key))
    for key, current, wanted in sides.link_pairs:
        if not sides.is_present(key):
            yield _create_link(sides, wanted)
        if key.kind in MEMBERS:
            yield from _added_members(sides, key)
        settings = list(_queue_and_device(sides, current, wanted))
        # The kernel changes the MTU with the mode of IPoIB.
        modes = [new for new in settings if getattr(new, "group", "") == IPOIB_MODE]
        yield from modes
        if _is_raised(sides, current, wanted, any_mtu=bool(modes)):
            yield _set_mtu(sides, current, wanted, _grow_phase(key))
        yield from filterfalse(modes.__contains__, settings)


def _grow_phase(key: LinkKey) -> Phase:
    return Phase.VLAN if key.rank else Phase.NIC


def _is_raised(sides: Sides, current: Link, wanted: Link, *, any_mtu: bool) -> bool:
    """Whether to set the MTU. A new link is created with it, if the kernel takes one then.

    `any_mtu`: it is set even if the link has it, because it will have changed by then.
    """
    if not wanted.mtu:
        return False
    if not sides.is_present(wanted.key):
        return wanted.key.kind in LATE_MTU_KINDS
    is_lower = current.mtu is not None and wanted.mtu < current.mtu
    is_set = wanted.mtu == current.mtu or (is_lower and sides.is_lowered_first(wanted))
    return any_mtu or not is_set


def _set_mtu(sides: Sides, current: Link, wanted: Link, phase: Phase) -> Operation:
    bond = wanted.master if wanted.is_in_bond else None
    return SetMtu(sides.target(wanted.key), current.mtu, wanted.mtu or 0, phase, bond)


def _queue_and_device(sides: Sides, current: Link, wanted: Link) -> Iterator[Operation]:
    target, phase = sides.target(wanted.key), _grow_phase(wanted.key)
    if wanted.txqueuelen is not None and wanted.txqueuelen != current.txqueuelen:
        yield SetTxQueueLen(target, current.txqueuelen, wanted.txqueuelen, phase)
    for group, old, new in to_do(current.device, wanted.device):
        row = SETTINGS[group]
        is_late = row.master or any(map(row.late, new.values()))
        yield SetDevice(target, group, old, new, Phase.UP if is_late else phase)


def _create_link(sides: Sides, wanted: Link) -> Operation:
    """Create the link with its MTU, unless it has to get it later."""
    key, virtual = wanted.key, wanted.virtual or Virtual()
    below = virtual.parent if key.vlan_id is None else key.nic
    mtu = None if key.kind in LATE_MTU_KINDS else wanted.mtu
    parent = below and sides.target(below)
    return CreateLink(sides.target(key), virtual, parent, mtu, deleted=key in sides.deleted)


def _write_sysctls(sides: Sides) -> Iterator[Operation]:
    for path, value in sorted(sides.desired.sysctls.items()):
        if not is_same_sysctl(path, sides.observed.sysctls.get(path), value):
            yield WriteSysctl(path, sides.observed.sysctls.get(path), value)
    for key, current, wanted in sides.link_pairs:
        for template, value in sorted(wanted.sysctls.items()):
            before = current.sysctls.get(template)
            if not sides.is_present(key):
                before = sides.observed.sysctls.get(template.replace(OWN, "default"))
            if not is_same_sysctl(template, before, value):
                target = sides.target(key)
                yield WriteSysctl(template.replace(OWN, target.name), before, value, target)


def _raise_up(sides: Sides) -> Iterator[Operation]:
    for key, current, wanted in sides.link_pairs:
        is_up = current.state == "up"
        if wanted.state == "down":
            # The kernel sets every VLAN up with its NIC, and every IPoIB child with its port.
            if sides.carrier(key) != key and sides.comes_up(sides.carrier(key)):
                yield SetState(sides.target(key), False, Phase.UP)
        elif (is_up and sides.bounces(key)) or (wanted.state == "up" and not is_up):
            yield SetState(sides.target(key), True)


def _add_addresses(sides: Sides) -> Iterator[Operation]:
    for key, current, wanted in sides.link_pairs:
        lost = sides.goes_down(key)
        kept = {address for address in current.addresses if not (lost and address.version == 6)}
        # Rolled back: marked as ours since.
        kept -= wanted.foreign_addresses.keys() - current.foreign_addresses.keys()
        kept.difference_update(unrouted_addresses(current, wanted))
        requested, theirs = set(wanted.addresses), _lost_addresses(sides, key, wanted)
        for address in dict.fromkeys((*wanted.addresses, *theirs)):
            if address in kept:
                continue
            if address in wanted.foreign_addresses:
                yield _restoration(sides, key, address, sides.desired)
            elif address in requested:
                bare, checked = address in wanted.bare, wanted.sysctls.get(ACCEPT_DAD) != "0"
                yield AddAddress(sides.target(key), address, bare=bare, checked=checked)
            else:
                yield _restoration(sides, key, address, sides.observed)


def _restoration(sides: Sides, key: LinkKey, address: Address, state: NetworkState) -> Operation:
    link, target = state.links[key], sides.target(key)
    message, bare = link.foreign_addresses[address], address in link.bare
    return AddAddress(target, address, False, bare, message=message, seen=state.read_at)


def _lost_addresses(sides: Sides, key: LinkKey, wanted: Link) -> Collection[Address]:
    """The addresses of other programs that this plan makes the kernel drop."""
    current = sides.observed.links.get(key)
    # A member of a bond or bridge has no addresses.
    if current is None or (wanted.master and wanted.master.kind != "vrf"):
        return ()
    foreign = current.foreign_addresses
    if key in sides.deleted:
        return foreign
    return [address for address in foreign if address.version == 6 and sides.goes_down(key)]
