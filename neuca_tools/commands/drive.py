"""`neuca read-drive`: the documents of one volume, for the daemon."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.mount import mount_privately
from ..drives import copy
from ..errors import EXIT_OK, NeucaError, SourceError
from ..sources.directories import DRIVES
from .context import configuration, is_root

if TYPE_CHECKING:
    import argparse

VOLUME = "volume"  # an empty directory, but to the process that mounts there


def run(arguments: argparse.Namespace) -> int:
    """A directory is copied as it is; anything else is mounted, where nobody else sees it."""
    config = configuration(arguments, quiet=True)
    if not is_root():
        raise NeucaError("neuca read-drive: only root may do this")
    device = Path(arguments.device)
    try:
        if device.is_dir():
            kind = copy(device, config.run_directory)
        else:
            place = config.run_directory / DRIVES / VOLUME
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            mount_privately(device, place)  # this process takes the mount along when it ends
            kind = copy(place, config.run_directory)
    except SourceError as error:
        raise NeucaError(f'read the drive "{device}": {error.text}') from None
    print(f"{device}: {kind}")
    return EXIT_OK
