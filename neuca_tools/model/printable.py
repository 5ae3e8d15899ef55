"""Texts of other hosts, programs and files, made safe for a terminal, a page or a line of a log.

Every report and error message ends here. Control characters (C0, DEL, C1) are commands to a
terminal, bidirectional and zero-width ones (Unicode TR 36 and 39) make a text look like another,
and a line end within a field makes a line of its own: all of them are shown as their escapes.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable

UNSAFE = re.compile(r"[^\n -~]")


def plain(text: str) -> str:
    r"""One line: whatever is not printable as \x1b, \u202e or \U000e0041.

    >>> plain("a\x1b[2J\n")
    'a\\x1b[2J\\x0a'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(ord(one)) for one in text)


def lines(parts: Iterable[str]) -> str:
    """A text of several lines, each of them `plain`, without the last line end."""
    return "\n".join(plain(one) for one in parts)


def plain_lines(text: str) -> str:
    """A text that may have several lines; its line ends are kept."""
    return lines(text.split("\n"))


def markup(text: str) -> str:
    """For HTML, within an element or a quoted attribute; line ends are kept."""
    return html.escape(plain_lines(text))


def document(value: object) -> str:
    """Indented JSON with the same meaning, in which nothing but line ends is not printable."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return UNSAFE.sub(lambda one: one[0] if one[0].isprintable() else _json(one[0]), text)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json(one: str) -> str:
    return json.dumps(one)[1:-1] if ord(one) > 0x7F else f"\\u{ord(one):04x}"
