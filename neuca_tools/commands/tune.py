"""`neuca tune`: shows, plans, applies and reverts the tuning of the host."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from functools import partial
from typing import Callable, Optional, TypeVar

from neuca_tools.agent.change import Tuning, apply_tuning, drop_tuning
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import survey_host
from neuca_tools.apply.result import Result
from neuca_tools.commands.apply import begin_change
from neuca_tools.commands.change import failures_text, show_changed
from neuca_tools.commands.common import LISTED, show, terminal_width, uses_color
from neuca_tools.commands.context import load_configuration, read_document, report_faults
from neuca_tools.commands.links import find_link
from neuca_tools.config import Config
from neuca_tools.config.options import profile_names
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.errors import EXIT_INVALID, EXIT_OK, ArgumentsError, ConfigError, UsageError
from neuca_tools.model import LinkKey
from neuca_tools.model.printable import counted
from neuca_tools.model.rows import StoredDocument
from neuca_tools.state.active_document import Intake, stored_document
from neuca_tools.state.records import load_choice
from neuca_tools.status import audit, render, render_json
from neuca_tools.status.judge import problem_json
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.choice import Choice

Value = TypeVar("Value")


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    action = arguments.action
    if action == "apply" and arguments.dry_run:
        action = "plan"
    if action in ("apply", "revert"):
        begin_change(f"tune {action}", arguments, config)
    if action != "audit":
        config.demand_protection()
    if action == "revert":
        return _revert_tuning(arguments, config)
    return _show_or_apply_tuning(arguments, config, action)


def _show_or_apply_tuning(arguments: argparse.Namespace, config: Config, action: str) -> int:
    choice = _choice_in_effect(arguments, config)
    active = stored_document(config.state)
    intake = read_document(config, arguments.source)
    survey = survey_host(config, intake, choice)
    link = _find_tuned_link(arguments.interface, survey) if arguments.interface else None
    faults = survey.resolution.tuning.faults
    if action == "apply":
        if faults:
            raise (UsageError if arguments.profile else ConfigError)(f"tune: {faults[0]}")
        read = partial(_read_again, config, arguments.source, intake, active)
        code = _apply_tuning(arguments, config, read, choice, link)
        return report_faults(intake, config) or code
    if action == "plan":
        _show_plan(arguments, survey, link)
    else:
        data = {"version": 2, **audit.to_json(survey.resolution, survey.observed, link)}
        text = partial(render.tuning_text, color=uses_color(arguments), width=terminal_width())
        show(data, arguments.json, text)
    return report_faults(intake, config) or (EXIT_INVALID if faults else EXIT_OK)


def _show_plan(arguments: argparse.Namespace, survey: Decision, link: Optional[LinkKey]) -> None:
    operations = Tuning(link).operations(survey)
    problems = survey.resolution.tuning.problems
    text = render.plan_text(operations, problems, {}, uses_color(arguments))
    data = render_json.plan_json(operations)
    data["problems"] = [{"link": None, **problem_json(problem)} for problem in problems]
    show(data, arguments.json, lambda _: text)


def _choice_in_effect(arguments: argparse.Namespace, config: Config) -> Optional[Choice]:
    """The choice in effect, with the options of the command line; None if there are none."""
    profiles = _parse_option("profile", _selected_profiles, arguments.profile)
    rate = _parse_option("rate", arithmetic.parse_rate, arguments.rate)
    rtt = _parse_option("rtt", arithmetic.parse_rtt, arguments.rtt)
    if (arguments.profile, arguments.rate, arguments.rtt) == (None, None, None):
        return None
    current = load_choice(config.run_directory) or config.choice
    return Choice(profiles or current.profiles, rate or current.rate, rtt or current.rtt)


def _selected_profiles(text: str) -> tuple[str, ...]:
    names = profile_names(text)
    if not names:
        raise UnusableError(f'"{text}" names no profile')
    return names


def _parse_option(
    option: str, parse: Callable[[str], Value], text: Optional[str]
) -> Optional[Value]:
    if text is None:
        return None
    try:
        return parse(text)
    except UnusableError as reason:
        raise UsageError(f"tune --{option}: {reason}") from None


def _find_tuned_link(text: str, survey: Decision) -> LinkKey:
    key = find_link(text, survey)
    if key is None or key not in survey.resolution.desired.links:
        reason = "no dataplane interface has this name or MAC"
        raise UsageError(f'tune --interface "{text}": {reason}', LISTED)
    return key


def _read_again(
    config: Config, source: Optional[str], intake: Intake, active: Optional[StoredDocument]
) -> Intake:
    """The document, read once more only if another one is in force than the `active` one before."""
    return intake if stored_document(config.state) == active else read_document(config, source)


def _apply_tuning(
    arguments: argparse.Namespace,
    config: Config,
    read: Callable[[], Intake],
    choice: Optional[Choice],
    link: Optional[LinkKey],
) -> int:
    result = apply_tuning(config, read, choice, link)
    text = "everything is as requested"
    if result.done:
        text = f"{counted(len(result.done), 'setting')} changed"
    lines = [failures_text(result) or text]
    if choice is not None:
        profiles = ", ".join(choice.profiles)
        more = "is in effect until the next boot; set [tuning] to keep it"
        lines.append(f"profile {profiles} {more}")
    return show_changed(arguments, config, result, "\n".join(lines))


def _revert_tuning(arguments: argparse.Namespace, config: Config) -> int:
    options = ("source", "profile", "rate", "rtt", "interface")
    if any(getattr(arguments, name) for name in options):
        *others, last = (f"--{name}" for name in options)
        text = f"cannot be combined with {', '.join(others)} or {last}"
        raise ArgumentsError(f"tune revert: it undoes `tune apply`, and {text}")
    if load_choice(config.run_directory) is None:
        text = "`neuca tune apply` selected no profiles since boot, so there is nothing to undo"
        return show_changed(arguments, config, Result(), text)
    text = "the settings are those that the configuration and the document request"
    result, intake = drop_tuning(config, dry_run=arguments.dry_run)
    code = show_changed(arguments, config, result, failures_text(result) or text)
    return report_faults(intake, config) or code
