"""A pass: its decision, its purpose, and its report in the journal and the run directory."""

# SPDX-License-Identifier: MIT

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import Host, journal_fields, log_result
from neuca_tools.apply.result import Failure, Result
from neuca_tools.apply.transaction import Outcome, Purpose
from neuca_tools.config import Config
from neuca_tools.model import Problem, ProblemCode, Record, messages
from neuca_tools.model.routing import ROUTES_OF
from neuca_tools.plan.link_operations import MarkLink
from neuca_tools.plan.operation import Operation, Plan, Scope, of_kind
from neuca_tools.plan.operations import ReloadManager, StartClient, WriteFile, WriteSysctl
from neuca_tools.plan.route_operations import ReplaceRoute
from neuca_tools.state import changes, leftovers, updates
from neuca_tools.status.judge import Report
from neuca_tools.status.report import read_report, report_now, write_report

log = logging.getLogger("neuca")

MAX_REMOVED = 1000  # lines that status keeps until the next boot


def decide_pass(host: Host) -> Decision:
    """The decision of a pass, with the name of each NIC in its record, which is saved first."""
    decision = host.survey()
    return decision._replace(record=updates.remember_nics(decision.record, decision.resolution))


@dataclass(frozen=True)
class Pass(Purpose):
    """The purpose of a pass: set up the NICs in `scope` as the document asks; None: all NICs.

    Routes that each pass sets, such as those of policy routing, wait on NICs `not_retried`.
    """

    scope: Scope = None
    not_retried: Collection[str] = ()

    def operations(self, decision: Decision) -> Plan:
        planned, waiting = decision.plan(self.scope), {*self.not_retried}
        return tuple(
            new
            for new in planned
            if not isinstance(new, ReplaceRoute) or waiting.isdisjoint(new.failing_domains)
        )

    def remember(self, decision: Decision, result: Result, postponed: Plan) -> Record:
        """What is ours, which request is active for each NIC, and what managers left behind."""
        resolution, observed, world = decision.resolution, decision.observed, decision.world
        record = updates.remember_nics(super().remember(decision, result, postponed), resolution)
        notified = {operation.manager for operation in of_kind(result.done, ReloadManager)}
        record = leftovers.without_settled(record, observed, world, world.silent_managers, notified)
        unheard = self._unanswered_nics(decision)
        if any(isinstance(failure.operation, ReloadManager) for failure in result.failures):
            unheard |= {mac for mac, nic in record.nics.items() if nic.role == "dataplane"}
        record = leftovers.change_nics(record, unheard, unheard=True)
        failed = result.nics_to_roll_back.union(*(operation.domains for operation in postponed))
        failed |= result.nics_waiting_for_address | {key.mac for key in result.missing_vlans}
        if result.failures and _host_operations(decision):
            failed |= {""}
        retry = result.refused_settings
        return updates.record_applied(
            record, resolution, world, scope=self.scope, failed=failed, retry=retry
        )

    def _unanswered_nics(self, decision: Decision) -> set[str]:
        """The NICs of this pass on which NetworkManager is to do DHCP, if it does not respond.

        It may have begun DHCP with a profile of its own there.
        """
        if "networkmanager" not in decision.world.silent_managers:
            return set()
        macs = {key.mac for key, link in decision.desired.links.items() if link.profile}
        return macs if self.scope is None else macs & {*self.scope}


def _host_operations(decision: Decision) -> list[Operation]:
    """What is planned of the part that belongs to no NIC, without what has retries of its own."""
    planned = decision.plan(decision.host_scope())
    retried = (WriteFile, WriteSysctl, ReloadManager, MarkLink)
    return [operation for operation in planned if not isinstance(operation, retried)]


def _log_outcome(outcome: Outcome, removed: Sequence[str]) -> None:
    log_result(outcome.result)
    for text in removed:
        log.info("%s", text)
    for declined in outcome.result.declined:
        log.warning("%s, ignoring", declined.text)
    for operation in outcome.rolled_back.done:
        fields = journal_fields(messages.UNDONE, operation)
        log.warning("rolled back: %s", operation.text, extra=fields)
    for failure in outcome.rolled_back.reported_failures:
        log.error("could not be rolled back: %s", failure.text)


