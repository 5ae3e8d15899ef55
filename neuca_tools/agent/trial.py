"""A trial: a pass that is rolled back unless it is confirmed in time (`neuca apply --try`).

A process of its own makes the pass, waits with the lock of passes held, and then keeps the document
or rolls the pass back. It does not end with the terminal. If it is killed or fails, or the host
crashes, its file is left (`trial_file`): the next poll of the daemon makes a pass that returns to
the earlier document and names, or the next boot begins with the earlier record.
"""

# SPDX-License-Identifier: MIT

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from neuca_tools.agent import trial_file
from neuca_tools.agent.in_force import decide_document, note_seen
from neuca_tools.agent.pass_report import Pass, decide_pass, log_change, report_pass
from neuca_tools.agent.status import status_of
from neuca_tools.apply.host import Host, open_host
from neuca_tools.apply.transaction import Transaction
from neuca_tools.config import Config
from neuca_tools.errors import NeucaError
from neuca_tools.files import lock_holder, locked
from neuca_tools.guest import outcome as guest
from neuca_tools.model import Record
from neuca_tools.state import store
from neuca_tools.state.active_document import Intake, keep_document
from neuca_tools.state.records import Trial, load_record
from neuca_tools.status.judge import Report, Status

# How a trial ends: confirmed, rolled back, or with something left that could not be rolled back.
KEPT, ROLLED_BACK, STUCK = "kept", "returned", "stuck"
RESULT = "last-trial.json"  # in the run directory, for `confirm_trial`: process and end of a trial
_SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)  # each of them ends the wait
ShowOutcome = Callable[[Report, Status], None]


def run_trial(
    config: Config,
    intake: Intake,
    seconds: float,
    show_outcome: ShowOutcome,
    *,
    from_own_sources: bool,
) -> str:
    """Make the pass, show its outcome, wait for `seconds`, and return how the trial ended.

    SIGUSR1 confirms the trial; SIGTERM and SIGINT end the wait at once. All three are blocked
    (`block_signals`). For `from_own_sources` see `in_force.decide_document`. Raises NeucaError.
    """
    with locked(config.pass_lock, config.command_timeout):
        store.demand_room(config.state)  # nothing is tried whose roll-back could not be recorded
        trial_file.recover_from_trial(config)  # one that was killed: its file is replaced
        intake = decide_document(
            config, intake, from_own_sources=from_own_sources, even_if_seen=True
        )
        note_seen(config, intake.seen)  # else the next poll would apply it, even after a roll-back
        earlier_record = load_record(config.state)
        with open_host(config, intake) as host:
            end = _pass_on_trial(host, earlier_record, seconds, show_outcome)
        store.save_state(config.run_directory, RESULT, {"pid": os.getpid(), "end": end}, 0o644)
    if end == KEPT:
        guest.request_run(config, intake)
    return end


def _pass_on_trial(
    host: Host, earlier_record: Record, seconds: float, show_outcome: ShowOutcome
) -> str:
    """Make the pass; unless it is confirmed, roll it back, whatever else happens.

    The file of the trial is written before the first change, for a process that is killed. It is
    removed once the document is saved or the roll-back is complete, and stays otherwise.
    """
    config, intake = host.config, host.intake
    host.remove_journal()  # a pass that was interrupted is made again after the roll-back
    decision = decide_pass(host)
    transaction = Transaction(host, Pass(scope=None), decision)
    trial_file.save_trial(config, intake, seconds, earlier_record, decision)
    began, end = time.monotonic(), STUCK
    try:
        outcome = transaction.run()
        report = report_pass(config, decision, outcome, time.monotonic() - began)
        # The seconds are for the user to look at what the pass has done.
        trial_file.save_trial(config, intake, seconds, earlier_record, decision)
        show_outcome(report, status_of(config, intake, outcome.decision, report))
        received = signal.sigtimedwait(_SIGNALS, seconds)
        if received is not None and received.si_signo == signal.SIGUSR1:
            keep_document(intake, config.state, config.run_directory)
            end = KEPT
            trial_file.remove_trial(config)
    finally:
        if end != KEPT:
            result = log_change(config, transaction.roll_back(decision.observed))
            if not result.failures:
                trial_file.restore_record(config, earlier_record)
                end = ROLLED_BACK
                trial_file.remove_trial(config)
    return end


def confirm_trial(config: Config) -> None:
    """Confirm the trial in progress, and wait until it has been kept. Raises NeucaError."""
    pid = (trial_file.stored_trial(config) or Trial()).pid
    if not pid or pid != lock_holder(config.pass_lock):
        raise NeucaError("confirm: no trial is in progress")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
    with locked(config.pass_lock, config.command_timeout):
        result = store.read_state(config.run_directory, RESULT) or {}
    if (result.get("pid"), result.get("end")) != (pid, KEPT):
        raise NeucaError("confirm: too late, the trial has ended")


def block_signals() -> None:
    """Block the signals that `run_trial` waits for, before anybody can know the process id.

    SIGHUP is ignored, because the trial must not end with the terminal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
