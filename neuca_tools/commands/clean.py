"""`neuca clean`: removes what clones must not inherit, before an image is captured."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Callable, Union

from neuca_tools.agent import image_clean
from neuca_tools.agent.image_clean import Findings, Trace
from neuca_tools.commands.common import require_root
from neuca_tools.commands.context import load_configuration
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_DEGRADED, EXIT_FAILED, EXIT_INVALID, EXIT_OK, ApplyError
from neuca_tools.guest.users import UserWithdrawal

Item = Union[Trace, UserWithdrawal]
Say = Callable[[str], object]
KEPT = (
    'neuca: keep the SSH host keys in "{}": nothing generates new ones at the next boot\n'
    "       enable neuca-host-keys.service; if something else generates them, remove them by hand"
)


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    require_root("clean")
    identity = not arguments.keep_identity
    return clean_root(config, Path("/"), identity, arguments.dry_run, arguments.json)


def clean_root(
    config: Config, root: Path, with_identity: bool, dry_run: bool, as_json: bool = False
) -> int:
    """Print each item removed from the file system in `root`; return the exit code."""
    items: list[str] = []

    def say(text: str) -> None:
        items.append(text)
        if not as_json:
            print(text)

    code = _found_and_removed(config, root, with_identity, dry_run, say)
    if as_json:
        print(json.dumps({"version": 1, "dry_run": dry_run, "items": items}, indent=1))
    elif not items and code in (EXIT_OK, EXIT_DEGRADED):
        print("nothing to remove")
    return code


def _found_and_removed(
    config: Config, root: Path, with_identity: bool, dry_run: bool, say: Say
) -> int:
    if dry_run:
        findings = image_clean.find_traces(config, root, with_identity)
        return _remove_traces(
            config, findings, image_clean.running_daemon(config), lambda _: True, say
        )
    with image_clean.hold_all_locks(config) as daemon:
        return _remove_traces(
            config, image_clean.find_traces(config, root, with_identity), daemon, _is_removed, say
        )


def _remove_traces(
    config: Config, findings: Findings, daemon: int, each: Callable[[Item], bool], say: Say
) -> int:
    if daemon:
        say(f"stop neucad, process {daemon}: it starts again at the next boot")
    done = []
    for trace in findings.traces:
        done.append(each(trace))
        if done[-1]:
            say(trace.text)
    if findings.kept:
        print(KEPT.format(findings.kept[0].path.parent), file=sys.stderr)
    if not config.complete:
        return EXIT_INVALID
    if not all(done):
        return EXIT_FAILED
    return EXIT_DEGRADED if findings.kept else EXIT_OK


def _is_removed(trace: Item) -> bool:
    try:
        trace.run()
    except ApplyError as error:
        print(f"neuca: {error.text}", file=sys.stderr)
        return False
    return True
