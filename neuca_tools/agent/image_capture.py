"""Writes the root file system of this guest to a tar file, cleaned as `image_clean` cleans a host.

The host is only read. tar(1) reads the root through a second, read-only mount of it, in which no
other file system is mounted, and what a clean host would have in another form is mounted over the
original. What tar writes passes through this process, so that neither outlives the other.
"""

# SPDX-License-Identifier: MIT

import fcntl
import hashlib
import os
import shutil
import stat
import struct
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, Optional, Union, cast

from neuca_tools.agent import image_clean
from neuca_tools.agent.image_clean import Findings, Trace
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError, UsageError
from neuca_tools.files import (
    NEW,
    as_apply_error,
    closed_afterwards,
    mode_of,
    sync_directory,
    write_files,
)
from neuca_tools.guest import authorized_keys, blockdev, programs
from neuca_tools.guest.users import UserWithdrawal, find_account

# The name of an archive, and the option of tar that writes it.
OPTIONS = {".tar": (), ".tar.gz": ("--gzip",), ".tar.xz": ("--xz",)}
MANIFEST, CHECKSUM = ".manifest", ".sha256"
# Not part of an image: what the next boot empties or mounts over.
EMPTIED = ("run", "tmp")
SELINUX = Path("/sys/fs/selinux/enforce")
CHUNK = 1 << 20  # bytes
# Exit status of tar: some files changed while they were read, the archive is complete.
TAR_FILES_CHANGED = 1
# $1 is seen at $2, and each pair of files that follows: the first in place of the second, unless
# that one is on another file system. An own exit status, since tar has others for its own failures.
MOUNT_AND_RUN = """mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" || exit 90
shift 2
while [ "$1" != tar ]; do [ ! -e "$2" ] || mount --bind "$1" "$2" || exit 90; shift 2; done
exec "$@\""""
FORMAT = (
    *("--format=posix", "--numeric-owner", "--sparse", "--acls", "--xattrs", "--xattrs-include=*"),
    *("--atime-preserve=system", "--warning=no-file-ignored"),
)
# <linux/fs.h>: what the owner of a file can set of its flags (FS_FL_USER_MODIFIABLE, FS_NOCOW_FL),
# but for the one that compresses it.
GET_FLAGS, FLAGS = 0x80086601, 0x8380FF & ~0x4


class Captured(NamedTuple):
    """A finished capture: its size in bytes, and whether files changed while they were read.

    `flagged` are the files whose flags (chattr(1)) the archive does not have.
    """

    size: int
    files: int
    changed: bool
    flagged: list[str]


def check_destination(destination: Path) -> None:
    """Raises UsageError or ApplyError for an unusable destination, before anything is read."""
    if not destination.name.endswith(tuple(OPTIONS)):
        *most, last = OPTIONS
        text = f"{', '.join(most)} or {last}"
        raise UsageError(f'capture into "{destination}": the name must end in {text}')
    for path in _result_paths(destination):
        if os.path.lexists(path):
            raise UsageError(f'capture into "{destination}": "{path}" exists')
    with as_apply_error(f'capture into "{destination}"'):
        # Absolute: the working directory may have been removed.
        if not stat.S_ISDIR(mode_of(destination.absolute().parent)):
            raise UsageError(f'capture into "{destination}": its directory does not exist')


def capture_image(config: Config, root: Path, findings: Findings, destination: Path) -> Captured:
    """Write the file system at `root`, without what is in `findings`, and its checksums.

    The archive gets its name last, when all else is written. Raises ApplyError, ObserveError.
    """
    destination = destination.parent.resolve() / destination.name
    root = root.resolve()
    _, manifest, checksum = results = _result_paths(destination)
    new = destination.with_name(destination.name + NEW)
    for name in ("unshare", "mount", "tar"):
        if programs.find_program(name) is None:
            raise ApplyError(f'write "{destination}": {name} is not installed')
    with as_apply_error(f'write "{destination}"'), _created_file(new) as stream:
        archive = _Archive(root, stream)
        with TemporaryDirectory(prefix="neuca-image-") as place:
            top = Path(place, "root")
            top.mkdir()
            words = [str(root), str(top)]
            for file, original in _stage_replacements(Path(place), root, findings):
                words += [str(file), str(top / original.relative_to(root))]
            traces = [trace for trace in findings.traces if isinstance(trace, Trace)]
            absent = [trace.path for trace in traces if not trace.emptied]
            # Also what the agent may write meanwhile.
            absent += [*image_clean.own_files(config), *results, new, Path(place)]
            words += [*tar_arguments(root, destination, absent), f"--directory={top}", "."]
            changed = archive.fill(words, destination)
        lines = [_checksum_line(digest, name) for name, digest in archive.digest_by_name.items()]
        own = _checksum_line(archive.digest.hexdigest(), destination.name)
        write_files({manifest: b"".join(lines), checksum: own}, 0o600)
        stream.flush()
        os.fsync(stream.fileno())
        new.rename(destination)
        sync_directory(destination.parent)
    return Captured(destination.stat().st_size, len(lines), changed, archive.flagged)


def _result_paths(destination: Path) -> list[Path]:
    """The archive, its manifest and its checksum."""
    return [destination.with_name(destination.name + end) for end in ("", MANIFEST, CHECKSUM)]


