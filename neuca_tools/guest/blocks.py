"""Edits marked lines at the top of a file; every other byte of the file stays as it is.

The lines are at the top because a file may end without a newline: with lines appended, its
original contents could not be restored.
"""

# SPDX-License-Identifier: MIT

import errno
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Optional

from neuca_tools.errors import ApplyError
from neuca_tools.files import replace_file, sync_directory

BEGIN = b"# BEGIN neuca-guest-tools: what is between these two lines is written anew"
END = b"# END neuca-guest-tools"
MAX_FILE_BYTES = 4 * 1024 * 1024
LINK = "it is a symbolic link, which is not followed"  # why a file is not edited


def edited_content(
    content: bytes, lines: Sequence[str], old: Optional[tuple[bytes, bytes]] = None
) -> bytes:
    """The content with these lines between the marks; without lines, the marks are removed too.

    So are the lines between a pair of `old` marks, which an earlier version wrote; the empty lines
    that it wrote around them stay, for they may be others'. Raises ApplyError unless there is one
    pair of marks or none: which lines are ours is unknown then.
    """
    if old:
        before, _, after = _split_at_marks(content, *old) or (content, b"", b"")
        content = before + after
    parts = _split_at_marks(content, BEGIN, END)
    if parts is None:
        text = "it does not have exactly one BEGIN and one END of neuca-guest-tools"
        raise ApplyError(f"its marked lines are damaged: {text}")
    before, ours, after = parts
    if not lines:
        return before + after
    block = b"\n".join([BEGIN, *(line.encode() for line in lines), END, b""])
    return before + block + after if ours else block + content


def _split_at_marks(
    content: bytes, begin: bytes, end: bytes
) -> Optional[tuple[bytes, bytes, bytes]]:
    """The content before the marked lines, these with their marks, and the content after.

    Without marks, all of it is after; None unless there is one pair of marks or none.
    """
    lines = content.splitlines(keepends=True)
    # An editor may have put a byte order mark before the first line.
    words = [line.strip() for line in content.removeprefix(BOM_UTF8).splitlines()]
    marks = [number for number, word in enumerate(words) if word in (begin, end)]
    if not marks:
        return b"", b"", content
    if [words[number] for number in marks] != [begin, end]:
        return None
    first, last = marks[0], marks[1] + 1
    return b"".join(lines[:first]), b"".join(lines[first:last]), b"".join(lines[last:])


def edit_file(path: Path, lines: Sequence[str], old: Optional[tuple[bytes, bytes]] = None) -> bool:
    """Edit a file that belongs to root, as does its directory. Returns whether it was changed.

    A missing file is created if there are lines. A symbolic link is followed, and stays one; owner,
    mode and extended attributes (SELinux labels, ACLs) are kept. Raises ApplyError.
    """
    with editing(f'edit "{path}"'):
        real = path.resolve(strict=False)
        content, status = read_regular_file(real)
        if status and status.st_nlink > 1:
            raise ApplyError("it has several names (hard links), which an atomic edit cannot keep")
        wanted = edited_content(content, lines, old)
        if wanted == content:
            return False
        replace_file(real, wanted, partial(_copy_attributes, real))
        sync_directory(real.parent)
    return True


@contextmanager
def editing(what: str) -> Iterator[None]:
    """Say in errors what was tried. Raises ApplyError."""
    try:
        yield
    except ApplyError as error:
        raise ApplyError(f"{what}: {error.text}", error.errno) from None
    except (OSError, RuntimeError) as error:
        # RuntimeError: a loop of symbolic links (pathlib before Python 3.13).
        raise ApplyError(f"{what}: {getattr(error, 'strerror', None) or error}") from error


def read_regular_file(path: Path) -> tuple[bytes, Optional[os.stat_result]]:
    """The content and the status of a file; empty and None if it does not exist.

    A symbolic link is not followed, and no pipe is waited for. Raises ApplyError, OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b"", None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ApplyError(LINK) from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ApplyError("it is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ApplyError(f"it is longer than {MAX_FILE_BYTES} bytes")
        return content, status
    finally:
        os.close(descriptor)


def _copy_attributes(path: Path, new: int) -> None:
    """Copy owner, mode and extended attributes of a file, if it exists, to a new one."""
    try:
        status = path.stat()
    except FileNotFoundError:
        os.fchmod(new, 0o644)
        return
    os.fchown(new, status.st_uid, status.st_gid)
    os.fchmod(new, stat.S_IMODE(status.st_mode))
    try:
        names = os.listxattr(path)
    except OSError as error:
        if error.errno != errno.ENOTSUP:  # the file system has no extended attributes
            raise
        return
    for name in names:
        os.setxattr(new, name, os.getxattr(path, name))
