"""`neuca apply`, `release` and `revert`, which hold the same lock as the passes of the daemon."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, Optional

from neuca_tools.agent.first_boot import check
from neuca_tools.agent.reconcile import run_pass
from neuca_tools.agent.release import (
    release,
    revert,
    take_back,
    what_release_does,
    what_revert_does,
)
from neuca_tools.apply.execute import Result
from neuca_tools.apply.host import host
from neuca_tools.commands.common import LISTED, log_level, require_root, show, uses_color
from neuca_tools.commands.context import configuration, document, report_faults, untold
from neuca_tools.commands.logs import to_stderr
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_FAILED, EXIT_OK, ArgumentsError, UsageError
from neuca_tools.guest import outcome
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import WriteFile
from neuca_tools.state.active_document import Intake, last_good
from neuca_tools.status import render, render_json
from neuca_tools.status.judge import find_link


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    require_root(arguments.command)
    to_stderr(log_level(arguments))
    commands = {"apply": _apply, "release": _release, "revert": _revert}
    return commands[arguments.command](arguments, config)


def apply_once(
    config: Config, source: Optional[str] = None, *, as_json: bool = False, color: bool = False
) -> int:
    """Make one pass, print what it did not do, and return the exit code of `neuca status`."""
    check(config)
    intake = document(config, source)
    try:
        report, status = run_pass(config, intake, start=True)
    finally:
        outcome.ask(config, intake)
    code = report_faults(intake, config) or status.exit_code
    left = untold(status.problems, intake, config)
    lines = render.undone(left, status.names, color)
    state, changed = status.data["state"], len(report.changed)
    lines.append(render.applied(state, changed, status.problems, color))
    show(render_json.apply_json(report, status), as_json, lambda _: "\n".join(lines))
    return code


def _apply(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.dry_run:
        from neuca_tools.commands.look import plan

        return plan(arguments, config)
    if arguments.trial is not None:
        from neuca_tools.commands.trial import apply_on_trial

        if arguments.json:
            raise ArgumentsError(
                "apply: --try waits for confirmation, and cannot be combined with --json"
            )
        length, color = arguments.trial, uses_color(arguments)
        return apply_on_trial(config, arguments.source, length, color)
    return apply_once(config, arguments.source, as_json=arguments.json, color=uses_color(arguments))


def _release(arguments: argparse.Namespace, config: Config) -> int:
    intake = last_good(config.state)
    with host(config, intake) as handles:
        survey = handles.survey()
    observed = {key: link.name or "" for key, link in survey.have.links.items()}
    names = {**observed, **survey.resolution.names}
    key = find_link(arguments.link, survey.resolution, names)
    if key is None or key.rank:
        raise UsageError(f'release "{arguments.link}": no NIC has this name or MAC', LISTED)
    if arguments.undo:
        return _undo_release(arguments, config, intake, key.mac)
    if arguments.dry_run:
        return show_planned(arguments, what_release_does(config, intake, key.mac))
    result = release(config, intake, key.mac)
    name = names.get(key, key.mac)
    lines = [f"{name} is released and ignored; neuca release --undo reverses this"]
    if result.failures:
        lines = [f"{name} is not released, because an operation failed"]
    elif "networkmanager" in survey.managers:
        text = "it may manage the NIC after the next boot or after a restart of its own"
        lines.append(f"The running NetworkManager was not informed: {text}.")
    return show_changed(arguments, result, "\n".join(lines))


def _undo_release(arguments: argparse.Namespace, config: Config, intake: Intake, mac: str) -> int:
    if arguments.dry_run:
        text = f"{mac} would no longer be ignored"
        show(render_json.plan_json(()), arguments.json, lambda _: text)
        return EXIT_OK
    take_back(config, mac)
    report, status = run_pass(config, intake, start=False)
    text = f"{mac} is no longer ignored"
    show(render_json.apply_json(report, status), arguments.json, lambda _: text)
    return EXIT_OK


def _revert(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.dry_run:
        return show_planned(arguments, what_revert_does(config, last_good(config.state)))
    result = revert(config, last_good(config.state))
    return show_changed(arguments, result, restored(result))


def show_planned(arguments: argparse.Namespace, operations: Iterable[Operation]) -> int:
    """Print what a command other than `apply` would do."""
    planned = tuple(operations)
    text = render.plan(planned, (), {})
    show(render_json.plan_json(planned), arguments.json, lambda _: text)
    return EXIT_OK


def show_changed(arguments: argparse.Namespace, result: Result, text: str) -> int:
    """Print what was done, as JSON or as `text`, and return the exit code."""
    show(changed_json(result), arguments.json, lambda _: text)
    return EXIT_FAILED if result.failures else EXIT_OK


def changed_json(result: Result) -> dict[str, Any]:
    """`neuca release --json`, `revert` and `tune apply`: what was done, and what failed."""
    return {
        "version": 1,
        "operations": [one.to_json() for one in result.done],
        "failures": [{**one.operation.to_json(), "reason": one.reason} for one in result.failures],
    }


def restored(result: Result, more: str = "") -> str:
    """How many settings were restored, followed by `more`."""
    count = sum(not isinstance(operation, WriteFile) for operation in result.done)
    if count:
        return f"{settings(count)} restored{more}"
    return "nothing was changed, so there is nothing to restore"


def settings(count: int) -> str:
    """A number of settings in words."""
    return "1 setting" if count == 1 else f"{count} settings"
