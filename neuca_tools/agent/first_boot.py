"""A first boot on a disk that was another machine's: what that machine left is set aside, kept, and never applied.

All of it is copied first, and what tells whose state it is goes last: whatever interrupts this, the next start does the rest.
What the agent has done in this very boot stays its own to take back.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Optional

from neuca_tools.agent import drives
from neuca_tools.backends import hostid
from neuca_tools.config import Config
from neuca_tools.errors import ObserveError, RecordError
from neuca_tools.files import locked, names_in, read_bytes, write_files
from neuca_tools.model import machine
from neuca_tools.model.machine import Machine
from neuca_tools.state import records
from neuca_tools.state.active_document import Intake
from neuca_tools.state.store import demand_room

log = logging.getLogger("neuca")
PLACE = "set-aside"  # below the state directory


def check(config: Config) -> bool:
    """Before any document: set aside what is certain to be another machine's. True if that was done. Raises NeucaError."""
    if not _foreign(config):
        return False
    with locked(config.run_directory / "lock", config.command_timeout):
        why = _foreign(config)  # unless a pass has done it meanwhile
        if why:
            demand_room(config.state)
            _set_aside(config, hostid.look(), why)
    return True


def _foreign(config: Config) -> str:
    with suppress(RecordError):  # the pass, which needs it, says so
        recorded = records.load_record(config.state).nics.keys()
        return (
            machine.foreign(_before(config), hostid.look(), recorded, hostid.macs())
            if recorded
            else ""
        )
    return ""


def admit(config: Config, intake: Intake) -> None:
    """Under the lock of a pass: remember whose state this is; set it aside if a source says that it is not. Raises ApplyError."""
    now = hostid.look()
    if intake.other:
        demand_room(config.state)
        _set_aside(config, _met(now, now, intake, config), intake.other)
    else:
        records.save_machine(config.state, _met(_before(config), now, intake, config))


def _met(before: Machine, now: Machine, intake: Intake, config: Config) -> Machine:
    source = intake.stored.source if intake.stored and not intake.stale else ""
    volume = drives.digest_in_force(source, config.run_directory)
    met = machine.met(before, now, intake.instance)
    return replace(met, volume=volume or met.volume)


def notes(config: Config) -> list[str]:
    """Lines for status: what was set aside, as long as it is there, and the volumes that do not count."""
    place = config.state_directory / PLACE
    why = _before(config).set_aside
    lines = drives.refused(config.run_directory)
    if why and place.is_dir():
        lines.append(f'what another machine left here is in "{place}", and is not applied: {why}')
    return lines


def _before(config: Config) -> Machine:
    """Nothing is known where there is no such file, or none that can be read."""
    with suppress(RecordError):
        return records.load_machine(config.state)
    return Machine()


def _set_aside(config: Config, now: Machine, why: str) -> None:
    from neuca_tools.desired import marks
    from neuca_tools.guest.outcome import RAN
    from neuca_tools.state.updates import of_this_boot

    state, place = config.state_directory, config.state_directory / PLACE
    rules = [
        config.udev_directory / name
        for name in names_in(config.udev_directory)
        if marks.rule_mac(name, config.udev_substring)
    ]
    documents = [
        state / records.DOCUMENT,
        *(state / records.SCRIPTS / name for name in names_in(state / records.SCRIPTS)),
    ]
    mine = {
        path: content
        for path in (state / records.MACHINE, state / records.RECORD, *documents, *rules)
        for content in [_content(path)]
        if content is not None
    }
    there = names_in(place)
    if _content(place / records.MACHINE) != mine.get(
        state / records.MACHINE
    ):  # else it was interrupted: what is there is whole
        write_files({place / name: None for name in there})
        there = []
    write_files(
        {place / path.name: content for path, content in mine.items() if path.name not in there},
        0o600,
    )
    run = [config.run_directory / name for name in (records.DOCUMENT, records.LOOK, RAN)]
    write_files(dict.fromkeys([*rules, *documents, *run]))
    kept = of_this_boot(records.load_record(state), hostid.boot_id())
    records.save_record(state, kept)
    records.save_machine(state, replace(now, set_aside=why))
    log.warning(
        'this is another machine than before: %s; what that one left is set aside in "%s"',
        why,
        place,
    )


def _content(path: Path) -> Optional[bytes]:
    try:
        return read_bytes(path)
    except OSError as error:
        raise ObserveError(f'read "{path}": {error.strerror}') from error
