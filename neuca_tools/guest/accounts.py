"""User accounts, and their right to use sudo.

A missing account is created with useradd, an existing one is never changed. Each user with sudo has
a file in sudoers.d; the file sudoers is never changed.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Optional

from neuca_tools.errors import ApplyError
from neuca_tools.files import applying, read_bytes, write_files
from neuca_tools.guest import programs

# sudo ignores files with a dot in their names (sudoers(5)), such as those that are being written.
SUDOERS = Path("/etc/sudoers.d")
MARK = "# Written by neuca-guest-tools: this user may use sudo as long as the user-data says so.\n"
SHELLS = ("/bin/bash", "/bin/sh")


def find_account(login: str) -> Optional[pwd.struct_passwd]:
    """The account, from any name service of the host (nsswitch.conf(5)); None if there is none."""
    try:
        return pwd.getpwnam(login)
    except KeyError:
        return None


def create_account(login: str, seconds: float) -> pwd.struct_passwd:
    """Create an account with a home directory and no valid password. Raises ApplyError.

    The password is `*` rather than useradd's default `!`: some SSH servers take `!` for a locked
    account, and refuse its keys too (sshd(8)).
    """
    shell = next((shell for shell in SHELLS if Path(shell).exists()), SHELLS[-1])
    what = f'create the user "{login}"'
    command = ["useradd", "--create-home", "--shell", shell, "--password", "*", "--", login]
    programs.run_program(what, command, seconds)
    made = find_account(login)
    if made is None:
        raise ApplyError(f"{what}: useradd reported success, but there is no such user")
    return made


def sudo_file(login: str, directory: Path = SUDOERS) -> Path:
    return directory / f"neuca-{login}"


def sudo_rule(login: str) -> str:
    """The rule for a user, which needs no password because the user has none."""
    return f"{MARK}{login} ALL=(ALL:ALL) NOPASSWD: ALL\n"


def grant_sudo(login: str, seconds: float, directory: Path = SUDOERS) -> bool:
    """Write the file, checked by visudo; returns whether it changed. Raises ApplyError."""
    file, content = sudo_file(login, directory), sudo_rule(login).encode()
    there = _file_content(file)
    if there and not _is_ours(there):
        raise ApplyError(
            f'let "{login}" use sudo: '
            f'"{file}" was not written by neuca-guest-tools, and is left alone'
        )
    if there == content and file.stat().st_mode & 0o777 == 0o440:
        return False
    programs.run_program(
        f'let "{login}" use sudo', ["visudo", "--check", "--quiet", "--file=-"], seconds, content
    )
    write_files({file: content}, 0o440)
    return True


def revoke_sudo(login: str, directory: Path = SUDOERS) -> bool:
    """Remove the file if the agent wrote it. Returns whether it was removed. Raises ApplyError."""
    file = sudo_file(login, directory)
    if not _is_ours(_file_content(file)):
        return False
    write_files({file: None})
    return True


def _file_content(file: Path) -> bytes:
    """The content of the file; empty if there is none."""
    with applying(f'read "{file}"'):
        return b"a link" if file.is_symlink() else read_bytes(file) or b""


def _is_ours(content: bytes) -> bool:
    return content.startswith(MARK.encode())
