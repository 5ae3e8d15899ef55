"""`neuca status`, `plan`, `show` and `explain`, which change nothing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from neuca_tools.agent.status import status_now
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import host
from neuca_tools.commands.context import configuration, document, report_faults
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_PENDING, UsageError
from neuca_tools.guest.outcome import with_guest
from neuca_tools.guest.supervisor import INSIDE
from neuca_tools.model import LinkKey
from neuca_tools.state.active_document import Intake, confirmed
from neuca_tools.status import render, render_json
from neuca_tools.status.judge import Status, find_link

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments, quiet=arguments.command == "status")
    commands = {"status": _status, "plan": _plan, "show": _show, "explain": _explain}
    return commands[arguments.command](arguments, config)


def _status(arguments: argparse.Namespace, config: Config) -> int:
    status = _current_status(config)
    deadline = time.monotonic() + arguments.timeout
    while arguments.wait and status.exit_code == EXIT_PENDING:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        _wait_for_change(min(left, 1.0))
        status = _current_status(config)
    if arguments.json:
        print(json.dumps(status.data, indent=1))
    else:
        print(render.status(status.data, sys.stdout.isatty()))
    return status.exit_code


def _current_status(config: Config) -> Status:
    """The status of the network and of the guest features.

    A script that runs as a guest feature sees the network alone: it would wait for itself.
    """
    network = status_now(config, confirmed(config.state, config.run_directory))
    return network if INSIDE in os.environ else with_guest(network, config.run_directory)


def _wait_for_change(seconds: float) -> None:
    """Wait until the kernel reports a change of links or addresses, or until the time is up."""
    from neuca_tools.backends.linkwatch import Watch

    with Watch() as watch:
        watch.wait(seconds)


def _survey(arguments: argparse.Namespace, config: Config) -> tuple[Intake, Decision]:
    intake = document(config, arguments.source)
    with host(config, intake) as handles:
        return intake, handles.survey()


def _plan(arguments: argparse.Namespace, config: Config) -> int:
    intake, survey = _survey(arguments, config)
    operations = survey.plan()
    if arguments.json:
        print(json.dumps(render_json.plan_json(operations), indent=1))
    else:
        print(render.plan(operations, survey.resolution.problems, survey.resolution.names))
    return report_faults(intake, config)


def _show(arguments: argparse.Namespace, config: Config) -> int:
    data: dict[str, Any]
    if arguments.stage == "document":
        intake = document(config, arguments.source)
        data = render_json.document_json(intake.document, intake.stored)
    elif arguments.stage == "observed":
        intake, survey = _survey(arguments, config)
        data = render_json.observed_json(survey.world)
    else:
        intake, survey = _survey(arguments, config)
        data = render_json.desired_json(survey.resolution)
    print(json.dumps(data, indent=1) if arguments.json else render.tree(data))
    return report_faults(intake, config)


def _explain(arguments: argparse.Namespace, config: Config) -> int:
    intake, survey = _survey(arguments, config)
    key = find_link(arguments.link, survey.resolution, link_names(survey))
    if key is None:
        raise UsageError(
            f'explain "{arguments.link}": no interface has this name or MAC here, nor in the document'
        )
    data = render_json.explanation(key, survey.resolution, survey.have, survey.record)
    print(json.dumps(data, indent=1) if arguments.json else render.explain(data))
    return report_faults(intake, config)


def link_names(survey: Decision) -> dict[LinkKey, str]:
    """The names by which a user may refer to a link: the current one, else the requested one."""
    current = {key: link.name or "" for key, link in survey.have.links.items()}
    return {**survey.resolution.names, **current}
