"""What a config drive or a NoCloud volume says, copied to the run directory: the daemon itself may mount nothing.

Only the documents are copied, each within the limit of a source, and none from outside of the volume.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from .errors import SourceError
from .fileio import locked, write_files
from .sources.directories import CONFIG_DRIVE, DRIVES, SEED
from .sources.file import read_regular

_OF_A_SEED = ("user-data", "meta-data", "network-config")
_OF_A_DRIVE = (
    "openstack/*/meta_data.json",
    "openstack/*/network_data.json",
    "openstack/*/user_data",
    "ec2/latest/user-data",
)
_MOST = 100  # files: nova has had some fifteen versions so far
_LOCK = "drives.lock"
_PATIENCE = 15.0  # seconds for the copy of another volume; the unit has 30


def copy(volume: Path, run_directory: Path) -> str:
    """Copy the documents below `volume`, in place of those that were there, and say of which kind they are.

    Raises SourceError for a volume that has none or cannot be read, and ApplyError.
    """
    kind = (
        CONFIG_DRIVE
        if any(stat.S_ISDIR(path.stat().st_mode) for path in _matching(volume, ("openstack",)))
        else SEED
    )
    found = dict(_documents(volume, _OF_A_DRIVE if kind == CONFIG_DRIVE else _OF_A_SEED))
    if not found:
        raise SourceError("it holds neither a config drive nor a NoCloud seed")
    place = run_directory / DRIVES / kind
    with locked(
        run_directory / _LOCK, _PATIENCE
    ):  # of two volumes with one label, the documents of one
        before: dict[Path, Optional[bytes]] = {
            path: None for path in place.rglob("*") if path.is_file()
        }
        write_files({**before, **{place / name: data for name, data in found.items()}}, mode=0o600)
    return kind


def _documents(volume: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    paths = [path for pattern in patterns for path in _matching(volume, pattern.split("/"))]
    for path in paths[:_MOST]:
        name = str(path.relative_to(volume))
        if not os.path.realpath(path).startswith(
            os.path.realpath(volume) + os.sep
        ):  # a symbolic link of the volume's maker
            raise SourceError(f'"{name}" leads out of the volume')
        try:
            yield name, read_regular(str(path))
        except OSError as error:
            raise SourceError(f'"{name}" cannot be read: {error.strerror}') from error
        except SourceError as error:
            raise SourceError(f'"{name}" {error}') from None


def _matching(place: Path, pattern: Sequence[str], name: str = "") -> Iterator[Path]:
    """What is there of a pattern's parts. Raises SourceError: to Path.glob, what cannot be looked at is not there."""
    if not pattern:
        yield place
        return
    try:
        if pattern[0] == "*":
            found = sorted(place.iterdir())
        else:
            (place / pattern[0]).stat()
            found = [place / pattern[0]]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SourceError(f'"{name or "/"}" cannot be read: {error.strerror}') from error
    for path in found:
        yield from _matching(path, pattern[1:], f"{name}/{path.name}".lstrip("/"))
