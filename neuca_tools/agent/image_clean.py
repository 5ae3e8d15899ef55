"""Sealing an image: which files of this host its clones must not inherit, and how each of them goes.

First a list of what is there, then one file after the other: whatever interrupts it, the next time finds the rest. No link is
followed. The network as it is now is left alone, for whoever seals an image is logged in over it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import re
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Union

from neuca_tools.agent import first_boot
from neuca_tools.config import Config
from neuca_tools.desired import marks
from neuca_tools.errors import ApplyError, NeucaError, ObserveError
from neuca_tools.files import NEW, lock_holder, locked, names_in, read_bytes, write_files
from neuca_tools.guest import iscsi, outcome, storage, users
from neuca_tools.guest.users import Leaving
from neuca_tools.selftest import REPORTS
from neuca_tools.state import records, store
from neuca_tools.status import report

LOCKS = (
    "lock",
    "neucad.lock",
    "guest.lock",
)  # of a pass, of the daemon, of a run for the guest; in the run directory
IN_RUN = (*records.RUN_FILES, report.FILE, store.WHY)
STOP_WITHIN = 20.0  # seconds, as in its unit: the daemon gives a pass under way 10 of them
LISTED = "generated-files"  # what packaging/debian/prerm leaves for a purge
AGENT_OUTPUT, GUEST_OUTPUT = "neucad.out", "neuca-guest.out"  # of the init scripts

# Whose host this is. Each of them is made anew at the next boot, or when it is next needed, but for the SSH host keys.
# BUILDING_IMAGES (systemd.io) has the list for systemd. NetworkManager's key goes into addresses (stable-privacy) and DHCP
# client ids; a lease makes a DHCP client ask for the address that the host had. dhcpd.leases is a server's, and stays.
IDENTITY = (
    ("var/lib/dbus", "machine-id"),
    ("var/lib/systemd", "random-seed"),
    ("var/lib/systemd", "credential.secret"),
    ("var/lib/urandom", "random-seed"),
    ("var/lib/NetworkManager", "secret_key"),
    ("var/lib/NetworkManager", "*.lease"),
    ("var/lib/dhcp", "dhclient*.lease*"),
    ("var/lib/dhclient", "dhclient*.lease*"),
    ("var/lib/dhcpcd", "duid"),
    ("var/lib/dhcpcd", "secret"),
    ("var/lib/dhcpcd", "*.lease*"),
)
MACHINE_ID = "etc/machine-id"
NO_IDENTITY = (b"", b"uninitialized")  # machine-id(5)
HOST_KEYS = ("etc/ssh", re.compile(r"ssh_host_\w+_key(-cert)?(\.pub)?"))
# What makes new host keys at boot, where it is enabled; sshd does not start without any, and then nobody can log in.
KEY_MAKERS = (
    ("etc/systemd/system/multi-user.target.wants", "neuca-host-keys.service"),
    ("etc/rc2.d", "S??neuca-host-keys"),
)


@dataclass(frozen=True)
class Trace:
    """One file to remove or, where there has to be one, to leave there empty."""

    path: Path
    emptied: bool = False

    @property
    def text(self) -> str:
        return f'{"empty" if self.emptied else "remove"} "{self.path}"'

    def run(self) -> None:
        """Raises ApplyError."""
        if self.emptied:
            _empty(self.path)
        else:
            write_files({self.path: None})


@dataclass(frozen=True)
class Findings:
    """What a clone must not have, and the SSH host keys that stay all the same, since nothing would make new ones."""

    traces: tuple[Union[Trace, Leaving], ...]
    kept: tuple[Trace, ...] = ()


def find(config: Config, root: Path, with_identity: bool) -> Findings:
    """What is there; the host's own files are looked for in the file system at `root`. Raises ApplyError, ObserveError."""
    # First whoever may log in, for it is a file of ours that says who.
    ours: list[Union[Trace, Leaving]] = [*users.leaving(config)]
    ours += [Trace(path) for path in own_files(config) if os.path.lexists(path)]
    if not with_identity:
        return Findings(tuple(ours))
    keys, host = host_keys(root), identity(root)
    if makes_host_keys(root):
        return Findings((*ours, *host, *keys))
    return Findings((*ours, *host), tuple(keys))


