"""One pass: store the document, decide, apply the decision as a transaction, and report.

Read `run_pass` first.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from neuca_tools.agent import first_boot
from neuca_tools.agent.pass_report import (
    Pass,
    indexes_of,
    report_pass,
    restarted_clients,
    tried_parts,
)
from neuca_tools.agent.status import status_of
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import Host, open_host
from neuca_tools.apply.transaction import Transaction
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError
from neuca_tools.guest import outcome as guest
from neuca_tools.state import updates
from neuca_tools.state.active_document import Intake, keep_document
from neuca_tools.state.store import NO_ROOM, catch_up, tell_unsaved
from neuca_tools.status.judge import Report, Status

NOTHING: Mapping[str, int] = {}


def run_pass(
    config: Config,
    intake: Intake,
    start: bool,
    left_out: Mapping[str, int] = NOTHING,
    *,
    waits: bool = True,
) -> tuple[Report, Status]:
    """Make one pass, with the lock held; then the features of the guest may run. Raises NeucaError.

    With `start`, all drift is corrected; otherwise, only the NICs change whose request has changed
    or that have appeared. Parts that are `left_out`, as they failed before, are not tried unless
    their interface has another index than this. Unless it `waits`, a route whose source address is
    still being checked for duplicates is left to a later pass.
    """
    try:
        config.demand_protection()
        with open_host(config, intake) as handles:
            handles.detection_seconds *= waits
            report, decision = _one_pass(handles, start, left_out)
            return report, status_of(config, intake, decision, report)
    except ApplyError as error:
        if error.errno in NO_ROOM:
            with suppress(ApplyError):  # the run directory may be full too
                tell_unsaved(config.state, error.text)
        raise
    finally:  # a login must not wait for a network that cannot be configured
        guest.request_run(config, intake)


def _one_pass(handles: Host, start: bool, left_out: Mapping[str, int]) -> tuple[Report, Decision]:
    began, config = time.monotonic(), handles.config
    catch_up(config.state)
    first_boot.record_machine(config, handles.intake)
    keep_document(handles.intake, config.state, config.run_directory)
    decision = handles.survey()
    decision = decision._replace(record=updates.remember_nics(decision.record, decision.resolution))
    indexes = indexes_of(decision)  # what has appeared since is not left out
    waiting = {name for name, index in left_out.items() if index == indexes.get(name, 0)}
    is_whole = start or (config.drift == "enforce" and not waiting)
    scope = None if is_whole else decision.changed() - waiting
    outcome = Transaction(handles, Pass(scope), decision).run()
    catch_up(config.state)
    seconds = time.monotonic() - began
    report = report_pass(config, decision, outcome, seconds, waiting=waiting)
    tried = tried_parts(outcome) - waiting - outcome.result.early_nics
    indexes = indexes_of(outcome.decision)
    failed = {name: indexes.get(name, 0) for name in outcome.decision.unapplied_scope() & tried}
    failed.update(dict.fromkeys(restarted_clients(outcome, decision), 0))
    return report._replace(failed=failed), outcome.decision
