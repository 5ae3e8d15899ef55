"""Prepares an image for cloning: removes the files of this host that clones must not inherit.

First all files are listed, then they are removed one by one; after an interruption, the next run
finds the rest. No symbolic link is followed. The current network configuration is left alone,
since whoever runs this is logged in through it.
"""

# SPDX-License-Identifier: MIT

import errno
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Union

from neuca_tools.agent import first_boot, trial
from neuca_tools.apply.look import own_paths
from neuca_tools.backends.dhcpclients import PLACE as CLIENTS
from neuca_tools.backends.processes import end_process
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError, NeucaError
from neuca_tools.files import (
    NEW,
    closed_afterwards,
    lock_holder,
    locked,
    matching_paths,
    names_in,
    observed_content,
    write_files,
)
from neuca_tools.guest import iscsi, outcome, storage, users, version1
from neuca_tools.guest.run import LOCK as GUEST_LOCK
from neuca_tools.guest.users import UserWithdrawal
from neuca_tools.selftest import ARCHIVE, ARCHIVE_LOCK, REPORTS
from neuca_tools.state import records, store
from neuca_tools.status import report

STATE_FILES = (records.RECORD, records.JOURNAL, records.DOCUMENT, records.MACHINE, records.TRIAL)
IN_RUN = (*records.RUN_FILES, report.FILE, store.REASON_FILE, trial.RESULT)
_FORMER_TABLE = "names"  # of earlier versions, in the state directory
STOP_SECONDS = 20.0  # as in the unit; the daemon waits up to 10 of them for a pass
GENERATED_FILES_LIST = "generated-files"  # packaging/debian/prerm leaves it for a purge
AGENT_OUTPUT, GUEST_OUTPUT = "neucad.out", "neuca-guest.out"  # of the init scripts

# The identity of the host. All of these are generated again at the next boot or when next needed,
# except for the SSH host keys. "Building Images Safely" (systemd.io) has the list for systemd.
# NetworkManager derives addresses (stable-privacy) and DHCP client ids from its key; a DHCP client
# with a lease requests the address that the host had. dhcpd.leases is a server's, and stays.
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
METRICS = "var/lib/prometheus/node-exporter/neuca.prom"  # neuca-metrics.service writes it
MACHINE_ID = "etc/machine-id"
NO_IDENTITY = (b"", b"uninitialized")  # machine-id(5)
SSH_DIRECTORY, HOST_KEY = "etc/ssh", re.compile(r"ssh_host_\w+_key(-cert)?(\.pub)?")
# Generates host keys at boot where it is enabled. Without any, sshd does not start.
KEY_MAKERS = (
    ("etc/systemd/system/multi-user.target.wants", "neuca-host-keys.service"),
    ("etc/rc2.d", "S??neuca-host-keys"),
)


class Trace(NamedTuple):
    """A file to remove or, if an empty one has to stay, to truncate."""

    path: Path
    emptied: bool = False

    @property
    def text(self) -> str:
        verb = "empty" if self.emptied else "remove"
        return f'{verb} "{self.path}"'

    def run(self) -> None:
        """Remove or truncate the file; an empty one keeps owner, mode, label. Raises ApplyError."""
        if not self.emptied:
            write_files({self.path: None})
            return
        try:
            flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            with closed_afterwards(os.open(self.path, flags)) as descriptor:
                os.ftruncate(descriptor, 0)
                os.fsync(descriptor)
        except OSError as error:
            why = error.strerror
            if error.errno == errno.ELOOP:
                why = "it is a symbolic link, which is not followed"
            raise ApplyError(f'empty "{self.path}": {why}', error.errno or 0) from error


class Findings(NamedTuple):
    """The files to remove; `kept` are SSH host keys that nothing would replace."""

    traces: tuple[Union[Trace, UserWithdrawal], ...]
    kept: tuple[Trace, ...] = ()


def find_traces(config: Config, root: Path, with_identity: bool) -> Findings:
    """Find the agent's files, `with_identity` also the host's. Raises ApplyError, ObserveError."""
    # Users come first, since a file of the agent's lists them.
    ours: list[Union[Trace, UserWithdrawal]] = [*users.users_to_withdraw(config)]
    own = [*own_files(config), root / METRICS]
    ours += [Trace(path) for path in own if os.path.lexists(path)]
    if not with_identity:
        return Findings(tuple(ours))
    directory = root / SSH_DIRECTORY
    keys = [Trace(directory / name) for name in names_in(directory) if HOST_KEY.fullmatch(name)]
    host = identity_files(root)
    # Only if the next boot makes new ones.
    if any(matching_paths(root / place, unit) for place, unit in KEY_MAKERS):
        return Findings((*ours, *host, *keys))
    return Findings((*ours, *host), tuple(keys))


