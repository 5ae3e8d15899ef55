"""Read the configuration files into raw options, without interpreting them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from neuca_tools.config.options import ConfigFault, Severity
from neuca_tools.dataclass import NamedTuple
from neuca_tools.documents.neuca import values
from neuca_tools.errors import ConfigError

_MAX_BYTES = 1024 * 1024
_NO_SECTION = "before the first section"
_TOO_EARLY = "it stands before the first section, ignoring it"


class Entry(NamedTuple):
    """One option as written in a file; `option` is empty for the header of a section."""

    file: str
    section: str
    option: str
    value: str

    def fault(self, reason: str, severity: Severity = "error") -> ConfigFault:
        value = values.clip(self.value)
        return ConfigFault(self.file, self.section, self.option, value, reason, severity=severity)


def read(path: Path) -> tuple[list[Entry], list[ConfigFault]]:
    """The options in a file and in those in `config.d` next to it, in order, and the faults.

    Raises ConfigError for a file that exists and cannot be read.
    """
    entries: list[Entry] = []
    faults: list[ConfigFault] = []
    for file in files(path):
        entries += _entries(file, _read(file), faults)
    return entries, faults


def files(path: Path) -> list[Path]:
    """The configuration file and those in `config.d` next to it, in order. Raises ConfigError."""
    return [path, *_drop_ins(path.parent / "config.d")]


def _drop_ins(directory: Path) -> list[Path]:
    try:
        names = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f'cannot read the configuration directory "{directory}": {reason}'
        ) from None
    return [name for name in names if name.suffix == ".conf" and not name.name.startswith(".")]


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) <= _MAX_BYTES:
            return data.decode("utf-8-sig")
        reason = f"it is longer than {_MAX_BYTES} bytes"
    except FileNotFoundError:
        return ""
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    raise ConfigError(f'cannot read the configuration file "{file}": {reason}')


def _entries(file: Path, text: str, faults: list[ConfigFault]) -> Iterator[Entry]:
    """The options of a file in order, with an entry without an option for each section header."""
    sections, wrong = sections_of(text)
    for number in wrong:
        reason = f'line {number} is neither a section nor "option = value", ignoring it'
        faults.append(ConfigFault(str(file), "", "", "", reason))
    for section, options in sections.items():
        header = Entry(str(file), " ".join(section.split()), "", "")
        given = [
            header._replace(option=name, value="\n".join(lines).strip())
            for name, lines in options.items()
        ]
        if section == _NO_SECTION:
            faults += [entry._replace(section="").fault(_TOO_EARLY) for entry in given]
        else:
            yield from (header, *given)


def sections_of(text: str) -> tuple[dict[str, dict[str, list[str]]], list[int]]:
    """The lines of each option by its section and name, and the numbers of unusable lines.

    The grammar is that of version 1.7, configparser's with ` ;` for comments: of two equal options
    the last one wins, and an indented line continues the value above it. configparser itself takes
    as long to load as twenty modules of ours.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), start=1):
        reader.feed(number, line)
    return reader.sections, reader.wrong


class _Reader:
    def __init__(self) -> None:
        self.sections: dict[str, dict[str, list[str]]] = {_NO_SECTION: {}}
        self.wrong: list[int] = []
        self._options = self.sections[_NO_SECTION]
        self._value: Optional[list[str]] = None
        self._indent = 0

    def feed(self, number: int, line: str) -> None:
        """Process the next line."""
        content, indent = _without_comment(line), len(line) - len(line.lstrip())
        if not content:
            if self._value and not line.strip():
                self._value.append("")
        elif self._value and indent > self._indent:
            self._value.append(content)
        else:
            self._indent = indent
            self._begin(number, content)

    def _begin(self, number: int, content: str) -> None:
        """Begin a section or an option."""
        end = content.rfind("]")
        name, equals, value = (part.strip() for part in content.partition("="))
        if content[0] == "[" and end > 1:
            self._options, self._value = self.sections.setdefault(content[1:end], {}), None
        elif name and equals:
            self._value = self._options[name] = [value]
        else:
            self.wrong.append(number)
            if equals:
                self._value = None


def _without_comment(line: str) -> str:
    """The line up to a `;` after a blank, stripped; nothing of a line that is a comment."""
    if line.lstrip().startswith(("#", ";")):
        return ""
    place = line.find(";")
    while place > 0 and not line[place - 1].isspace():
        place = line.find(";", place + 1)
    return (line if place < 0 else line[:place]).strip()
