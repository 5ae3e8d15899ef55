"""Parse a NEuca document: pass the lines to the readers of their sections, and collect faults."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Optional, cast

from neuca_tools.documents import stacking
from neuca_tools.documents.neuca import (
    interface_lines,
    links,
    routing,
    tables,
    values,
)
from neuca_tools.documents.neuca.ini import Line, Section, last_wins, read
from neuca_tools.documents.neuca.links import Draft
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import SECTIONS, is_known_section, link_kind
from neuca_tools.errors import unreadable
from neuca_tools.model import Document, Fault, LinkKey, LinkRequest, Router, RouteRequest
from neuca_tools.model.rows import Item, Severity

MAX_BYTES = 4 * 1024 * 1024
MAX_LINKS = 4096
MAX_ROUTES = 16384
MAX_ROWS = 1024  # in each of the sections users, scripts and storage
MAX_FAULTS = 1000  # that are reported
MAX_SPELT = 20  # faults whose unknown word is compared with the known ones
_ROUTER = ("true", "false", "user")


def parse(text: str) -> Document:
    """Parse a document. Whatever is unusable becomes a fault and is ignored.

    Raises DocumentError if the whole text is unusable.
    """
    _check_text(text)
    sections, faults = read(text)
    if not sections:
        raise unreadable('it has no section, such as "[interfaces]"')
    every_line = chain.from_iterable(section.lines for section in sections)
    collected = [*faults, *_unknown_sections(sections)]
    keys = _section_keys(sections, collected)
    lines, repeated = last_wins(every_line, lambda line: _setting_identity(line, keys))
    present_lines = tuple(line for line in lines if not values.is_absent(line.value))
    return _build_document(keys, present_lines, [*collected, *repeated])


def _check_text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise unreadable("it is not UTF-8 text") from None
    if "\0" in text:
        raise unreadable("it has NUL bytes, so it is not text")
    if size > MAX_BYTES:
        raise unreadable(f"it is longer than {MAX_BYTES} bytes")


def _build_document(
    keys: Mapping[str, Optional[LinkKey]], lines: tuple[Line, ...], faults: list[Fault]
) -> Document:
    grouped: dict[str, list[Line]] = {name: [] for name in SECTIONS}
    for line in lines:
        if line.section in grouped:
            grouped[line.section].append(line)
    hostname, router = (_read_global(grouped["global"], key, faults) for key in GLOBALS)
    requests, ignored = _link_requests(keys, lines, grouped["interfaces"], faults)
    read_route = partial(_usable_route, ignored)
    read_user = partial(tables.read_user, faults)
    return Document(
        hostname=hostname,
        router=cast(Router, router or "user"),
        items=tuple(Item(line.section, line.key, line.value, line.number) for line in lines),
        links=requests,
        routes=tables.read_rows(grouped["routes"], read_route, MAX_ROUTES, faults),
        rules=routing.read_rules(lines, faults),
        users=tables.read_rows(grouped["users"], read_user, MAX_ROWS, faults),
        scripts=tables.read_rows(grouped["scripts"], tables.read_script, MAX_ROWS, faults),
        storage=tables.storage_rows(grouped["storage"], MAX_ROWS, faults),
        faults=_limit_faults(faults),
    )


def _usable_route(ignored: Mapping[LinkKey, LinkKey], line: Line) -> RouteRequest:
    """A route; one through an ignored link is unusable."""
    request = routing.read_route(line)
    if request.link and request.link in ignored:
        raise UnusableError(links.why_ignored(ignored[request.link]))
    return request


GLOBALS: dict[str, Callable[[str], str]] = {
    "host_name": values.hostname,
    "router": lambda text: values.word(text, _ROUTER),
}


def _read_global(lines: Iterable[Line], key: str, faults: list[Fault]) -> Optional[str]:
    own = (line for line in lines if line.key == key)  # at most one: `last_wins` keeps no other
    parsed = tables.read_rows(own, lambda line: GLOBALS[key](line.value), 1, faults)
    return parsed[0] if parsed else None


def _setting_identity(line: Line, keys: Mapping[str, Optional[LinkKey]]) -> Hashable:
    """Equal for two lines with the same setting; `keys` has the link of each section about one."""
    try:
        if line.section == "interfaces":
            return line.section, str(interface_lines.key(line))
        if line.section == "routes":
            return line.section, routing.route_identity(line)
        link = keys.get(line.section)
        if link:
            return str(link), links.setting_name(line)
    except UnusableError:
        # The reader of the section reports why.
        pass
    return line.section, line.key


def _unknown_sections(sections: Iterable[Section]) -> Iterable[Fault]:
    """A fault for each unknown section.

    It is an error, which makes the document incomplete, if the name may be misspelled: what the
    section requests must not be taken for what is no longer requested.
    """
    first = {section.name: section for section in reversed(tuple(sections))}
    unknown = [section for section in first.values() if not is_known_section(section.name)]
    if not unknown:
        return
    # Documents without unknown sections need neither module, which load difflib and typing.
    from neuca_tools.documents.spelling import MAX_SPELLINGS, section_meant

    # Only the first ones are compared.
    misspelled = {
        section.name for section in unknown[:MAX_SPELLINGS] if section_meant(section.name)
    }
    for section in unknown:
        reason = "unknown section, ignoring it"
        if is_known_section(section.name.lower()):
            reason += " (names of sections are in lower case)"
        severity: Severity = "error" if section.name in misspelled else "warning"
        yield Fault(section.number, section.name, "", "", reason, severity)


def _link_requests(
    keys: Mapping[str, Optional[LinkKey]],
    lines: Iterable[Line],
    interface_section: Iterable[Line],
    faults: list[Fault],
) -> tuple[tuple[LinkRequest, ...], Mapping[LinkKey, LinkKey]]:
    """The requests for links, and the ignored links (see `links.CheckedLinks`)."""
    drafts, broken = _read_interfaces(interface_section, faults)
    lines_by_link = _lines_by_link(keys, lines)
    for key, own_lines in lines_by_link.items():
        faults += links.read_section(drafts.setdefault(key, Draft(key)), own_lines)
    finished = [
        draft.finished()
        for key, draft in drafts.items()
        if key in lines_by_link or key not in broken
    ]
    if len(finished) > MAX_LINKS:
        number = min((line.number for line in finished[MAX_LINKS].lines.values()), default=1)
        faults.append(Fault(number, "", "", "", f"more than {MAX_LINKS} links, ignoring the rest"))
    usable = links.check_links(
        link._replace(request=stacking.up_by_default(link.request)) for link in finished[:MAX_LINKS]
    )
    faults += usable.faults
    return stacking.with_parents(link.request for link in usable.links), usable.ignored


def _lines_by_link(
    keys: Mapping[str, Optional[LinkKey]], lines: Iterable[Line]
) -> dict[LinkKey, list[Line]]:
    """The lines of every link with a section, even an empty one."""
    grouped: dict[LinkKey, list[Line]] = {key: [] for key in filter(None, keys.values())}
    for line in lines:
        owner = keys.get(line.section)
        if owner:
            grouped[owner].append(line)
    return grouped


def _section_keys(sections: Iterable[Section], faults: list[Fault]) -> dict[str, Optional[LinkKey]]:
    """The link of each section by its name; None, with a fault, if its header is unusable."""
    keys: dict[str, Optional[LinkKey]] = {}
    for section in sections:
        if not link_kind(section.name) or section.name in keys:
            continue
        try:
            keys[section.name] = links.section_key(section.name)
        except UnusableError as unusable:
            keys[section.name] = None
            reason = f"{unusable}, ignoring the section"
            faults.append(Fault(section.number, section.name, "", "", reason))
    return keys


def _read_interfaces(
    lines: Iterable[Line], faults: list[Fault]
) -> tuple[dict[LinkKey, Draft], set[LinkKey]]:
    """Parse the lines of `[interfaces]`: the requests and the broken links.

    A link whose line has an error is ignored, unless it has a section of its own.
    """
    drafts: dict[LinkKey, Draft] = {}
    broken: set[LinkKey] = set()
    for line in lines:
        try:
            draft, line_faults = interface_lines.read(line)
        except UnusableError as reason:
            faults.append(line.fault(str(reason), unknown=reason.unknown))
            continue
        drafts[draft.key] = draft
        faults += line_faults
        if any(fault.severity == "error" for fault in line_faults):
            broken.add(draft.key)
    return drafts, broken


def _limit_faults(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The first faults by line, with the probable word in place of all known ones in some."""
    ordered = sorted(faults, key=lambda fault: fault.line)
    words = ((number, fault.unknown) for number, fault in enumerate(ordered))
    unknown = [number for number, word in words if word and word.kind != "value"]
    if unknown:
        # Most documents have no unknown word; it saves difflib, 1 ms.
        from neuca_tools.documents.spelling import with_meant_word

        for number in unknown[:MAX_SPELT]:
            ordered[number] = with_meant_word(ordered[number])
    if len(ordered) <= MAX_FAULTS:
        return tuple(ordered)
    reason = f"{len(ordered) - MAX_FAULTS} more faults from here on"
    return (*ordered[:MAX_FAULTS], Fault(ordered[MAX_FAULTS].line, "", "", "", reason))


def find_value(document: Document, section: str, key: str) -> Optional[str]:
    """A value as written in the document; None if it is absent. Only `key` is case-insensitive."""
    items = (item for item in document.items if (item.section, item.key) == (section, key.lower()))
    return next((item.value for item in items), None)