def own_files(config: Config) -> list[Path]:
    """Every file that the agent may have written, but for its locks, which are empty and may be held.

    Names and records decide: a directory may be shared, and is never taken whole. Raises ApplyError, ObserveError.
    """
    rules = [
        config.udev_directory / name
        for name in names_in(config.udev_directory)
        if marks.rule_mac(name[: -len(NEW)] if name.endswith(NEW) else name, config.udev_substring)
    ]
    logs = _matching(config.log_directory, "script-*.log")
    logs += [
        config.log_path.parent / name
        for name in names_in(config.log_path.parent)
        if re.fullmatch(rf"{re.escape(config.log_path.name)}(\.\d+(\.gz)?)?", name)
    ]
    lists = [
        config.networkmanager_directory / marks.NETWORKMANAGER_FILE,
        config.sysctl_directory / marks.SYSCTL_FILE,
        config.networkd_directory / marks.NETWORKD_NICS_FILE,
        config.networkd_directory / marks.NETWORKD_VLANS_FILE,
    ]
    lists += _matching(config.state_directory, REPORTS)
    kept = (records.RECORD, records.JOURNAL, records.DOCUMENT, records.MACHINE)
    state = [config.state_directory / name for name in kept] + _matching(
        config.state_directory, outcome.RECORDS
    )
    state += [
        place / name
        for place in (config.state_directory / name for name in (first_boot.PLACE, records.SCRIPTS))
        for name in names_in(place)
    ]
    spare = [config.state.spare / name for name in kept]
    run = [*spare, *(config.run_directory / name for name in (*IN_RUN, *outcome.files()))]
    # What a record tells of goes before that record.
    files = [*storage.own_files(config), *users.own_files(config), *lists, *state, *run]
    outputs = [config.log_directory / name for name in (AGENT_OUTPUT, GUEST_OUTPUT)]
    begun = [path.with_name(path.name + NEW) for path in files]
    return [*rules, *logs, *outputs, *files, *begun, config.state_directory / LISTED]


def identity(root: Path) -> list[Trace]:
    """What tells this host from others, in the file system at `root`, but for SSH host keys. Raises ObserveError."""
    found = [
        Trace(path)
        for directory, pattern in IDENTITY
        for path in _matching(root / directory, pattern)
    ]
    # systemd and D-Bus take an id from here where /etc has none; a link to that one has none of its own.
    found = [
        trace for trace in found if trace.path.name != "machine-id" or not trace.path.is_symlink()
    ]
    machine_id = root / MACHINE_ID
    try:
        content = read_bytes(machine_id)
    except OSError as error:
        raise ObserveError(f'read "{machine_id}": {error.strerror}') from error
    has_one = content is not None and content.strip() not in NO_IDENTITY
    initiator = root / iscsi.INITIATOR.relative_to(
        "/"
    )  # two hosts of one name break each other's sessions
    found += [Trace(initiator)] if iscsi.is_ours(initiator) else []
    return [Trace(machine_id, emptied=True), *found] if has_one else found


def host_keys(root: Path) -> list[Trace]:
    """The host keys of the SSH server, with their certificates. Raises ObserveError."""
    directory, pattern = HOST_KEYS
    return [
        Trace(root / directory / name)
        for name in names_in(root / directory)
        if pattern.fullmatch(name)
    ]


def makes_host_keys(root: Path) -> bool:
    """Whether the next boot makes new ones. Raises ObserveError."""
    return any(_matching(root / directory, pattern) for directory, pattern in KEY_MAKERS)


@contextmanager
def undisturbed(config: Config) -> Iterator[int]:
    """Nobody writes anything meanwhile: no pass, no run for the guest, and the daemon is stopped. Gives its process id, or 0.

    Raises ApplyError, NeucaError.
    """
    passing, daemon, guest = (config.run_directory / name for name in LOCKS)
    with locked(passing, config.command_timeout), locked(guest, config.command_timeout):
        process = running_daemon(config)
        if process:
            _stop(process)
        with locked(daemon, 1.0):
            yield process


def running_daemon(config: Config) -> int:
    """The process id of the daemon with this run directory, 0 for none. Raises ApplyError."""
    return lock_holder(config.run_directory / LOCKS[1])


def _stop(process: int) -> None:
    """SIGTERM, until the process has ended. It ends well, so that systemd does not start it again."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not select.select([descriptor], [], [], STOP_WITHIN)[0]:
            raise NeucaError(
                f"stop neucad, process {process}: it still runs after {STOP_WITHIN:g} s"
            )
    finally:
        os.close(descriptor)


def _empty(path: Path) -> None:
    """In place, so that it keeps its owner, its mode and its label."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        why = "it is a link, and none is followed" if error.errno == errno.ELOOP else error.strerror
        raise ApplyError(f'empty "{path}": {why}', error.errno or 0) from error


def _matching(directory: Path, pattern: str) -> list[Path]:
    return [directory / name for name in names_in(directory) if fnmatchcase(name, pattern)]
