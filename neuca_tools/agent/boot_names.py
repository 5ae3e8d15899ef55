"""Names NICs at boot, before NetworkManager, systemd-networkd or ifupdown sees them.

udev rules are not enough: udevd uses no temporary names, so that two NICs that have to swap their
names both keep the wrong one (systemd #29073). This is the only code that writes to the management
NIC, and all it does there is rename it.
"""

# SPDX-License-Identifier: MIT

import errno
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from neuca_tools.agent import first_boot
from neuca_tools.backends import udev
from neuca_tools.backends.linkwatch import Watch
from neuca_tools.backends.netlink import Netlink
from neuca_tools.config import Config
from neuca_tools.desired import bindings
from neuca_tools.desired.marks import nics_in_rules, rule_mac
from neuca_tools.desired.names import (
    TEMPORARY,
    Step,
    boot_names,
    free_name,
    names_in_use,
    own_names,
    rename_steps,
)
from neuca_tools.desired.policy import Policy
from neuca_tools.desired.roles import Roles, assign_roles
from neuca_tools.documents.stacking import merge_layers
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import locked, observed_content
from neuca_tools.model import Document, LinkKey, LinkRequest, Record, Requests, World
from neuca_tools.model.ports import identity_forms
from neuca_tools.model.topology import identity, nics_in, with_lower_devices
from neuca_tools.sources import Session, parse_source, without_network
from neuca_tools.state.active_document import Intake, fetch_document, last_good
from neuca_tools.state.records import load_record

log = logging.getLogger("neuca")

UDEV_SETTLE_SECONDS = 20.0  # to wait for udev to load drivers and name NICs
UDEV_ANNOUNCE_SECONDS = 10.0  # to wait for udev to process what was renamed
# systemd 252 adds an alternative name some milliseconds after a rename, which can be the very name
# that another NIC is to get.
RENAME_TRIES = 40
SECONDS_BETWEEN_TRIES = 0.02
LOCAL_SOURCES_SECONDS = 2.0  # for all sources that need no network


def pin_names(config: Config) -> bool:
    """Rename NICs; return whether each has its name now. Raises ObserveError, RecordError."""
    requests, record = _recorded_requests(config)
    if not (record.nics or requests or first_boot.udev_rules(config)):
        return True  # the first boot of an image: no name is recorded or asked for
    has_udev = config.managers == "auto" and udev.serves_this_namespace()
    with Netlink() as netlink, Watch() as watch:
        if has_udev and not needs_no_wait(config, netlink.look(())):
            udev.await_empty_queue(UDEV_SETTLE_SECONDS)
        if _set_state_aside(config):
            requests, record = _recorded_requests(config)
        world = netlink.look(())
        names = _requested_names(config, world, requests, record)
        moved = rename_devices(names.wanted, world, netlink, watch)
        after = netlink.look(())
    if has_udev and not names.are_set(world):
        _announce_to_udev({**moved, **_not_ready(after)})
    return _report_wrong(names, world, after)


class _Names(NamedTuple):
    """The name that each NIC should have, by index; devices `in_use` are left as they are."""

    requests: Requests
    record: Record
    roles: Roles
    in_use: frozenset[int]
    wanted: Mapping[int, str]

    def are_set(self, world: World) -> bool:
        return all(world.devices[index].name == name for index, name in self.wanted.items())


def _requested_names(config: Config, world: World, requests: Requests, record: Record) -> _Names:
    if not record.nics:
        # The record was lost, or there was none: the rules name the NICs that are present.
        rules = {path.name: observed_content(path) for path in first_boot.udev_rules(config)}
        present = {*map(identity, nics_in(world))}
        record = record._replace(nics=nics_in_rules(rules, config.udev_substring, present))
    # Of the GUIDs of InfiniBand ports, documents may give six bytes.
    bound = bindings.bound_links(requests.values(), bindings.guid_by_short_form(world, record))
    requests = {request.key: request for request in bound}
    policy = Policy(config.ignored_macs, config.management_macs)
    policy = bindings.bound_policy(policy, world, record)
    roles = assign_roles(world, {key.mac for key in requests}, policy, record)
    in_use = devices_in_use(world)
    wanted = boot_names(world, roles, requests, record, in_use)
    return _Names(requests, record, roles, in_use, wanted)


