"""Documents in directories: a config drive, a NoCloud seed, and `none` for a guest that has no metadata at all.

The volumes themselves are read by `neuca read-drive`, which may mount; what it copied is below the run directory.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

from neuca_tools.documents import instance, netplan, network_data
from neuca_tools.errors import SourceError, UsageError
from neuca_tools.sources.base import Answer, Deadline, Session
from neuca_tools.sources.file import read_regular

DRIVES, CONFIG_DRIVE, SEED = "drives", "config-2", "cidata"
# cloud-init's manual, "NoCloud"; the second name is the older one.
_SEEDS = (Path("/var/lib/cloud/seed/nocloud"), Path("/var/lib/cloud/seed/nocloud-net"))
_DATED = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}")


class _Directory:
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

    def _none(self, session: Session, what: str) -> Answer:
        if self.expected:
            raise SourceError(f"cannot be read: {what} is not there")
        return Answer(self.name, None, session)


class ConfigDrive(_Directory):
    """`configdrive`: the volume `config-2`, or `configdrive=PATH`: wherever it is mounted (nova, virt/configdrive.py)."""

    kind = "configdrive"

    def __init__(self, argument: str, run_directory: Path) -> None:
        super().__init__(argument, (run_directory / DRIVES / CONFIG_DRIVE,))

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        place = _version(self.places[0] / "openstack")
        about = None if place is None else _read(place / instance.OPENSTACK)
        if place is None or about is None:
            return self._none(session, f"openstack/latest/{instance.OPENSTACK}")
        network = _read(place / network_data.NAME)
        parts = {instance.OPENSTACK: about, **({} if network is None else {network_data.NAME: network})}
        data = _read(place / "user_data")
        return Answer(self.name, _read(self.places[0] / "ec2/latest/user-data") if data is None else data, session, parts)


class NoCloud(_Directory):
    """`nocloud`: the volume `cidata` or a seed directory, or `nocloud=PATH`."""

    kind = "nocloud"

    def __init__(self, argument: str, run_directory: Path) -> None:
        super().__init__(argument, (run_directory / DRIVES / SEED, *_SEEDS))

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        """A seed has user-data and meta-data, both perhaps empty. One that says nothing leaves the word to other sources."""
        for place in self.places:
            data, about = _read(place / "user-data"), _read(place / "meta-data")
            if data is None or about is None:
                continue
            network = _read(place / "network-config")
            if data.strip() or network is not None:
                parts = {instance.NOCLOUD: about, **({} if network is None else {netplan.NAME: network})}
                return Answer(self.name, data if data.strip() else None, session, parts)
            return Answer(self.name, None, session)
        return self._none(session, "user-data or meta-data")


class Nothing:
    """`none`: nobody is asked. The configuration says all."""

    def __init__(self, argument: str, _: Path) -> None:
        if argument:
            raise UsageError('"none" takes no argument')
        self.name = "none"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        return Answer(self.name, None, session)

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        raise SourceError(f"there is no {path}")


def _version(place: Path) -> Optional[Path]:
    """`latest`, or the newest dated version."""
    try:
        names = sorted(path.name for path in place.iterdir() if _DATED.fullmatch(path.name) or path.name == "latest")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from error
    return place / names[-1] if names else None


def _read(path: Path) -> Optional[bytes]:
    """The bytes of a file, None where there is none."""
    try:
        return read_regular(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f'"{path.name}" cannot be read: {error.strerror}') from error
    except SourceError as error:
        raise SourceError(f'"{path.name}" {error}') from None