def own_files(config: Config) -> list[Path]:
    """Every file that the agent may have written, except its locks, which may be held.

    Files are recognized by their names and by records, since others may have files in the same
    directories. A record comes after the files that it lists, so that an interrupted removal can
    be repeated. Raises ApplyError, ObserveError.
    """
    listed = [*storage.own_files(config), *users.own_files(config)]
    files = [*listed, *_begun(listed), *guest_records(config), *named_files(config)]
    return list(dict.fromkeys(files))


def guest_records(config: Config) -> list[Path]:
    """The records of users and disks. Raises ObserveError."""
    return matching_paths(config.state_directory, outcome.RECORDS)


def named_files(config: Config) -> list[Path]:
    """Those of `own_files` that no record for root alone lists. Raises ObserveError."""
    state, run, place = config.state_directory, config.run_directory, config.log_path.parent
    log = re.compile(rf"{re.escape(config.log_path.name)}(\.\d+(\.gz)?)?")  # or an older part of it
    logs = matching_paths(config.log_directory, "script-*.log")
    logs += [place / name for name in names_in(place) if log.fullmatch(name)]
    logs += [config.log_directory / name for name in (AGENT_OUTPUT, GUEST_OUTPUT)]
    files = [*map(Path, own_paths(config)), *matching_paths(state, REPORTS)]
    archive = (ARCHIVE, f"{ARCHIVE}.1", ARCHIVE_LOCK)
    names = (*STATE_FILES, *archive, store.REASON_FILE, config.daemon_lock.name, _FORMER_TABLE)
    files += [*(state / name for name in names), *guest_records(config)]
    for directory in (state / first_boot.PLACE, state / records.SCRIPTS):
        files += [directory / name for name in names_in(directory)]
    files += version1.own_files(state)
    files += [config.state.spare / name for name in STATE_FILES]
    files += matching_paths(run / CLIENTS, "*")
    files += [run / name for name in (*IN_RUN, *outcome.file_names())]
    installed = state / GENERATED_FILES_LIST
    return [*first_boot.udev_rules(config), *logs, *files, *_begun(files), installed]


def _begun(files: Iterable[Path]) -> list[Path]:
    """What an interrupted write of these files leaves."""
    return [path.with_name(path.name + NEW) for path in files]


def identity_files(root: Path) -> list[Trace]:
    """The files below `root` that identify the host, without SSH keys. Raises ObserveError."""
    paths = [
        path
        for directory, pattern in IDENTITY
        for path in matching_paths(root / directory, pattern)
        # D-Bus may have a link to /etc/machine-id rather than a file with an ID of its own.
        if not (path.name == "machine-id" and path.is_symlink())
    ]
    initiator = root / iscsi.INITIATOR.relative_to("/")
    if iscsi.is_ours(initiator):  # two hosts of one name would break each other's sessions
        paths.append(initiator)
    traces = [Trace(path) for path in paths]
    machine_id = root / MACHINE_ID
    content = observed_content(machine_id)
    if content is None or content.strip() in NO_IDENTITY:
        return traces
    return [Trace(machine_id, emptied=True), *traces]


@contextmanager
def hold_all_locks(config: Config) -> Iterator[int]:
    """Hold all locks, with the daemon stopped: no pass and no run for the guest writes anything.

    Yields the process id of the daemon that was stopped, or 0. Raises ApplyError, NeucaError.
    """
    seconds = config.command_timeout
    with locked(config.pass_lock, seconds), locked(config.run_directory / GUEST_LOCK, seconds):
        process = running_daemon(config)
        # systemd does not restart a daemon that exits with status 0.
        if process and not end_process(process, signal.SIGTERM, STOP_SECONDS):
            why = f"it still runs after {STOP_SECONDS:g} s"
            raise NeucaError(f"stop neucad, process {process}: {why}")
        with locked(config.daemon_lock, 1.0):
            yield process


def lock_files(config: Config) -> tuple[Path, ...]:
    """The locks of a pass, of the daemon and of a run for the guest."""
    return config.pass_lock, config.daemon_lock, config.run_directory / GUEST_LOCK


def running_daemon(config: Config) -> int:
    """The process id of the daemon with this run directory, 0 for none. Raises ApplyError."""
    return lock_holder(config.daemon_lock)
