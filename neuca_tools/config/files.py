"""Read the configuration files into raw options, without interpreting them."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterable, Iterator, Sequence
from configparser import ParsingError, RawConfigParser
from pathlib import Path
from typing import NamedTuple

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.ini import REMARK
from neuca_tools.errors import ConfigError
from neuca_tools.files import open_file
from neuca_tools.model import Fault
from neuca_tools.model.rows import Severity

_MAX_BYTES = 1024 * 1024
_NO_SECTION = "before the first section"
OPTION = r"(?P<option>.*?)\s*(?P<vi>[=:])\s*(?P<value>.*)$"
_TOO_EARLY = "it precedes the first section, ignoring it"
_NOT_READABLE = 'is neither a section nor "option = value", ignoring it'
_AFTER_HEADER = "has text after a section header, ignoring the text"
_BEHIND_HEADER = re.compile(r"\[[^]]+\]\s*([^\s;#].*)")


class Entry(NamedTuple):
    """One option in a file, set by `lines`; `option` is empty for the header of a section."""

    file: str
    section: str
    option: str
    value: str
    lines: tuple[int, ...] = ()

    def fault(self, reason: str, severity: Severity = "error") -> Fault:
        line = next(iter(self.lines[-1:]), 0)
        section, key, value = map(values.clip, (self.section, self.option, self.value))
        reason += values.hash_hint(self.value)
        return Fault(line, section, key, value, reason, severity=severity, file=self.file)


class _Parser(RawConfigParser):
    """The grammar of version 1.7, in which ` ;` begins a comment.

    Each option gets the name `NUMBER OPTION`, with its line, so that equal options are all kept.
    """

    OPTCRE = re.compile(OPTION)
    SECTCRE = re.compile(r"\[(?P<header>[^]]+)\]")

    def __init__(self) -> None:
        super().__init__(inline_comment_prefixes=(";",), strict=False, default_section="")
        self._number = 0

    def optionxform(self, optionstr: str) -> str:
        # Not converted to lower case: a sysctl key may contain the name of an interface.
        return f"{self._number} {optionstr}"

    def counted(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines, with the first as number 0, for `read_file`, which takes one at a time."""
        for self._number, line in enumerate(lines):
            yield line


def read_entries(path: Path) -> tuple[list[Entry], list[Fault]]:
    """The options of `configuration_files`, in order, and the faults. Raises ConfigError."""
    entries: list[Entry] = []
    faults: list[Fault] = []
    for file in configuration_files(path):
        entries += _entries_of_file(file, _read_text(file), faults)
    return entries, faults


def configuration_files(path: Path) -> list[Path]:
    """The configuration file and those in `config.d` next to it, in order. Raises ConfigError."""
    directory = path.parent / "config.d"
    try:
        names = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return [path]
    except OSError as error:
        reason = error.strerror or error
        what = f'cannot read the configuration directory "{directory}"'
        raise ConfigError(f"{what}: {reason}") from None
    drop_ins = (name for name in names if name.suffix == ".conf" and not name.name.startswith("."))
    return [path, *drop_ins]


def parse_entries(data: bytes) -> tuple[list[Entry], list[Fault]]:
    """The options in the text of one file, and the faults. Raises ConfigError."""
    faults: list[Fault] = []
    name = Path("configuration")
    return list(_entries_of_file(name, _decode_text(data, name), faults)), faults


def _read_text(file: Path) -> str:
    try:
        with open(file, "rb", opener=open_file) as stream:
            return _decode_text(stream.read(_MAX_BYTES + 1), file)
    except FileNotFoundError:
        return ""
    except OSError as error:
        reason = error.strerror or str(error)
    raise ConfigError(f'cannot read the configuration file "{file}": {reason}')


def _decode_text(data: bytes, file: Path) -> str:
    reason = f"it is longer than {_MAX_BYTES} bytes"
    if len(data) <= _MAX_BYTES:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            reason = "it is not UTF-8 text"
    raise ConfigError(f'cannot read the configuration file "{file}": {reason}')


def _entries_of_file(file: Path, text: str, faults: list[Fault]) -> Iterator[Entry]:
    """The options of a file in order, with an entry without an option for each section header."""
    parser = _Parser()
    lines = ["" if REMARK.fullmatch(line.rstrip()) else line for line in text.split("\n")]
    for number, ignored, reason in _ignored_texts(parser, lines, str(file)):
        faults.append(Fault(number, "", "", "", f"line {number} {reason}", file=str(file)))
        # The search for options that protect must see these as well.
        yield Entry(str(file), "", re.split(r"(?<=.)[\s=:]", ignored.strip())[0], "", (number,))
    settings, header_lines = [], _header_lines(lines)
    for section in parser.sections():
        title = Entry(str(file), "", "", "")
        if section != _NO_SECTION:
            title = title._replace(section=" ".join(section.split()))
            yield title._replace(lines=(header_lines[section],))
        for name, value in parser.items(section):
            line, _, option = name.partition(" ")
            if option:
                entry = title._replace(option=option, value=value.strip(), lines=(int(line),))
                settings.append(entry)
            yield from _swallowed_options(str(file), value)
    last = list(_last_settings(settings))
    faults += [entry.fault(_TOO_EARLY) for entry in last if not entry.section]
    yield from last


def _ignored_texts(
    parser: _Parser, lines: Sequence[str], file: str
) -> Iterator[tuple[int, str, str]]:
    """Have the parser read the lines of a file; what it ignores: number, text and the reason."""
    try:
        # configparser stops at an option before the first section; this header lets it go on.
        parser.read_file(parser.counted((f"[{_NO_SECTION}]", *lines)), file)
    except ParsingError as error:
        # Raised at the end, when all other lines have been read.
        for number, _ in error.errors:
            yield number - 1, lines[number - 2], _NOT_READABLE
    for number, line in enumerate(lines, 1):
        behind = _BEHIND_HEADER.match(line)
        if behind:
            yield number, behind[1], _AFTER_HEADER


def _header_lines(lines: Sequence[str]) -> dict[str, int]:
    """The number of the line on which each section begins for the first time."""
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        header = _Parser.SECTCRE.match(line.lstrip())
        if header:
            numbers.setdefault(header["header"], number)
    return numbers


def _last_settings(settings: Iterable[Entry]) -> Iterator[Entry]:
    """The last of the equal options in each section, with the numbers of all their lines."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for entry in settings:
        numbers.setdefault((entry.section, entry.option.lower()), []).extend(entry.lines)
    for entry in {(entry.section, entry.option): entry for entry in settings}.values():
        yield entry._replace(lines=tuple(numbers[entry.section, entry.option.lower()]))


def _swallowed_options(file: str, value: str) -> Iterator[Entry]:
    """What looks like an option, but is indented, and so belongs to the value of another one."""
    for line in value.splitlines()[1:]:
        option = _Parser.OPTCRE.match(line)
        if option:
            yield Entry(file, "", option["option"], "")
