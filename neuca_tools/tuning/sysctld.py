"""What the administrator's own files say of a sysctl, in the order of sysctl.d(5)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple, Optional

# Of two files with one name the first directory's counts; which is the order of preference of sysctl.d(5).
DIRECTORIES = (
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
)
OURS = "neuca.conf"  # marks.SYSCTL_FILE: what the agent itself has there for links that appear
LAST = "etc/sysctl.conf"  # sysctl(8) --system reads it after all others


class Word(NamedTuple):
    """One setting of one file."""

    value: str
    file: str


class _Line(NamedTuple):
    pattern: str
    value: Optional[str]  # None: the key is left out of globs
    file: str


@dataclass(frozen=True)
class Words:
    """All settings of all files, in the order in which they are applied."""

    lines: tuple[_Line, ...] = ()

    def said(self, path: str) -> Optional[Word]:
        """The last word on this path (`net/core/rmem_max`): a key that is written out beats every glob."""
        exact = [line for line in self.lines if line.pattern == path]
        if exact:
            return Word(exact[-1].value, exact[-1].file) if exact[-1].value is not None else None
        globs = [
            line
            for line in self.lines
            if line.value is not None and fnmatchcase(path, line.pattern)
        ]
        return Word(globs[-1].value or "", globs[-1].file) if globs else None


def order(paths: Iterable[str]) -> list[str]:
    """The files that count, in the order in which they are applied. `paths`: in the order of their directories.

    >>> order(["/etc/sysctl.d/90-a.conf", "/etc/sysctl.conf", "/usr/lib/sysctl.d/10-b.conf", "/usr/lib/sysctl.d/90-a.conf"])
    ['/usr/lib/sysctl.d/10-b.conf', '/etc/sysctl.d/90-a.conf', '/etc/sysctl.conf']
    """
    first: dict[str, str] = {}
    for path in paths:
        first.setdefault(PurePosixPath(path).name, path)
    last = first.pop(PurePosixPath(LAST).name, None)
    return [first[name] for name in sorted(first)] + ([last] if last else [])


def words(files: Sequence[tuple[str, str]]) -> Words:
    """Read files (path, text), given in the order in which they are applied. A line that cannot be read says nothing."""
    return Words(tuple(line for path, text in files for line in _lines(path, text)))


def _lines(file: str, text: str) -> Iterable[_Line]:
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        key, sign, value = stripped.partition("=")
        pattern = _path(key.strip().lstrip("-").strip())
        if sign or stripped.startswith("-"):
            yield _Line(pattern, " ".join(value.split()) if sign else None, file)


def _path(key: str) -> str:
    """Where a dot is the first separator, dots and slashes change places (sysctl.d(5))."""
    first = re.search("[./]", key)
    return key.translate({ord("."): "/", ord("/"): "."}) if first and first.group() == "." else key
