"""`neuca apply --try` and `neuca confirm`: a pass that is rolled back unless it is confirmed."""

# SPDX-License-Identifier: MIT

import argparse
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn, Optional, TextIO, Union

from neuca_tools.agent import trial, trial_file
from neuca_tools.agent.first_boot import set_aside_foreign_state
from neuca_tools.agent.status import expected_outcome
from neuca_tools.apply.host import survey_host
from neuca_tools.commands import context
from neuca_tools.commands.apply import outcome_text
from neuca_tools.commands.common import require_root
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_FAILED, EXIT_OK, NeucaError
from neuca_tools.model.printable import painted_lines
from neuca_tools.state.active_document import Intake, stored_document
from neuca_tools.status.judge import Report, Status

NOT_ROLLED_BACK = "not everything could be rolled back: see neuca status"
ENDS = {
    trial.KEPT: "confirmed: the document is now the active one",
    trial.ROLLED_BACK: "not confirmed: rolled back to the previous configuration",
    trial.STUCK: f"not confirmed, and {NOT_ROLLED_BACK}",
}
_LARGEST = 65536  # bytes that are read at once


def run(arguments: argparse.Namespace) -> int:
    """`neuca confirm`."""
    config = context.load_configuration(arguments)
    require_root("confirm")
    trial.confirm_trial(config)
    print("kept")
    return context.exit_code(config)


def apply_on_trial(config: Config, source: Optional[str], length: float, color: bool) -> int:
    """Try a document; return EXIT_FAILED if it was rolled back, else that of its faults.

    If it is the active one, and all is as it requests, there is nothing to try. Raises NeucaError.
    """
    config.demand_protection()
    set_aside_foreign_state(config)
    intake = context.read_document(config, source)
    code = context.report_faults(intake, config)
    if intake.document is None:
        raise NeucaError("apply --try: there is no document to try")
    survey = survey_host(config, intake)
    if intake.stored == stored_document(config.state) and not survey.plan():
        _, after = expected_outcome(config, intake, survey)
        left = context.problems_not_printed(after.problems, intake, config)
        print(outcome_text(after, 0, left, color))
        return code or after.exit_code
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run_in_child(config, intake, length, theirs, from_own_sources=source is None, color=color)
    theirs.close()
    with ours:
        return _watch_child(ours, pid, code)


def _run_in_child(
    config: Config,
    intake: Intake,
    length: float,
    parent: socket.socket,
    *,
    from_own_sources: bool,
    color: bool,
) -> NoReturn:
    """The process of the trial, which has no terminal to lose."""
    code, end_text = EXIT_FAILED, ""
    try:
        os.setsid()
        trial.block_signals()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

        def tell(report: Report, status: Status) -> None:
            left = context.problems_not_printed(status.problems, intake, config)
            done = outcome_text(status, len(report.changed), left, color)
            wait = f"on trial for {length:g} s: press Enter, or run neuca confirm, to keep it"
            _send_to_command(parent, f"{done}\n{wait}\n")

        end = trial.run_trial(config, intake, length, tell, from_own_sources=from_own_sources)
        end_text = ENDS[end]
        code = EXIT_OK if end == trial.KEPT else EXIT_FAILED
    except NeucaError as error:
        end_text = f"neuca: {error.text}"
    finally:
        defect = sys.exc_info()[1]
        if defect:
            end_text = f"neuca: apply --try: rolled back because of a bug: {defect!r}"
            if trial_file.stored_trial(config):
                end_text = f"neuca: apply --try: {NOT_ROLLED_BACK}, after a bug: {defect!r}"
        _send_to_command(parent, f"{end_text}\n")
        parent.close()
        os._exit(code)


def _send_to_command(parent: socket.socket, text: str) -> None:
    """Tell the command, which may be gone."""
    with suppress(OSError):
        parent.sendall(painted_lines(text).encode())


def _watch_child(child: socket.socket, pid: int, code: int) -> int:
    """Print what the child sends; a line from the terminal confirms, an interrupt rolls back.

    A KeyboardInterrupt while a text is being written would have it written again.
    """
    before = signal.signal(signal.SIGINT, lambda *_: os.kill(pid, signal.SIGTERM))
    waiting: list[Union[socket.socket, TextIO]] = [child]
    if sys.stdin and sys.stdin.isatty():
        waiting.append(sys.stdin)
    while True:
        ready, _, _ = select.select(waiting, [], [])
        if sys.stdin in ready:
            waiting.remove(sys.stdin)
            if os.read(sys.stdin.fileno(), _LARGEST):
                os.kill(pid, signal.SIGUSR1)
        if child in ready:
            text = child.recv(_LARGEST)
            if not text:
                break
            sys.stdout.write(text.decode("utf-8", "replace"))
            sys.stdout.flush()
    signal.signal(signal.SIGINT, before)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raise NeucaError("apply --try: the process of the trial was killed: see neuca status")
    return os.waitstatus_to_exitcode(status) or code
