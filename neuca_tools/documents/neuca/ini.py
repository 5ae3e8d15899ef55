"""Split a NEuca document into sections of raw keys and values, with scripts unchanged.

`redact_text` writes the copy for users without root: only the network and the host name.

configparser cannot be used: it drops the indentation of every line, and the `#` lines of scripts.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from itertools import dropwhile
from posixpath import commonprefix
from typing import Literal, NamedTuple, Optional

from neuca_tools.documents.neuca.values import clip, hash_hint
from neuca_tools.documents.privacy import (
    is_known_section,
    is_open,
    link_kind,
    shown_key,
    shown_value,
)
from neuca_tools.model import Fault
from neuca_tools.model.rows import UnknownWord

MAX_LINES = 200000
MAX_LINE = 65536  # characters, outside of scripts
_HEADER = re.compile(r"\[(?P<name>[^\]]*)\](?P<rest>.*)", re.DOTALL)
_KEY_BEHIND = re.compile(r"[^\s;#].*=")
_SECTION_NAME = re.compile(r"[\w.:/-]+(?: +[\w.:/-]+)*")
_COMMENT = re.compile(r"\s;")
# Version 1.7 took the first of the two. Where a key can be an address, a `:` needs a blank after
# it, or a line without `=`.
_DELIMITER = re.compile("[=:]")
_AFTER_ADDRESS = re.compile(r"=|(?<!:):(?=\s|$)")
_ADDRESSED = ("interfaces", "routes")
REMARK = re.compile(r"rem(?:\s+[^=:\s].*)?", re.IGNORECASE)
"""A line that Python 2's ConfigParser, and so version 1.7, takes for a comment."""


