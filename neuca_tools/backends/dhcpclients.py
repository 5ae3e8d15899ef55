"""The DHCP clients that the agent starts: dhcpcd, one process for each link and protocol.

Where systemd runs, each is a unit of its own (neuca-dhcp@.service), which outlives the agent, and
which systemd starts again if it ends. Elsewhere it is a process in a session of its own, which is
recognized by its process ID and the moment of its start. In both cases the unit or process begins
as our helper, which becomes the client (`commands.dhcp_helper`).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from neuca_tools import files
from neuca_tools.backends import dhcplease, processes
from neuca_tools.backends.bus import Service
from neuca_tools.errors import ManagerError
from neuca_tools.model import OwnClients

PROGRAM = "dhcpcd"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# The suffixes of the files of one client in the directory of all of them.
REQUEST, GONE = ".json", ".gone"
PLACE = "dhcp"  # the directory of all clients, in the run directory
RUN = Path("/run/neuca")  # the directory in which the unit has its files
RELEASE_SECONDS = 10.0  # that a client gets to release its lease
_PATH = "/org/freedesktop/systemd1"
_ALIVE = ("active", "activating", "reloading", "deactivating")
# What enables a manager that may not run yet: links of systemd, scripts of sysvinit.
_ENABLING = (
    ("etc/systemd/system", "*.wants", "NetworkManager.service"),
    ("etc/systemd/system", "*.wants", "systemd-networkd.service"),
    ("run/systemd/system", "*.wants", "systemd-networkd.service"),
    ("etc", "rc[2-5].d", "S*network-manager"),
)


def client_program(choice: str) -> str:
    """The path of the client for `[linux] dhcp-client`; empty if there is none to use."""
    if choice == "none":
        return ""
    return shutil.which(PROGRAM if choice == "auto" else choice, path=PATH) or ""


def is_manager_enabled(root: Path = Path("/")) -> bool:
    """Whether a network manager is enabled, which may not run yet. Raises ObserveError."""
    for directory, places, name in _ENABLING:
        for place in files.readable_paths(root / directory, places):
            if any(map(Path.exists, files.readable_paths(place, name))):
                return True
    return False


def runs_units(run_directory: Path) -> bool:
    """Whether systemd runs, and its unit for clients has its files in this directory."""
    return run_directory == RUN and Path("/run/systemd/system").is_dir()


class Units(Service):
    """The clients as units of systemd."""

    title = "systemd's service on the system bus"
    name = "org.freedesktop.systemd1"

    def alive(self) -> frozenset[str]:
        """The labels of the clients that run, or that systemd is about to start."""
        pattern, what = _unit_name("*"), "asked systemd for the DHCP clients"
        units = self._call(what, "ListUnitsByPatterns", "asas", [], [pattern])
        names = (str(unit[0]) for unit in units if str(unit[3]) in _ALIVE or int(unit[7]))
        before, after = pattern.split("*")
        return frozenset(name[len(before) : -len(after)] for name in names)

    def restart(self, label: str) -> None:
        """Raises ManagerError."""
        unit = _unit_name(label)
        self._call(f'start "{unit}"', "RestartUnit", "ss", unit, "replace")

    def stop(self, label: str) -> None:
        """Raises ManagerError."""
        unit = _unit_name(label)
        self._call(f'stop "{unit}"', "StopUnit", "ss", unit, "replace")

    def _call(self, what: str, member: str, *call: object) -> Any:
        return self._ask(what, _PATH, f"{self.name}.Manager.{member}", *call)


def _unit_name(label: str) -> str:
    return f"neuca-dhcp@{label}.service"


class Clients:
    """The clients with their files in `place`. Without `units`, they are plain processes."""

    def __init__(self, place: Path, helper: Path, units: Optional[Units] = None) -> None:
        self._place, self._helper, self._units = place, helper, units

    def read(self, choice: str) -> OwnClients:
        """What was started, and what of it runs. Raises ObserveError."""
        requests = dict(self._read_requests())
        return OwnClients(
            program=client_program(choice),
            helper=str(self._helper),
            replaces_managers=choice not in ("auto", "none"),
            manager_may_start=is_manager_enabled(),
            requests=requests,
            running=self._running_labels(requests),
            refusals=tuple(dhcplease.refused_leases(self._place)),
        )

    def _read_requests(self) -> Iterator[tuple[str, str]]:
        """The requests by label; one that is withdrawn counts until its lease has been given up."""
        for name in files.names_in(self._place):  # .json follows .gone, and overrides it
            path = self._place / name
            if path.suffix == GONE:
                yield path.stem, ""
            elif path.suffix == REQUEST:
                yield path.stem, (files.observed_content(path) or b"").decode("utf-8", "replace")

    def _running_labels(self, labels: Iterable[str]) -> frozenset[str]:
        labels = frozenset(labels)
        if self._units is None or not labels:
            return frozenset(label for label in labels if self._process_id(label))
        try:
            return labels & self._units.alive()
        except ManagerError:
            return labels  # it is not known that any has ended

    def start(self, label: str, request: str) -> None:
        """Start the client, or start it again. Raises ApplyError, ManagerError."""
        path = self._place / f"{label}{REQUEST}"
        self._end(label)
        files.write_files({path: request.encode(), path.with_suffix(GONE): None})
        if self._units is not None:
            self._units.restart(label)
            return
        # Clients start and stop rarely; it saves 2 ms of every pass.
        import subprocess

        with files.as_apply_error(f'run "{self._helper}"'):
            command, null = [str(self._helper), "start", str(path)], subprocess.DEVNULL
            process = subprocess.Popen(
                command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/"
            )
        processes.write_process_note(path, process.pid)

    def stop(self, label: str, releases: bool) -> None:
        """End the client, and remove its files and, if it `releases` it, its lease.

        Raises ApplyError, ManagerError.
        """
        path, gone = self._place / f"{label}{REQUEST}", self._place / f"{label}{GONE}"
        if not releases:
            if self._units is not None:
                self._units.stop(label)  # ExecStop= does nothing without a withdrawn request
            self._end(label)
            remove_files(path)
            return
        with files.as_apply_error(f'rename "{path}"'), suppress(FileNotFoundError):
            path.rename(gone)
        if self._units is not None:
            self._units.stop(label)
            # ExecStop= of the unit ends the client; signal 0 only waits.
            process_id = processes.noted_pid(gone.with_suffix(processes.CLIENT))
            processes.end_process(process_id, 0, RELEASE_SECONDS)
            if label in self._units.alive():
                return  # ExecStop= does the rest
        if self._process_id(label):
            # Clients start and stop rarely; it saves 2 ms of every pass.
            import subprocess

            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run([self._helper, "stop", gone], check=False, timeout=RELEASE_SECONDS)
        self._end(label)
        forget_client(gone)

    def _end(self, label: str) -> None:
        """End a client that is a plain process, without giving up its lease."""
        processes.end_process(self._process_id(label), signal.SIGTERM, RELEASE_SECONDS)

    def _process_id(self, label: str) -> int:
        """The ID of the process of a client; 0 if it does not run."""
        return processes.noted_pid(self._place / f"{label}{processes.PROCESS}")


def forget_client(gone: Path) -> None:
    """Remove what a lease has set, and all files of the client. Raises ApplyError."""
    dhcplease.drop_lease(gone.with_suffix(dhcplease.LEASE))
    remove_files(gone)


def remove_files(request: Path) -> None:
    """Remove all files of the client with this request."""
    for path in [request.parent / name for name in files.names_in(request.parent)]:
        if path.stem == request.stem:
            with suppress(OSError):
                path.unlink()