def _set_state_aside(config: Config) -> bool:
    """Whether the state was another machine's, and is set aside now."""
    try:
        return first_boot.set_aside_foreign_state(config)
    except (ApplyError, ObserveError) as error:
        # It may stay for now: names are recorded by MAC, and no NIC here has a recorded one.
        log.error("%s", error.text)
        return False


def needs_no_wait(config: Config, world: World) -> bool:
    """Whether a boot with the NICs of this look need not wait for udev.

    Each has its name. No NIC with a rule is absent, so that nothing that appears takes its name,
    and each recorded NIC has one. False if none is recorded. Raises RecordError, ObserveError.
    """
    names = _requested_names(config, world, *_recorded_requests(config))
    nics = names.record.nics.items()
    kept = {mac for mac, nic in nics if not nic.released} - config.ignored_macs
    recorded = {mac for mac in kept if not LinkKey(mac).virtual_kind}
    files = first_boot.udev_rules(config)
    rules = {rule_mac(path.name, config.udev_substring) for path in files} - {None}
    present = names.roles.nics.keys()
    return bool(recorded) and recorded <= rules <= present and names.are_set(world)


def _recorded_requests(config: Config) -> tuple[dict[LinkKey, LinkRequest], Record]:
    document = last_good(config.state).document
    return merge_layers(document.links if document else (), config.links), load_record(config.state)


def read_local_sources(config: Config) -> Intake:
    """Read the document from the sources that need no network, such as a config drive.

    If it is not that of the machine in the state, the state is set aside first. Raises NeucaError.
    """
    local = without_network([parse_source(text) for text in config.sources])
    intake = last_good(config.state)
    if local:
        intake = fetch_document(
            local, LOCAL_SOURCES_SECONDS, Session(), config.state, config.surroundings
        )
    if intake.other_machine:
        with locked(config.pass_lock, config.command_timeout):
            first_boot.record_machine(config, intake)
    return intake


def mark_nics(config: Config, intake: Intake) -> None:
    """Write the files that keep network managers off the NICs of a document, before they start.

    This matters on a first boot, when a manager could take a NIC before the first pass. Nothing
    but files is written. Raises NeucaError.
    """
    config.demand_protection()
    if intake.stale:
        intake = last_good(config.state)  # the stale one may have been set aside meanwhile
    dataplane_macs = _dataplane_macs(intake.document or Document(), config)
    record = load_record(config.state)
    known = identity_forms(mac for mac, nic in record.nics.items() if nic.role or nic.released)
    if dataplane_macs <= config.ignored_macs | known:
        return  # an earlier pass knew all of them, and so wrote what managers have to read
    if config.managers == "auto" and udev.serves_this_namespace():
        # Without a NIC that appears late, the document would seem to name every NIC, or too few.
        udev.await_empty_queue(UDEV_SETTLE_SECONDS)
    _write_marks(config, intake, record, dataplane_macs)


def _dataplane_macs(document: Document, config: Config) -> set[str]:
    """The MACs of the NICs that a document or the configuration names as dataplane NICs."""
    macs = {key.mac for key in merge_layers(document.links, config.links) if not key.virtual_kind}
    if document.platform:
        management = {hint.mac for hint in document.platform.management}
        macs |= {link.key.mac for link in document.platform.links} - management
    return macs


def _write_marks(
    config: Config, intake: Intake, record: Record, dataplane_macs: Collection[str]
) -> None:
    """Write the files of the plan, unless the document names every NIC and none is management.

    Such a document claims the NIC through which this host is reached; a pass decides about that.
    """
    # Most boots have all marks already; a pass takes 50 ms to import.
    from neuca_tools.apply.execute import apply
    from neuca_tools.apply.host import log_result, open_host
    from neuca_tools.plan.operation import of_kind
    from neuca_tools.plan.operations import WriteFile

    with locked(config.pass_lock, config.command_timeout), open_host(config, intake) as host:
        decision = host.decide(record)
        roles = decision.resolution.roles
        configured = config.ignored_macs | {request.key.mac for request in config.links}
        others = [mac for mac in roles.nics if not identity_forms([mac]) & configured]
        names_all = all(identity_forms([mac]) & {*dataplane_macs} for mac in others)
        if others and names_all and "management" not in roles.by_mac.values():
            return
        files = of_kind(decision.plan(), WriteFile)
        log_result(apply(files, host.writer(decision)))


