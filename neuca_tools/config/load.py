"""From raw options to a Config: what cannot be used becomes a fault, and the default is used."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

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
    """The configuration in a file and in `config.d` beside it; a file that does not exist says nothing.

    Raises ConfigError for a file that exists and cannot be read. All else that is wrong becomes a fault and a default.
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
        elif (section, option) in MAC_LISTS:
            fields[MAC_LISTS[section, option]] = _macs(entry, faults)
        elif (section, option) == SOURCES:
            fields.update(_sources(entry, faults))
        elif (section, option) in OPTIONS:
            fields.update(_field(entry, *OPTIONS[section, option], faults))
        elif section in SECTIONS and (section, option) not in OBSOLETE:
            faults.append(entry.fault("unknown option, ignoring it", "warning"))
    return fields


def _field(
    entry: Entry, name: str, read: Callable[[str], object], faults: list[ConfigFault]
) -> dict[str, object]:
    try:
        return {name: read(entry.value)} if entry.value else {}
    except UnusableError as reason:
        faults.append(entry.fault(f"{reason}, using the default"))
        return {}


def _macs(entry: Entry, faults: list[ConfigFault]) -> frozenset[str]:
    """The MAC addresses that can be read. One that cannot is an error: the list must not shrink unseen."""
    found = (
        _mac(entry, "".join(part.split()), faults)
        for part in entry.value.split(",")
        if part.strip()
    )
    return frozenset(filter(None, found))


def _sources(entry: Entry, faults: list[ConfigFault]) -> dict[str, tuple[str, ...]]:
    """The sources that there are, in order; one that is none costs only itself. None left: the default."""
    found = []
    for text in listed(entry.value):
        try:
            parse_source(text)
            found.append(text)
        except UsageError as reason:
            faults.append(entry.fault(f"{reason}, ignoring this one"))
    return {"sources": tuple(found)} if found else {}


def _mac(entry: Entry, text: str, faults: list[ConfigFault]) -> Optional[str]:
    try:
        return values.mac(text)
    except UnusableError as reason:
        faults.append(entry.fault(f"{reason}, ignoring this one"))
        return None


def _links(entries: Iterable[Entry], faults: list[ConfigFault]) -> tuple[LinkRequest, ...]:
    """What the link sections ask. A later file wins, setting by setting."""
    merged: dict[LinkKey, links.Asked] = {}
    origin: dict[tuple[str, str], str] = {}
    for (file, section), lines in _by_section(entries).items():
        # A fault has its key as it may be shown: cut, or left out.
        origin.update({(section, shown_key(section, line.key)): file for line in lines})
        try:
            key = links.section_key(section)
        except UnusableError as reason:
            faults.append(ConfigFault(file, section, "", "", f"{reason}, ignoring the section"))
            continue
        asked, more = links.read_section(key, lines)
        faults += (_config_fault(file, fault) for fault in more)
        merged[key] = links.stack(merged[key], asked) if key in merged else asked
    checked = [links.check(asked) for asked in merged.values() if not asked.unsure]
    named, late = links.unique_names(one.asked for one in checked)
    late = [fault for one in checked for fault in one.faults] + late
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
    return ConfigFault(file, fault.section, fault.key, fault.value, fault.reason, fault.severity)
