"""Documents in directories: a config drive, what a NoCloud seed is too, and `none` for a guest that has no metadata at all.

The volumes themselves are read by `neuca read-drive`, which may mount; what it copied is below the run directory.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from neuca_tools.documents.platform import instance, openstack
from neuca_tools.errors import SourceError, UsageError
from neuca_tools.sources.base import Answer, Deadline, Session, Source, Surroundings
from neuca_tools.sources.file import read_regular

DRIVES, CONFIG_DRIVE, SEED = "drives", "config-2", "cidata"
# cloud-init's manual, "Config drive": where an image may have it without a volume.
_DRIVES = (Path("/config-drive"), Path("/var/lib/cloud/seed/config_drive"))
_DATED = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}")


class Directory(Source):
    """A source that is one of some directories, the first that there is; one that was named is expected to be there."""

    kind = ""

    def __init__(self, argument: str, places: tuple[Path, ...]) -> None:
        if not argument.isprintable():
            raise UsageError(f'a path of printable characters must follow "{self.kind}="')
        self.places = (Path(argument),) if argument else places
        self.expected = bool(argument)
        self.name = f"{self.kind}={argument}" if argument else self.kind

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        raise SourceError(f"a directory has no {path}")

    def none(self, session: Session, what: str) -> Answer:
        if self.expected:
            raise SourceError(f"cannot be read: {what} is not there")
        return Answer(self.name, None, session)


class ConfigDrive(Directory):
    """`configdrive`: the volume `config-2`, or `configdrive=PATH`: wherever it is mounted (nova, virt/configdrive.py)."""

    kind = "configdrive"

    def __init__(self, argument: str, surroundings: Surroundings) -> None:
        super().__init__(argument, (*copied(surroundings, CONFIG_DRIVE), *_DRIVES))

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        for drive in self.places:
            place = _version(drive / "openstack")
            about = None if place is None else read(place / instance.OPENSTACK)
            if place is None or about is None:
                continue
            network = read(place / openstack.NAME)
            parts = {
                instance.OPENSTACK: about,
                **({} if network is None else {openstack.NAME: network}),
            }
            data = read(place / "user_data")
            return Answer(
                self.name,
                read(drive / "ec2/latest/user-data") if data is None else data,
                session,
                parts,
            )
        return self.none(session, f"openstack/latest/{instance.OPENSTACK}")


class Nothing(Source):
    """`none`: nobody is asked. The configuration says all."""

    def __init__(self, argument: str, _: Surroundings) -> None:
        if argument:
            raise UsageError('"none" takes no argument')
        self.name = "none"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        return Answer(self.name, None, session)

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        raise SourceError(f"there is no {path}")


def copied(surroundings: Surroundings, kind: str) -> tuple[Path, ...]:
    """Where the documents of a volume of this kind are, if volumes count."""
    return (surroundings.run_directory / DRIVES / kind,) if surroundings.volumes else ()


def _version(place: Path) -> Optional[Path]:
    try:
        name = newest(path.name for path in place.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from error
    return place / name if name else None


def newest(names: Iterable[str]) -> str:
    """`latest`, or the newest dated version; empty where there is none."""
    return max((name for name in names if _DATED.fullmatch(name) or name == "latest"), default="")


def read(path: Path) -> Optional[bytes]:
    """The bytes of a file, None where there is none."""
    try:
        return read_regular(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f'"{path.name}" cannot be read: {error.strerror}') from error
    except SourceError as error:
        raise SourceError(f'"{path.name}" {error}') from None
