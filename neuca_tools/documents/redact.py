"""Make a copy of a document for users without root: only the network and the host name.

All other lines are blank.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.documents.neuca.ini import MAX_LINE, Line, read, without_comment
from neuca_tools.documents.privacy import is_known_section, is_open


def redact_text(text: str) -> str:
    """The text with only what everybody may read. Line numbers stay valid."""
    sections, _ = read(text)
    out = [""] * (text.count("\n") + 1)
    for section in sections:
        out[section.number - 1] = "[redacted]"
        if is_known_section(section.name):
            out[section.number - 1] = f"[{section.name}]"
        for line in section.lines:
            # A key like "[x]" would be read as a section if it were written with a blank behind it.
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
    blank = " "
    if first.startswith(";"):
        # " ;" would begin a comment.
        blank = ""
    written = f"{line.written} ={blank}{first}"
    if without_comment(first) != first or (len(written) > MAX_LINE and line.end > line.number):
        # The value began on a line below its key, where " ;" does not begin a comment.
        written, rest = f"{line.written} =", [first, *rest]
    out[line.number - 1] = _fitting_text(written, f"{line.written}={first}")
    for at, text in enumerate(rest):
        out[line.number + at] = _fitting_text(f"    {text}", f" {text}")


def _fitting_text(text: str, shorter: str) -> str:
    """The first of these that is not too long for a line of a document."""
    if len(text) <= MAX_LINE:
        return text
    return shorter
