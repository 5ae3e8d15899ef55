"""What a config drive or a NoCloud volume says, copied to the run directory: the daemon itself may mount nothing.

Only the documents are copied, each within the limit of a source, and none from outside of the volume.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from .errors import SourceError
from .fileio import write_files
from .sources.directories import CONFIG_DRIVE, DRIVES, SEED
from .sources.file import read_regular

_OF_A_SEED = ("user-data", "meta-data", "network-config")
_OF_A_DRIVE = ("openstack/*/meta_data.json", "openstack/*/network_data.json", "openstack/*/user_data", "ec2/latest/user-data")
_MOST = 100  # files: nova has had some fifteen versions so far


def copy(volume: Path, run_directory: Path) -> str:
    """Copy the documents below `volume`, in place of those that were there, and say of which kind they are.

    Raises SourceError for a volume that has none, and ApplyError.
    """
    kind = CONFIG_DRIVE if (volume / "openstack").is_dir() else SEED
    found = dict(_documents(volume, _OF_A_DRIVE if kind == CONFIG_DRIVE else _OF_A_SEED))
    if not found:
        raise SourceError("it holds neither a config drive nor a NoCloud seed")
    place = run_directory / DRIVES / kind
    before: dict[Path, Optional[bytes]] = {path: None for path in place.rglob("*") if path.is_file()}
    write_files({**before, **{place / name: data for name, data in found.items()}}, mode=0o600)
    return kind


def _documents(volume: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    paths = [path for pattern in patterns for path in sorted(volume.glob(pattern))]
    for path in paths[:_MOST]:
        name = str(path.relative_to(volume))
        if volume.resolve() not in path.resolve().parents:  # a symbolic link of the volume's maker
            raise SourceError(f'"{name}" leads out of the volume')
        try:
            yield name, read_regular(str(path))
        except OSError as error:
            raise SourceError(f'"{name}" cannot be read: {error.strerror}') from error
        except SourceError as error:
            raise SourceError(f'"{name}" {error}') from None
