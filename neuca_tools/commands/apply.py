"""`neuca apply`, which holds the same lock as the passes of the daemon, and `neucad --once`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Optional

from neuca_tools.agent import trial_file
from neuca_tools.agent.first_boot import set_aside_foreign_state
from neuca_tools.agent.in_force import document_in_force
from neuca_tools.agent.reconcile import run_pass
from neuca_tools.commands import context
from neuca_tools.commands.common import require_root, show, uses_color
from neuca_tools.commands.logs import to_stderr
from neuca_tools.config import Config
from neuca_tools.errors import ArgumentsError
from neuca_tools.model import Problem
from neuca_tools.model.printable import painted_lines
from neuca_tools.state.active_document import Intake
from neuca_tools.status import render
from neuca_tools.status.judge import Status

# Imports inside functions: a pass without --json, --dry-run or --try saves 3 ms.

log = logging.getLogger("neuca")

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    config = context.load_configuration(arguments)
    if arguments.dry_run:
        from neuca_tools.commands.look import show_plan

        return show_plan(arguments, config)
    begin_change("apply", arguments, config)
    if arguments.trial is None:
        return apply_once(
            config, arguments.source, as_json=arguments.json, color=uses_color(arguments)
        )
    from neuca_tools.commands.trial import apply_on_trial

    if arguments.json:
        reason = "--try waits for confirmation, and cannot be combined with --json"
        raise ArgumentsError(f"apply: {reason}")
    return apply_on_trial(config, arguments.source, arguments.trial, uses_color(arguments))


def begin_change(command: str, arguments: argparse.Namespace, config: Config) -> None:
    """Require root, log to standard error, with --quiet only errors, and say what is waited for.

    That is a trial, until it ends or for `command-timeout`. `command` is named as after "neuca".
    """
    require_root(command)
    to_stderr("ERROR" if arguments.quiet else "INFO")
    is_dry_run = getattr(arguments, "dry_run", False)  # `trust` has none
    if not is_dry_run and trial_file.is_running(trial_file.stored_trial(config)):
        log.warning("waiting: %s", trial_file.trial_note(config))


def apply_once(
    config: Config, source: Optional[str] = None, *, as_json: bool = False, color: bool = False
) -> int:
    """Make one pass, print what it did not do, and return the exit code."""
    set_aside_foreign_state(config)
    read = partial(context.read_document, config, source)
    return make_pass(config, read, from_own_sources=source is None, as_json=as_json, color=color)


def make_pass(
    config: Config,
    read: Callable[[], Intake],
    *,
    prepare: Callable[[], str] = str,
    from_own_sources: bool,
    as_json: bool,
    color: bool,
) -> int:
    """Make one pass over the document that `read` returns, print the outcome, return the exit code.

    `prepare` is called with the lock held, and returns what to print first.
    """
    with document_in_force(
        config, read, from_own_sources=from_own_sources, even_if_seen=True
    ) as intake:
        headline = prepare()
        report, status = run_pass(config, intake, whole=True)
    code = context.report_faults(intake, config) or status.exit_code
    left = context.problems_not_printed(status.problems, intake, config)
    text = headline + outcome_text(status, len(report.changed), left, color)
    data = {}
    if as_json:
        from neuca_tools.status.render_json import apply_json

        data = apply_json(report, status)
    show(data, as_json, lambda _: text)
    return code


def outcome_text(status: Status, changed: int, left: Iterable[Problem], color: bool) -> str:
    """What a pass did not do, and its last line."""
    last = render.outcome_line(status.data["state"], changed, status.problems, color)
    return painted_lines("\n".join([*render.unfulfilled_lines(left, status.names, color), last]))
