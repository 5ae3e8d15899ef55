"""`neuca release`, `revert` and `trust`, which hold the same lock as the passes of the daemon."""

# SPDX-License-Identifier: MIT

import argparse
import sys
from functools import partial

from neuca_tools.agent import trial_file
from neuca_tools.agent.change import plan_undo, release_nic, revert_settings, undo_release
from neuca_tools.apply.host import open_host, survey_host
from neuca_tools.apply.result import Result
from neuca_tools.commands.apply import begin_change, make_pass
from neuca_tools.commands.common import show, uses_color
from neuca_tools.commands.context import exit_code, load_configuration
from neuca_tools.commands.links import find_nic
from neuca_tools.config import Config
from neuca_tools.errors import NeucaError
from neuca_tools.files import locked
from neuca_tools.model import NicRecord, Record
from neuca_tools.model.printable import counted
from neuca_tools.plan.operations import WriteFile
from neuca_tools.state import records
from neuca_tools.state.active_document import last_confirmed, last_good
from neuca_tools.state.store import demand_room, unsaved_reason
from neuca_tools.status import render, render_json


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    begin_change(arguments.command, arguments, config)
    commands = {"release": _release_nic, "revert": _revert_settings, "trust": _trust_nic}
    return commands[arguments.command](arguments, config)


def _release_nic(arguments: argparse.Namespace, config: Config) -> int:
    with open_host(config, last_good(config.state)) as host:
        survey = host.survey()
    released = [mac for mac, nic in survey.record.nics.items() if nic.released]
    mac = find_nic("release", arguments.link, survey, absent=released if arguments.undo else ())
    name = survey.resolution.roles.name(mac) or mac
    if arguments.undo:
        return _undo_release(arguments, config, mac, name)
    result = release_nic(config, mac, dry_run=arguments.dry_run)
    lines = [f"{name} is released and ignored; neuca release --undo {name} reverses this"]
    if not all(isinstance(failure.operation, WriteFile) for failure in result.failures):
        lines = [f"{name} is not released, because an operation failed"]
    elif "networkmanager" in survey.world.managers:
        text = "it may manage the NIC after the next boot or after a restart of its own"
        lines.append(f"The running NetworkManager was not notified: {text}.")
    return show_changed(arguments, config, result, "\n".join(lines))


def _undo_release(arguments: argparse.Namespace, config: Config, mac: str, name: str) -> int:
    read = partial(last_confirmed, config.state, config.run_directory)
    if arguments.dry_run:
        return show_changed(arguments, config, plan_undo(config, read(), mac), "")

    def undo() -> str:
        undo_release(config, mac)
        return f"{name} is no longer ignored\n"

    color = uses_color(arguments)
    return make_pass(
        config, read, prepare=undo, from_own_sources=False, as_json=arguments.json, color=color
    )


def _revert_settings(arguments: argparse.Namespace, config: Config) -> int:
    result = revert_settings(config, dry_run=arguments.dry_run)
    count = sum(not isinstance(operation, WriteFile) for operation in result.done)
    text = f"{counted(count, 'setting')} restored"
    if not result.done:
        text = "nothing was changed, so there is nothing to restore"
    return show_changed(arguments, config, result, failures_text(result) or text)


def _trust_nic(arguments: argparse.Namespace, config: Config) -> int:
    survey = survey_host(config, last_good(config.state))
    mac = find_nic("trust", arguments.link, survey)
    role = survey.resolution.roles.role(mac)
    if role in ("dataplane", "ignored"):
        raise NeucaError(f'trust "{arguments.link}": its role is {role}')
    _record_as_management(config, mac)
    print(f"{arguments.link} ({mac}) is the management NIC: neucad requests metadata through it")
    return exit_code(config)


def _record_as_management(config: Config, mac: str) -> None:
    """Record the NIC as a management NIC that is not in doubt. Raises NeucaError."""
    with locked(config.pass_lock, config.command_timeout):
        demand_room(config.state)
        record = _with_management(records.load_record(config.state), mac)
        # Not to the spare directory, which a reboot empties.
        records.save_record(config.state.directory, record)
        trial_file.change_earlier_record(config, lambda earlier: _with_management(earlier, mac))


def _with_management(record: Record, mac: str) -> Record:
    nic = record.nics.get(mac, NicRecord())._replace(role="management", doubtful=())
    return record._replace(nics={**record.nics, mac: nic})


def failures_text(result: Result) -> str:
    """How many settings could not be changed; empty if none failed."""
    failed = len(result.failures)
    return f"{counted(failed, 'setting')} could not be changed" if failed else ""


def show_changed(arguments: argparse.Namespace, config: Config, result: Result, text: str) -> int:
    """Print what was done, as JSON or as `text`, or would be done; return the exit code."""
    data, unsaved = render_json.plan_json(result.done), unsaved_reason(config.state)
    if arguments.dry_run:
        text = render.plan_text(result.done, (), {})
    else:
        data["failures"] = [
            {**failure.operation.to_json(), "reason": failure.reason} for failure in result.failures
        ]
    show(data, arguments.json, lambda _: text)
    if unsaved:
        print(f"neuca: not saved: {unsaved}", file=sys.stderr)
    return exit_code(config, failed=bool(result.failures), degraded=bool(unsaved))
