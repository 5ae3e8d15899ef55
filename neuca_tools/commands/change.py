"""`neuca apply`, `release` and `revert`, which hold the same lock as the passes of the daemon."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from typing import Optional

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
from neuca_tools.commands.context import (
    configuration,
    document,
    log_level,
    report_faults,
    require_root,
    show,
    untold,
    uses_color,
)
from neuca_tools.commands.logs import to_stderr
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_FAILED, EXIT_OK, UsageError
from neuca_tools.guest import outcome
from neuca_tools.plan.operations import WriteFile
from neuca_tools.state.active_document import Intake, last_good
from neuca_tools.status import render, render_json
from neuca_tools.status.judge import find_link


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    require_root(f"neuca {arguments.command}")
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

        return apply_on_trial(config, arguments.source, arguments.trial)
    return apply_once(config, arguments.source, as_json=arguments.json, color=uses_color(arguments))


def _release(arguments: argparse.Namespace, config: Config) -> int:
    intake = last_good(config.state)
    with host(config, intake) as handles:
        survey = handles.survey()
    observed = {key: link.name or "" for key, link in survey.have.links.items()}
    names = {**observed, **survey.resolution.names}
    key = find_link(arguments.link, survey.resolution, names)
    if key is None or key.rank:
        raise UsageError(f'release "{arguments.link}": no NIC has this name or MAC')
    if arguments.undo:
        return _undo_release(config, intake, key.mac, arguments.dry_run)
    if arguments.dry_run:
        operations = what_release_does(config, intake, key.mac)
        print(render.plan(operations, (), {}))
        return EXIT_OK
    result = release(config, intake, key.mac)
    print(f"{names.get(key, key.mac)} is released and ignored; neuca release --undo ends that")
    if "networkmanager" in survey.managers:
        text = "it may manage the NIC after the next boot or after a restart of its own"
        print(f"The running NetworkManager was not informed: {text}.")
    return EXIT_FAILED if result.failures else EXIT_OK


def _undo_release(config: Config, intake: Intake, mac: str, dry_run: bool) -> int:
    if dry_run:
        print(f"{mac} would no longer be ignored")
        return EXIT_OK
    take_back(config, mac)
    print(f"{mac} is no longer ignored")
    run_pass(config, intake, start=False)
    return EXIT_OK


def _revert(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.dry_run:
        operations = what_revert_does(config, last_good(config.state))
        print(render.plan(operations, (), {}))
        return EXIT_OK
    return print_restored(revert(config, last_good(config.state)))


def print_restored(result: Result, more: str = "") -> int:
    """Print how many settings were restored, followed by `more`, and return the exit code."""
    count = sum(not isinstance(operation, WriteFile) for operation in result.done)
    if count:
        print(f"{settings(count)} restored{more}")
    else:
        print("nothing was changed, so there is nothing to restore")
    return EXIT_FAILED if result.failures else EXIT_OK


def settings(count: int) -> str:
    """A number of settings in words."""
    return "1 setting" if count == 1 else f"{count} settings"