def log_change(config: Config, outcome: Outcome) -> Result:
    """Log a change other than a pass; add what cannot be rolled back to the report of the last one.

    Returns what was done and what failed, including the roll-back.
    """
    _log_outcome(outcome, ())
    rolled_back = outcome.rolled_back
    if rolled_back.failures:
        report = read_report(config.run_directory)
        report = report or report_now(0.0, (), (), bool(rolled_back.done))
        write_report(config.state, report._replace(not_rolled_back=_stuck_problems(outcome)))
    return outcome.result + Result(failures=rolled_back.failures)


def _stuck_problems(outcome: Outcome) -> tuple[Problem, ...]:
    problems = map(_problem_of, outcome.rolled_back.reported_failures)
    return tuple(
        problem._replace(code="failed", text=f"could not be rolled back: {problem.text}")
        for problem in problems
    )


def report_pass(
    config: Config,
    before: Decision,
    outcome: Outcome,
    seconds: float,
    not_retried: Collection[str] = (),
) -> Report:
    """Log a pass that took `seconds`, and store its report in the run directory.

    `before` is the decision before the transaction. `not_retried`: the parts of the scope that were
    left out because they failed in earlier passes; their problems stay in the report.
    """
    leftovers_before, leftovers_now = (
        set(leftovers.describe_leftovers(decision.record, decision.observed, decision.world))
        for decision in (before, outcome.decision)
    )
    removed = [f"{text}: removed" for text in sorted(leftovers_before - leftovers_now)]
    _log_outcome(outcome, removed)
    problems = tuple(map(_problem_of, outcome.result.reported_failures))
    not_rolled_back = _stuck_problems(outcome)
    texts = tuple(operation.text for operation in outcome.result.done)
    last = read_report(config.run_directory)
    if last and not_retried:
        tried = _tried_parts(outcome).difference(not_retried)
        problems = tuple(dict.fromkeys((*problems, *_problems_left(last.problems, tried))))
        not_rolled_back += tuple(_problems_left(last.not_rolled_back, tried))
    all_removed = (*(last.removed if last else ()), *removed)[-MAX_REMOVED:]
    report = report_now(seconds, texts, problems, bool(outcome.rolled_back.done), all_removed)
    report = report._replace(not_rolled_back=not_rolled_back)
    write_report(config.state, report)
    return report


def failed_parts(
    outcome: Outcome, before: Decision, not_retried: Collection[str]
) -> dict[str, int]:
    """The parts of the scope that failed, with the index of each interface.

    The index is 0 without an interface, and for a DHCP client. A client that had to be restarted
    counts as failed, so that one that exits at once is not restarted by every event.
    """
    tried = _tried_parts(outcome).difference(not_retried, outcome.result.nics_waiting_for_address)
    indexes, clients = indexes_of(outcome.decision), before.observed.clients
    parts = outcome.decision.unapplied_scope() | outcome.result.nics_to_roll_back
    failed = {name: indexes.get(name, 0) for name in parts & tried}
    started = of_kind(outcome.result.done, StartClient)
    return failed | {client.label: 0 for client in started if clients.get(client.label) == ""}


def _tried_parts(outcome: Outcome) -> frozenset[str]:
    """The parts of the scope on which an operation was carried out or failed, and the host's."""
    operations = outcome.result.tried_operations
    macs = {operation.link.key.mac for operation in operations if operation.link is not None}
    macs |= outcome.result.nics_to_roll_back
    routes = {f"{ROUTES_OF}{mac}" for mac in macs}
    host = changes.host_scope(outcome.decision.resolution)
    return frozenset({*macs, *routes, *host, *outcome.result.refused_settings})


def _problems_left(problems: Iterable[Problem], tried: Collection[str]) -> Iterator[Problem]:
    """The problems with no link, and those with links that were not tried as a whole."""
    for problem in problems:
        mac = problem.link.mac if problem.link else ""
        if not mac or not {mac, f"{ROUTES_OF}{mac}"}.issubset(tried):
            yield problem


def _problem_of(failure: Failure) -> Problem:
    key = failure.operation.link.key if failure.operation.link else None
    code: ProblemCode = "pending" if failure.waits_for_address else "failed"
    return Problem("unsaved" if failure.is_unsaved else code, failure.text, key)


def indexes_of(decision: Decision) -> dict[str, int]:
    """The interface index of each NIC and virtual link that is present."""
    present = changes.link_appearances(decision.world)
    return {name: appearance.ifindex for name, appearance in present.items()}
