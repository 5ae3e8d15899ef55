"""Files that are either whole or untouched, whatever happens while they are written; and the lock that one pass holds."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Optional

from neuca_tools.errors import ApplyError, LockedError, ObserveError

LARGEST = 64 * 1024 * 1024  # bytes; a state file of ours has a few hundred for each NIC
NEW = ".neuca-new"  # udevd, NetworkManager, networkd and systemd-sysctl all pass over a file that ends so
SHORTEST_PATIENCE = 0.001  # seconds; setitimer(2) takes 0 for "never"
FLOCK = "hhqqi"  # fcntl(2): type, whence, start, length, process id
FEW = 4  # files up to which one fsync each is cheaper than a sync of the file system


def read_bytes(path: Path, most: int = LARGEST) -> Optional[bytes]:
    """The content of a file (`most` bytes), None where there is none. Raises OSError otherwise: an error is not "absent"."""
    try:
        with path.open("rb", buffering=0) as stream:
            return stream.read(min(os.fstat(stream.fileno()).st_size, most))
    except (FileNotFoundError, NotADirectoryError):
        return None


def names_in(directory: Path) -> list[str]:
    """What a directory has, in order; nothing where there is none. Raises ObserveError otherwise."""
    try:
        return sorted(path.name for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ObserveError(f'list "{directory}": {error.strerror}') from error


def write_files(files: Mapping[Path, Optional[bytes]], mode: int = 0o644) -> None:
    """Write or remove (None) them all, with one sync for many. Raises ApplyError that names the path.

    A power cut leaves each file as it was or as it should be: written beside, synced, renamed, directory synced (rename(2)).
    """
    try:
        _write_files(files, mode)
    except ApplyError:
        for path in (
            files
        ):  # nothing of a write that failed stays; what was renamed already has no such name
            with suppress(OSError):
                path.with_name(path.name + NEW).unlink()
        raise


def _write_files(files: Mapping[Path, Optional[bytes]], mode: int) -> None:
    contents = {path: content for path, content in files.items() if content is not None}
    for path, content in contents.items():
        with _naming("write", path):
            with suppress(
                FileExistsError
            ):  # a file where a directory should be: the open below says it better
                make_directory(path.parent)
            _write_new(path, content, mode, sync=len(contents) <= FEW)
    for directory in {path.parent for path in contents} if len(contents) > FEW else ():
        with _naming("sync", directory):
            _sync_file_system(directory)
    for path, wanted in files.items():
        with _naming("write" if wanted is not None else "remove", path):
            _finish(path, wanted is not None)
    for directory in {path.parent for path in files}:
        with _naming("sync", directory), suppress(FileNotFoundError):
            sync_directory(directory)


def make_directory(path: Path, mode: int = 0o755) -> None:
    """Make a directory and those above it that are missing, with this mode whatever the umask. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent, mode)
    with suppress(FileExistsError):  # another process was faster; what is no directory fails later
        path.mkdir(mode & 0o700)
        path.chmod(mode)


@contextmanager
def _naming(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ApplyError(f'{what} "{path}": {error.strerror}', error.errno or 0) from error


def _write_new(path: Path, content: bytes, mode: int, sync: bool) -> None:
    new = path.with_name(path.name + NEW)
    with suppress(FileNotFoundError):
        new.unlink()  # left by a crash, or planted: never write through it
    descriptor = os.open(
        new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode
    )
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, mode)  # whatever the umask
        stream.write(content)
        stream.flush()
        if sync:
            os.fsync(descriptor)


def _finish(path: Path, wanted: bool) -> None:
    if wanted:
        path.with_name(path.name + NEW).replace(path)
    else:
        with suppress(FileNotFoundError):
            path.unlink()


def sync_directory(directory: Path) -> None:
    """Its entries are on the disk then (fsync(2)). Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(directory: Path) -> None:
    """syncfs(2), which Python has no name for: os.sync() would wait for every file system, a dead NFS mount included."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, patience: float) -> Iterator[None]:
    """Hold the lock; two passes never run at once. Waits `patience` seconds for another one, then raises LockedError.

    fcntl(2) has no time-out: an interval timer's signal ends the wait. The lock goes with the process, however it dies, and a
    child that outlives it does not have it.
    """
    with _naming("lock", path):
        make_directory(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(descriptor, path, patience)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, patience: float) -> None:
    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, max(patience, SHORTEST_PATIENCE))
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
    except TimeoutError:
        raise LockedError(f'lock "{path}": another pass has held it for {patience:g} s') from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def lock_holder(path: Path) -> int:
    """The process that holds a lock of `locked`: 0 for nobody, or for one that this PID namespace does not see (fcntl(2)).

    Not for a lock that this process holds: to close any descriptor of its file lets it go. Raises ApplyError.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise ApplyError(
            f'ask who has locked "{path}": {error.strerror}', error.errno or 0
        ) from error
    try:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, holder = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return int(holder) if kind != fcntl.F_UNLCK else 0
    finally:
        os.close(descriptor)
