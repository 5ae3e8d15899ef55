"""`neuca clean`: removes what clones must not inherit, before an image is captured."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Union

from neuca_tools.agent import image_clean
from neuca_tools.agent.image_clean import Trace
from neuca_tools.commands.context import configuration, is_root
from neuca_tools.config import Config
from neuca_tools.errors import (
    EXIT_DEGRADED,
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_OK,
    ApplyError,
    NeucaError,
)
from neuca_tools.guest.users import Leaving

if TYPE_CHECKING:
    import argparse

KEPT = (
    'neuca: keep the SSH host keys in "{}": nothing would make new ones at the next boot, and sshd starts with none\n'
    "       enable neuca-host-keys.service; if something else makes them, remove them by hand"
)


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    if not is_root():
        raise NeucaError("neuca clean: only root may do this")
    return clean(
        config, Path("/"), with_identity=not arguments.keep_identity, dry_run=arguments.dry_run
    )


def clean(config: Config, root: Path, with_identity: bool, dry_run: bool) -> int:
    """Print one line for each item removed and return the exit code.

    `root` is the root of the file system whose identity (machine ID, SSH host keys, …) is removed.
    """
    if dry_run:
        return _clean(config, root, with_identity, image_clean.running_daemon(config), _show)
    with image_clean.undisturbed(config) as daemon:
        return _clean(config, root, with_identity, daemon, _remove)


def _clean(
    config: Config,
    root: Path,
    with_identity: bool,
    daemon: int,
    each: Callable[[Union[Trace, Leaving]], bool],
) -> int:
    found = image_clean.find(config, root, with_identity)
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


def _show(trace: Union[Trace, Leaving]) -> bool:
    print(trace.text)
    return True


def _remove(trace: Union[Trace, Leaving]) -> bool:
    try:
        trace.run()
    except ApplyError as error:
        print(f"neuca: {error.text}", file=sys.stderr)
        return False
    return _show(trace)
