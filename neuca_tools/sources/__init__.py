"""Where documents come from: asks the sources in order, within one budget, and says what each of them said.

A source is a small class that keeps the `Source` protocol of `base`: it answers with bytes, or with "there is none", or
raises SourceError; an error is never "there is none". To add one: write its module, with everything that is slow to
import inside its functions, and add its row to `_KINDS`; `_AUTO` has those that `auto` asks, in order.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from neuca_tools.errors import SourceError, UsageError
from neuca_tools.sources.base import Answer, Deadline, Session, Source, Token
from neuca_tools.sources.directories import ConfigDrive, NoCloud, Nothing
from neuca_tools.sources.ec2 import Ec2
from neuca_tools.sources.file import File
from neuca_tools.sources.openstack import OpenStack

__all__ = ["Answer", "Session", "Source", "SourceSpec", "Token", "fetch_path", "look", "parse_source", "without_network"]


class _Kind(NamedTuple):
    """How a source is written, what parts its name from its argument, and what makes it."""

    usage: str
    separator: str
    make: Callable[[str, Path], Source]


_KINDS: Mapping[str, _Kind] = {
    "file": _Kind("file:PATH", ":", File),
    "configdrive": _Kind("configdrive[=PATH]", "=", ConfigDrive),
    "nocloud": _Kind("nocloud[=PATH]", "=", NoCloud),
    "openstack": _Kind("openstack[=URL]", "=", OpenStack),
    "ec2": _Kind("ec2[=URL]", "=", Ec2),
    "none": _Kind("none", "=", Nothing),
}
_AUTO = ("configdrive", "nocloud", "openstack", "ec2")  # those that ask nobody come first
_LOCAL = frozenset({"file", "configdrive", "nocloud"})
RUN_DIRECTORY = Path("/run/neuca")


@dataclass(frozen=True)
class SourceSpec:
    """One SOURCE of a command line or of `[metadata] sources`; `argument` is empty where none was given."""

    kind: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.kind}{_KINDS[self.kind].separator}{self.argument}" if self.argument else self.kind


def parse_source(text: str) -> SourceSpec:
    """Reads one SOURCE (`auto`, `file:PATH`, `ec2`, `ec2=URL`, `configdrive=PATH`, …); raises UsageError."""
    try:
        return _parsed(text)
    except UsageError as error:
        raise UsageError(f'bad source "{text}": {error}', error.hint) from None


def _parsed(text: str) -> SourceSpec:
    if text == "auto":
        return SourceSpec(text)
    for name, kind in _KINDS.items():
        if text == name or text.startswith(name + kind.separator):
            spec = SourceSpec(name, text[len(name) + 1:])
            if text.endswith(kind.separator) and not spec.argument:
                raise UsageError(f'nothing follows the "{kind.separator}"')
            kind.make(spec.argument, RUN_DIRECTORY)
            return spec
    known = ", ".join(["auto", *(kind.usage for kind in _KINDS.values())])
    raise UsageError(f"known are {known}")


def look(specs: Sequence[SourceSpec], budget: float, session: Session, run_directory: Path = RUN_DIRECTORY) -> Answer:
    """What the first source has that has anything, all of them within `budget` seconds.

    The answer says that there is none only where every source said so; else raises SourceError with what each said.
    """
    sources = _made(specs, run_directory)
    return _first(sources, "user-data", budget, session, lambda source, *rest: source.documents(*rest))


def fetch_path(spec: SourceSpec, path: str, budget: float, session: Session) -> Optional[str]:
    """One item of metadata (`/latest/meta-data/public-ipv4`), None where the source has no such item."""
    if not re.fullmatch(r"/[!-~]*", path):
        raise UsageError(f'bad metadata path "{path}": it must be printable ASCII from a "/" on')
    answer = _first(_made([spec], RUN_DIRECTORY), path, budget, session, lambda source, *rest: source.metadata(path, *rest))
    try:
        return None if answer.data is None else answer.data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise SourceError(f"{answer.source}: {path} is not UTF-8 text") from error


def _first(sources: Sequence[Source], what: str, budget: float, session: Session,
           ask: Callable[[Source, Deadline, Session], Answer]) -> Answer:
    """Each source gets an equal share of the time that is left, so that a silent one leaves some to the next."""
    deadline = Deadline.after(budget)
    answer: Optional[Answer] = None
    said: list[str] = []
    failed = False
    for index, source in enumerate(sources):
        try:
            answer = ask(source, deadline.share(len(sources) - index), session)
        except SourceError as error:
            failed = True
            said.append(f"{source.name}: {error}")
            continue
        if not answer.empty:
            return answer
        session = answer.session
        said.append(f"{source.name}: there is none")
    if answer is None or failed:
        raise SourceError(f"no {what} from any source: {'; '.join(said) or 'there is none to ask'}")
    return answer


def _made(specs: Sequence[SourceSpec], run_directory: Path) -> list[Source]:
    return [_KINDS[spec.kind].make(spec.argument, run_directory) for spec in _each(specs)]


def _each(specs: Sequence[SourceSpec]) -> list[SourceSpec]:
    """Each once, and those that `auto` asks in its place."""
    return list(dict.fromkeys(each for spec in specs for each in (map(SourceSpec, _AUTO) if spec.kind == "auto" else [spec])))


def without_network(specs: Sequence[SourceSpec]) -> list[SourceSpec]:
    """Those of these sources that can be asked before there is a network."""
    return [spec for spec in _each(specs) if spec.kind in _LOCAL]
