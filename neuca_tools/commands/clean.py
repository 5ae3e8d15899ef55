"""`neuca clean`: removes what clones must not inherit, before an image is captured."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Callable, Union

from neuca_tools.agent import image_clean
from neuca_tools.agent.image_clean import Findings, Trace
from neuca_tools.commands.context import configuration, require_root
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_DEGRADED, EXIT_FAILED, EXIT_INVALID, EXIT_OK, ApplyError
from neuca_tools.guest.users import Leaving

Item = Union[Trace, Leaving]
KEPT = (
    'neuca: keep the SSH host keys in "{}": nothing generates new ones at the next boot\n'
    "       enable neuca-host-keys.service; if something else generates them, remove them by hand"
)


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    require_root("neuca clean")
    return clean(config, Path("/"), not arguments.keep_identity, arguments.dry_run)


def clean(config: Config, root: Path, with_identity: bool, dry_run: bool) -> int:
    """Print one line for each item removed from the file system in `root`; return the exit code."""
    if dry_run:
        found = image_clean.find(config, root, with_identity)
        return _clean(config, found, image_clean.running_daemon(config), _show)
    with image_clean.undisturbed(config) as daemon:
        return _clean(config, image_clean.find(config, root, with_identity), daemon, _remove)


def _clean(config: Config, found: Findings, daemon: int, each: Callable[[Item], bool]) -> int:
    if daemon:
        print(f"stop neucad, process {daemon}: it starts again at the next boot")
    elif not found.traces:
        print("nothing is left to remove")
    done = [each(trace) for trace in found.traces]
    if found.kept:
        print(KEPT.format(found.kept[0].path.parent), file=sys.stderr)
    if not config.complete:
        return EXIT_INVALID
    if not all(done):
        return EXIT_FAILED
    return EXIT_DEGRADED if found.kept else EXIT_OK


def _show(trace: Item) -> bool:
    print(trace.text)
    return True


def _remove(trace: Item) -> bool:
    try:
        trace.run()
    except ApplyError as error:
        print(f"neuca: {error.text}", file=sys.stderr)
        return False
    return _show(trace)