class Line(NamedTuple):
    """One key with its value, from line `number` to line `end`.

    `key` is in lower case, `written` is the key as written. `source` is the path of a configuration
    file, empty for a document.
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
        """The place, for messages: `line 12, [routes]`."""
        place = self.source or f"line {self.number}"
        return f"{place}, [{self.section}]"

    def fault(
        self,
        reason: str,
        severity: Literal["error", "warning"] = "error",
        unknown: Optional[UnknownWord] = None,
    ) -> Fault:
        """A fault about this line, without a value that may be secret."""
        key = shown_key(self.section, self.key)
        if severity == "error":
            reason += hash_hint(self.value)
        value = shown_value(self.section, self.key, self.value) if key else ""
        fault = Fault(self.number, self.section, key, value, reason, file=self.source)
        return fault._replace(severity=severity, unknown=unknown)


class Section(NamedTuple):
    """One header with the keys below it. Repeated headers are separate sections here."""

    number: int
    name: str
    lines: tuple[Line, ...]


class _Open:
    """A key whose value may continue on the next line."""

    def __init__(self, number: int, indent: int, written: str, first: str) -> None:
        self.number = self.end = number
        self.indent, self.written, self.first = indent, written, first
        self.rest: list[str] = []

    def add(self, number: int, text: str) -> None:
        self.rest.append(text)
        if text.strip():
            self.end = number


class _Reader:
    def __init__(self) -> None:
        self.sections: list[Section] = []
        self.faults: list[Fault] = []
        self._header: Optional[tuple[int, str]] = None
        self._name = ""  # of the current section; empty before the first one
        self._lines: list[Line] = []
        self._key: Optional[_Open] = None
        self._skipping = False

    def feed(self, number: int, text: str) -> None:
        """Process the next line."""
        indent, stripped = len(text) - len(text.lstrip()), text.strip()
        if self._key and self._goes_on(self._key, indent, stripped):
            if len(text) > MAX_LINE and self._name != "scripts":
                self._refuse(number, "", f"the line is longer than {MAX_LINE} characters")
            else:
                self._key.add(number, text)
            return
        if stripped[:1] in ("", ";", "#") or REMARK.fullmatch(text.rstrip()):
            return
        is_header = not indent and stripped[0] == "["
        if is_header or not self._skipping:
            self._begin(number, indent, stripped, text)

    def close(self) -> None:
        """End the current section."""
        self._close_key()
        if self._header:
            self.sections.append(Section(*self._header, tuple(self._lines)))
        self._header, self._name, self._lines = None, "", []

    def _goes_on(self, key: _Open, indent: int, stripped: str) -> bool:
        if self._name == "scripts":
            return not stripped or indent > key.indent
        if indent <= key.indent or not stripped or stripped[0] in ";#":
            return False
        # No value in these sections contains "=", so an indented "key = value" is a key of its own.
        return "=" not in stripped or not (self._name in _ADDRESSED or link_kind(self._name))

    def _begin(self, number: int, indent: int, stripped: str, text: str) -> None:
        self._close_key()
        header = _HEADER.fullmatch(stripped) if stripped[0] == "[" else None
        if stripped[0] == "[" and not (header and _KEY_BEHIND.match(header["rest"])):
            self._open_section(number, stripped, header)
        elif not self._header:
            self._refuse(number, stripped, "it precedes the first section")
        elif len(text) > MAX_LINE and self._name != "scripts":
            self._refuse(number, "", f"the line is longer than {MAX_LINE} characters")
        else:
            self._open_key(number, indent, stripped, text)

    def _open_section(self, number: int, stripped: str, header: Optional[re.Match[str]]) -> None:
        self.close()
        name, rest = "", ""
        if header:
            name, rest = " ".join(header["name"].split()), header["rest"].strip()
        # The keys below an unusable header must not be taken for those of the section above.
        self._skipping = not _SECTION_NAME.fullmatch(name) or len(name) > 80
        if self._skipping:
            self._refuse(
                number,
                stripped,
                "it is not a section header, ignoring all lines up to the next one",
            )
            return
        self._header, self._name = (number, name), name
        if rest and rest[0] not in ";#":
            self._refuse(number, rest, "text after a section header, ignoring it")

    def _open_key(self, number: int, indent: int, stripped: str, text: str) -> None:
        delimiter = _AFTER_ADDRESS.search(text, indent + 1) if self._name in _ADDRESSED else None
        delimiter = delimiter or _DELIMITER.search(text, indent + 1)
        if delimiter:
            written = text[: delimiter.start()].strip()
            self._key = _Open(number, indent, written, text[delimiter.end() :])
        else:
            self._refuse(number, stripped, 'it is neither a section, a comment nor "key = value"')

    def _close_key(self) -> None:
        key, self._key = self._key, None
        if key is None:
            return
        join = _join_script if self._name == "scripts" else _join_value
        value, written = join(key.first, key.rest), key.written
        self._lines.append(Line(key.number, self._name, written.lower(), value, written, key.end))

    def _refuse(self, number: int, text: str, reason: str) -> None:
        shown = clip(text) if is_open(self._name, text.lower()) else ""
        self.faults.append(Fault(number, self._name, shown, "", reason))


@lru_cache(maxsize=1)  # the copy for other users is made of the document that was just parsed
def read(text: str) -> tuple[tuple[Section, ...], tuple[Fault, ...]]:
    """The sections in order, and a fault for each line outside any section. Never raises."""
    reader = _Reader()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if number > MAX_LINES:
            reason = f"more than {MAX_LINES} lines, ignoring the rest"
            reader.faults.append(Fault(number, "", "", "", reason))
            break
        reader.feed(number, line)
    reader.close()
    return tuple(reader.sections), tuple(reader.faults)


def last_wins(
    lines: Iterable[Line], identity: Callable[[Line], Hashable]
) -> tuple[tuple[Line, ...], list[Fault]]:
    """The lines without those that a later line repeats, and a warning for each of these."""
    kept: dict[Hashable, Line] = {}
    faults = []
    for line in lines:
        setting = identity(line)
        before = kept.pop(setting, None)
        kept[setting] = line
        if before:
            reason = f"specified before on line {before.number}, ignoring line {before.number}"
            faults.append(line._replace(value="").fault(reason, "warning"))
    return tuple(kept.values()), faults


def without_comment(text: str) -> str:
    """The first line of a value without its ` ;` comment."""
    return _COMMENT.split(text, 1)[0].strip()


def _join_value(first: str, rest: list[str]) -> str:
    return "\n".join([without_comment(first), *map(str.strip, rest)]).strip()


def _join_script(first: str, rest: list[str]) -> str:
    """A script without the common indentation of its continuation lines or a final newline."""
    indents = [line[: len(line) - len(line.lstrip())] for line in rest if line.strip()]
    indent = commonprefix(indents)
    body = [line[len(indent) :] if line.startswith(indent) else "" for line in rest]
    lines = dropwhile(lambda line: not line.strip(), [first.lstrip(), *body])
    return "\n".join(lines).rstrip()


# --- the copy for users without root --------------------------------------------------------------


def redact_text(text: str) -> str:
    """The text with only what everybody may read. Line numbers stay valid."""
    sections, _ = read(text)
    out = [""] * (text.count("\n") + 1)
    for section in sections:
        name = section.name if is_known_section(section.name) else "redacted"
        out[section.number - 1] = f"[{name}]"
        for line in section.lines:
            # A key like "[x]" would be read as a section if it were written with a blank after it.
            if is_open(line.section, line.key) and not line.key.startswith("["):
                _copy_line(line, out)
    return "\n".join(out)


def _copy_line(line: Line, out: list[str]) -> None:
    """Write a line to `out` from the parsed value, not from the text: comments are dropped."""
    written = f"{line.written} = {line.value}"
    if ";" not in written and "\n" not in written and len(written) <= MAX_LINE:
        out[line.number - 1] = written
        return
    first, *rest = line.value.split("\n")
    # " ;" would begin a comment.
    blank = "" if first.startswith(";") else " "
    written = f"{line.written} ={blank}{first}"
    if without_comment(first) != first or (len(written) > MAX_LINE and line.end > line.number):
        # The value began on a line below its key, where " ;" does not begin a comment.
        written, rest = f"{line.written} =", [first, *rest]
    out[line.number - 1] = _fitting_text(written, f"{line.written}={first}")
    for at, text in enumerate(rest):
        out[line.number + at] = _fitting_text(f"    {text}", f" {text}")


def _fitting_text(text: str, shorter: str) -> str:
    """The first of these that is not too long for a line of a document."""
    return text if len(text) <= MAX_LINE else shorter
