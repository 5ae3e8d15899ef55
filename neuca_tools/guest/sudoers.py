"""The right to use sudo: one file for each user in sudoers.d. The file sudoers is never changed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path

from neuca_tools.errors import ApplyError
from neuca_tools.files import applying, read_bytes, write_files
from neuca_tools.guest import programs

# sudo ignores files with a dot in their names (sudoers(5)), such as those that are being written.
DIRECTORY = Path("/etc/sudoers.d")
MARK = "# Written by neuca-guest-tools: this user may use sudo as long as the user-data says so.\n"


def path(login: str, directory: Path = DIRECTORY) -> Path:
    return directory / f"neuca-{login}"


def text(login: str) -> str:
    """The rule for a user, which needs no password because the user has none."""
    return f"{MARK}{login} ALL=(ALL:ALL) NOPASSWD: ALL\n"


def grant(login: str, seconds: float, directory: Path = DIRECTORY) -> bool:
    """Write the file, checked by visudo; returns whether it changed. Raises ApplyError."""
    file, content = path(login, directory), text(login).encode()
    there = _content(file)
    if there and not _is_ours(there):
        raise ApplyError(
            f'let "{login}" use sudo: '
            f'"{file}" was not written by neuca-guest-tools, and is left alone'
        )
    if there == content and file.stat().st_mode & 0o777 == 0o440:
        return False
    programs.run(
        f'let "{login}" use sudo', ["visudo", "--check", "--quiet", "--file=-"], seconds, content
    )
    write_files({file: content}, 0o440)
    return True


def revoke(login: str, directory: Path = DIRECTORY) -> bool:
    """Remove the file if the agent wrote it. Returns whether it was removed. Raises ApplyError."""
    file = path(login, directory)
    if not _is_ours(_content(file)):
        return False
    write_files({file: None})
    return True


def _content(file: Path) -> bytes:
    """The content of the file; empty if there is none."""
    with applying(f'read "{file}"'):
        return b"a link" if file.is_symlink() else read_bytes(file) or b""


def _is_ours(content: bytes) -> bool:
    return content.startswith(MARK.encode())
