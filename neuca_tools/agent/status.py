"""The current status: what a pass at start would still change, and how the last pass went."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Optional

from neuca_tools import __version__
from neuca_tools.agent import first_boot, trial_file
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import open_host, udev_is_ours
from neuca_tools.apply.look import named_by_others
from neuca_tools.apply.result import postponed_operations
from neuca_tools.config import Config
from neuca_tools.desired import dhcp, platform_roles
from neuca_tools.desired.names import own_names
from neuca_tools.errors import ApplyError
from neuca_tools.files import lock_holder
from neuca_tools.model import Automatic, Device, Document, World
from neuca_tools.plan.operation import Plan
from neuca_tools.state import leftovers, records
from neuca_tools.state.active_document import NOTHING_STORED, Intake
from neuca_tools.state.store import run_problem, unsaved_reason
from neuca_tools.status import audit
from neuca_tools.status.judge import DocumentStatus, Report, Status, judge_host, with_unsaved
from neuca_tools.status.report import read_report


def status_now(config: Config, intake: Intake) -> Status:
    """Observe the host once and judge it. Raises ObserveError, RecordError."""
    with open_host(config, intake) as host:
        report = read_report(config.run_directory)
        decision = host.decide(trial_file.next_record(config))
        return status_of(config, intake, decision, report, audited=True)


def status_of(
    config: Config,
    intake: Intake,
    decision: Decision,
    report: Optional[Report],
    *,
    audited: bool = False,
) -> Status:
    """Judge a decision after the last `report`; `audited`: with each setting that tuning covers."""
    resolution, observed = decision.resolution, decision.observed
    left, postponed, reason = _split_plan(config, decision)
    status = judge_host(
        __version__,
        _document_status(config, intake),
        resolution,
        observed,
        left,
        unapplied=decision.unapplied_scope(),
        world=decision.world,
        notes=_status_notes(config, intake, decision, report),
        report=report,
        own_names=own_names(resolution.roles, resolution.requests, decision.record),
    )
    data = status.data
    if audited:
        data = {**data, "tuning": audit.to_json(resolution, observed)}
    unheard = any(nic.unheard for nic in decision.record.nics.values())
    status = status._replace(data=data, has_silent_manager=unheard)
    return with_unsaved(status, reason, postponed)


def expected_outcome(config: Config, intake: Intake, decision: Decision) -> tuple[Plan, Status]:
    """The operations of a pass at start, and the status after it if all of them succeed."""
    operations, postponed, reason = _split_plan(config, decision)
    wanted, present = decision.desired.links, decision.observed.links.items()
    links = {key: link._replace(managers=wanted.get(key, link).managers) for key, link in present}
    observed, document = decision.observed._replace(links=links), _document_status(config, intake)
    status = judge_host(__version__, document, decision.resolution, observed, ())
    return operations, with_unsaved(status, reason, postponed)


def _document_status(config: Config, intake: Intake) -> DocumentStatus:
    stored = intake.stored
    if stored is None or not stored.source:
        stored = NOTHING_STORED
    faults = (*(intake.document or Document()).faults, *config.faults)
    errors = [fault.text for fault in faults if fault.severity == "error"]
    return DocumentStatus(
        source=stored.source,
        sha256=stored.sha256.partition(".")[0],
        fetched=stored.fetched,
        stale=intake.stale and bool(stored.source),
        none_for_us=intake.none_for_us,
        reason=intake.reason,
        platform=intake.platform,
        invalid=tuple(filter(None, [*errors, intake.refused])),
        warnings=tuple(fault.text for fault in faults if fault.severity == "warning"),
        disputed=intake.disputed,
    )


def _status_notes(
    config: Config, intake: Intake, decision: Decision, report: Optional[Report]
) -> list[str]:
    """What the user should know although it is not a problem, one line each."""
    resolution, observed = decision.resolution, decision.observed
    # A stale or absent document says itself why the sources gave no other one.
    is_told = intake.stale or intake.none_for_us or not intake.stored
    notes = [intake.reason] if intake.reason and not is_told else []
    notes += _daemon_notes(config)
    notes += [f"{manager}: {reason}" for manager, reason in decision.world.silent_managers.items()]
    if report:
        notes += report.removed
    if udev_is_ours(config):
        notes += named_by_others(config.udev_substring, resolution.names)
    notes += first_boot.status_notes(config)
    notes += filter(None, [trial_file.trial_note(config)])
    notes += platform_roles.choice_sentences(resolution.roles)
    notes += _lease_notes(decision)
    notes += leftovers.describe_kept(decision.record, observed, decision.world, resolution.roles)
    notes += audit.overridden_notes(resolution, observed)
    if records.load_choice(config.run_directory):
        profiles = ", ".join(resolution.tuning.choice.profiles)
        notes.append(f"profile {profiles}: until the next boot (neuca tune apply)")
    return notes


def _daemon_notes(config: Config) -> Iterator[str]:
    """A sentence if the daemon has ended since the boot; only root can see it."""
    with suppress(ApplyError):
        if config.daemon_lock.exists() and not lock_holder(config.daemon_lock):
            yield "neucad is not running: a new document or NIC has no effect until it starts"


def _lease_notes(decision: Decision) -> Iterator[str]:
    """A sentence for each address with a lifetime on a dataplane link, and each missing lease."""
    requests, world = decision.resolution.requests, decision.world
    for key, device in dhcp.devices_with_client(decision.resolution.roles, world).items():
        asked = requests[key].leases if key in requests else Automatic()
        yield from (f"{device.name}: {text}" for text in _lease_texts(device, world, asked))


def _lease_texts(device: Device, world: World, asked: Automatic) -> Iterator[str]:
    refused = (text for index, text in world.own_clients.refusals if index == device.index)
    yield from (f"{text}, so it is not used" for text in refused)
    is_missing = {4: asked.dhcp4, 6: asked.dhcp6}
    for address in world.addresses.get(device.index, ()):
        if (device.index, address) in world.leased_addresses and not address.is_link_local:
            yield f"{address} from DHCP or a router advertisement"
            is_missing[address.version] = False
    for version in filter(is_missing.get, is_missing):
        yield f"no IPv{version} address from DHCP yet"


def _split_plan(config: Config, decision: Decision) -> tuple[Plan, Plan, str]:
    """What is left to do, what waits until the state can be saved, and why it cannot be."""
    operations = decision.plan()
    reason = unsaved_reason(config.state)
    if not reason:
        return operations, (), run_problem(config.state)
    postponed = postponed_operations(operations)
    waiting = {*postponed}
    left = tuple(operation for operation in operations if operation not in waiting)
    return left, postponed, reason
