"""A copy of a document for people without root: the network and the host name, every other line blank."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.documents.neuca.ini import MAX_LINE, Line, read, without_comment
from neuca_tools.documents.privacy import is_known_section, is_open


def redact(text: str) -> str:
    """The text with only what everybody may read, each line where it was, so that line numbers hold."""
    sections, _ = read(text)
    out = [""] * (text.count("\n") + 1)
    for section in sections:
        out[section.number - 1] = (
            f"[{section.name}]" if is_known_section(section.name) else "[redacted]"
        )
        for line in section.lines:
            # A key like "[x]" would be read as a section if it were written with a blank behind it.
            if is_open(line.section, line.key) and not line.key.startswith("["):
                _copy(line, out)
    return "\n".join(out)


def _copy(line: Line, out: list[str]) -> None:
    # Rebuilt from what was read, and not cut from the text: so no comment can come along.
    first, *rest = line.value.split("\n")
    blank = "" if first.startswith(";") else " "  # " ;" would begin a comment
    written = f"{line.written} ={blank}{first}"
    if without_comment(first) != first or (len(written) > MAX_LINE and line.end > line.number):
        # It stood on a line of its own, below its key, where " ;" does not begin a comment.
        written, rest = f"{line.written} =", [first, *rest]
    out[line.number - 1] = written if len(written) <= MAX_LINE else f"{line.written}={first}"
    for at, text in enumerate(rest):
        indented = f"    {text}"
        out[line.number + at] = indented if len(indented) <= MAX_LINE else f" {text}"
