"""`neuca status`, `plan`, `show` and `explain`, which change nothing."""

# SPDX-License-Identifier: MIT

import argparse
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Optional

from neuca_tools.agent import trial_file
from neuca_tools.agent.status import expected_outcome, status_now
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import open_host
from neuca_tools.backends.linkwatch import Watch
from neuca_tools.commands import context
from neuca_tools.commands.common import LISTED, show, terminal_width, uses_color
from neuca_tools.commands.links import find_link
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_PENDING, ApplyError, ArgumentsError, NeucaError, UsageError
from neuca_tools.files import lock_holder, write_files
from neuca_tools.guest.base import INSIDE
from neuca_tools.guest.outcome import with_guest
from neuca_tools.plan.operation import Operation, of_kind
from neuca_tools.plan.operations import WriteFile
from neuca_tools.state.active_document import Intake, last_confirmed
from neuca_tools.status import render
from neuca_tools.status.judge import Status
from neuca_tools.status.report import read_report

DEFAULT_WAIT_SECONDS = 300.0
EMPTY: tuple[object, ...] = (None, [], (), {}, "")  # values that are not shown
# Imports inside functions: neither `neuca status` nor a pass needs them; that saves 1 ms.


def run(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "prometheus", None):
        return _write_metrics(arguments)
    config = context.load_configuration(arguments, quiet=arguments.command == "status")
    commands = {
        "status": _show_status,
        "plan": show_plan,
        "show": _show_stage,
        "explain": _explain_link,
    }
    return commands[arguments.command](arguments, config)


def _write_metrics(arguments: argparse.Namespace) -> int:
    """`neuca status --prometheus`. A status that cannot be determined replaces the file as well."""
    from neuca_tools.status.prometheus import metrics_without_status, status_metrics

    _check_status_options(arguments)
    path = None if arguments.prometheus == "-" else context.output_path(arguments.prometheus)
    try:
        status = _awaited_status(arguments, context.load_configuration(arguments, quiet=True))
    except NeucaError:
        _put_text(metrics_without_status(), path)
        raise
    _put_text(status_metrics(status.data), path)
    return status.exit_code


def _put_text(text: str, path: Optional[Path]) -> None:
    """Replace a file with the text; without a path, print it."""
    if path is None:
        print(text, end="")
    else:
        write_files({path: text.encode()})


def _show_status(arguments: argparse.Namespace, config: Config) -> int:
    _check_status_options(arguments)
    status = _awaited_status(arguments, config)
    as_text = partial(render.status_text, color=uses_color(arguments), width=terminal_width())
    show(status.data, arguments.json, as_text)
    return status.exit_code


def _check_status_options(arguments: argparse.Namespace) -> None:
    """Raise ArgumentsError if the options do not fit each other."""
    if arguments.json and arguments.prometheus:
        raise ArgumentsError("status: --json and --prometheus cannot be combined")
    if arguments.timeout is not None and not arguments.wait:
        raise ArgumentsError("status: --timeout requires --wait")


def _awaited_status(arguments: argparse.Namespace, config: Config) -> Status:
    """The status; with --wait, once no pass runs and it is no longer pending, or at the timeout."""
    longest = DEFAULT_WAIT_SECONDS if arguments.timeout is None else arguments.timeout
    deadline = time.monotonic() + (longest if arguments.wait else 0.0)
    while True:
        is_running = arguments.wait and _pass_is_running(config)
        status = status_now(config, last_confirmed(config.state, config.run_directory))
        if INSIDE not in os.environ:  # a script that runs as a guest feature would wait for itself
            status = with_guest(status, config.run_directory)
        left = deadline - time.monotonic()
        if left <= 0 or not (is_running or status.exit_code == EXIT_PENDING):
            return status
        with Watch() as watch:
            # For a change of links or addresses.
            watch.wait(min(left, 1.0))


