"""Sources in files: `file:PATH`, the config drive, the base of NoCloud; and `none`.

Volumes are mounted by `neuca read-drive`, which copies their documents below the run directory.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import select
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from neuca_tools.errors import SourceError, UsageError
from neuca_tools.sources.base import BODY_LIMIT, Answer, Deadline, Session, Source, Surroundings

DRIVES, CONFIG_DRIVE, SEED = "drives", "config-2", "cidata"
# The directories of an image that replace a volume (cloud-init's manual, "Config drive").
_DRIVES = (Path("/config-drive"), Path("/var/lib/cloud/seed/config_drive"))
SECONDS_UNCHANGED = 0.2
_DATED = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}")


class File(Source):
    """`file:PATH`. An absent file is an error: the path says that there is a document."""

    def __init__(self, argument: str, _: Surroundings) -> None:
        if not argument or not argument.isprintable():
            raise UsageError('a path of printable characters must follow "file:"')
        self.path = argument
        self.name = f"file:{argument}"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        try:
            return Answer(self.name, read_regular(self.path), session)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}") from error


class Directory(Source):
    """The first existing one of several directories; the one that the user names must exist."""

    kind = ""

    def __init__(self, argument: str, directories: tuple[Path, ...]) -> None:
        if not argument.isprintable():
            raise UsageError(f'a path of printable characters must follow "{self.kind}="')
        self.directories, self.name, self.must_exist = directories, self.kind, bool(argument)
        if argument:
            self.directories, self.name = (Path(argument),), f"{self.kind}={argument}"

    def no_document(self, session: Session, missing: str) -> Answer:
        if self.must_exist:
            raise SourceError(f"cannot be read: {missing} does not exist")
        return Answer(self.name, None, session)


class ConfigDrive(Directory):
    """`configdrive`: the volume `config-2` (nova, virt/configdrive.py); or `configdrive=PATH`."""

    kind = "configdrive"

    def __init__(self, argument: str, surroundings: Surroundings) -> None:
        super().__init__(argument, (*copied_volume(surroundings, CONFIG_DRIVE), *_DRIVES))

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        # Only with a directory of documents; it saves 1 ms.
        from neuca_tools.documents.platform import instance, openstack

        for drive in self.directories:
            directory = _newest_version(drive / "openstack")
            if directory is None:
                continue
            metadata = read_document(directory / instance.OPENSTACK)
            if metadata is None:
                continue
            parts = {instance.OPENSTACK: metadata}
            network = read_document(directory / openstack.NAME)
            if network is not None:
                parts[openstack.NAME] = network
            data = read_document(directory / "user_data")
            if data is None:
                data = read_document(drive / "ec2/latest/user-data")
            return Answer(self.name, data, session, parts)
        return self.no_document(session, f"openstack/latest/{instance.OPENSTACK}")


class NoSource(Source):
    """`none`: nothing is read; the configuration file is all there is."""

    def __init__(self, argument: str, _: Surroundings) -> None:
        if argument:
            raise UsageError('"none" takes no argument')
        self.name = "none"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        return Answer(self.name, None, session)


def copied_volume(surroundings: Surroundings, kind: str) -> tuple[Path, ...]:
    """The directory with the copied documents of a volume of this kind, if volumes may be used."""
    if not surroundings.volumes:
        return ()
    return (surroundings.run_directory / DRIVES / kind,)


def _newest_version(directory: Path) -> Optional[Path]:
    try:
        name = newest_version_name(path.name for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from error
    return directory / name if name else None


def newest_version_name(names: Iterable[str]) -> str:
    """`latest` if present, else the newest dated version; empty if there is none."""
    return max((name for name in names if _DATED.fullmatch(name) or name == "latest"), default="")


def read_document(path: Path) -> Optional[bytes]:
    """The content of a file, None if it does not exist. Raises SourceError."""
    try:
        return read_regular(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f'"{path.name}" cannot be read: {error.strerror}') from error
    except SourceError as error:
        raise SourceError(f'"{path.name}" {error}') from None


def await_unchanged(source: str) -> bool:
    """Wait until a file is SECONDS_UNCHANGED old: who rewrites it in place may not have finished.

    Returns whether it was younger, and must be read again.
    """
    try:
        age = time.time() - Path(source.partition(":")[2]).stat().st_mtime
    except OSError:
        return True  # reading it again says why
    is_young = 0 <= age < SECONDS_UNCHANGED
    if is_young:
        select.select([], [], [], SECONDS_UNCHANGED - age)
    return is_young


def read_regular(path: str) -> bytes:
    """The content of a regular file of at most BODY_LIMIT bytes. Raises OSError and SourceError."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SourceError("is not a regular file")
        data = file.read(BODY_LIMIT + 1)
    if len(data) > BODY_LIMIT:
        raise SourceError(f"is larger than {BODY_LIMIT} bytes")
    return data


def _open_without_waiting(path: str, flags: int) -> int:
    """Open with O_NONBLOCK: opening a FIFO without a writer would block (fifo(7))."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
