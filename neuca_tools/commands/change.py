"""`neuca apply`, `release` and `revert`, which hold the same lock as the passes of the daemon."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from typing import Optional

from neuca_tools.agent.first_boot import check
from neuca_tools.agent.reconcile import run_pass
from neuca_tools.agent.release import release, revert, take_back
from neuca_tools.apply.execute import Result
from neuca_tools.apply.host import host
from neuca_tools.commands.context import (
    configuration,
    document,
    report_faults,
    require_root,
    untold,
)
from neuca_tools.commands.logs import to_stderr
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_FAILED, EXIT_OK, UsageError
from neuca_tools.guest import outcome
from neuca_tools.plan.operations import WriteFile
from neuca_tools.state.active_document import last_good
from neuca_tools.status import render
from neuca_tools.status.judge import find_link


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    require_root(f"neuca {arguments.command}")
    to_stderr()
    commands = {"apply": _apply, "release": _release, "revert": _revert}
    return commands[arguments.command](arguments, config)


def apply_once(config: Config, source: Optional[str] = None) -> int:
    """Make one pass, print what it did not do, and return the exit code of `neuca status`."""
    check(config)
    intake = document(config, source)
    try:
        report, status = run_pass(config, intake, start=True)
    finally:
        outcome.ask(config, intake)
    code = report_faults(intake, config) or status.exit_code
    for line in render.undone(untold(status.problems, intake, config), status.names):
        print(line)
    print(render.applied(status.data["state"], len(report.changed), status.problems))
    return code


def _apply(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.trial is not None:
        from neuca_tools.commands.trial import apply_on_trial

        return apply_on_trial(config, arguments.source, arguments.trial)
    return apply_once(config, arguments.source)


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
        take_back(config, key.mac)
        print(f"{key.mac} is no longer ignored")
        run_pass(config, intake, start=False)
        return EXIT_OK
    result = release(config, intake, key.mac)
    print(f"{names.get(key, key.mac)} is released and ignored; neuca release --undo ends that")
    if "networkmanager" in survey.managers:
        text = "it may manage the NIC after the next boot or after a restart of its own"
        print(f"The running NetworkManager was not informed: {text}.")
    return EXIT_FAILED if result.failures else EXIT_OK


def _revert(_: argparse.Namespace, config: Config) -> int:
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
