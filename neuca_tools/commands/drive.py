"""`neuca read-drive`: copies the documents of one volume for the daemon."""

# SPDX-License-Identifier: MIT

import argparse
import stat
import sys
from pathlib import Path

from neuca_tools.agent.drives import copy_directory, copy_volume
from neuca_tools.commands.common import require_root
from neuca_tools.commands.context import load_configuration
from neuca_tools.errors import EXIT_OK, NeucaError, SourceError
from neuca_tools.files import as_apply_error, mode_of

NOT_USED = 77  # exit code for a volume of another instance; EX_NOPERM of sysexits.h


def run(arguments: argparse.Namespace) -> int:
    """Copy a directory as it is; mount anything else in a private mount namespace."""
    config = load_configuration(arguments, quiet=True)
    require_root("read-drive")
    device = Path(arguments.device)
    with as_apply_error(f'read the drive "{device}"'):
        read = copy_directory if stat.S_ISDIR(mode_of(device)) else copy_volume
    try:
        kind, why = read(device, config.state, config.run_directory)
    except SourceError as error:
        raise NeucaError(f'read the drive "{device}": {error.text}') from None
    if why:
        print(f'volume "{device}" is not used: {why}', file=sys.stderr)
        return NOT_USED
    print(f"{device}: {kind}")
    return EXIT_OK
