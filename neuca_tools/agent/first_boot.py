"""The first boot of a clone: state that another machine left on the disk is set aside, not applied.

The record keeps what the agent has changed since the boot, so that it can still be undone.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from neuca_tools.agent import drives, trial_file
from neuca_tools.backends import hostid, kernel_state
from neuca_tools.config import Config
from neuca_tools.errors import RecordError
from neuca_tools.files import NEW, locked, names_in, observed_content, write_files
from neuca_tools.model import machine
from neuca_tools.model.machine import Machine
from neuca_tools.model.volumes import SOURCES as VOLUME_SOURCES
from neuca_tools.state import records
from neuca_tools.state.active_document import Intake
from neuca_tools.state.store import demand_room

log = logging.getLogger("neuca")

PLACE = "set-aside"  # below the state directory


def set_aside_foreign_state(config: Config) -> bool:
    """Before any document is read: set the state aside if it is certainly another machine's.

    Returns whether it was set aside. Raises NeucaError.
    """
    if not _foreign_reason(config):
        return False
    with locked(config.pass_lock, config.command_timeout):
        why = _foreign_reason(config)  # empty if a pass has set it aside meanwhile
        if why:
            demand_room(config.state)
            _set_aside(config, hostid.read_machine(), why)
    return True


def _foreign_reason(config: Config) -> str:
    """Why the state is another machine's; empty if that is not certain."""
    with suppress(RecordError):  # reported by the pass and in the notes
        before, now = records.load_machine(config.state), hostid.read_machine()
        if machine.is_other_hardware(before, now):
            recorded = records.load_record(config.state).nics.keys()
            return machine.foreign_reason(before, now, recorded, kernel_state.present_macs())
    return ""


def record_machine(config: Config, intake: Intake) -> None:
    """Record which machine the state belongs to; set it aside if a source says that it is another.

    A record that cannot be used stays, because it says which metadata service may be asked. A trial
    that was killed is ended (`trial_file.recover_from_trial`), so that the pass that follows
    returns to the active document. To be called with the lock of a pass held. Raises ApplyError.
    """
    trial_file.recover_from_trial(config)
    trial_file.remove_trial(config)
    now = hostid.read_machine()
    if intake.other_machine:
        demand_room(config.state)
        _set_aside(config, _updated_machine(now, now, intake, config), intake.other_machine)
        return
    with suppress(RecordError):  # in the notes of status
        before = records.load_machine(config.state)
        records.save_machine(config.state, _updated_machine(before, now, intake, config))


def _updated_machine(before: Machine, now: Machine, intake: Intake, config: Config) -> Machine:
    """The machine with its instance ID, and the digest of the volume that the document is from."""
    source = intake.stored.source if intake.stored and not intake.stale else ""
    updated = machine.updated_machine(before, now, intake.instance)
    if source not in VOLUME_SOURCES:
        return updated
    volume = drives.digest_in_force(source, config.run_directory)
    return updated._replace(volume=volume or updated.volume)


def status_notes(config: Config) -> list[str]:
    """Notes for status: where the state of another machine is, and which volumes are not used."""
    place = config.state_directory / PLACE
    lines = drives.unused_volumes(config.run_directory)
    try:
        why = records.load_machine(config.state).set_aside
    except RecordError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return [*lines, f"{error.text}{hint}"]
    if why and place.is_dir():
        lines.append(f'what another machine left here is in "{place}", and is not applied: {why}')
    return lines


def _set_aside(config: Config, now: Machine, why: str) -> None:
    """Copy what another machine left to PLACE, then remove it.

    `why` says how we know. The copy is complete before anything is removed, and the record of the
    machine is replaced last: if this is interrupted, the next start does it again. Raises
    ApplyError, ObserveError, RecordError.
    """
    # For a clone only; it saves 20 ms.
    from neuca_tools.guest import version1
    from neuca_tools.guest.outcome import RAN
    from neuca_tools.state.changes import of_this_boot

    state, place = config.state_directory, config.state_directory / PLACE
    scripts = state / records.SCRIPTS
    ran = [scripts / name for name in names_in(scripts)]  # the marks of scripts that have run
    ran += version1.script_paths(state)
    files = [state / records.DOCUMENT, *ran, *udev_rules(config)]
    _copy([state / records.MACHINE, state / records.RECORD, *files], place)
    run = [config.run_directory / name for name in (records.DOCUMENT, records.SOURCE_ANSWERS, RAN)]
    write_files(dict.fromkeys([*files, *run]))
    kept = of_this_boot(records.load_record(state), hostid.boot_id())
    records.save_record(state, kept)
    records.save_machine(state, now._replace(set_aside=why))
    text = 'this disk has the state of another machine: %s; it is set aside in "%s"'
    log.warning(text, why, place)


def udev_rules(config: Config) -> list[Path]:
    """The udev rules that the agent wrote, and what an interrupted write has left of one."""
    # For a clone only; the idle daemon has no module of a pass.
    from neuca_tools.desired.marks import rule_mac

    directory, substring = config.udev_directory, config.udev_substring
    names = [name for name in names_in(directory) if rule_mac(name.removesuffix(NEW), substring)]
    return [directory / name for name in names]


def _copy(paths: Sequence[Path], place: Path) -> None:
    """Copy files to a directory below the state directory.

    What it has of another machine is replaced. If it has the same record of a machine, an earlier
    copy was interrupted: every file there is whole, and only the others are copied.
    """
    contents = {path: observed_content(path) for path in paths}
    there = names_in(place)
    earlier, own = (observed_content(each / records.MACHINE) for each in (place, place.parent))
    if earlier != own:
        write_files({place / name: None for name in there})
        there = []
    missing = {
        place / path.name: content
        for path, content in contents.items()
        if content is not None and path.name not in there
    }
    write_files(missing, 0o600)
