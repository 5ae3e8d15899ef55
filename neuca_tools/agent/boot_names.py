"""The step before the network: every NIC gets its own name back, before NetworkManager, networkd or ifupdown sees any.

Udev's rules alone cannot do it: udevd does not park names, so two NICs that have to swap both keep the wrong one (systemd
#29073). This is the one place that writes to the management NIC, and all it may do there is to rename it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Optional

from neuca_tools.agent import first_boot
from neuca_tools.backends import udev
from neuca_tools.backends.linkwatch import Watch, interfaces
from neuca_tools.backends.netlink import Netlink
from neuca_tools.config import Config
from neuca_tools.desired.names import (
    TEMPORARY,
    Step,
    boot_names,
    free_name,
    own_names,
    rename_steps,
)
from neuca_tools.desired.requests import merge
from neuca_tools.desired.roles import Policy, Roles, assign
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import locked
from neuca_tools.model import Document, LinkKey, LinkRequest, Record, World
from neuca_tools.model.topology import identity
from neuca_tools.sources import Session, SourceSpec, parse_source, without_network
from neuca_tools.state.active_document import Intake, fetch, last_good
from neuca_tools.state.records import load_record

log = logging.getLogger("neuca")
SETTLE = 20.0  # seconds that udev gets to load drivers and name NICs before we look
ANNOUNCE = 10.0  # seconds that udev gets to take in what moved
TRIES = 40  # systemd 252 adds an alternative name some milliseconds after a rename, which can be in the way of the next
BETWEEN_TRIES = 0.02  # seconds
LOCAL_BUDGET = 2.0  # seconds for the sources that need no network


def pin_names(config: Config) -> bool:
    """Rename what has to be. True if every NIC then has its name. Raises ObserveError, RecordError."""
    requests, record = _known(config)
    if not record.nics and not requests:
        return True  # the first boot of an image: no name is anybody's yet
    here = config.managers == "auto" and udev.here(interfaces())
    if here:
        udev.settle(SETTLE)
    try:
        if first_boot.check(config):
            requests, record = _known(config)
    except ApplyError as error:  # names go by MAC: those of another machine's NICs are for nobody
        log.error("%s", error.text)
    asked = {key.mac: request.name for key, request in requests.items() if key.vlan_id is None}
    if here and in_place(udev.hardware(), asked, record):
        return True
    with Netlink() as netlink, Watch() as watch:
        world = netlink.look(())
        roles = assign(
            world,
            {key.mac for key in requests},
            Policy(config.ignored_macs, config.management_macs),
            record,
        )
        in_use = busy(world)
        wanted = boot_names(world, roles, requests, record, in_use)
        moved = give(wanted, world, netlink, watch)
        after = netlink.look(())
    if here:
        _announce({**moved, **_not_ready(after)})
    names = {index: device.name for index, device in after.devices.items()}
    busy_ones = _tell_busy(in_use, own_names(roles, requests, record), roles)
    return (
        _complain(
            wanted, names, {index: identity(device) for index, device in world.devices.items()}
        )
        and not busy_ones
    )


def _known(config: Config) -> tuple[dict[LinkKey, LinkRequest], Record]:
    document = last_good(config.state).document
    return merge(document.links if document else (), config.links), load_record(config.state)


def ask_ahead(config: Config) -> Intake:
    """What this host itself knows of its document, as from a config drive. If that tells of another machine than the one that
    the state is about, all of that goes first. Raises NeucaError.
    """
    local = without_network([parse_source(text) for text in config.sources])
    intake = _ask(local, config) if local else last_good(config.state)
    if intake.other:
        with locked(config.run_directory / "lock", config.command_timeout):
            first_boot.admit(config, intake)
    return intake


def mark_ahead(config: Config, intake: Intake) -> None:
    """Where this host itself knows its document: the files that keep managers off, before one takes a NIC on a first boot.

    Nothing but files is written; the first pass does the rest. Raises NeucaError.
    """
    if intake.stale:
        intake = last_good(config.state)  # it may have been another machine's, and is gone
    named = _named(intake.document or Document(), config)
    record = load_record(config.state)
    known = {mac for mac, nic in record.nics.items() if nic.role or nic.released}
    if named <= config.ignored_macs | known:
        return
    if config.managers == "auto" and udev.here(interfaces()):
        # A NIC that comes late is one that the document leaves out, or the other way round.
        udev.settle(SETTLE)
    _write_marks(config, intake, record, named)


def _named(document: Document, config: Config) -> set[str]:
    """The NICs that become dataplane ones by name; what the platform makes management is never recorded for its word."""
    named = {key.mac for key in merge(document.links, config.links)}
    if document.platform:
        management = {hint.mac for hint in document.platform.management}
        named |= {link.key.mac for link in document.platform.links} - management
    return named


def _write_marks(config: Config, intake: Intake, record: Record, named: Collection[str]) -> None:
    """The files alone. A document that takes every NIC takes one that this host is reached by: that is for a pass."""
    from neuca_tools.apply.execute import apply
    from neuca_tools.apply.host import host, log_result
    from neuca_tools.plan.operations import WriteFile

    with (
        locked(config.run_directory / "lock", config.command_timeout),
        host(config, intake) as handles,
    ):
        decision = handles.decide(record)
        roles = decision.resolution.roles
        configured = {request.key.mac for request in config.links}
        others = set(roles.nics) - config.ignored_macs - configured
        if others and others <= set(named) and "management" not in roles.by_mac.values():
            return
        files = [one for one in decision.plan() if isinstance(one, WriteFile)]
        log_result(apply(files, handles.writer(decision)))


def _ask(local: Sequence[SourceSpec], config: Config) -> Intake:
    return fetch(local, LOCAL_BUDGET, Session(), config.state, config.surroundings)


def in_place(
    present: Iterable[tuple[str, str]], asked: Mapping[str, Optional[str]], record: Record
) -> bool:
    """Whether every NIC (name, MAC) has its name already, from sysfs alone: a boot then pays for no netlink library.

    Two NICs with one MAC, or a stranger under somebody's name, are for the whole look to judge.
    """
    management = {mac for mac, nic in record.nics.items() if nic.role == "management"}
    wanted = {mac: nic.name for mac, nic in record.nics.items() if not nic.released}
    wanted.update((mac, name) for mac, name in asked.items() if name and mac not in management)
    taken, seen = set(wanted.values()), set[str]()
    for name, mac in present:
        if mac in seen or wanted.get(mac, name) != name or (mac not in wanted and name in taken):
            return False
        seen.add(mac)
    return True


def busy(world: World) -> frozenset[int]:
    """Devices that are up, with an address that somebody gave them, on a kernel (before 6.2) that renames none that is up."""
    if world.rename_while_up:
        return frozenset()
    return frozenset(
        index
        for index, device in world.devices.items()
        if device.up
        and any(not address.is_link_local for address in world.addresses.get(index, ()))
    )


def give(wanted: Mapping[int, str], world: World, netlink: Netlink, watch: Watch) -> dict[int, str]:
    """Give these names, by index. Returns the NICs that moved, and where to.

    One that cannot move costs only the NICs that want its name: whoever waits for it under a temporary one gets a real one.
    """
    current = {index: world.devices[index].name for index in wanted}
    moved: dict[int, str] = {}
    for step in rename_steps(current, wanted):
        if _try(step, world, wanted, netlink, watch):
            moved[step.key] = step.new
    for index in [index for index, name in moved.items() if name.startswith(TEMPORARY)]:
        names = {
            name
            for device in netlink.look(()).devices.values()
            for name in (device.name, *device.altnames)
        }
        better = current[index] if current[index] not in names else free_name(current[index], names)
        if _try(Step(index, moved[index], better), world, wanted, netlink, watch):
            moved[index] = better
    return {index: name for index, name in moved.items() if name != current[index]}


def _try(
    step: Step[int], world: World, ours: Collection[int], netlink: Netlink, watch: Watch
) -> bool:
    """Rename one NIC; before kernel 6.2 it has to be down for that."""
    bounce = world.devices[step.key].up and not world.rename_while_up
    try:
        if bounce:
            netlink.set_up(step.key, False)
        try:
            _insist(step.key, step.new, ours, netlink, watch)
        finally:
            if bounce:
                netlink.set_up(step.key, True)
    except ApplyError as error:
        log.error('rename "%s" to "%s": %s', step.old, step.new, error.text)
        return False
    log.info("rename %s to %s", step.old, step.new)
    return True


def _insist(index: int, name: str, ours: Collection[int], netlink: Netlink, watch: Watch) -> None:
    """Rename it; an alternative name of one of `ours` that is in the way goes."""
    for left in reversed(range(TRIES)):
        for device in netlink.look(()).devices.values():
            if device.index in ours and name in device.altnames:
                netlink.drop_altname(device.index, name)
        try:
            netlink.rename(index, name)
        except ApplyError as error:
            if error.errno != errno.EEXIST or not left:
                raise
            watch.wait(BETWEEN_TRIES)
        else:
            return


def _not_ready(world: World) -> dict[int, str]:
    """Hardware that udev has not finished with: a rename of its own that failed leaves a NIC so for ever."""
    return {
        index: device.name
        for index, device in world.devices.items()
        if device.hardware and not udev.initialised(index)
    }


def _announce(moved: Mapping[int, str]) -> None:
    if not moved:
        return
    try:
        late = udev.announce(moved, ANNOUNCE)
    except ObserveError as error:
        log.error("%s", error.text)
        return
    for index in sorted(late):
        log.error('udev has not taken in "%s" within %g s', moved[index], ANNOUNCE)


def _tell_busy(in_use: Collection[int], own: Mapping[LinkKey, str], roles: Roles) -> bool:
    wrong = [
        (device.name, own[LinkKey(mac)])
        for mac, device in sorted(roles.nics.items())
        if device.index in in_use and own.get(LinkKey(mac), device.name) != device.name
    ]
    for name, wish in wrong:
        log.error(
            'rename "%s" to "%s": it is in use already, and this kernel renames no device that is up',
            name,
            wish,
        )
    return bool(wrong)


def _complain(wanted: Mapping[int, str], names: Mapping[int, str], macs: Mapping[int, str]) -> bool:
    wrong = [index for index, name in sorted(wanted.items()) if names.get(index) != name]
    for index in wrong:
        log.error(
            '%s is "%s", and should be "%s"', macs[index], names.get(index, ""), wanted[index]
        )
    return not wrong
