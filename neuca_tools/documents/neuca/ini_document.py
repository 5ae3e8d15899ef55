"""A NEuca document as a whole: which reader gets which lines, and the faults of all of them in order."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Callable, Optional, cast

from neuca_tools.documents import stacking
from neuca_tools.documents.neuca import interface_lines, links, tables, values
from neuca_tools.documents.neuca.ini import Line, Section, last_wins, read
from neuca_tools.documents.neuca.links import Asked
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import is_known_section, link_kind
from neuca_tools.errors import DocumentError
from neuca_tools.model import Document, Fault, LinkKey, LinkRequest, Router
from neuca_tools.model.rows import Item

MAX_BYTES = 4 * 1024 * 1024
MAX_LINKS = 4096
MAX_ROUTES = 16384
MAX_ROWS = 1024
MAX_FAULTS = 1000
_LEGACY_SECTIONS = ("instanceConfig",)
_ROUTER = ("true", "false", "user")


def parse(text: str) -> Document:
    """The document that a text is. What cannot be understood becomes a fault and costs only itself.

    Raises DocumentError where nothing in it can be understood.
    """
    _check(text)
    sections, faults = read(text)
    if not sections:
        raise DocumentError('cannot read the document: it has no section, such as "[interfaces]"')
    lines, repeated = last_wins((line for section in sections for line in section.lines), _identity)
    given = tuple(line for line in lines if not values.absent(line.value))
    return _assemble(sections, given, [*faults, *repeated, *_unknown(sections)])


def _check(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise DocumentError("cannot read the document: it is not UTF-8 text") from None
    if "\0" in text:
        raise DocumentError("cannot read the document: it has NUL bytes, so it is no text")
    if size > MAX_BYTES:
        raise DocumentError(f"cannot read the document: it is longer than {MAX_BYTES} bytes")


def _assemble(
    sections: tuple[Section, ...], lines: tuple[Line, ...], faults: list[Fault]
) -> Document:
    def of(name: str) -> list[Line]:
        return [line for line in lines if line.section == name]

    settings = {line.key: line for line in of("global")}
    hostname, router = (_one(settings.get(key), reader, faults) for key, reader in _GLOBALS.items())
    requests, link_faults = _links(sections, lines, of("interfaces"))
    routes, route_faults = tables.rows(of("routes"), tables.route, MAX_ROUTES)
    users, user_faults = tables.rows(of("users"), tables.user, MAX_ROWS)
    scripts, script_faults = tables.rows(of("scripts"), tables.script, MAX_ROWS)
    storage, storage_faults = tables.storage_rows(of("storage"), MAX_ROWS)
    faults += [*link_faults, *route_faults, *user_faults, *script_faults, *storage_faults]
    return Document(
        hostname=hostname,
        router=cast(Router, router or "user"),
        items=tuple(Item(line.section, line.key, line.value, line.number) for line in lines),
        links=requests,
        routes=routes,
        users=users,
        scripts=scripts,
        storage=storage,
        faults=_bounded(faults),
    )


_GLOBALS: dict[str, Callable[[str], str]] = {
    "host_name": values.hostname,
    "router": lambda text: values.word(text, _ROUTER),
}


def _one(line: Optional[Line], reader: Callable[[str], str], faults: list[Fault]) -> Optional[str]:
    try:
        return reader(line.value) if line else None
    except UnusableError as reason:
        if line:
            faults.append(line.fault(str(reason)))
        return None


def _identity(line: Line) -> Hashable:
    """What makes two lines the same setting, whichever way their addresses are written."""
    try:
        if line.section == "interfaces":
            return line.section, str(interface_lines.key(line))
        if line.section == "routes":
            return line.section, str(values.network(line.key))
        if link_kind(line.section):
            return str(links.section_key(line.section)), links.setting_name(line)
    except UnusableError:
        pass  # Its reader will say why; until then it equals only itself.
    return line.section, line.key


def _unknown(sections: Iterable[Section]) -> Iterable[Fault]:
    for section in {section.name: section for section in reversed(tuple(sections))}.values():
        if not is_known_section(section.name):
            yield Fault(
                section.number, section.name, "", "", _unknown_reason(section.name), "warning"
            )


def _unknown_reason(name: str) -> str:
    if name in _LEGACY_SECTIONS:
        return "a section of NEuca version 0, ignoring it"
    lower = name.lower()
    if is_known_section(lower):
        return "unknown section, ignoring it (names of sections are in lower case)"
    return "unknown section, ignoring it"


def _links(
    sections: Iterable[Section], lines: Iterable[Line], short: Iterable[Line]
) -> tuple[tuple[LinkRequest, ...], list[Fault]]:
    base, broken, faults = _short_lines(short)
    longer, more = links.sections(sections, lines)
    faults += more
    for key, own in longer.items():
        above = links.read_section(key, own)
        faults += above.faults
        base[key] = links.stack(base[key], above.asked) if key in base else above.asked
    settled = []
    for key, asked in base.items():
        if asked.unsure or (key in broken and key not in longer):
            continue
        done = links.check(replace(asked, request=links.up_by_default(asked.request)))
        faults += done.faults
        settled.append(done.asked)
    return _finish(settled, faults)


def _short_lines(lines: Iterable[Line]) -> tuple[dict[LinkKey, Asked], set[LinkKey], list[Fault]]:
    """The lines of `[interfaces]`. One with a fault is `broken`: its link is lost, but for a section of its own."""
    base: dict[LinkKey, Asked] = {}
    broken: set[LinkKey] = set()
    faults: list[Fault] = []
    for line in lines:
        try:
            asked, more = interface_lines.read(line)
        except UnusableError as reason:
            faults.append(line.fault(str(reason)))
            continue
        base[asked.request.key] = asked
        faults += more
        broken |= {asked.request.key} if any(fault.severity == "error" for fault in more) else set()
    return base, broken, faults


def _finish(
    settled: list[Asked], faults: list[Fault]
) -> tuple[tuple[LinkRequest, ...], list[Fault]]:
    if len(settled) > MAX_LINKS:
        number = min((line.number for line in settled[MAX_LINKS].lines.values()), default=1)
        faults.append(Fault(number, "", "", "", f"more than {MAX_LINKS} links, ignoring the rest"))
    named, more = links.unique_names(settled[:MAX_LINKS])
    return stacking.with_parents(asked.request for asked in named), [*faults, *more]


def _bounded(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    ordered = sorted(faults, key=lambda fault: fault.line)
    if len(ordered) <= MAX_FAULTS:
        return tuple(ordered)
    rest = Fault(
        ordered[MAX_FAULTS].line,
        "",
        "",
        "",
        f"{len(ordered) - MAX_FAULTS} more faults from here on",
    )
    return (*ordered[:MAX_FAULTS], rest)


def get(document: Document, section: str, key: str) -> Optional[str]:
    """One value as it was written, None where it is absent. Keys are case-insensitive, names of sections are not."""
    lower = key.lower()
    return next(
        (item.value for item in document.items if item.section == section and item.key == lower),
        None,
    )
