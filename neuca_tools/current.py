"""The status of now: how far the host is from what is asked, out of the plan that a start would carry out."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from . import __version__, firstboot, leftovers
from . import record as records
from .config import Config
from .decide import Decision
from .host import host, udev_is_ours
from .intake import Intake
from .managers import named_by_others
from .names import own_names
from .operation import Operation
from .report import read_report
from .rounds import waiting
from .status import DocumentStatus, Report, Status, judge, with_unsaved
from .store import unsaved
from .tuning import audit


def status_now(config: Config, intake: Intake) -> Status:
    """The status, from one look. Raises ObserveError, RecordError."""
    with host(config, intake) as handles:
        return status_of(config, intake, handles.survey(), read_report(config.run_directory))


def status_of(
    config: Config, intake: Intake, decision: Decision, report: Optional[Report]
) -> Status:
    """Out of the plan that a start would carry out now."""
    stored = intake.stored
    faults = [
        (fault.severity, fault.text)
        for fault in (intake.document.faults if intake.document else ())
    ]
    faults += [(fault.severity, fault.text) for fault in config.faults]
    invalid = [text for severity, text in faults if severity == "error"]
    document = DocumentStatus(
        stored.source if stored else "",
        stored.sha256.partition(".")[0] if stored else "",
        stored.fetched if stored else "",
        intake.stale,
        intake.none_for_us,
        intake.reason,
        intake.platform,
        tuple(filter(None, [*invalid, intake.refused])),
        tuple(text for severity, text in faults if severity == "warning"),
        intake.disputed,
    )
    notes = (
        [intake.reason]
        if intake.reason and not intake.stale and not intake.none_for_us and stored
        else []
    )
    notes += [f"{manager}: {reason}" for manager, reason in decision.silent_managers.items()]
    notes += report.removed if report else ()
    notes += (
        named_by_others(config.udev_substring, decision.resolution.names)
        if udev_is_ours(config)
        else ()
    )
    notes += [
        *firstboot.notes(config),
        *leftovers.kept(decision.record, decision.have, decision.world, decision.resolution.roles),
    ]
    notes += audit.notes(decision.resolution, decision.have)
    if records.load_choice(config.run_directory):
        notes.append(
            f"profile {', '.join(decision.resolution.tuning.choice.profiles)}: until the next boot (neuca tune apply)"
        )
    left, held, reason = _left(config, decision)
    status = judge(
        __version__,
        document,
        decision.resolution,
        decision.have,
        left,
        decision.changed(),
        decision.managers,
        notes,
        report,
        own_names(decision.resolution.roles, decision.resolution.requests, decision.record),
    )
    data = {**status.data, "tuning": audit.to_json(decision.resolution, decision.have)}
    return with_unsaved(replace(status, data=data), reason, held)


def _left(config: Config, decision: Decision) -> tuple[list[Operation], Sequence[Operation], str]:
    """What is left to do now, what waits until the state can be saved, and why it cannot be."""
    operations, reason = decision.plan(), unsaved(config.state)
    held = waiting(operations) if reason else ()
    return [operation for operation in operations if operation not in held], held, reason
