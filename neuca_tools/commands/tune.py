"""`neuca tune audit`, `plan`, `apply` and `revert`: what tuning is in force, what it would do, and taking it back."""

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

Read = TypeVar("Read")


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
    {"audit": _audit, "plan": _plan}[arguments.action](arguments, survey, link)
    return _exit_code(config, intake, survey)


def _choice(arguments: argparse.Namespace, config: Config) -> Optional[Choice]:
    """What the command line says over what is in force; None if it says nothing."""
    if arguments.profile is None and arguments.rate is None and arguments.rtt is None:
        return None
    now = load_choice(config.run_directory) or config.choice
    profiles = _read("profile", profile_names, arguments.profile) or now.profiles
    return Choice(
        profiles,
        _read("rate", arithmetic.rate, arguments.rate) or now.rate,
        _read("rtt", arithmetic.rtt, arguments.rtt) or now.rtt,
    )


def _read(option: str, reader: Callable[[str], Read], text: Optional[str]) -> Optional[Read]:
    try:
        return None if text is None else reader(text)
    except UnusableError as reason:
        raise UsageError(f"tune --{option}: {reason}") from None


def _link(text: str, survey: Decision) -> LinkKey:
    names = {
        **survey.resolution.names,
        **{key: link.name or "" for key, link in survey.have.links.items()},
    }
    key = find_link(text, survey.resolution, names)
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
    count = len(result.done)
    print(
        f"{count} setting{'' if count == 1 else 's'} changed" if count else "all is as it should be"
    )
    if choice is not None:
        print(
            f"profile {', '.join(choice.profiles)} holds until the next boot; [tuning] in the configuration keeps it"
        )
    return EXIT_FAILED if result.failures else EXIT_OK


def _revert(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.profile or arguments.rate or arguments.rtt or arguments.interface:
        raise UsageError(
            "tune revert: it puts back everything, and takes no --profile, --rate, --rtt or --interface"
        )
    to_stderr()
    result = untune(config, last_good(config.state))
    count = sum(not isinstance(operation, WriteFile) for operation in result.done)
    print(
        f"{count} setting{'' if count == 1 else 's'} put back; a start of neucad sets again what the configuration asks for"
        if count
        else "nothing was changed, so nothing is put back"
    )
    return EXIT_FAILED if result.failures else EXIT_OK


def _plan(arguments: argparse.Namespace, survey: Decision, link: Optional[LinkKey]) -> None:
    todo = Tuning(link).operations(survey)
    if arguments.json:
        print(
            json.dumps(
                {"version": 1, "operations": [operation.to_json() for operation in todo]}, indent=1
            )
        )
    else:
        print(render.plan(todo, (), {}))


def _audit(arguments: argparse.Namespace, survey: Decision, link: Optional[LinkKey]) -> None:
    data = {"version": 1, **audit.to_json(survey.resolution, survey.have, link)}
    data["notes"] += hostfacts.open_files(survey.resolution.tuning.choice)
    print(json.dumps(data, indent=1) if arguments.json else render.tuning(data))


def _exit_code(config: Config, intake: Intake, survey: Decision) -> int:
    invalid = survey.resolution.tuning.faults
    return report_faults(intake, config) or (EXIT_INVALID if invalid else EXIT_OK)
