"""One pass: save the document, decide, apply the decision as a transaction, and report."""

# SPDX-License-Identifier: MIT

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Optional

from neuca_tools.agent import first_boot
from neuca_tools.agent.pass_report import Pass, decide_pass, failed_parts, indexes_of, report_pass
from neuca_tools.agent.status import status_of
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import Host, open_host
from neuca_tools.apply.transaction import Transaction
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError
from neuca_tools.guest import outcome as guest
from neuca_tools.plan.link_operations import CreateLink
from neuca_tools.plan.operation import of_kind
from neuca_tools.state.active_document import NOT_ASKED, Intake, keep_document
from neuca_tools.state.store import NO_ROOM, save_unsaved_files, save_unsaved_reason
from neuca_tools.status.judge import Report, Status


def run_pass(
    config: Config,
    intake: Intake,
    whole: bool,
    left_out: Optional[Mapping[str, int]] = None,
    *,
    waits_for_dad: bool = True,
) -> tuple[Report, Status]:
    """Make one pass, to be called with the lock held, and request a run for the guest's settings.

    A `whole` pass corrects all drift. Otherwise, unless `drift = enforce`, only the NICs change
    whose request has changed or that have appeared. `left_out` are parts of the scope that failed
    in earlier passes, with the interface index that each had then (0: none): they are not tried
    again, unless the interface has another index now. A pass that does not wait leaves a route to a
    later one if the kernel still checks its source address for duplicates. Raises NeucaError.
    """
    try:
        config.demand_protection()
        with open_host(config, intake) as host:
            if not waits_for_dad:
                host.dad_seconds = 0.0
            report, decision = _apply_document(host, whole, left_out or {})
            # The sources are asked next: until they were, the document counts as theirs.
            is_stale = intake.stale and intake.reason != NOT_ASKED
            return report, status_of(config, intake._replace(stale=is_stale), decision, report)
    except ApplyError as error:
        if error.errno in NO_ROOM:
            with suppress(ApplyError):  # the run directory may be full too
                save_unsaved_reason(config.state, error.text)
        raise
    finally:  # also after a failure: logins wait for the guest settings
        guest.request_run(config, intake)


def _apply_document(
    host: Host, whole: bool, left_out: Mapping[str, int]
) -> tuple[Report, Decision]:
    """Save the document, decide and apply, and return the report with the last decision.

    The document is saved first: it is the active one from then on, even if this pass fails.
    """
    began, config = time.monotonic(), host.config
    save_unsaved_files(config.state)
    first_boot.record_machine(config, host.intake)
    keep_document(host.intake, config.state, config.run_directory)
    decision = decide_pass(host)
    indexes = indexes_of(decision)
    not_retried = {name for name, index in left_out.items() if index == indexes.get(name, 0)}
    scope = None
    if not whole:
        select = decision.enforced if config.drift == "enforce" else decision.changed
        scope = select(not_retried)
    outcome = Transaction(host, Pass(scope, not_retried), decision).run()
    save_unsaved_files(config.state)
    seconds = time.monotonic() - began
    report = report_pass(config, decision, outcome, seconds, not_retried=not_retried)
    failed = failed_parts(outcome, decision, not_retried)
    links = outcome.decision.observed.links
    created = [operation.on.key for operation in of_kind(outcome.result.done, CreateLink)]
    new_links = host.processed_links([links[key].index for key in created if key in links])
    # An age that was reached during the pass is due at once: its scope was decided before.
    later_ages = decision.world.later_ages | outcome.decision.world.later_ages
    next_age = min(later_ages, default=None)
    report = report._replace(failed=failed, new_links=tuple(new_links), next_age=next_age)
    return report, outcome.decision
