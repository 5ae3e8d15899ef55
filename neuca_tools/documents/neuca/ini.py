"""The line reader: a text becomes sections of raw keys and values, scripts with every line that was written.

configparser is no help here: it drops the indentation of every line and, in Python 3, the `#` lines of scripts.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Callable, Literal, NamedTuple, Optional

from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.privacy import is_open, link_kind, shown_key, shown_value
from neuca_tools.model import Fault

MAX_LINES = 200000
MAX_LINE = 65536
_HEADER = re.compile(r"\[(?P<name>[^\]]*)\](?P<rest>.*)", re.DOTALL)
_SECTION_NAME = re.compile(r"[\w.:/-]+(?: +[\w.:/-]+)*")
_COMMENT = re.compile(r"\s;")


class Line(NamedTuple):
    """One key with its value, from line `number` to line `end`. `key` is in lower case, `written` as it stands.

    `source` is the path of a configuration file, empty for a document.
    """

    number: int
    section: str
    key: str
    value: str
    written: str = ""
    end: int = 0
    source: str = ""

    @property
    def where(self) -> str:
        return f"{self.source or f'line {self.number}'}, [{self.section}]"

    def fault(self, reason: str, severity: Literal["error", "warning"] = "error") -> Fault:
        """A fault about this line, its value hidden where it may be secret."""
        key = shown_key(self.section, self.key)
        value = shown_value(self.section, self.key, self.value) if key else ""
        return Fault(self.number, self.section, key, value, reason, severity)


class Section(NamedTuple):
    """One header with the keys below it. A repeated header is a section of its own here."""

    number: int
    name: str
    lines: tuple[Line, ...]


class _Open:
    """A key whose value may still go on."""

    def __init__(self, number: int, indent: int, written: str, first: str) -> None:
        self.number = number
        self.end = number
        self.indent = indent
        self.written = written
        self.first = first
        self.rest: list[str] = []

    def add(self, number: int, text: str) -> None:
        self.rest.append(text)
        self.end = number if text.strip() else self.end


class _Reader:
    def __init__(self) -> None:
        self.sections: list[Section] = []
        self.faults: list[Fault] = []
        self._header: Optional[tuple[int, str]] = None
        self._lines: list[Line] = []
        self._key: Optional[_Open] = None
        self._skipping = False

    @property
    def _name(self) -> str:
        return self._header[1] if self._header else ""

    def feed(self, number: int, text: str) -> None:
        indent, stripped = len(text) - len(text.lstrip()), text.strip()
        if self._key and self._goes_on(self._key, indent, stripped):
            if len(text) > MAX_LINE and self._name != "scripts":
                self._refuse(number, "", f"the line is longer than {MAX_LINE} characters")
            else:
                self._key.add(number, text)
        elif (
            stripped
            and stripped[0] not in ";#"
            and not (self._skipping and (indent or stripped[0] != "["))
        ):
            self._begin(number, indent, stripped, text)

    def close(self) -> None:
        """End the section in hand."""
        self._close_key()
        if self._header:
            self.sections.append(Section(*self._header, tuple(self._lines)))
        self._header, self._lines = None, []

    def _goes_on(self, key: _Open, indent: int, stripped: str) -> bool:
        if self._name == "scripts":
            return not stripped or indent > key.indent
        # No value of these sections holds a "=": an indented key is a key there, whatever stands above it.
        own_key = "=" in stripped and (
            self._name in ("interfaces", "routes") or bool(link_kind(self._name))
        )
        return indent > key.indent and bool(stripped) and stripped[0] not in ";#" and not own_key

    def _begin(self, number: int, indent: int, stripped: str, text: str) -> None:
        self._close_key()
        header = _HEADER.fullmatch(stripped)
        if stripped[0] == "[" and not (header and re.match(r"[^\s;#].*=", header["rest"])):
            self._open_section(number, stripped, header)
        elif not self._header:
            self._refuse(number, stripped, "it stands before the first section")
        elif len(text) > MAX_LINE and self._name != "scripts":
            self._refuse(number, "", f"the line is longer than {MAX_LINE} characters")
        else:
            self._open_key(number, indent, stripped, text)

    def _open_section(self, number: int, stripped: str, header: Optional[re.Match[str]]) -> None:
        self.close()
        name = " ".join(header["name"].split()) if header else ""
        # Without a name, the keys that follow belong to nobody: better unread than read as those of the section above.
        self._skipping = not _SECTION_NAME.fullmatch(name) or len(name) > 80
        if self._skipping:
            self._refuse(
                number, stripped, "it is not a section header, ignoring all up to the next one"
            )
            return
        self._header = (number, name)
        if header and header["rest"].strip() and header["rest"].strip()[0] not in ";#":
            self._refuse(number, header["rest"].strip(), "text after a section header, ignoring it")

    def _open_key(self, number: int, indent: int, stripped: str, text: str) -> None:
        written, equals, first = text.partition("=")
        if equals and written.strip():
            self._key = _Open(number, indent, written.strip(), first)
        else:
            self._refuse(number, stripped, 'it is neither a section, a comment nor "key = value"')

    def _close_key(self) -> None:
        if self._key:
            key, make = self._key, _script if self._name == "scripts" else _value
            value = make(key.first, key.rest)
            self._lines.append(
                Line(key.number, self._name, key.written.lower(), value, key.written, key.end)
            )
        self._key = None

    def _refuse(self, number: int, text: str, reason: str) -> None:
        shown = clip(text) if is_open(self._name, text.lower()) else ""
        self.faults.append(Fault(number, self._name, shown, "", reason))


def read(text: str) -> tuple[tuple[Section, ...], tuple[Fault, ...]]:
    """The sections of a text in their order, and the lines that are none of it. Never raises."""
    reader = _Reader()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if number > MAX_LINES:
            reader.faults.append(
                Fault(number, "", "", "", f"more than {MAX_LINES} lines, ignoring the rest")
            )
            break
        reader.feed(number, line)
    reader.close()
    return tuple(reader.sections), tuple(reader.faults)


def last_wins(
    lines: Iterable[Line], identity: Callable[[Line], Hashable]
) -> tuple[tuple[Line, ...], list[Fault]]:
    """The lines without those that a later one repeats, and a warning for each repetition."""
    kept: dict[Hashable, Line] = {}
    faults = []
    for line in lines:
        before = kept.pop(identity(line), None)
        kept[identity(line)] = line
        if before:
            reason = f"given before on line {before.number}, ignoring line {before.number}"
            faults.append(line._replace(value="").fault(reason, "warning"))
    return tuple(kept.values()), faults


def without_comment(text: str) -> str:
    """The first line of a value without its ` ;` comment."""
    comment = _COMMENT.search(text)
    return (text[: comment.start()] if comment else text).strip()


def _value(first: str, rest: list[str]) -> str:
    return "\n".join([without_comment(first), *(line.strip() for line in rest)]).strip()


def _script(first: str, rest: list[str]) -> str:
    """A script as it was written, without the indentation that its continuation lines share; no newline at its end."""
    indent = _shared_indent(line for line in rest if line.strip())
    body = [line[len(indent) :] if line.startswith(indent) else "" for line in rest]
    lines = [first.lstrip(), *body]
    begin = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    return "\n".join(lines[begin:]).rstrip()


def _shared_indent(lines: Iterable[str]) -> str:
    indents = [line[: len(line) - len(line.lstrip())] for line in lines]
    least, most = min(indents, default=""), max(indents, default="")
    same = next(
        (at for at, pair in enumerate(zip(least, most)) if pair[0] != pair[1]),
        min(len(least), len(most)),
    )
    return least[:same]
