"""`neuca collect-logs`: one tar for whoever is to find out what happened on this host, and nothing secret in it.

What it holds: the stages as `neuca` shows them, what the kernel and the managers say, the journal of our own services, and of the
configuration and the agent's own files those that everybody may read: secrets are in no such file. What scripts say and what
the document holds stays out whatever the mode of a file, for an earlier version may have made it. The agent's own log is packed
as the journal is, though only root may read it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any, Callable, Optional

from neuca_tools import __version__
from neuca_tools.agent import image_clean
from neuca_tools.agent.first_boot import PLACE
from neuca_tools.agent.status import status_now
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import host
from neuca_tools.commands.context import configuration
from neuca_tools.config import DEFAULT_PATH, Config
from neuca_tools.config.files import files as config_files
from neuca_tools.errors import EXIT_OK, NeucaError
from neuca_tools.files import write_files
from neuca_tools.guest import programs
from neuca_tools.guest.outcome import with_guest
from neuca_tools.state.active_document import confirmed
from neuca_tools.state.records import SCRIPTS
from neuca_tools.status import render_json

if TYPE_CHECKING:
    import argparse

# Of the state directory: roles, names and what links were like before.
OPEN = ("record.json", "journal.json", "machine.json")
LONGEST = 20.0  # seconds for one program
LINES = 20000  # of the journal, its last
MOST = 4 << 20  # bytes of one part, its last
# The scripts of a document run in units of their own: what they say may be anything, and stays out.
JOURNAL = (
    "journalctl",
    "--no-pager",
    "--quiet",
    "--output=short-precise",
    f"--lines={LINES}",
    "--unit=neuca-names",
    "--unit=neuca-guest-tools",
    "--unit=neuca-guest",
    "--unit=neuca-selftest",
    "--unit=neuca-drive@*",
)
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "journal.txt": JOURNAL,
    "links.txt": ("ip", "-details", "-statistics", "address"),
    "routes.txt": ("ip", "-4", "-details", "route", "show", "table", "all"),
    "routes6.txt": ("ip", "-6", "-details", "route", "show", "table", "all"),
    "rules.txt": ("ip", "rule"),
    "networkmanager.txt": ("nmcli", "device"),
    "networkd.txt": ("networkctl", "list", "--no-pager"),
    "services.txt": (
        "systemctl",
        "--no-pager",
        "--full",
        "status",
        "neuca-names",
        "neuca-guest-tools",
        "neuca-guest",
    ),
}
ENDS_WELL = {"services.txt": (0, 3)}  # 3: one of them does not run, systemctl(1)


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    name = (
        f"neuca-logs-{platform.node() or 'host'}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    )
    path = Path(arguments.output or f"{name}.tar.gz").absolute()
    parts = dict(_parts(config, Path(arguments.config or DEFAULT_PATH)))
    write_files({path: _packed(name, parts)}, mode=0o600)
    print(path)
    return EXIT_OK


def _parts(config: Config, file: Path) -> Iterator[tuple[str, bytes]]:
    """Each part by its name in the tar. One that cannot be had says why, and so does standard error."""
    yield (
        "version.txt",
        f"NEuca version {__version__}, Python {platform.python_version()}, {platform.platform()}\n".encode(),
    )
    for name, view in _views(config).items():
        yield name, _tried(name, view)
    for name, command in PROGRAMS.items():
        if programs.find(command[0]):
            well = ENDS_WELL.get(name, (0,))
            yield (
                name,
                _tried(
                    name, partial(programs.run, f"collect {name}", command, LONGEST, accepted=well)
                ),
            )
    log = config.log_directory / image_clean.AGENT_OUTPUT
    for path in [*config_files(file), *image_clean.own_files(config)]:
        content = None if _is_secret(config, path) else _content(path, path == log)
        if content is not None:
            yield f"files{path}", content


def _tried(name: str, get: Callable[[], str]) -> bytes:
    try:
        return get().encode("utf-8", "backslashreplace")[-MOST:]
    except NeucaError as error:
        print(f"neuca: {name}: {error.text}", file=sys.stderr)
        return f"{error.text}\n".encode()


def _views(config: Config) -> Mapping[str, Callable[[], str]]:
    """The stages, of the document in force: no source is asked, so a service that hangs holds up nothing."""
    intake = confirmed(config.state, config.run_directory)

    @cache
    def survey() -> Decision:
        with host(config, intake) as handles:
            return handles.survey()

    return {
        "status.json": lambda: _text(
            with_guest(status_now(config, intake), config.run_directory).data
        ),
        "plan.json": lambda: _text(render_json.plan_json(survey().plan())),
        "desired.json": lambda: _text(render_json.desired_json(survey().resolution)),
        "observed.json": lambda: _text(render_json.observed_json(survey().world)),
    }


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=1) + "\n"


def _is_secret(config: Config, path: Path) -> bool:
    """Whether it is the output of scripts, or has what only the document of root's own directory says."""
    state, logs = config.state_directory, config.log_directory
    if path.parent == logs:
        return path.name in (image_clean.GUEST_OUTPUT, *fnmatch.filter([path.name], "script-*"))
    inside = (state / SCRIPTS, state / PLACE)
    own = path.parent in (state, config.state.spare) and not path.name.startswith(OPEN)
    return path.parent in inside or own


def _content(path: Path, of_root: bool) -> Optional[bytes]:
    """What is in a file that everybody may read, or `of_root`: its last part; None for any other. No link is followed."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and (of_root or found.st_mode & stat.S_IROTH):
                file.seek(max(0, found.st_size - MOST))
                return file.read(MOST)
    return None


def _packed(folder: str, parts: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime = len(content), int(time.time())
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
