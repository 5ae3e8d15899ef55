"""Edits a user's public keys, in marked lines of the user's file, with the user's privileges.

So a symbolic link that the user has planted gives access to nothing that the user could not access
anyway. None is followed in any case, and no pipe is waited for.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
import os
import pwd
import signal
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Callable, NoReturn, Optional

from neuca_tools.errors import ApplyError
from neuca_tools.files import applying, replace_file
from neuca_tools.guest import blocks, programs

DIRECTORY, FILE = ".ssh", "authorized_keys"  # the default AuthorizedKeysFile (sshd_config(5))
EDIT_SECONDS = 30.0  # a home directory may be on a server that does not respond
READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
SELINUX = Path("/sys/fs/selinux/enforce")
MAX_RESULT_BYTES = 65536


def edit_as(user: pwd.struct_passwd, keys: Sequence[str]) -> str:
    """Write these keys between the marks; without keys, remove the marks too.

    Returns why sshd will ignore the file, empty if it will not. Raises ApplyError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(EDIT_SECONDS)
    child = os.fork()
    if child == 0:
        _run_as_user(user, keys, theirs)
    theirs.close()
    try:
        failed, ignored = json.loads(ours.recv(MAX_RESULT_BYTES))  # the user may have forged it
    except (OSError, ValueError, TypeError):
        raise ApplyError(
            "the child that edits them ended without a result, or took too long"
        ) from None
    finally:
        ours.close()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if failed:
        raise ApplyError(str(failed))
    return str(ignored)


def _run_as_user(user: pwd.struct_passwd, keys: Sequence[str], parent: socket.socket) -> NoReturn:
    """In the child, which never returns from here: edit the file and send the result."""
    try:
        parent.send(json.dumps(_edit_result(user, keys)).encode())
    finally:
        os._exit(0)


def _edit_result(user: pwd.struct_passwd, keys: Sequence[str]) -> tuple[str, str]:
    """Become the user and edit the file; returns the error, and why sshd will ignore the file."""
    try:
        os.chdir("/")
        os.umask(0o077)
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        return "", edit_keys(user.pw_dir, keys)
    except ApplyError as error:
        return error.text, ""
    except OSError as error:
        return f"become the user: {error.strerror}", ""


# --- As root, which only reads --------------------------------------------------------------------


def keys_path(user: pwd.struct_passwd, root: Path) -> Path:
    """The file with the public keys of a user of the file system at `root`."""
    return root / user.pw_dir.lstrip("/") / DIRECTORY / FILE


def without_ours(user: pwd.struct_passwd, root: Path) -> Optional[bytes]:
    """The content of that file without our keys; None if the file does not exist.

    Raises ApplyError for what `edit_as` would refuse, since that file has none of our keys then.
    """
    home = str(root / user.pw_dir.lstrip("/"))
    try:
        with (
            _opened_directory(home, lambda: os.open(home, READ_DIRECTORY)) as top,
            _opened_directory(f"{home}/{DIRECTORY}", lambda: _open_ssh_directory(top)) as directory,
        ):
            content, _ = _read_file(directory, f"{home}/{DIRECTORY}/{FILE}", user.pw_uid)
    except ApplyError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    return None if content is None else blocks.edited_content(content, ())


def _open_ssh_directory(home: int) -> int:
    return os.open(DIRECTORY, READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=home)


# --- As the user ----------------------------------------------------------------------------------


def edit_keys(home: str, keys: Sequence[str]) -> str:
    """Do what `edit_as` does in this process. Raises ApplyError."""
    with _opened_directory(home, lambda: os.open(home, READ_DIRECTORY)) as top:
        place = f"{home}/{DIRECTORY}"
        if not keys and not _is_there(DIRECTORY, top):
            return ""
        with (
            _opened_directory(place, lambda: _create_ssh_directory(top, place)) as directory,
            applying(f'"{place}/{FILE}"'),
        ):
            _edit_file(directory, f"{place}/{FILE}", keys)
            return _reason_ignored(top, directory, home) if keys else ""


@contextmanager
def _opened_directory(place: str, opener: Callable[[], int]) -> Iterator[int]:
    with applying(f'"{place}"'):
        descriptor = opener()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_there(name: str, directory: int) -> bool:
    with suppress(FileNotFoundError):
        return bool(os.stat(name, dir_fd=directory, follow_symlinks=False))
    return False


def _create_ssh_directory(home: int, place: str) -> int:
    """A descriptor of ~/.ssh, which is created if it is missing."""
    if not _is_there(DIRECTORY, home):
        os.mkdir(DIRECTORY, 0o700, dir_fd=home)
        if SELINUX.exists() and programs.find_program("restorecon"):
            # sshd may read the directory only if it has the right label.
            programs.run_program(f'label "{place}"', ["restorecon", "-R", place], EDIT_SECONDS)
    _check_own(
        os.stat(DIRECTORY, dir_fd=home, follow_symlinks=False), place, stat.S_ISDIR, "a directory"
    )
    return os.open(DIRECTORY, READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=home)


def _edit_file(directory: int, place: str, keys: Sequence[str]) -> None:
    content, mode = _read_file(directory, place)
    try:
        wanted = blocks.edited_content(content or b"", keys)
    except ApplyError as error:
        raise ApplyError(f'"{place}": {error.text}') from None
    if wanted != (content or b""):
        replace_file(FILE, wanted, partial(os.fchmod, mode=mode), directory)
        os.fsync(directory)


def _read_file(
    directory: int, place: str, owner: Optional[int] = None
) -> tuple[Optional[bytes], int]:
    """The content of the file, None if there is none, and its mode.

    The file has to belong to `owner`, by default to who runs this. Raises ApplyError.
    """
    try:
        status = os.stat(FILE, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None, 0o600
    _check_own(status, place, stat.S_ISREG, "a regular file", owner)
    descriptor = os.open(
        FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
    )
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(blocks.MAX_FILE_BYTES + 1)
        if len(content) > blocks.MAX_FILE_BYTES:
            raise ApplyError(f'"{place}": it is longer than {blocks.MAX_FILE_BYTES} bytes')
        return content, stat.S_IMODE(os.fstat(descriptor).st_mode)


def _check_own(
    status: os.stat_result,
    place: str,
    is_kind: Callable[[int], bool],
    kind: str,
    owner: Optional[int] = None,
) -> None:
    """Raises ApplyError for a link, another kind of file, or a file of another user."""
    if stat.S_ISLNK(status.st_mode):
        raise ApplyError(f'"{place}": it is a symbolic link, which is not followed')
    if not is_kind(status.st_mode):
        raise ApplyError(f'"{place}": it is not {kind}')
    if status.st_uid != (os.geteuid() if owner is None else owner):
        raise ApplyError(f'"{place}": it is owned by another user')


def _reason_ignored(home: int, directory: int, name: str) -> str:
    """Why sshd ignores the file: others may write to it (StrictModes); empty if it does not."""
    places = {
        name: os.fstat(home),
        f"{name}/{DIRECTORY}": os.fstat(directory),
        f"{name}/{DIRECTORY}/{FILE}": os.stat(FILE, dir_fd=directory, follow_symlinks=False),
    }
    for place, status in places.items():
        if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
            return f'sshd ignores the keys: "{place}" is writable by others than its user'
    return ""
