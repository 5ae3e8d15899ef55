"""Reads and atomically writes files, and locks one pass against others."""

# SPDX-License-Identifier: MIT
# A pass reads and writes a file for each of many NICs, and pathlib takes longer than the kernel.
# ruff: noqa: PTH105, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Optional, Union

from neuca_tools.errors import ApplyError, LockedError, ObserveError

# Bytes that are read of a file. State files have a few hundred for each NIC.
MAX_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 64 * 1024  # that are read at once of a file of unknown size
# Suffix of a file that is being written. udevd, NetworkManager, networkd and systemd-sysctl ignore
# files with such a name.
NEW = ".neuca-new"
# setitimer(2) takes 0 for "never".
MIN_WAIT_SECONDS = 0.001
SECONDS_BETWEEN_ALARMS = 0.05
# struct flock of fcntl(2): type, whence, start, length, process ID.
FLOCK = "hhqqi"
# What open(2) and read(2) say if the host is short of a resource: nothing about the file.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
NOT_REGULAR = "it is not a regular file"
NULL_DEVICE = os.makedev(1, 3)  # Documentation/admin-guide/devices.txt of the kernel
# Up to this number of files, one fsync each is cheaper than a sync of the file system.
MAX_SINGLE_SYNCS = 4


def read_bytes(path: Union[Path, str], most: int = MAX_BYTES) -> Optional[bytes]:
    """The first `most` bytes of a file; None if it does not exist. Raises OSError otherwise."""
    try:
        descriptor = open_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        size = min(os.fstat(descriptor).st_size, most)
        content = os.read(descriptor, size)
        if content and len(content) == size:
            return content
        # The size of a file in /proc is 0, and some file systems return less than they have. What
        # is read at once is allocated first.
        parts, left = [content], most - len(content)
        while left and (part := os.read(descriptor, min(left, PIECE_BYTES))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def open_file(path: Union[Path, str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file, a directory or /dev/null, which masks a file. Raises OSError.

    Anything else is an error: a FIFO, for example, has its reader wait for a writer (fifo(7)).
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a FIFO without a reader (open(2))
            raise OSError(errno.ENXIO, NOT_REGULAR) from None
        raise
    status = os.fstat(descriptor)
    is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    if is_file or status.st_rdev == NULL_DEVICE:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, NOT_REGULAR)


@contextmanager
def closed_afterwards(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of a block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def raise_shortage(error: OSError, path: Union[Path, str]) -> None:
    """Raise ObserveError if a shortage caused the error, which then says nothing about the file."""
    if error.errno in SHORTAGES:
        raise ObserveError(f'read "{path}": {error.strerror}') from error


def observed_content(path: Union[Path, str]) -> Optional[bytes]:
    """The content of a file; None if it does not exist. Raises ObserveError."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise ObserveError(f'read "{path}": {error.strerror}') from error


def names_in(directory: Path) -> list[str]:
    """The sorted names in a directory; none if it does not exist. Raises ObserveError."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ObserveError(f'list "{directory}": {error.strerror}') from error


def matching_paths(directory: Path, pattern: str) -> list[Path]:
    """The sorted paths in a directory whose names match (fnmatch). Raises ObserveError."""
    return [directory / name for name in names_in(directory) if fnmatchcase(name, pattern)]


def write_files(
    files: Mapping[Path, Optional[bytes]], mode: int = 0o644, *, sync: bool = True
) -> None:
    """Write each file, or remove it if its content is None.

    After a power cut each file is unchanged or complete: a temporary file is written, synced and
    renamed, and its directory is synced (rename(2)). For many files, their file systems are synced
    in place of each. Without `sync`, this holds for a crash of the process only. Raises ApplyError
    with the path.
    """
    try:
        _write_files(files, mode, sync)
    except BaseException:  # an interrupt, too
        # Remove the temporary files. Those that were renamed no longer have such a name.
        for path in files:
            with suppress(OSError):
                path.with_name(path.name + NEW).unlink()
        raise


def _write_files(files: Mapping[Path, Optional[bytes]], mode: int, sync: bool) -> None:
    contents = {path: content for path, content in files.items() if content is not None}
    are_few, set_mode = len(contents) <= MAX_SINGLE_SYNCS, partial(os.fchmod, mode=mode)
    for path, content in contents.items():
        with as_apply_error(f'write "{path}"'):
            # If the parent is a file, opening the new file fails with a better message.
            with suppress(FileExistsError):
                make_directory(path.parent)
            _refuse_device(path)
            _write_new(Path(f"{path}{NEW}"), content, set_mode, sync=sync and are_few)
    if sync and not are_few:
        _sync_directories(contents, are_few)
    for path in files:
        _rename_or_remove(path, path in contents)
    if sync:
        _sync_directories(files, are_few)


def _rename_or_remove(path: Path, is_written: bool) -> None:
    with as_apply_error(f'{"write" if is_written else "remove"} "{path}"'):
        if is_written:
            os.replace(f"{path}{NEW}", path)
        else:
            path.unlink(missing_ok=True)


def mode_of(path: Path) -> int:
    """The mode of a file, or of what a link leads to; 0 if there is none. Raises OSError."""
    # Since Python 3.14, Path.exists() and the like take any error for absence.
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _refuse_device(path: Path) -> None:
    """Raise OSError for a device or a FIFO, which would be gone once it is replaced."""
    mode = mode_of(path)
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EEXIST, "it exists, and is not a regular file")


def make_directory(path: Path, mode: int = 0o755) -> None:
    """Create a directory and its parents with this mode, ignoring the umask. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent, mode)
    # Not chmod(2) afterwards: the parent's owner may have put a link there by then.
    before = os.umask(0)
    try:
        # Another process may have created it. If it is not a directory, using it fails later.
        with suppress(FileExistsError):
            path.mkdir(mode)
    finally:
        os.umask(before)


@contextmanager
def as_apply_error(what: str = "") -> Iterator[None]:
    """Turn an OSError into an ApplyError that says what was tried, and the cause."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        raise ApplyError(f"{what}: {cause}" if what else cause, error.errno or 0) from error


def text_of(path: Path, most: int = MAX_BYTES) -> str:
    """The text of the first bytes of a file without white space around; empty if unreadable.

    Raises ObserveError if the host is short of a resource.
    """
    try:
        return (read_bytes(path, most) or b"").decode("utf-8", "replace").strip()
    except OSError as error:
        raise_shortage(error, path)
        return ""


def readable_names_in(directory: Path) -> list[str]:
    """The sorted names in a directory; none if unreadable. Raises ObserveError for a shortage."""
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        raise_shortage(error, directory)
        return []


def readable_paths(directory: Path, pattern: str) -> list[Path]:
    """The sorted paths in a directory whose names match (fnmatch); see `readable_names_in`."""
    # Path.glob raises an OSError for a shortage or, since Python 3.13, takes it for absence.
    return [directory / name for name in readable_names_in(directory) if fnmatchcase(name, pattern)]


def replace_file(path: Path, content: bytes, prepare: Callable[[int], None]) -> None:
    """Replace a file; `prepare` sets mode and owner by the new descriptor. Raises OSError."""
    new = Path(f"{path}{NEW}")
    try:
        _write_new(new, content, prepare)
        new.rename(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def _write_new(
    new: Path, content: bytes, prepare: Callable[[int], None], *, sync: bool = True
) -> None:
    # Never write to an existing file: a leftover of a crash, or planted by an attacker.
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with closed_afterwards(os.open(new, flags, 0o600)) as descriptor:
        prepare(descriptor)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)


def sync_directory(directory: Path, sync: Callable[[int], object] = os.fsync) -> None:
    """Write the entries of a directory to the disk, by fsync(2) or `sync`. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with closed_afterwards(os.open(directory, flags)) as descriptor:
        sync(descriptor)


def _sync_directories(paths: Iterable[Path], are_few: bool) -> None:
    """Sync the directories of these files; those of many files by syncing their file systems."""
    sync, synced = os.fsync if are_few else _sync_file_system, set[int]()
    for directory in dict.fromkeys(path.parent for path in paths):
        with as_apply_error(f'sync "{directory}"'), suppress(FileNotFoundError):
            device = directory.stat().st_dev
            if are_few or device not in synced:
                sync_directory(directory, sync)
                synced.add(device)


def _sync_file_system(descriptor: int) -> int:
    # Only for many files; it saves 1 ms.
    from neuca_tools.libc import call

    # os.sync() would wait for every file system, including an NFS mount without a server.
    return call("syncfs", descriptor)


@contextmanager
def locked(path: Path, patience: float, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file, so that two passes never run at once.

    A `shared` lock keeps no file system from being remounted read-only. Raises LockedError if
    another process still holds the lock after `patience` seconds. fcntl(2) has no timeout, so the
    signal of an interval timer ends the wait. The kernel releases the lock when the process dies,
    and a child process does not inherit it.
    """
    with as_apply_error(f'lock "{path}"'):
        make_directory(path.parent)
        access = os.O_RDONLY if shared else os.O_RDWR
        descriptor = open_file(path, access | os.O_CREAT | os.O_NOFOLLOW)
    with closed_afterwards(descriptor):
        with as_apply_error(f'lock "{path}"'):
            _await_lock(descriptor, path, patience, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def _await_lock(descriptor: int, path: Path, patience: float, kind: int) -> None:
    with suppress(BlockingIOError):
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
        return

    def give_up(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        # A signal that comes just before fcntl(2) does not end its wait; the next one does.
        seconds = max(patience, MIN_WAIT_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, seconds, SECONDS_BETWEEN_ALARMS)
        fcntl.lockf(descriptor, kind)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        raise LockedError(f'lock "{path}": another pass has held it for {patience:g} s') from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def lock_holder(path: Path, start: int = 0, length: int = 0) -> int:
    """The ID of the process that holds a lock of `locked`, or of these bytes; `length` 0 for all.

    0 if there is none, or if it is in another PID namespace (fcntl(2)). Raises ApplyError. Do not
    call this for a lock that this process holds: closing any descriptor of the file releases it.
    """
    with as_apply_error(f'find the process that has locked "{path}"'):
        try:
            descriptor = open_file(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return 0
    with closed_afterwards(descriptor):
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        # Without a lock, the holder stays 0.
        *_, holder = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return int(holder)
