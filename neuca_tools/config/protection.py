"""Finds options that protect, and that are misspelt, in the wrong place, or set more than once.

Without such an option, the agent would change or believe more than the administrator permits.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from neuca_tools.config.files import Entry
from neuca_tools.config.options import (
    KNOWN,
    MAC_LISTS,
    PROTECTIVE,
    SECTIONS,
    split_list,
)
from neuca_tools.documents.neuca import values
from neuca_tools.documents.privacy import link_kind
from neuca_tools.documents.spelling import closest_word
from neuca_tools.model import Fault

# In sections with keys of their own, nothing else looks like one of these.
_LISTS = {option for _, option in MAC_LISTS}
_NAMES = {option for _, option in KNOWN}
_INDENTED = "it is indented, and so a part of the value above"


def protection_faults(entries: Iterable[Entry]) -> Iterator[Fault]:
    """A fault for each option that was meant to protect and does not."""
    for entry in entries:
        meant = meant_to_protect(entry)
        if meant:
            what = "unknown option" if entry.section or entry.lines else _INDENTED
            reason = f"{_line_numbers_text(entry)}{what}; did you mean {meant}?"
            yield entry.fault(reason)._replace(stops=True)
        elif len(entry.lines) > 1 and (entry.section, entry.option.lower()) in PROTECTIVE:
            reason = f"{_line_numbers_text(entry)}it is set more than once in this file"
            yield entry.fault(reason)._replace(stops=True)


def _line_numbers_text(entry: Entry) -> str:
    """`line 3: ` or `lines 3 and 5: `; empty if unknown."""
    numbers = " and ".join(map(str, entry.lines))
    plural = "s" if len(entry.lines) > 1 else ""
    return f"line{plural} {numbers}: " if numbers else ""


def meant_to_protect(entry: Entry) -> str:
    """The protective option that was probably meant, as `[SECTION] OPTION`; empty if none was."""
    option = entry.option.lower()
    if not option or (entry.section, option) in KNOWN:
        return ""
    closest_option = _closest_option(entry.section, option)
    if closest_option and closest_option in PROTECTIVE:
        return f"[{closest_option[0]}] {closest_option[1]}"
    # Whatever its name, NICs that an administrator lists are not to be changed.
    lists = " or ".join(f"[{section}] {name}" for section, name in MAC_LISTS)
    return "" if link_kind(entry.section) or not _is_mac_list(entry.value) else lists


def _is_mac_list(text: str) -> bool:
    try:
        return bool([values.nic("".join(part.split())) for part in split_list(text)])
    except values.UnusableError:
        return False


def _closest_option(section: str, option: str) -> Optional[tuple[str, str]]:
    """The option that is most like an unknown one, of the same section if possible."""
    own = {name for where, name in KNOWN if where == section}
    name = closest_word(option, own)
    if name:
        return section, name
    has_own_keys = not own and (section in SECTIONS or link_kind(section))
    names = _LISTS if has_own_keys else _NAMES
    name = option if option in names else closest_word(option, names)
    return next((known for known in sorted(KNOWN) if known[1] == name), None)
