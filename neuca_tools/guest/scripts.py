"""Runs the document's scripts once for each instance, in turn, the boot script first.

A mark in the state directory, written before a script starts, says that it has run: a script that
was interrupted by a power cut is not run again. A script runs in a transient unit of systemd, or
without systemd in a session of its own, and so continues if the agent exits; the next run of the
agent waits for it.
"""

# SPDX-License-Identifier: MIT

import re
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Optional

from neuca_tools.config import Config
from neuca_tools.errors import ApplyError, LockedError, RecordError
from neuca_tools.files import locked, write_files
from neuca_tools.guest import programs, version1
from neuca_tools.guest.base import Finding, Guest, State, utc_now
from neuca_tools.model.rows import Script
from neuca_tools.state.records import SCRIPTS
from neuca_tools.state.store import read_state, save_state

BOOT_SCRIPT = "bootscript"
MARGIN_SECONDS = 60.0  # for which a script is waited for beyond its time-out
# It waits until the unit has ended, and removes it even if the script fails.
SYSTEMD_RUN = (
    "systemd-run --quiet --collect --service-type=oneshot --property=KillMode=process".split()
)
UNKNOWN_TIME = "an unknown time"
MAX_NAME_CHARACTERS = 40  # of a script's name in that of its files


class ScriptFiles(NamedTuple):
    """The files of one script: the body that is run, the mark, and the output."""

    body: Path
    mark: Path
    output: Path


def script_files(config: Config, script: Script) -> ScriptFiles:
    """The files of a script; a script with the same name but another body has others."""
    digest = sha256(f"{script.name}\0{script.body}".encode()).hexdigest()[:12]
    name = f"{re.sub('[^A-Za-z0-9_]', '_', script.name)[:MAX_NAME_CHARACTERS]}-{digest}"
    directory = config.state_directory / SCRIPTS
    output = config.log_directory / f"script-{name}.log"
    return ScriptFiles(directory / name, directory / f"{name}.json", output)


def _ordered_scripts(guest: Guest) -> list[tuple[Script, ScriptFiles]]:
    ordered = sorted(guest.document.scripts, key=lambda script: script.name != BOOT_SCRIPT)
    return [(script, script_files(guest.config, script)) for script in ordered]


def script_findings(guest: Guest, unfinished: str = "waiting") -> Iterator[Finding]:
    """How each script ended, or the text `unfinished` for one that did not; nothing is run."""
    for script, files in _ordered_scripts(guest):
        waiting = Finding("pending", f"{script.name}: {unfinished}", script.name)
        yield _end_finding(guest.config, script, files) or waiting


def run_scripts(guest: Guest) -> Iterator[Finding]:
    """Run the scripts that have not run on this instance, in order, whether or not one fails."""
    config = guest.config
    yield from script_findings(guest)
    for script, files in _ordered_scripts(guest):
        if _end_finding(config, script, files) is None:
            mark = _read_mark(files.mark)
            started = str(mark.get("started", "")) or utc_now()
            yield Finding("pending", f"{script.name}: running since {started}", script.name)
            try:
                problem = "" if mark else _start_script(config, script, files, started)
                yield _await_script(config, script, files, problem)
            except ApplyError as error:
                yield Finding("failed", error.text, script.name, needs_retry=True)


def _end_finding(config: Config, script: Script, files: ScriptFiles) -> Optional[Finding]:
    """How a script ended; None if it has not run yet, or still does."""
    mark = _read_mark(files.mark)
    if not mark and version1.has_run(config.state_directory, script):
        return Finding("ok", f"{script.name}: was run by version 1.7", script.name)
    end = mark.get("end")
    if not isinstance(end, dict):
        return None
    cut_short = end.get("stopped") or end.get("timed_out")
    state: State = "ok" if end.get("status") == 0 and not cut_short else "failed"
    return Finding(state, f"{script.name}: {_end_text(end, files.output)}", script.name)


def _end_text(end: Mapping[str, Any], output: Path) -> str:
    """The end of a script, which its supervisor has recorded, in words."""
    after = f'after {end.get("seconds")} s; its output is in "{output}"'
    status = end.get("status")
    if "error" in end:
        return str(end["error"])
    if end.get("stopped"):
        return f"interrupted {after}"
    if end.get("timed_out"):
        return f"took too long and was terminated {after}"
    if isinstance(status, int) and status < 0:
        return f"terminated by signal {-status} {after}"
    return f"exit status {status} {after}"


def _read_mark(path: Path) -> dict[str, Any]:
    """The mark of a script, empty for none; an unreadable one still says that it was started."""
    try:
        return read_state(path.parent, path.name) or {}
    except RecordError:
        return {"started": UNKNOWN_TIME}


def _start_script(config: Config, script: Script, files: ScriptFiles, started: str) -> str:
    """Run a script to its end; return why it may not have started, if so. Raises ApplyError."""
    body = script.body.removesuffix("\n") + "\n"
    write_files({files.output: None})
    write_files({files.body: body.encode("utf-8", "surrogateescape")}, 0o700)
    save_state(files.mark.parent, files.mark.name, {"name": script.name, "started": started}, 0o600)
    places, seconds = map(str, (files.body, files.output, files.mark)), config.script_timeout
    command = [sys.executable, "-m", f"{__package__}.supervisor", *places, f"{seconds:g}"]
    has_systemd = config.managers == "auto" and programs.SYSTEMD_DIRECTORY.is_dir()
    if has_systemd and programs.find_program("systemd-run"):
        name = files.body.name
        unit = [f"--unit=neuca-script-{name}", f"--description=NEuca: {name}", "--", *command]
        try:
            systemd_run = [*SYSTEMD_RUN, *unit]
            return programs.run_program(script.name, systemd_run, seconds + MARGIN_SECONDS)
        except ApplyError as error:
            return error.text
    # The agent's standard output may be a log that others read, or that collect-logs packs.
    import subprocess

    try:
        null = subprocess.DEVNULL
        process = subprocess.Popen(
            command, stdin=null, stdout=null, cwd="/", start_new_session=True
        )
    except OSError as error:
        return f"run {sys.executable}: {error.strerror}"
    return f"its supervisor ended with status {process.wait()}"


def _await_script(config: Config, script: Script, files: ScriptFiles, problem: str) -> Finding:
    """Wait for the end; `problem` says why the script may not have started. Raises ApplyError."""
    try:
        with locked(files.mark, config.script_timeout + MARGIN_SECONDS):
            pass
    except LockedError:
        return Finding("pending", f"{script.name}: is still running", script.name, needs_retry=True)
    finding = _end_finding(config, script, files)
    # The supervisor creates the output first of all; a script that has run may have removed it.
    if problem and not finding and not files.output.exists():
        write_files({files.mark: None})
        raise ApplyError(f"{script.name}: cannot be started: {problem}")
    text = f"{script.name}: interrupted for an unknown reason; it does not run again"
    return finding or Finding("failed", text, script.name)
