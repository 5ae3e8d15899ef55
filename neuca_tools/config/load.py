"""Read a Config from raw options: an unusable value becomes a fault, and its option keeps its default."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from neuca_tools.config import files
from neuca_tools.config.files import Entry
from neuca_tools.config.options import (
    MAC_LISTS,
    OBSOLETE,
    OPTIONS,
    RAW_SECTIONS,
    SECTIONS,
    Config,
    ConfigFault,
    listed,
)
from neuca_tools.documents import stacking
from neuca_tools.documents.neuca import links, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import link_kind, shown_key
from neuca_tools.errors import UsageError
from neuca_tools.model import Fault, LinkKey, LinkRequest
from neuca_tools.sources import parse_source

SOURCES = ("metadata", "sources")
DEFAULT_PATH = Path("/etc/neuca/config")


def load(path: Path = DEFAULT_PATH) -> Config:
    """Read the configuration file and the files in `config.d` next to it.

    A file that does not exist counts as empty. Raises ConfigError for a file that exists and cannot
    be read. Everything else that is wrong becomes a fault, and the default applies.
    """
    entries, faults = files.read(path)
    faults += _unknown_sections(entries)
    given = [entry for entry in entries if entry.option]
    fields = _fields([entry for entry in given if not link_kind(entry.section)], faults)
    requests = _links([entry for entry in entries if link_kind(entry.section)], faults)
    return replace(Config(), links=requests, faults=tuple(faults), **fields)


def _unknown_sections(entries: Iterable[Entry]) -> Iterator[ConfigFault]:
    for entry in entries:
        if not entry.option and entry.section not in SECTIONS and not link_kind(entry.section):
            yield entry.fault("unknown section, ignoring it", "warning")


def _fields(entries: Iterable[Entry], faults: list[ConfigFault]) -> dict[str, Any]:
    last = {(entry.section, entry.option.lower()): entry for entry in entries}
    fields: dict[str, Any] = {section: {} for section in RAW_SECTIONS}
    for (section, option), entry in last.items():
        if section in RAW_SECTIONS:
            fields[section][option] = entry.value
        elif section in SECTIONS and (section, option) not in OBSOLETE:
            fields.update(_field((section, option), entry, faults))
    return fields


def _field(where: tuple[str, str], entry: Entry, faults: list[ConfigFault]) -> dict[str, Any]:
    """The field that an option sets, with its value; empty if it sets none."""
    if where in MAC_LISTS:
        return {MAC_LISTS[where]: _macs(entry, faults)}
    if where == SOURCES:
        return _sources(entry, faults)
    if where not in OPTIONS:
        faults.append(entry.fault("unknown option, ignoring it", "warning"))
        return {}
    if not entry.value:
        return {}
    name, read = OPTIONS[where]
    try:
        return {name: read(entry.value)}
    except UnusableError as reason:
        faults.append(entry.fault(f"{reason}, using the default"))
        return {}


def _macs(entry: Entry, faults: list[ConfigFault]) -> frozenset[str]:
    """The MAC addresses that can be read.

    An unreadable one is an error: nobody may overlook that the list is shorter than intended.
    """
    found = (_mac(entry, "".join(text.split()), faults) for text in listed(entry.value))
    return frozenset(filter(None, found))


def _sources(entry: Entry, faults: list[ConfigFault]) -> dict[str, tuple[str, ...]]:
    """The field for the known sources, in order. An unknown one is skipped; empty if none is left."""
    found = []
    for text in listed(entry.value):
        try:
            parse_source(text)
            found.append(text)
        except UsageError as reason:
            faults.append(entry.fault(f"{reason}, ignoring this one"))
    if not found:
        return {}
    return {"sources": tuple(found)}


def _mac(entry: Entry, text: str, faults: list[ConfigFault]) -> Optional[str]:
    try:
        return values.mac(text)
    except UnusableError as reason:
        faults.append(entry.fault(f"{reason}, ignoring this one"))
        return None


def _links(entries: Iterable[Entry], faults: list[ConfigFault]) -> tuple[LinkRequest, ...]:
    """The requests of the link sections. A later file wins, setting by setting."""
    merged: dict[LinkKey, links.Asked] = {}
    origin: dict[tuple[str, str], str] = {}
    for (file, section), lines in _by_section(entries).items():
        # A fault shows its key clipped, or not at all.
        origin.update({(section, shown_key(section, line.key)): file for line in lines})
        try:
            key = links.section_key(section)
        except UnusableError as reason:
            faults.append(ConfigFault(file, section, "", "", f"{reason}, ignoring the section"))
            continue
        asked, more = links.read_section(key, lines)
        faults += (_config_fault(file, fault) for fault in more)
        merged[key] = links.stack(merged[key], asked) if key in merged else asked
    return _checked(merged.values(), origin, faults)


def _checked(
    requests: Iterable[links.Asked],
    origin: Mapping[tuple[str, str], str],
    faults: list[ConfigFault],
) -> tuple[LinkRequest, ...]:
    """The requests without what contradicts itself; `origin` maps section and key to the file."""
    late: list[Fault] = []
    checked: list[links.Asked] = []
    for asked in requests:
        if not asked.unsure:
            usable, more = links.check(asked)
            checked.append(usable)
            late += more
    named, more = links.unique_names(checked)
    late += more
    faults += (_config_fault(origin[fault.section, fault.key], fault) for fault in late)
    return stacking.with_parents(asked.request for asked in named)


def _by_section(entries: Iterable[Entry]) -> dict[tuple[str, str], list[Line]]:
    grouped: dict[tuple[str, str], list[Line]] = {}
    for entry in entries:
        lines = grouped.setdefault((entry.file, entry.section), [])
        if entry.option and entry.value:
            line = Line(
                0, entry.section, entry.option.lower(), entry.value, entry.option, source=entry.file
            )
            lines.append(line)
    return grouped


def _config_fault(file: str, fault: Fault) -> ConfigFault:
    return ConfigFault(
        file=file,
        section=fault.section,
        option=fault.key,
        value=fault.value,
        reason=fault.reason,
        severity=fault.severity,
    )
