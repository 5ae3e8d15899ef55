"""`neuca collect-logs`: packs what helps to diagnose this host, without secrets, into a tar file.

Of the configuration and the agent's files, it contains those that everyone may read, as these hold
no secrets. The output of scripts and the document are left out whatever their mode, because an
earlier version may have created them. The agent's log is included, although only root may read it.
"""

# SPDX-License-Identifier: MIT

import argparse
import fnmatch
import io
import json
import os
import platform
import stat
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Callable, Optional

from neuca_tools.agent import image_clean
from neuca_tools.agent.first_boot import PLACE
from neuca_tools.agent.status import status_now
from neuca_tools.apply.host import survey_host
from neuca_tools.commands.arguments import VERSION_TEXT
from neuca_tools.commands.context import load_configuration, output_path
from neuca_tools.config import DEFAULT_PATH, Config
from neuca_tools.config.files import configuration_files as config_files
from neuca_tools.errors import EXIT_OK, NeucaError, ObserveError
from neuca_tools.files import write_files
from neuca_tools.guest import programs
from neuca_tools.guest.outcome import with_guest
from neuca_tools.state.active_document import last_confirmed
from neuca_tools.state.records import SCRIPTS
from neuca_tools.status import render_json

# Files of the state directory to include: roles, names and original link settings.
OPEN = ("record.json", "journal.json", "machine.json")
PROGRAM_SECONDS = 20.0  # seconds for one program
LINES = 20000  # of the journal; the last ones are included
MAX_PART_BYTES = 4 << 20  # bytes of one part; the last ones are included
# Our own units only: the scripts of a document run in other units, and may print secrets.
UNITS = (
    *("neuca-names", "neuca-guest-tools", "neuca-guest", "neuca-host-keys"),
    *("neuca-selftest", "neuca-metrics", "neuca-drive@*", "neuca-dhcp@*"),
)
JOURNAL = (
    *("journalctl", "--no-pager", "--quiet", "--output=short-precise", f"--lines={LINES}"),
    *(f"--unit={unit}" for unit in UNITS),
)
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "journal.txt": JOURNAL,
    "links.txt": ("ip", "-details", "-statistics", "address"),
    "routes.txt": ("ip", "-4", "-details", "route", "show", "table", "all"),
    "routes6.txt": ("ip", "-6", "-details", "route", "show", "table", "all"),
    "rules.txt": ("ip", "-4", "rule"),
    "rules6.txt": ("ip", "-6", "rule"),
    "networkmanager.txt": ("nmcli", "device"),
    "networkd.txt": ("networkctl", "list", "--no-pager"),
    "services.txt": ("systemctl", "--no-pager", "--full", "status", *UNITS),
}
SUCCESS_CODES = (0, 3)  # 3: one of the units is not running, systemctl(1)


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"neuca-logs-{platform.node() or 'host'}-{now}"
    path = output_path(arguments.output or f"{name}.tar.gz")
    parts = dict(_archive_parts(config, Path(arguments.config or DEFAULT_PATH)))
    write_files({path: _packed_archive(name, parts)}, mode=0o600)
    print(path)
    return EXIT_OK


def _archive_parts(config: Config, file: Path) -> Iterator[tuple[str, bytes]]:
    """Each part with its name in the tar file. A part that fails contains the error instead."""
    version = f"{VERSION_TEXT}, Python {platform.python_version()}"
    yield "version.txt", f"{version}, {platform.platform()}\n".encode()
    for name, view in _views_of_stages(config).items():
        yield name, _content_or_error(name, view)
    for name, command in PROGRAMS.items():
        if programs.find_program(command[0]):
            call = f"collect {name}", command, PROGRAM_SECONDS
            execute = partial(programs.run_program, *call, accepted=SUCCESS_CODES)
            yield name, _content_or_error(name, execute)
    log = config.log_directory / image_clean.AGENT_OUTPUT
    paths = config_files(file)
    try:
        paths += image_clean.named_files(config)
    except ObserveError as error:
        yield "files.txt", _report_error("files.txt", error)
    for path in paths:
        if _is_secret(config, path):
            continue
        content = _public_content(path, even_private=path == log)
        if content is not None:
            yield f"files{path}", content


def _content_or_error(name: str, get: Callable[[], str]) -> bytes:
    """The last MAX_PART_BYTES of the text, or the error, which standard error gets too."""
    try:
        return get().encode("utf-8", "backslashreplace")[-MAX_PART_BYTES:]
    except NeucaError as error:
        return _report_error(name, error)


def _report_error(name: str, error: NeucaError) -> bytes:
    """Print why a part cannot be collected; returns it, in place of the part."""
    what = f"collect {name}: "
    print(f"neuca: {what}{error.text.removeprefix(what)}", file=sys.stderr)
    return f"{error.text}\n".encode()


def _views_of_stages(config: Config) -> Mapping[str, Callable[[], str]]:
    """The stages, for the document of the last pass: no source is queried, which may take long."""
    intake = last_confirmed(config.state, config.run_directory)

    survey = cache(partial(survey_host, config, intake))

    def status_json() -> str:
        return _json_text(with_guest(status_now(config, intake), config.run_directory).data)

    return {
        "status.json": status_json,
        "plan.json": lambda: _json_text(render_json.plan_json(survey().plan())),
        "desired.json": lambda: _json_text(render_json.desired_json(survey().resolution)),
        "observed.json": lambda: _json_text(render_json.observed_json(survey().world)),
    }


def _json_text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=1) + "\n"


def _is_secret(config: Config, path: Path) -> bool:
    """Whether a file holds output of scripts, or parts of the document that only root may read."""
    state, logs = config.state_directory, config.log_directory
    if path.parent == logs:
        return path.name == image_clean.GUEST_OUTPUT or fnmatch.fnmatch(path.name, "script-*")
    if path.parent in (state, config.state.spare):
        return not path.name.startswith(OPEN)
    return path.parent in (state / SCRIPTS, state / PLACE)


def _public_content(path: Path, even_private: bool) -> Optional[bytes]:
    """The last MAX_PART_BYTES of a regular file; None unless all may read it or `even_private`."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and (even_private or status.st_mode & stat.S_IROTH):
                file.seek(max(0, status.st_size - MAX_PART_BYTES))
                return file.read(MAX_PART_BYTES)
    return None


def _packed_archive(folder: str, parts: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime = len(content), int(time.time())
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
