"""`neuca image capture`: writes a clean copy of this guest to a tar file."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from neuca_tools.agent import image_capture, image_clean
from neuca_tools.agent.image_clean import Findings
from neuca_tools.commands.clean import KEPT
from neuca_tools.commands.common import require_root
from neuca_tools.commands.context import load_configuration
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_DEGRADED, EXIT_INVALID, EXIT_OK


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    require_root("image capture")
    return capture_image(config, Path("/"), Path(arguments.destination), arguments.dry_run)


def capture_image(config: Config, root: Path, destination: Path, dry_run: bool = False) -> int:
    """Copy the file system at `root`, print what the copy does not have; return the exit code."""
    image_capture.check_destination(destination)
    findings = image_clean.find_traces(config, root, with_identity=True)
    left_out = tuple(f'"{root / name}/' for name in image_capture.EMPTIED)
    for item in findings.traces:
        if not any(directory in item.text for directory in left_out):
            print(f"in the copy: {item.text}")
    for place in image_capture.other_mounts():
        print(f'not captured: "{place}", another file system')
    changed = not dry_run and _write_archive(config, root, findings, destination)
    if findings.kept:
        print(KEPT.format(findings.kept[0].path.parent), file=sys.stderr)
    if not config.complete:
        return EXIT_INVALID
    return EXIT_DEGRADED if changed or findings.kept else EXIT_OK


def _write_archive(config: Config, root: Path, findings: Findings, destination: Path) -> bool:
    """Write the archive; returns whether files changed while they were read."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)  # the partial archive, which has secrets, is removed
    captured = image_capture.capture_image(config, root, findings, destination)
    for name in captured.flagged:
        print(f'not captured: the attributes of "{name}" that chattr sets')
    print(f'wrote "{destination}": {captured.files} files, {captured.size} bytes')
    if captured.changed:
        print("neuca: some files changed while they were read, see above", file=sys.stderr)
    return captured.changed


def _exit_on_signal(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
