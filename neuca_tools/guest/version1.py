"""What version 1.7 of the agent has left on a host, and what still follows from it.

It kept the body of each script that it had run in its state directory, executable for root and
nothing else, and the parameters of each iSCSI disk, with the CHAP secret, in `storage` below it.
"""

# SPDX-License-Identifier: MIT

import os
import stat
from pathlib import Path

from neuca_tools.documents.neuca.ini import without_comment
from neuca_tools.files import names_in, read_bytes
from neuca_tools.model.rows import Script

STORAGE = "storage"
# The lines of its block in the hosts file.
HOSTS_BEGIN = b"### BEGIN NEuca loopback modifications - DO NOT EDIT BETWEEN THESE LINES. ###"
HOSTS_END = b"### END NEuca loopback modifications - DO NOT EDIT BETWEEN THESE LINES. ###"
_COMMENTS = (b"#", b";")


def has_run(directory: Path, script: Script) -> bool:
    """Whether version 1.7 has run this script on this host.

    Its reader of user-data dropped indentation, empty lines and comments, of the first line also
    what follows ` ;`: only the rest is compared. A script of the same name with another body is a
    new one.
    """
    path = directory / script.name
    if path.parent != directory or not _is_script(path):
        return False
    try:
        body = read_bytes(path) or b""
    except OSError:
        return False  # it cannot be the same script if no one can tell
    first, *rest = script.body.split("\n")
    bodies = (script.body, "\n".join((without_comment(first), *rest)))
    present = [_significant_lines(text.encode("utf-8", "surrogateescape")) for text in bodies]
    return _significant_lines(body) in present


def _significant_lines(body: bytes) -> list[bytes]:
    lines = [line.strip() for line in body.splitlines()]
    return [line for line in lines if line and not line.startswith(_COMMENTS)]


def _is_script(path: Path) -> bool:
    """Whether this is a regular file with the mode that only version 1.7 gave."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == stat.S_IXUSR


def script_paths(directory: Path) -> list[Path]:
    """The scripts that version 1.7 has run."""
    return [directory / name for name in names_in(directory) if _is_script(directory / name)]


def disk_paths(directory: Path) -> list[Path]:
    """What version 1.7 recorded of iSCSI disks."""
    return [directory / STORAGE / name for name in names_in(directory / STORAGE)]


def own_files(directory: Path) -> list[Path]:
    """Every state file of version 1.7."""
    return [*script_paths(directory), *disk_paths(directory)]
