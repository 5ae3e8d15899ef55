"""Edits a user's public keys, in marked lines of the user's file, with the user's privileges.

So a symbolic link that the user has planted gives access to nothing that the user could not access
anyway. None is followed in any case, and no pipe is waited for.
"""

# SPDX-License-Identifier: MIT

import json
import os
import pwd
import signal
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn, Optional

from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error, mode_of, replace_file, sync_directory
from neuca_tools.guest import blocks, programs

DIRECTORY, FILE = ".ssh", "authorized_keys"  # the default AuthorizedKeysFile (sshd_config(5))
EDIT_SECONDS = 30.0  # a home directory may be on a server that does not respond
SELINUX = Path("/sys/fs/selinux/enforce")
MAX_RESULT_BYTES = 65536


def edit_as(user: pwd.struct_passwd, keys: Sequence[str]) -> str:
    """Write these keys between the marks; without keys, remove the marks too.

    Returns why sshd will ignore the file, empty if it will not. Raises ApplyError.
    """
    with as_apply_error("start the child that edits them"):
        own_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own_end.settimeout(EDIT_SECONDS)
        child = os.fork()
    if child == 0:
        _run_as_user(user, keys, child_end)
    child_end.close()
    try:
        failed, ignored = json.loads(own_end.recv(MAX_RESULT_BYTES))  # the user may have forged it
    except (OSError, ValueError, TypeError, RecursionError):
        text = "the child that edits them ended without a result, or took too long"
        raise ApplyError(text) from None
    finally:
        own_end.close()
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


def keys_path(user: pwd.struct_passwd, root: Path) -> Path:
    """The file with the public keys of a user of the file system at `root`."""
    return root / user.pw_dir.lstrip("/") / DIRECTORY / FILE


def without_ours(user: pwd.struct_passwd, root: Path) -> Optional[bytes]:
    """The content of that file without our keys, read by root; None if the file does not exist.

    Raises ApplyError for what `edit_as` would refuse, since that file has none of our keys then.
    """
    file = keys_path(user, root)
    if not os.path.lexists(file):
        return None
    with blocks.editing(f'"{file.parent}"'):
        _check_directory(file.parent, user.pw_uid)
    with blocks.editing(f'"{file}"'):
        content, _ = _read_keys(file, user.pw_uid)
        return blocks.edited_content(content, ())


def edit_keys(home: str, keys: Sequence[str]) -> str:
    """Do what `edit_as` does in this process. Raises ApplyError."""
    file = Path(home, DIRECTORY, FILE)
    with blocks.editing(f'"{home}"'):
        if not keys and not mode_of(file.parent):
            return ""
        Path(home).stat()
    is_new = not os.path.lexists(file.parent)
    with blocks.editing(f'"{file.parent}"'):
        if is_new:
            _create_directory(file.parent)
        _check_directory(file.parent, os.geteuid())
    with blocks.editing(f'"{file}"'):
        content, mode = _read_keys(file, os.geteuid())
        wanted = blocks.edited_content(content, keys)
        if wanted != content:
            replace_file(file, wanted, partial(os.fchmod, mode=mode))
            sync_directory(file.parent)
        for place in (Path(home), file.parent, file) if keys else ():
            status = place.stat()  # sshd lets nobody else write there (StrictModes)
            if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
                return f'sshd ignores the keys: "{place}" is writable by users other than its owner'
        return ""


def _create_directory(directory: Path) -> None:
    directory.mkdir(0o700)
    if SELINUX.exists() and programs.find_program("restorecon"):
        # sshd may read the directory only if it has the right label.
        programs.run_program("label it", ["restorecon", "-R", str(directory)], EDIT_SECONDS)


def _check_directory(directory: Path, owner: int) -> None:
    """Raises ApplyError for a link, another kind of file, or a directory of another user."""
    status = directory.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise ApplyError(blocks.LINK)
    if not stat.S_ISDIR(status.st_mode):
        raise ApplyError("it is not a directory")
    _check_owner(status, owner)


def _read_keys(file: Path, owner: int) -> tuple[bytes, int]:
    """The content of the file, empty if there is none, and its mode. Raises ApplyError, OSError."""
    content, status = blocks.read_regular_file(file)
    if status is None:
        return content, 0o600
    # Its user may have put a link in place of the directory since that was checked.
    _check_owner(status, owner)
    return content, stat.S_IMODE(status.st_mode)


def _check_owner(status: os.stat_result, owner: int) -> None:
    if status.st_uid != owner:
        raise ApplyError("it is owned by another user")
