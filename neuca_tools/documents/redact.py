"""A copy of a document for people without root: the network and the host name, every other line blank."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from .ini import Line, read
from .secrecy import is_known_section, is_open


def redact(text: str) -> str:
    """The text with only what everybody may read, each line where it was, so that line numbers hold."""
    sections, _ = read(text)
    out = [""] * (text.count("\n") + 1)
    for section in sections:
        out[section.number - 1] = (
            f"[{section.name}]" if is_known_section(section.name) else "[redacted]"
        )
        for line in section.lines:
            if is_open(line.section, line.key):
                _copy(line, out)
    return "\n".join(out)


def _copy(line: Line, out: list[str]) -> None:
    # Rebuilt from what was read, and not cut from the text: so no comment can come along.
    first, *rest = line.value.split("\n")
    blank = "" if first.startswith(";") else " "  # " ;" would begin a comment
    out[line.number - 1] = f"{line.written} ={blank}{first}"
    for at, text in enumerate(rest):
        out[line.number + at] = f"    {text}"
