"""Why volumes with documents are not used: kept for status and the log, each reported once."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from neuca_tools.backends import udev
from neuca_tools.backends.blockdev import read_number
from neuca_tools.errors import ObserveError, SourceError
from neuca_tools.files import locked
from neuca_tools.model.volumes import device_refusal
from neuca_tools.state import records

LOCK = "drives.lock"  # also of the copies
PATIENCE = 15.0  # seconds to wait for the copy of another volume; the unit has 60


def refused(run_directory: Path) -> list[str]:
    """A line for each volume of this host that is not used."""
    try:
        return lines_of(udev.volumes(), run_directory)
    except ObserveError as error:
        return [f"volumes: {error.text}"]


def lines_of(numbers: Sequence[str], run_directory: Path) -> list[str]:
    """The lines for those of these block devices (`major:minor`) whose volume is not used."""
    if not numbers:
        return []
    log = records.load_volumes(run_directory)
    lines = []
    for number in numbers:
        with suppress(SourceError):  # it has disappeared meanwhile
            device = read_number(number)
            why = device_refusal(device) or log.refused.get(device.name, "")
            if why:
                lines.append(f'volume "{device.name}" is not used: {why}')
    return sorted(lines)


def unreported(lines: Sequence[str], run_directory: Path) -> list[str]:
    """The lines that the last call did not have. Raises ApplyError."""
    log = records.load_volumes(run_directory)
    if tuple(lines) != log.reported:
        with locked(run_directory / LOCK, PATIENCE):
            now = records.load_volumes(run_directory)
            records.save_volumes(run_directory, replace(now, reported=tuple(lines)))
    return [line for line in lines if line not in log.reported]


def keep_reason(name: str, why: str, run_directory: Path) -> None:
    """Record why a volume is not used; an empty reason removes the record."""
    log = records.load_volumes(run_directory)
    reasons = {one: reason for one, reason in log.refused.items() if one != name}
    if why:
        reasons[name] = why
    records.save_volumes(run_directory, replace(log, refused=reasons))