def devices_in_use(world: World) -> frozenset[int]:
    """Devices that this kernel cannot rename now: up, with an address that is not link-local.

    Their lower devices are included: the root file system may be reached through them.
    """
    if world.rename_while_up:
        return frozenset()
    addressed = [
        index
        for index, device in world.devices.items()
        if device.up and any(not ip.is_link_local for ip in world.addresses.get(index, ()))
    ]
    return with_lower_devices(world, addressed)


def rename_devices(
    wanted: Mapping[int, str], world: World, netlink: Netlink, watch: Watch
) -> dict[int, str]:
    """Rename devices to the names in `wanted`; returns the new names of those that were renamed.

    If one cannot be renamed, NICs that wait for its name get another one, but no temporary one.
    """
    current = {index: world.devices[index].name for index in wanted}
    moved: dict[int, str] = {}
    for step in rename_steps(current, wanted):
        if _rename_nic(step, world, wanted, netlink, watch):
            moved[step.key] = step.new
    for index in [index for index, name in moved.items() if name.startswith(TEMPORARY)]:
        name = free_name(current[index], names_in_use(netlink.look(())))
        if _rename_nic(Step(index, moved[index], name), world, wanted, netlink, watch):
            moved[index] = name
    return {index: name for index, name in moved.items() if name != current[index]}


def _rename_nic(
    step: Step[int], world: World, ours: Collection[int], netlink: Netlink, watch: Watch
) -> bool:
    """Rename one NIC; before kernel 6.2 it has to be down for that."""
    set_down = world.devices[step.key].up and not world.rename_while_up
    try:
        if set_down:
            netlink.set_up(step.key, False)
        try:
            _rename_with_retries(step.key, step.new, ours, netlink, watch)
        finally:
            if set_down:
                netlink.set_up(step.key, True)
    except ApplyError as error:
        log.error('rename "%s" to "%s": %s', step.old, step.new, error.text)
        return False
    log.info("rename %s to %s", step.old, step.new)
    return True


def _rename_with_retries(
    index: int, name: str, ours: Collection[int], netlink: Netlink, watch: Watch
) -> None:
    """Rename a device, taking the name from alternative names of `ours`. Raises ApplyError."""
    for left in reversed(range(RENAME_TRIES)):
        for device in netlink.look(()).devices.values():
            if device.index in ours and name in device.altnames:
                netlink.drop_altname(device.index, name)
        try:
            netlink.rename(index, name)
        except ApplyError as error:
            if error.errno != errno.EEXIST or not left:
                raise
            watch.wait(SECONDS_BETWEEN_TRIES)
        else:
            return


def _not_ready(world: World) -> dict[int, str]:
    """Hardware that udev has not finished processing, and never will after a failed rename."""
    hardware = {index: device.name for index, device in world.devices.items() if device.hardware}
    return {index: name for index, name in hardware.items() if not udev.is_initialised(index)}


def _announce_to_udev(moved: Mapping[int, str]) -> None:
    """Have udev process these devices, by index, and wait until it has."""
    if not moved:
        return
    try:
        late = udev.announce_interfaces(moved, UDEV_ANNOUNCE_SECONDS)
    except ObserveError as error:
        log.error("%s", error.text)
        return
    for index in sorted(late):
        log.error('udev has not processed "%s" within %g s', moved[index], UDEV_ANNOUNCE_SECONDS)


def _report_wrong(names: _Names, before: World, after: World) -> bool:
    """Log the NICs that do not have their name. Returns whether there is none."""
    own = own_names(names.roles, names.requests, names.record)
    held = {mac: nic for mac, nic in names.roles.nics.items() if nic.index in names.in_use}
    in_use = {nic.index: own.get(LinkKey(mac), nic.name) for mac, nic in held.items()}
    current = {index: device.name for index, device in after.devices.items()}
    wanted = {**names.wanted, **in_use}
    wrong = [index for index in sorted(wanted) if current.get(index) != wanted[index]]
    for index in wrong:
        name, mac = current.get(index, ""), identity(before.devices[index])
        if index in in_use:
            reason = "it is in use, and this kernel cannot rename a device that is up"
            log.error('rename "%s" to "%s": %s', name, wanted[index], reason)
        else:
            log.error('%s is "%s", and should be "%s"', mac, name, wanted[index])
    return not wrong
