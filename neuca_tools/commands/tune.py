"""`neuca tune`: shows, plans, applies and reverts the tuning of the host."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Callable, Optional, TypeVar

from neuca_tools.agent.tune import Tuning, tune, untune
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import host
from neuca_tools.backends import hostfacts
from neuca_tools.commands.context import configuration, document, is_root, report_faults
from neuca_tools.commands.logs import to_stderr
from neuca_tools.commands.look import link_names
from neuca_tools.config import Config
from neuca_tools.config.options import profile_names
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.errors import EXIT_FAILED, EXIT_INVALID, EXIT_OK, NeucaError, UsageError
from neuca_tools.model import LinkKey
from neuca_tools.plan.operations import WriteFile
from neuca_tools.state.active_document import Intake, last_good
from neuca_tools.state.records import load_choice
from neuca_tools.status import audit, render
from neuca_tools.status.judge import find_link
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.layer import Choice

if TYPE_CHECKING:
    import argparse

Value = TypeVar("Value")


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    if arguments.action in ("apply", "revert") and not is_root():
        raise NeucaError(f"neuca tune {arguments.action}: only root may do this")
    if arguments.action == "revert":
        return _revert(arguments, config)
    choice = _choice(arguments, config)
    intake = document(config, arguments.source)
    with host(config, intake, choice) as handles:
        survey = handles.survey()
    link = _link(arguments.interface, survey) if arguments.interface else None
    if arguments.action == "apply":
        return _apply(config, intake, survey, choice, link)
    show = {"audit": _audit, "plan": _plan}[arguments.action]
    show(arguments, survey, link)
    return _exit_code(config, intake, survey)


def _choice(arguments: argparse.Namespace, config: Config) -> Optional[Choice]:
    """The choice in effect with what the command line overrides; None if it overrides nothing."""
    profiles = _parse("profile", profile_names, arguments.profile)
    rate = _parse("rate", arithmetic.rate, arguments.rate)
    rtt = _parse("rtt", arithmetic.rtt, arguments.rtt)
    if (arguments.profile, arguments.rate, arguments.rtt) == (None, None, None):
        return None
    current = load_choice(config.run_directory) or config.choice
    return Choice(profiles or current.profiles, rate or current.rate, rtt or current.rtt)


def _parse(option: str, parse: Callable[[str], Value], text: Optional[str]) -> Optional[Value]:
    if text is None:
        return None
    try:
        return parse(text)
    except UnusableError as reason:
        raise UsageError(f"tune --{option}: {reason}") from None


def _link(text: str, survey: Decision) -> LinkKey:
    key = find_link(text, survey.resolution, link_names(survey))
    if key is None or key not in survey.resolution.want.links:
        raise UsageError(
            f'tune --interface "{text}": no dataplane interface here has this name or MAC'
        )
    return key


def _apply(
    config: Config,
    intake: Intake,
    survey: Decision,
    choice: Optional[Choice],
    link: Optional[LinkKey],
) -> int:
    if survey.resolution.tuning.faults:
        raise UsageError(f"tune: {survey.resolution.tuning.faults[0]}")
    to_stderr()
    result = tune(config, intake, choice, link)
    if result.done:
        print(f"{_settings(len(result.done))} changed")
    else:
        print("all is as it should be")
    if choice is not None:
        print(
            f"profile {', '.join(choice.profiles)} holds until the next boot; [tuning] in the configuration keeps it"
        )
    return EXIT_FAILED if result.failures else EXIT_OK


def _revert(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.profile or arguments.rate or arguments.rtt or arguments.interface:
        raise UsageError(
            "tune revert: it restores everything, and takes no --profile, --rate, --rtt or --interface"
        )
    to_stderr()
    result = untune(config, last_good(config.state))
    count = sum(not isinstance(operation, WriteFile) for operation in result.done)
    if count:
        print(
            f"{_settings(count)} restored; the next start of neucad sets what the configuration requests"
        )
    else:
        print("nothing was changed, so there is nothing to restore")
    return EXIT_FAILED if result.failures else EXIT_OK


def _settings(count: int) -> str:
    return "1 setting" if count == 1 else f"{count} settings"


def _plan(arguments: argparse.Namespace, survey: Decision, link: Optional[LinkKey]) -> None:
    operations = Tuning(link).operations(survey)
    if not arguments.json:
        print(render.plan(operations, (), {}))
        return
    rows = [operation.to_json() for operation in operations]
    print(json.dumps({"version": 1, "operations": rows}, indent=1))


def _audit(arguments: argparse.Namespace, survey: Decision, link: Optional[LinkKey]) -> None:
    data = {"version": 1, **audit.to_json(survey.resolution, survey.have, link)}
    data["notes"] += hostfacts.open_files(survey.resolution.tuning.choice)
    print(json.dumps(data, indent=1) if arguments.json else render.tuning(data))


def _exit_code(config: Config, intake: Intake, survey: Decision) -> int:
    invalid = survey.resolution.tuning.faults
    return report_faults(intake, config) or (EXIT_INVALID if invalid else EXIT_OK)
