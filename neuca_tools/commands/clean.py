"""`neuca clean` and `neuca image capture`: without what clones of an image must not inherit."""

# SPDX-License-Identifier: MIT

import argparse
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

from neuca_tools.agent import image_capture, image_clean
from neuca_tools.agent.image_clean import Findings, Trace
from neuca_tools.commands.common import require_root, show
from neuca_tools.commands.context import exit_code, load_configuration
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_DEGRADED, ApplyError

KEPT = (
    'neuca: keep the SSH host keys in "{}": nothing generates new ones at the next boot\n'
    "       enable neuca-host-keys.service; if something else generates them, remove them by hand"
)


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    if arguments.command == "image":
        require_root("image capture")
        return capture_image(config, Path("/"), Path(arguments.destination), arguments.dry_run)
    require_root("clean")
    identity = not arguments.keep_identity
    return clean_root(config, Path("/"), identity, arguments.dry_run, arguments.json)


def clean_root(
    config: Config, root: Path, with_identity: bool, dry_run: bool, as_json: bool = False
) -> int:
    """Remove what clones must not inherit from the file system in `root`; return the exit code."""
    held = nullcontext(image_clean.running_daemon(config))
    with held if dry_run else image_clean.hold_all_locks(config) as daemon:
        findings = image_clean.find_traces(config, root, with_identity)
        texts = [trace.text for trace in findings.traces]
        removed = texts if dry_run else _remove_all(config, findings)
    stopped = [f"stop neucad, process {daemon}: it starts again at the next boot"] if daemon else []
    code = _report_kept(config, findings, has_failed=len(removed) < len(findings.traces))
    items = stopped + removed
    if as_json or items or not findings.traces:
        data = {"version": 1, "dry_run": dry_run, "items": items}
        show(data, as_json, lambda _: "\n".join(items or ["nothing to remove"]), wraps=False)
    return code


def _report_kept(config: Config, findings: Findings, *, has_failed: bool = False) -> int:
    """Print that SSH host keys are kept; the exit code if there is nothing else to report."""
    if findings.kept:
        print(KEPT.format(findings.kept[0].path.parent), file=sys.stderr)
    return exit_code(config, failed=has_failed, degraded=bool(findings.kept))


def _remove_all(config: Config, findings: Findings) -> list[str]:
    """Remove what was found; returns it in words.

    What a record lists comes before it. If any of that fails, the record stays for the next time.
    """
    removed: list[str] = []
    records = {Trace(path) for path in image_clean.guest_records(config)}
    for number, trace in enumerate(findings.traces):
        has_failed = len(removed) < number
        if has_failed and trace in records:
            continue
        try:
            trace.run()
            removed.append(trace.text)
        except ApplyError as error:
            print(f"neuca: {error.text}", file=sys.stderr)
    return removed


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
    code = _report_kept(config, findings)
    return EXIT_DEGRADED if changed and config.is_complete else code


def _write_archive(config: Config, root: Path, findings: Findings, destination: Path) -> bool:
    """Write the archive; returns whether files changed while they were read."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)  # the partial archive, which has secrets, is removed
    captured = image_capture.capture_image(config, root, findings, destination)
    for name in sorted(captured.flagged):
        print(f'not captured: the attributes of "{name}" that chattr sets')
    print(f'wrote "{destination}": {captured.files} files, {captured.size} bytes')
    if captured.changed:
        print("neuca: some files changed while they were read, see above", file=sys.stderr)
    return captured.changed


def _exit_on_signal(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
