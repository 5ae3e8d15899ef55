"""The status of now: how far the host is from what is asked, out of the plan that a start would carry out."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools import __version__
from neuca_tools.agent import first_boot
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import host, udev_is_ours
from neuca_tools.apply.managers import named_by_others
from neuca_tools.apply.rounds import waiting
from neuca_tools.config import Config
from neuca_tools.desired.names import own_names
from neuca_tools.model import Document
from neuca_tools.model.stored import StoredDocument
from neuca_tools.plan.operation import Operation
from neuca_tools.state import leftovers, records
from neuca_tools.state.active_document import Intake
from neuca_tools.state.store import unsaved
from neuca_tools.status import audit
from neuca_tools.status.judge import DocumentStatus, Report, Status, judge, with_unsaved
from neuca_tools.status.report import read_report


def status_now(config: Config, intake: Intake) -> Status:
    """The status, from one look. Raises ObserveError, RecordError."""
    with host(config, intake) as handles:
        return status_of(config, intake, handles.survey(), read_report(config.run_directory))


def status_of(
    config: Config, intake: Intake, decision: Decision, report: Optional[Report]
) -> Status:
    """Out of the plan that a start would carry out now."""
    resolution, have = decision.resolution, decision.have
    left, held, reason = _left(config, decision)
    status = judge(
        __version__,
        _document(config, intake),
        resolution,
        have,
        left,
        decision.changed(),
        decision.managers,
        _notes(config, intake, decision, report),
        report,
        own_names(resolution.roles, resolution.requests, decision.record),
    )
    data = {**status.data, "tuning": audit.to_json(resolution, have)}
    return with_unsaved(replace(status, data=data), reason, held)


def _document(config: Config, intake: Intake) -> DocumentStatus:
    stored = intake.stored or StoredDocument("", "", "", "")
    faults = [(one.severity, one.text) for one in (intake.document or Document()).faults]
    faults += [(one.severity, one.text) for one in config.faults]
    errors = [text for severity, text in faults if severity == "error"]
    return DocumentStatus(
        stored.source,
        stored.sha256.partition(".")[0],
        stored.fetched,
        intake.stale,
        intake.none_for_us,
        intake.reason,
        intake.platform,
        tuple(filter(None, [*errors, intake.refused])),
        tuple(text for severity, text in faults if severity == "warning"),
        intake.disputed,
    )


def _notes(
    config: Config, intake: Intake, decision: Decision, report: Optional[Report]
) -> list[str]:
    """What is worth a line, and no shortfall."""
    resolution, have = decision.resolution, decision.have
    notes = []
    if intake.reason and intake.stored and not (intake.stale or intake.none_for_us):
        notes.append(intake.reason)
    notes += [f"{manager}: {reason}" for manager, reason in decision.silent_managers.items()]
    if report:
        notes += report.removed
    if udev_is_ours(config):
        notes += named_by_others(config.udev_substring, resolution.names)
    notes += first_boot.notes(config)
    notes += leftovers.kept(decision.record, have, decision.world, resolution.roles)
    notes += audit.notes(resolution, have)
    if records.load_choice(config.run_directory):
        profiles = ", ".join(resolution.tuning.choice.profiles)
        notes.append(f"profile {profiles}: until the next boot (neuca tune apply)")
    return notes


def _left(config: Config, decision: Decision) -> tuple[list[Operation], Sequence[Operation], str]:
    """What is left to do now, what waits until the state can be saved, and why it cannot be."""
    operations, reason = decision.plan(), unsaved(config.state)
    held = waiting(operations) if reason else ()
    return [operation for operation in operations if operation not in held], held, reason