def _pass_is_running(config: Config) -> bool:
    """Whether a pass runs, or a daemon is about to make its first one; only root can see it."""
    locks = [config.pass_lock]
    if read_report(config.run_directory) is None:
        locks.append(config.daemon_lock)
    with suppress(ApplyError):
        held = any(map(lock_holder, locks))
        # A trial has made its pass, and waits.
        return held and not trial_file.is_running(trial_file.stored_trial(config))
    return False


def _intake_and_survey(arguments: argparse.Namespace, config: Config) -> tuple[Intake, Decision]:
    intake = context.read_document(config, arguments.source)
    with open_host(config, intake) as host:
        return intake, host.decide(trial_file.next_record(config))


def show_plan(arguments: argparse.Namespace, config: Config) -> int:
    """`neuca plan`, and `neuca apply --dry-run`: print what a pass would do.

    Raises ConfigError if it would do nothing, because an option that protects is unusable.
    """
    config.demand_protection()
    intake, survey = _intake_and_survey(arguments, config)
    operations, after = expected_outcome(config, intake, survey)
    problems = context.problems_not_printed(after.problems, intake, config)
    text = render.plan_text(operations, problems, after.names, color=uses_color(arguments))
    if arguments.verbose:
        text = "\n".join([text, *_file_changes(operations, survey.observed.files)])
    data = {}
    if arguments.json:
        from neuca_tools.status.render_json import plan_json

        data = plan_json(operations, after)
    show(data, arguments.json, lambda _: text, wraps=not arguments.verbose)
    return context.report_faults(intake, config) or after.exit_code


def _file_changes(
    operations: Iterable[Operation], files: Mapping[str, Optional[bytes]]
) -> Iterator[str]:
    """The changes of files as a unified diff, which patch(1) and editors read."""
    import difflib

    for operation in of_kind(operations, WriteFile):
        contents = (files.get(operation.path), operation.content)
        old, new = ((content or b"").decode(errors="replace") for content in contents)
        names = ["/dev/null" if content is None else operation.path for content in contents]
        lines = (old.splitlines(), new.splitlines())
        yield from difflib.unified_diff(*lines, names[0], names[1], lineterm="")


def _show_stage(arguments: argparse.Namespace, config: Config) -> int:
    from neuca_tools.status import render_json

    if arguments.stage == "document":
        intake = context.read_document(config, arguments.source)
        data = render_json.document_json(intake.document, intake.stored)
    else:
        intake, survey = _intake_and_survey(arguments, config)
        if arguments.stage == "desired":
            data = render_json.desired_json(survey.resolution)
        else:
            data = render_json.observed_json(survey.world)
    show(data, arguments.json, as_yaml, wraps=False)
    return context.report_faults(intake, config)


def as_yaml(data: Any) -> str:  # noqa: ANN401 - JSON
    """JSON data as YAML, without what is null or empty."""
    from neuca_tools.documents.platform.tree import to_yaml

    return to_yaml(_without_empty(data)).rstrip("\n")


def _without_empty(data: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(data, Mapping):
        return {key: _without_empty(value) for key, value in data.items() if value not in EMPTY}
    if isinstance(data, (list, tuple)):
        return [_without_empty(value) for value in data]
    return data


def _explain_link(arguments: argparse.Namespace, config: Config) -> int:
    from neuca_tools.status.render_json import explain_link

    intake, survey = _intake_and_survey(arguments, config)
    key = find_link(arguments.link, survey)
    if key is None:
        reason = "no NIC of this host and no link of the document has this name or MAC"
        raise UsageError(f'explain "{arguments.link}": {reason}', LISTED)
    resolution, observed, record = survey.resolution, survey.observed, survey.record
    data = explain_link(key, resolution, observed, record, survey.world)
    if intake.document is None and data["role"] == "unlisted":
        data["reason"] = "there is no document"
    show(data, arguments.json, partial(render.explanation_text, width=terminal_width()))
    return context.report_faults(intake, config)