@contextmanager
def _created_file(new: Path) -> Iterator[IO[bytes]]:
    """A file for the archive, which has the host's secrets. It is removed unless it is renamed."""
    new.unlink(missing_ok=True)  # what an earlier capture has left
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    try:
        # A raw stream would leave the end out where only a part of it fits.
        with open(os.open(new, flags, 0o600), "wb") as stream:  # noqa: PTH123
            yield stream
    finally:
        with suppress(OSError):
            new.unlink()


def _replaced(root: Path, item: Union[Trace, UserWithdrawal]) -> Iterator[tuple[Path, bytes]]:
    if isinstance(item, Trace):
        if item.emptied:
            yield item.path, b""
        return
    account = find_account(item.login)
    if account is None:
        return
    try:
        content = authorized_keys.without_ours(account, root)
    except ApplyError as error:
        raise ApplyError(f'leave out the keys of "{item.login}": {error.text}') from None
    if content is not None:
        yield authorized_keys.keys_path(account, root), content


def _stage_replacements(place: Path, root: Path, findings: Findings) -> Iterator[tuple[Path, Path]]:
    """Write the files that differ in the copy to `place`, with the original owner and attributes.

    Yields each new file with the real path of its original. Raises ApplyError.
    """
    pairs = (pair for item in findings.traces for pair in _replaced(root, item))
    content_by_path = {path.resolve(): content for path, content in pairs}
    for number, (original, content) in enumerate(content_by_path.items()):
        file = place / f"replacement-{number}"
        file.write_bytes(content)
        status = original.lstat()
        os.chown(file, status.st_uid, status.st_gid)
        shutil.copystat(original, file, follow_symlinks=False)
        yield file, original


def tar_arguments(root: Path, destination: Path, absent: Iterable[Path]) -> list[str]:
    """The command line of tar, without the directory to read from."""
    words = ["tar", "--create", "--file=-", *FORMAT]
    words += next(more for end, more in OPTIONS.items() if destination.name.endswith(end))
    if SELINUX.exists():
        words.append("--selinux")
    words += ["--anchored", "--wildcards", *(f"--exclude=./{name}/*" for name in EMPTIED)]
    # tar sees a file at its real path only; a link itself is left out, not what it leads to.
    real = (path.parent.resolve() / path.name for path in absent)
    names = {path.relative_to(root) for path in real if path.is_relative_to(root)}
    return [*words, "--no-wildcards", *(f"--exclude=./{name}" for name in sorted(names))]


class _Archive:
    """The archive, which is read while it is written; `digest_by_name` has that of each file."""

    def __init__(self, root: Path, stream: IO[bytes]) -> None:
        self.digest = hashlib.sha256()
        self.digest_by_name: dict[str, str] = {}
        self.flagged: list[str] = []
        self._root, self._stream, self._source = root, stream, stream

    def fill(self, words: list[str], destination: Path) -> bool:
        """Run tar on a mount of the root; whether files changed. Raises ApplyError, OSError."""
        shell = ("sh", "-c", MOUNT_AND_RUN, "sh")
        with subprocess.Popen(
            ["unshare", "--mount", "--propagation=private", *shell, *words],
            env=programs.ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as tar:
            try:
                self._source = cast(IO[bytes], tar.stdout)
                broken = self._read_members()
                code = tar.wait()
            finally:
                tar.kill()
        if code not in (0, TAR_FILES_CHANGED):
            raise ApplyError(f'write "{destination}": tar ended with status {code}')
        if broken:
            raise ApplyError(f'read "{destination}": {broken}')
        return code == TAR_FILES_CHANGED

    def read(self, size: int) -> bytes:
        """For tarfile: what tar writes, which is written and summed up in passing."""
        part = self._source.read(size)
        self._stream.write(part)
        self.digest.update(part)
        return part

    def _read_members(self) -> str:
        """Take the digest of each file; returns why it is not an archive, empty if it is one."""
        broken = ""
        try:
            with tarfile.open(fileobj=cast(IO[bytes], self), mode="r|*") as members:
                for member in members:
                    self._take(member, members.extractfile(member) if member.isreg() else None)
        except (tarfile.TarError, EOFError) as error:
            broken = str(error)
        while self.read(CHUNK):
            pass
        return broken

    def _take(self, member: tarfile.TarInfo, content: Optional[IO[bytes]]) -> None:
        if content:
            digest = hashlib.sha256()
            while part := content.read(CHUNK):
                digest.update(part)
            self.digest_by_name[member.name] = digest.hexdigest()
        elif member.islnk() and member.linkname in self.digest_by_name:  # not one to a device
            self.digest_by_name[member.name] = self.digest_by_name[member.linkname]
        if (content or member.isdir()) and _has_flags(self._root / member.name):
            self.flagged.append(f"/{member.name}".replace("/.", "", 1) or "/")


def _has_flags(path: Path) -> bool:
    with suppress(OSError):  # the file system has none, or the file has gone
        mode = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with closed_afterwards(os.open(path, mode)) as descriptor:
            (flags,) = struct.unpack("l", fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)))
            return bool(flags & FLAGS)
    return False


def _checksum_line(digest: str, name: str) -> bytes:
    """A line of sha256sum(1): a name with a line break or a backslash is escaped, and marked."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "\\" * (escaped != name)
    return os.fsencode(f"{mark}{digest}  {escaped}\n")


def other_mounts() -> list[str]:
    """Where other disks are mounted below the root, which the copy lacks. Raises ApplyError."""
    return sorted({mount.mount_point for mount in blockdev.read_mounts("/dev/")} - {"/"})
