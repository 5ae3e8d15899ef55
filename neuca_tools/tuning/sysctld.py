"""Read the administrator's sysctl.d files, with the precedence of sysctl.d(5)."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import PurePosixPath
from typing import NamedTuple, Optional

from neuca_tools.documents.neuca.values import sysctl_path

# Of files with the same name, only the one in the first directory is read (sysctl.d(5)).
DIRECTORIES = (
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
)
# The agent's own file, for links that appear later (`marks.SYSCTL_FILE`).
OURS = "neuca.conf"
# sysctl(8) --system reads this file after all others.
LAST = "etc/sysctl.conf"


class Setting(NamedTuple):
    """The value of a sysctl, and the path of the file that sets it."""

    value: str
    file: str


class _Line(NamedTuple):
    """One line of a file. `value` is None for a line that excludes a key from globs (`-KEY`)."""

    pattern: str
    value: Optional[str]
    file: str


class Settings(NamedTuple):
    """The lines of all files, in the order in which they are applied."""

    lines: tuple[_Line, ...] = ()

    def setting(self, path: str) -> Optional[Setting]:
        """The setting that wins for a path (`net/core/rmem_max`); None if no file sets it.

        A line with the exact key takes precedence over every glob.
        """
        lines = [line for line in self.lines if line.pattern == path]
        if not lines:
            globs = (line for line in self.lines if line.value is not None)
            lines = [line for line in globs if fnmatchcase(path, line.pattern)]
        if not lines or lines[-1].value is None:
            return None
        return Setting(lines[-1].value, lines[-1].file)


def order_files(paths: Iterable[str]) -> list[str]:
    """The files to read, in the order in which they apply; `paths` are in that of DIRECTORIES.

    >>> order_files(["/etc/sysctl.d/9.conf", "/etc/sysctl.conf", "/lib/sysctl.d/1.conf"])
    ['/lib/sysctl.d/1.conf', '/etc/sysctl.d/9.conf', '/etc/sysctl.conf']
    """
    first: dict[tuple[bool, str], str] = {}
    for path in paths:
        first.setdefault((path.endswith(f"/{LAST}"), PurePosixPath(path).name), path)
    return [first[place] for place in sorted(first)]


def parse_files(files: Sequence[tuple[str, str]]) -> Settings:
    """Read files, each a path and a text, in the order in which they are applied.

    A line that cannot be parsed is ignored.
    """
    return Settings(tuple(chain.from_iterable(_file_lines(path, text) for path, text in files)))


def _file_lines(file: str, text: str) -> Iterator[_Line]:
    for line in map(str.strip, text.split("\n")):
        key, sign, value = line.partition("=")
        pattern = sysctl_path(key.strip().lstrip("-").strip())
        if not line or line[0] in "#;":
            continue
        if sign:
            yield _Line(pattern, " ".join(value.split()), file)
        elif line.startswith("-"):
            yield _Line(pattern, None, file)
