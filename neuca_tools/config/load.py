"""Read a Config from raw options: an unusable value becomes a fault, and the default applies."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

from neuca_tools.config import files
from neuca_tools.config.files import Entry
from neuca_tools.config.options import (
    KNOWN,
    MAC_LISTS,
    OBSOLETE,
    OPTIONS,
    PROTECTIVE,
    RAW_SECTIONS,
    SECTIONS,
    Config,
    split_list,
)
from neuca_tools.documents import stacking
from neuca_tools.documents.neuca import links, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import link_kind
from neuca_tools.documents.spelling import closest_word, with_meant_word, with_suggestion
from neuca_tools.errors import UsageError
from neuca_tools.model import Fault, LinkKey, LinkRequest
from neuca_tools.sources import parse_source

SOURCES = ("metadata", "sources")
DEFAULT_PATH = Path("/etc/neuca/config")
# In sections with keys of their own, nothing else looks like one of these.
_LISTS = {option for _, option in MAC_LISTS}
_NAMES = {option for _, option in KNOWN}
_INDENTED = "it is indented, so it is part of the value above"


def load_config(path: Path) -> Config:
    """Read the configuration file and the files in `config.d` next to it.

    A file that does not exist counts as empty. Raises ConfigError for a file that exists and cannot
    be read. Everything else that is wrong becomes a fault, and the default applies.
    """
    return _config_from(*files.read_entries(path))


def parse_config(data: bytes) -> Config:
    """What the text of one file says by itself. Raises ConfigError."""
    return _config_from(*files.parse_entries(data))


def _config_from(entries: list[Entry], faults: list[Fault]) -> Config:
    faults += _unknown_sections(entries)
    protection_faults = list(_protection_faults(entries))
    faults += protection_faults
    of_links = [entry for entry in entries if link_kind(entry.section)]
    options = [entry for entry in entries if entry.option and not link_kind(entry.section)]
    reported = {(fault.file, fault.section, fault.key.lower()) for fault in protection_faults}
    fields = _config_fields(options, reported, faults)
    requests = _link_requests(of_links, faults)
    return Config()._replace(links=requests, faults=tuple(faults), **fields)


def _protection_faults(entries: Iterable[Entry]) -> Iterator[Fault]:
    """A fault for each option that was meant to protect, and is misspelled, misplaced or repeated.

    Without such an option, the agent would change or believe more than the administrator permits.
    """
    for entry in entries:
        where, reason = (entry.section, entry.option.lower()), ""
        if where in KNOWN:
            if len(entry.lines) > 1 and where in PROTECTIVE:
                reason = "it is set more than once in this file"
        elif _may_protect(entry):
            meant = _meant_to_protect(*where, entry.value)
            what = "unknown option" if entry.section or entry.lines else _INDENTED
            reason = f"{what}; did you mean {meant}?" if meant else ""
        if reason:
            yield entry.fault(_line_numbers_text(entry) + reason)._replace(stops=True)


def _may_protect(entry: Entry) -> bool:
    """Whether to look for what an unknown option means."""
    if link_kind(entry.section):
        # These sections have keys of their own, which may be thousands.
        return any(abs(len(entry.option) - len(name)) <= 2 for name in _LISTS)
    return bool(entry.option)


def _line_numbers_text(entry: Entry) -> str:
    """`line 3: ` or `lines 3 and 5: `; empty if unknown."""
    numbers = " and ".join(map(str, entry.lines))
    plural = "s" if len(entry.lines) > 1 else ""
    return f"line{plural} {numbers}: " if numbers else ""


def _meant_to_protect(section: str, option: str, value: str) -> str:
    """The protective option that was probably meant, as `[SECTION] OPTION`; empty if none was."""
    closest_option = _closest_option(section, option)
    if closest_option and closest_option in PROTECTIVE:
        return f"[{closest_option[0]}] {closest_option[1]}"
    # Whatever its name, NICs that an administrator lists are not to be changed.
    lists = " or ".join(f"[{section}] {name}" for section, name in MAC_LISTS)
    return "" if link_kind(section) or not _is_mac_list(value) else lists


def _is_mac_list(text: str) -> bool:
    try:
        return bool([_read_mac(part) for part in split_list(text)])
    except UnusableError:
        return False


def _closest_option(section: str, option: str) -> Optional[tuple[str, str]]:
    """The option that is most like an unknown one, of the same section if possible."""
    own = _options_of(section)
    name = closest_word(option, own)
    if name:
        return section, name
    has_own_keys = not own and (section in SECTIONS or link_kind(section))
    names = _LISTS if has_own_keys else _NAMES
    name = option if option in names else closest_word(option, names)
    return next((known for known in sorted(KNOWN) if known[1] == name), None)


def _options_of(section: str) -> set[str]:
    return {name for where, name in KNOWN if where == section}


def _unknown_sections(entries: Iterable[Entry]) -> Iterator[Fault]:
    for entry in entries:
        if not entry.option and entry.section not in SECTIONS and not link_kind(entry.section):
            yield _with_suggestion(entry.fault("unknown section, ignoring it", "warning"), SECTIONS)


def _with_suggestion(fault: Fault, known: Collection[str]) -> Fault:
    """The fault about an unknown word, with the one that was probably meant."""
    meant = closest_word(fault.key or fault.section, known)
    return fault._replace(reason=with_suggestion(fault.reason, meant), meant=meant)


def _config_fields(
    entries: Iterable[Entry], reported: Collection[tuple[str, str, str]], faults: list[Fault]
) -> dict[str, Any]:
    """The fields that these options set; those `reported` (file, section, option) have a fault."""
    last = {(entry.section, entry.option.lower()): entry for entry in entries}
    fields: dict[str, Any] = {section: {} for section in RAW_SECTIONS}
    for (section, option), entry in last.items():
        if section in RAW_SECTIONS:
            fields[section][option] = entry.value
        elif (section, option) in OBSOLETE:
            faults.append(entry.fault("obsolete, it has no effect", "note"))
        elif (section, option) in KNOWN:
            fields.update(_config_field((section, option), entry, faults))
        elif section in SECTIONS and (entry.file, section, option) not in reported:
            unknown = entry.fault("unknown option, ignoring it", "warning")
            faults.append(_with_suggestion(unknown, _options_of(section)))
    return fields


def _config_field(where: tuple[str, str], entry: Entry, faults: list[Fault]) -> dict[str, Any]:
    """The field that an option sets, with its value; empty if it sets none."""
    if where in MAC_LISTS:
        return {MAC_LISTS[where]: frozenset(_read_list(entry, _read_mac, faults))}
    if where == SOURCES:
        known = tuple(_read_list(entry, lambda text: str(parse_source(text)), faults))
        return {"sources": known} if known else {}
    if not entry.value.strip(", "):
        return {}
    name, read = OPTIONS[where]
    try:
        return {name: read(entry.value)}
    except UnusableError as reason:
        fault = entry.fault(f"{reason}, using the default")
        faults.append(fault._replace(stops=where in PROTECTIVE))
        return {}


def _read_list(entry: Entry, read: Callable[[str], object], faults: list[Fault]) -> list[Any]:
    """The entries of a list that can be read. An unusable one is an error: the list lacks it."""
    entries = []
    for text in split_list(entry.value):
        try:
            entries.append(read(text))
        except (UnusableError, UsageError) as reason:
            # Only lists that protect are read by this function.
            faults.append(entry.fault(f"{reason}, ignoring this one")._replace(stops=True))
    return entries


def _read_mac(text: str) -> str:
    return values.nic("".join(text.split()))


def _link_requests(entries: Iterable[Entry], faults: list[Fault]) -> tuple[LinkRequest, ...]:
    """The requests of the link sections. A later file wins, setting by setting."""
    requests: list[links.RequestWithLines] = []
    for key, lines in _lines_by_link(entries, faults).items():
        draft = links.Draft(key)
        faults += map(with_meant_word, links.read_section(draft, lines))
        requests.append(draft.finished())
    usable = links.check_links(requests)
    faults += map(with_meant_word, usable.faults)
    return stacking.with_parents(link.request for link in usable.links)


def _lines_by_link(entries: Iterable[Entry], faults: list[Fault]) -> dict[LinkKey, list[Line]]:
    """The lines about each link. An empty value selects the default: it drops those before it."""
    lines_by_link: dict[LinkKey, list[Line]] = {}
    for entry in entries:
        file, section, option, value, numbers = entry
        try:
            lines = lines_by_link.setdefault(links.section_key(section), [])
        except UnusableError as reason:
            if not option:
                faults.append(entry.fault(f"{reason}, ignoring the section"))
            continue
        line = Line(max(numbers, default=0), section, option.lower(), value, option, source=file)
        if value:
            lines.append(line)
        elif option:
            setting = links.setting_name(line)
            lines[:] = [other for other in lines if links.setting_name(other) != setting]
    return lines_by_link
