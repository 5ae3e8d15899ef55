"""One pass: keep the document, carry out the decision as a transaction, report.

Read `run_pass` first.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Optional

from neuca_tools.agent import first_boot, mtu_probe
from neuca_tools.agent.status import status_of
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.execute import Failure, Result
from neuca_tools.apply.host import Host, StateFiles, host, log_result
from neuca_tools.apply.transaction import Outcome, Purpose, Transaction
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError
from neuca_tools.files import locked
from neuca_tools.model import Problem, Record
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import Tell, WriteFile
from neuca_tools.state import intentions, leftovers, updates
from neuca_tools.state.active_document import Intake, keep
from neuca_tools.state.store import NO_ROOM, catch_up, tell_unsaved
from neuca_tools.status.judge import Report, Status
from neuca_tools.status.report import now, read_report, write_report

log = logging.getLogger("neuca")
MOST_REMOVED = 1000  # lines that status keeps until the next boot
PROBED = "the path was probed"


@dataclass(frozen=True)
class Pass(Purpose):
    """The purpose of a pass: set up the NICs in `scope` as the document asks; None: all NICs."""

    scope: Optional[Collection[str]] = None

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        """The plan."""
        return decision.plan(self.scope)

    def remember(self, decision: Decision, result: Result, held: Sequence[Operation]) -> Record:
        """What is ours, which request is active for each NIC, and what managers left behind."""
        resolution, have, world = decision.resolution, decision.have, decision.world
        record = intentions.record_intentions(decision.record, result.done)
        record = updates.forget_restored(record, resolution, have, world)
        record = updates.remember_nics(record, resolution)
        record = leftovers.settled(record, have, world, decision.silent_managers)
        if any(isinstance(failure.operation, Tell) for failure in result.failures):
            record = leftovers.untold(record)
        undone = result.lost_nics.union(*(operation.domains for operation in held))
        return updates.record_applied(
            record, resolution, world, scope=self.scope, failed=undone, retry=result.to_retry
        )


def run_pass(config: Config, intake: Intake, start: bool) -> tuple[Report, Status]:
    """One pass under the lock. Raises NeucaError.

    `start`: all drift is corrected; else only NICs whose request changed, or that appeared.
    """
    with locked(config.run_directory / "lock", config.command_timeout):
        try:
            with host(config, intake) as handles:
                return _passes(handles, start)
        except ApplyError as error:
            if error.errno in NO_ROOM:
                with suppress(ApplyError):  # the run directory may be full too
                    tell_unsaved(config.state, error.text)
            raise


def _passes(handles: Host, start: bool) -> tuple[Report, Status]:
    """A pass, and another one if the probe of a path has shown that a larger MTU is possible."""
    config, intake = handles.config, handles.intake
    report, decision = _one_pass(handles, start, ())
    if not report.problems and mtu_probe.explore(handles, decision, start=start):
        report, decision = _one_pass(handles, start, (*report.changed, PROBED))
    return report, status_of(config, intake, decision, report)


def _one_pass(handles: Host, start: bool, earlier: tuple[str, ...]) -> tuple[Report, Decision]:
    """`earlier`: the texts of the operations that were done before the path was probed."""
    began, config = time.monotonic(), handles.config
    catch_up(config.state)
    first_boot.record_machine(config, handles.intake)
    keep(handles.intake, config.state, config.run_directory)
    decision = handles.survey()
    decision = replace(decision, record=updates.remember_nics(decision.record, decision.resolution))
    scope = None if start or config.drift == "enforce" else decision.changed()
    before_us = leftovers.left(decision.record, decision.have, decision.world)
    outcome = Transaction(handles, StateFiles(config), Pass(scope), decision).run()
    catch_up(config.state)
    after = outcome.decision
    gone = sorted(before_us - leftovers.left(after.record, after.have, after.world))
    _log(outcome, gone)
    report = _report(config, outcome, gone, earlier, time.monotonic() - began)
    write_report(config.run_directory, report)
    return report, after


def _log(outcome: Outcome, removed: Sequence[str]) -> None:
    log_result(outcome.result)
    for text in removed:
        log.info("%s: removed", text)
    for declined in outcome.result.declined:
        log.warning("%s, ignoring", declined.text)
    for operation in outcome.undone.done:
        log.warning("undone: %s", operation.text)
    for failure in outcome.undone.failures:
        log.error("could not be undone: %s", failure.text)


def _report(
    config: Config,
    outcome: Outcome,
    removed: Sequence[str],
    earlier: tuple[str, ...],
    seconds: float,
) -> Report:
    problems = tuple(map(_problem, outcome.result.failures))
    texts = (*earlier, *(operation.text for operation in outcome.result.done))
    before = read_report(config.run_directory)
    known = before.removed if before else ()
    told = (*known, *(f"{text}: removed" for text in removed))[-MOST_REMOVED:]
    return now(seconds, texts, problems, bool(outcome.undone.done), told)


def _problem(failure: Failure) -> Problem:
    key = failure.operation.link.key if failure.operation.link else None
    no_room = isinstance(failure.operation, WriteFile) and failure.errno in NO_ROOM
    return Problem("unsaved" if no_room else "failed", failure.text, key)
