"""Writes the root file system of this guest to a tar file, cleaned as `image_clean` cleans a host.

The host is only read: what a clean host would not have is left out of the copy, and what it would
have in another form is added from a file beside it. tar(1) reads the root through a second,
read-only mount of it, in which no other file system is mounted.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import hashlib
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Union

from neuca_tools.agent import image_clean
from neuca_tools.agent.image_clean import Findings, Trace
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError, UsageError
from neuca_tools.files import NEW, applying, read_bytes, sync_directory
from neuca_tools.guest import accounts, authorized_keys, programs
from neuca_tools.guest.users import Leaving

ENDINGS = (".tar", ".tar.gz", ".tar.xz")
MANIFEST, CHECKSUM = ".manifest", ".sha256"
MOUNTS = Path("/proc/self/mountinfo")
# Not part of an image: what the next boot empties or mounts over.
EMPTIED = ("run", "tmp")
SELINUX = Path("/sys/fs/selinux/enforce")
CHUNK = 1 << 20  # bytes
CHANGED = 1  # exit status of tar: some files changed while they were read, the archive is complete
# $1 is seen at $2. An own exit status, since tar has others for its own failures.
ENTER = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" || exit 90; shift 2; exec tar "$@"'
FORMAT = ("--format=posix", "--numeric-owner", "--sparse", "--acls", "--xattrs")


@dataclass(frozen=True)
class Replacement:
    """The content that a file has in the copy; all else is as in the original."""

    path: Path
    content: bytes


@dataclass(frozen=True)
class Captured:
    """A finished capture: sizes in bytes, and whether files changed while they were read."""

    size: int
    files: int
    changed: bool


def check(destination: Path) -> None:
    """Raises UsageError for a destination that cannot be used, before anything is read."""
    if not destination.name.endswith(ENDINGS):
        raise UsageError(f'capture into "{destination}": the name must end in {_ENDINGS_TEXT}')
    for path in _results(destination):
        if os.path.lexists(path):
            raise UsageError(f'capture into "{destination}": "{path}" exists')
    if not destination.parent.is_dir():
        raise UsageError(f'capture into "{destination}": its directory does not exist')


_ENDINGS_TEXT = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


def capture(config: Config, root: Path, found: Findings, destination: Path) -> Captured:
    """Write the file system at `root`, without what was `found`, and its checksums.

    The archive gets its name last, when all else is written. Raises ApplyError, ObserveError.
    """
    destination = destination.parent.resolve() / destination.name
    results = _results(destination)
    begun = [path.with_name(path.name + NEW) for path in results]
    with applying(f'write "{destination}"'), _temporary(begun):
        with _staged(replacements(root, found)) as (place, staged):
            absent = [*excluded(config, found), *results, *begun, place]
            words = arguments(root, begun[0], absent, staged)
            changed = _tar(root, place, words, begun[0], destination)
        files = _write_manifest(begun[0], begun[1])
        with begun[0].open("rb") as stream:
            begun[2].write_bytes(_line(_digest(stream), destination.name))
        size = begun[0].stat().st_size
        for path, result in reversed([*zip(begun, results)]):
            _sync(path)
            path.rename(result)
        sync_directory(destination.parent)
    return Captured(size, files, changed)


def _results(destination: Path) -> list[Path]:
    """The archive, its manifest and its checksum."""
    return [destination.with_name(destination.name + end) for end in ("", MANIFEST, CHECKSUM)]


# --- What the copy has in another form ------------------------------------------------------------


def excluded(config: Config, found: Findings) -> list[Path]:
    """The files that the copy does not have: also those that the agent may write meanwhile."""
    traces = [item.path for item in found.traces if isinstance(item, Trace)]
    return [*traces, *image_clean.own_files(config)]


def replacements(root: Path, found: Findings) -> list[Replacement]:
    """The files with another content in the copy. Raises ApplyError."""
    changed = [_replaced(root, item) for item in found.traces]
    return [one for one in changed if one]


def _replaced(root: Path, item: Union[Trace, Leaving]) -> Union[Replacement, None]:
    if isinstance(item, Trace):
        return Replacement(item.path, b"") if item.emptied else None
    account = accounts.find(item.login)
    if account is None:
        return None
    try:
        content = authorized_keys.without_ours(account, root)
    except ApplyError as error:
        raise ApplyError(f'leave out the keys of "{item.login}": {error.text}') from None
    if content is None:
        return None
    return Replacement(authorized_keys.place(account, root), content)


@contextmanager
def _staged(changed: Sequence[Replacement]) -> Iterator[tuple[Path, Mapping[str, Path]]]:
    """A directory to mount the root at, and beside it a file for each replacement, by its name."""
    with ExitStack() as stack:
        top = Path(tempfile.mkdtemp(prefix="neuca-image-"))
        # Never a recursive removal: the root is mounted below, if only for another process.
        stack.callback(top.rmdir)
        place = top / "root"
        place.mkdir()
        stack.callback(place.rmdir)
        staged = {}
        for number, one in enumerate(changed):
            file = top / f"replacement-{number}"
            stack.callback(file.unlink, missing_ok=True)
            _imitate(file, one)
            staged[file.name] = one.path
        yield place, staged


def _imitate(file: Path, wanted: Replacement) -> None:
    """Write a file with the owner, mode and attributes of the one that it replaces."""
    file.write_bytes(wanted.content)
    like = wanted.path.lstat()
    os.chown(file, like.st_uid, like.st_gid)
    file.chmod(like.st_mode & 0o777)
    for name in os.listxattr(wanted.path, follow_symlinks=False):
        value = os.getxattr(wanted.path, name, follow_symlinks=False)
        # tmpfs has no user attributes on older kernels; these two files rarely have any.
        with suppress(OSError):
            os.setxattr(file, name, value)
    os.utime(file, ns=(like.st_atime_ns, like.st_mtime_ns))


# --- tar ------------------------------------------------------------------------------------------


def arguments(
    root: Path, archive: Path, absent: Iterable[Path], staged: Mapping[str, Path]
) -> list[str]:
    """The command line of tar, without the directories to read from."""
    words = ["--create", "--file=-", *FORMAT]
    words += ["--xattrs-include=*", "--atime-preserve=system", "--warning=no-file-ignored"]
    if archive.name.endswith((".gz" + NEW, ".xz" + NEW)):
        words.append({".gz": "--gzip", ".xz": "--xz"}[archive.name[-len(NEW) - 3 : -len(NEW)]])
    if SELINUX.exists():
        words.append("--selinux")
    words += ["--anchored", "--wildcards", *(f"--exclude=./{name}/*" for name in EMPTIED)]
    words.append("--no-wildcards")
    words += [f"--exclude={name}" for name in sorted(_names(root, absent))]
    for name, path in staged.items():
        (inside,) = _names(root, [path]) or {""}
        if inside:
            target = re.sub(r"([\\&,])", r"\\\1", inside)
            words.append(f"--transform=flags=r;s,^{re.escape(name)}$,{target},")
    return words


def _names(root: Path, paths: Iterable[Path]) -> set[str]:
    """The names in the archive of those paths that are below the root."""
    return {f"./{path.relative_to(root)}" for path in paths if path.is_relative_to(root)}


def _tar(root: Path, place: Path, words: list[str], archive: Path, destination: Path) -> bool:
    """Run tar on a mount of the root; return whether files changed meanwhile. Raises ApplyError."""
    for name in ("unshare", "mount", "tar"):
        if programs.find(name) is None:
            raise ApplyError(f'write "{destination}": {name} is not installed')
    staged = sorted(path.name for path in place.parent.iterdir() if path != place)
    enter = ["unshare", "--mount", "--propagation=private", "sh", "-c", ENTER, "sh"]
    command = [*enter, str(root), str(place), *words, f"--directory={place}", "."]
    if staged:
        command += [f"--directory={place.parent}", *staged]
    # tar does not open the archive by name: if it outlived us, it would create the file again.
    with archive.open("wb") as stream:
        quiet = subprocess.DEVNULL
        code = subprocess.run(
            command, check=False, env=programs.ENVIRONMENT, cwd="/", stdin=quiet, stdout=stream
        ).returncode
    if code not in (0, CHANGED) or not archive.stat().st_size:
        full = os.statvfs(archive.parent)
        if full.f_bavail * full.f_frsize < CHUNK:
            raise ApplyError(f'write "{destination}": {os.strerror(errno.ENOSPC)}', errno.ENOSPC)
        raise ApplyError(f'write "{destination}": tar ended with status {code}')
    return code == CHANGED


# --- Checksums ------------------------------------------------------------------------------------


def _write_manifest(archive: Path, manifest: Path) -> int:
    """Write the SHA-256 of each file, as sha256sum(1) reads it; return the number of files.

    The archive is read for this, which also shows that it can be.
    """
    digests: dict[str, str] = {}
    try:
        with manifest.open("wb") as stream, tarfile.open(archive, "r|*") as members:
            for member in members:
                content = members.extractfile(member) if member.isreg() else None
                if content:
                    digests[member.name] = _digest(content)
                elif member.islnk():
                    digests[member.name] = digests[member.linkname]
                else:
                    continue
                stream.write(_line(digests[member.name], member.name))
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise ApplyError(f'read "{archive}": {error}') from error
    return len(digests)


def _digest(stream: IO[bytes]) -> str:
    found = hashlib.sha256()
    while part := stream.read(CHUNK):
        found.update(part)
    return found.hexdigest()


def _line(digest: str, name: str) -> bytes:
    """A line of sha256sum(1): a name with a line break or a backslash is escaped, and marked."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "\\" * (escaped != name)
    return os.fsencode(f"{mark}{digest}  {escaped}\n")


# --- Files ----------------------------------------------------------------------------------------


@contextmanager
def _temporary(paths: Iterable[Path]) -> Iterator[None]:
    """Empty files in place of what an earlier capture has left; remove what this one leaves."""
    paths = list(paths)
    try:
        for path in paths:
            path.unlink(missing_ok=True)
            # The archive has the host's secrets. Nobody else can put a link in its place.
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(path, flags, 0o600))
        yield
    finally:
        for path in paths:
            with suppress(OSError):
                path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def other_mounts() -> list[str]:
    """The places below the root where another disk is mounted, which the copy does not have."""
    places = []
    for line in (read_bytes(MOUNTS) or b"").decode("utf-8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        fields, source = left.split(), right.split()[1:2]
        if len(fields) > 4 and fields[4] != "/" and source and source[0].startswith("/dev/"):
            places.append(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
    return sorted(set(places))
