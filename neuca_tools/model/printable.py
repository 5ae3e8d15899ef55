"""Make texts from other hosts, programs and files safe for a terminal, a page or a log line.

Every report and error message goes through this module. Control characters (C0, DEL, C1) are
commands to a terminal, bidirectional and zero-width characters (Unicode TR 36 and 39) make a text
look like another one, and a line end in a field starts a new line: all of them are escaped.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from collections.abc import Iterable

# ECMA-48, SGR
GREEN, RED, YELLOW, PLAIN = "\033[32m", "\033[31m", "\033[33m", "\033[0m"
_KEPT = (GREEN, RED, YELLOW, PLAIN, "\t")
_KEPT_PARTS = re.compile(f"({'|'.join(map(re.escape, _KEPT))})")


def printable_line(text: str) -> str:
    r"""One line, with unprintable characters as \x1b, \u202e or \U000e0041.

    >>> printable_line("a\x1b[2J\n")
    'a\\x1b[2J\\x0a'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _escape(character) for character in text
    )


def printable_lines(parts: Iterable[str]) -> str:
    """Several lines as one text, each through `printable_line`, without a final line end."""
    return "\n".join(printable_line(part) for part in parts)


def plain_lines(text: str) -> str:
    """`printable_line` for each line of a text; line ends are kept."""
    return printable_lines(text.split("\n"))


def painted_lines(text: str) -> str:
    """`plain_lines` of a text that may have colors of `painted_text`, and tabs; both are kept."""
    return "".join(part if part in _KEPT else plain_lines(part) for part in _KEPT_PARTS.split(text))


def visible_length(text: str) -> int:
    """The number of characters, without those of `painted_text`.

    >>> visible_length(painted_text("ok", GREEN, True) + ": up")
    6
    """
    return sum(len(part) for part in _KEPT_PARTS.split(text) if part not in _KEPT[:-1])


def escape_markup(text: str) -> str:
    """Escape a text for an HTML element or a quoted attribute; line ends are kept."""
    # For pages only; it saves 1 ms.
    import html

    return html.escape(plain_lines(text))


def json_document(value: object) -> str:
    """Indented JSON of printable ASCII characters and line ends."""
    return json.dumps(value, indent=1).replace("\x7f", r"\u007f")  # DEL is the only other one


def _escape(character: str) -> str:
    if character.isascii():
        return f"\\x{ord(character):02x}"
    return character.encode("ascii", "backslashreplace").decode()


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "key"), counted(0, "key")
    ('1 key', '0 keys')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def painted_text(text: str, ink: str, color: bool) -> str:
    """The text in a color, if output is colored at all."""
    return f"{ink}{text}{PLAIN}" if color else text
