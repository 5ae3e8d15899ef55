"""Check a document offline: the faults of its reader, with lines and probable spellings.

What a pass only warns about, because another program may need it, is an error here if it looks like
a misspelled section, option or key.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Literal, NamedTuple, Optional

from neuca_tools.documents import check_network, check_platform
from neuca_tools.documents.envelope import MAX_UNZIPPED_BYTES, find_document, is_foreign
from neuca_tools.documents.neuca import filesystems, link_kinds, links
from neuca_tools.documents.neuca.ini_document import GLOBALS, find_value, parse
from neuca_tools.documents.neuca.tables import INITIATOR
from neuca_tools.documents.neuca.values import UnusableError, clip
from neuca_tools.documents.platform import openstack
from neuca_tools.documents.platform.tree import from_json
from neuca_tools.documents.privacy import LINK_KINDS, is_known_section, link_kind
from neuca_tools.documents.spelling import (
    MAX_SPELLINGS,
    Finding,
    closest_name,
    closest_word,
    line_with,
    section_meant,
    with_meant_word,
    with_suggestion,
)
from neuca_tools.documents.stacking import lower_of
from neuca_tools.errors import DocumentError, unreadable
from neuca_tools.model import Document, Fault, LinkKey, LinkRequest, Virtual
from neuca_tools.model.routing import MAIN_TABLE
from neuca_tools.model.rows import Severity

Kind = Literal["neuca", "network_data.json", "network-config", "configuration", ""]
NEUCA: Kind = "neuca"
MAX_BYTES = MAX_UNZIPPED_BYTES + 1
_YAML = re.compile(r"""(?:---|["']?[\w.-]+["']?\s*:(?:\s|$))""")
_LINE = re.compile(r"\bline (\d+)")
_INCOMPLETE = re.compile("could not find expected|unexpected end of|expected ',' or")
_HEADER = re.compile(r"\s*\[([^]]*)\]")


class CheckResult(NamedTuple):
    """The kind of a document, empty if it could not be told, and its faults by line."""

    kind: Kind
    findings: tuple[Finding, ...]

    def is_valid(self, strict: bool) -> bool:
        """Whether there is no error; with `strict`, no warning either."""
        return not any(strict or finding.severity == "error" for finding in self.findings)


def check(data: bytes, kind: Kind = "") -> CheckResult:
    """Check the bytes of a document; without a kind, its first line tells which it is."""
    kind = kind or kind_of(data)
    try:
        findings = [*(_neuca_findings(data) if kind == NEUCA else check_platform.check(data, kind))]
    except DocumentError as error:
        findings = [Finding(_line_of_syntax(error.text, data), "error", error.text)]
    return in_order(kind, findings)


def in_order(kind: Kind, findings: Iterable[Finding]) -> CheckResult:
    """The result with these findings, each once and by its line."""
    ordered = sorted(set(findings), key=lambda finding: (finding.line, finding.text))
    return CheckResult(kind, tuple(ordered))


def _line_of_syntax(text: str, data: bytes) -> int:
    """The line of a syntax error: the last one that the text names.

    Where something is not complete, it is the one before, where that begins. A key without `:` is
    only noticed at the next key.
    """
    lines = [0, *map(int, _LINE.findall(text))]
    if len(lines) > 2 and _INCOMPLETE.search(text):
        return lines[-2]
    above = data.splitlines()[lines[-1] - 2 : lines[-1] - 1] if lines[-1] > 1 else []
    is_key_above = "mapping values" in text and any(line and b":" not in line for line in above)
    return lines[-1] - is_key_above


def kind_of(data: bytes) -> Kind:
    """The kind of a document by its first line that is neither empty nor a comment."""
    if is_foreign(data):
        return NEUCA  # whose reader says so
    text = data[: 64 * 1024].decode("utf-8", "replace").lstrip("\ufeff")
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and line[0] not in "#;"), "")
    if first.startswith("{"):
        return _kind_of_json(data)
    if _YAML.match(first) and not first.lower().startswith(("mime-version", "content-type")):
        return "network-config"
    return NEUCA


def _kind_of_json(data: bytes) -> Kind:
    try:
        tree = from_json(data, openstack.NAME)
    except DocumentError:
        return "network_data.json"
    inner = tree.get("network", tree) if isinstance(tree, dict) else {}
    # Other documents of clouds have an object of this name too.
    keys = {"version", "config", "ethernets", "bonds", "bridges", "vlans"}
    is_config = not isinstance(inner, dict) or inner.keys() & keys
    return "network-config" if is_config else "network_data.json"


# --- NEuca's own format ---------------------------------------------------------------------------


def _neuca_findings(data: bytes) -> Iterator[Finding]:
    text = find_document(data)
    if text is None:
        raise unreadable("it is empty, or user-data for another program, and has no NEuca document")
    document = parse(text)
    for number, fault in enumerate(document.faults):
        yield _of_line(fault, number < MAX_SPELLINGS)
    yield from _misspelled_globals(document)
    yield from _storage_findings(document)
    yield from _incomplete_links(document, text)
    yield from _clash_findings(document, text)


def _of_line(fault: Fault, compared: bool) -> Finding:
    """The finding for a fault, with the probable spelling of an unknown section or key."""
    fault = with_meant_word(fault) if compared else fault
    is_unknown = fault.section in LINK_KINDS or not is_known_section(fault.section)
    if compared and is_unknown and not fault.key:
        meant = section_meant(fault.section)
        fault = fault._replace(reason=with_suggestion(fault.reason, meant), meant=meant)
    if fault.meant:
        fault = fault._replace(severity="error")
    text = fault.text.partition(": ")[2] if fault.line else fault.text
    return Finding(fault.line, fault.severity, text, fault.meant)


def _misspelled_globals(document: Document) -> Iterator[Finding]:
    """Keys of [global] that look like one of its options; others are for `neuca get`."""
    keys = [item for item in document.items if item.section == "global"]
    for item in keys[:MAX_SPELLINGS]:
        meant = closest_word(item.key, tuple(GLOBALS), 0.75)
        if meant:
            text = f'[global] "{clip(item.key)}": it has no effect'
            yield Finding(item.line, "error", with_suggestion(text, meant), meant)


def _storage_findings(document: Document) -> Iterator[Finding]:
    """File systems that mkfs is not asked for, and disks for whose server the host has no name."""
    lines = {item.key: item.line for item in document.items if item.section == "storage"}
    for device in document.storage:
        try:
            if device.format:
                filesystems.mkfs_options(device.fs_type, device.fs_options)
        except UnusableError as reason:
            text = f'[storage] "{device.device}": {reason}'
            yield Finding(lines.get(device.device, 0), "error", text)
    if document.storage and find_value(document, "global", INITIATOR) is None:
        text = f'[storage] requires "{INITIATOR}" in [global]'
        yield Finding(next(iter(lines.values())), "error", text)


def _clash_findings(document: Document, text: str) -> Iterator[Finding]:
    """What of the document does not fit together, on the line of the item if it can be found."""
    lines, headers = text.split("\n"), _header_lines(text)
    clashes = check_network.find_clashes(document.links, document.routes, document.rules)
    for clash in islice(chain(_default_routes(document), clashes), MAX_SPELLINGS):
        place = _LINE.search(clash.where)
        line = headers.get(clash.link, int(place[1]) if place else 0)
        said = with_suggestion(clash.text, clash.meant)
        yield Finding(line_with(lines, line, clash.item), clash.severity, said, clash.meant)


def _default_routes(document: Document) -> Iterator[check_network.Clash]:
    for route in document.routes:
        if route.state == "present" and not route.to.prefixlen and route.traits.table == MAIN_TABLE:
            text = (
                f"the default route {route.to} stays with the management NIC,"
                " unless [network] of the configuration has allow-default-route = yes"
            )
            yield check_network.Clash(route.where, str(route.to), text, "warning")


def _incomplete_links(document: Document, text: str) -> Iterator[Finding]:
    """Virtual links of which this document says too little, unless it only adds to another one."""
    lines = _header_lines(text)
    faulty = {fault.section for fault in document.faults if fault.severity == "error"}
    described = frozenset(link.key for link in document.links if link.virtual or link.key.vlan_id)
    for request in document.links:
        section = _section_name(request.key)
        if section in faulty:
            continue  # what it lacks may be what is misspelled
        for reason, meant in _missing_parts(request, described):
            said = f"[{section}]: {reason}, unless the platform's document provides it"
            severity: Severity = "error" if meant else "warning"
            yield Finding(lines.get(request.key, 0), severity, with_suggestion(said, meant), meant)


def _missing_parts(
    request: LinkRequest, described: Collection[LinkKey]
) -> Iterator[tuple[str, str]]:
    """What the document lacks for a virtual link, and the link that is probably meant."""
    if request.virtual not in (None, Virtual()):
        reason = link_kinds.incomplete_reason(request.key, request.virtual)
        if reason:
            yield reason, ""
    vrf = [LinkKey(f"vrf {request.vrf}")] if request.vrf else []
    for lower in dict.fromkeys((request.key.nic, *lower_of(request), *vrf)):
        is_made = lower.virtual_kind or lower.vlan_id
        if lower != request.key and is_made and lower not in described:
            meant = closest_name(_section_name(lower), [*map(_section_name, described)])
            yield f"it requires the section [{_section_name(lower)}]", meant


def _section_name(link: LinkKey) -> str:
    return f"vlan {link}" if link.vlan_id else str(link)


def _header_lines(text: str) -> dict[Optional[LinkKey], int]:
    """The first line of the section of each link."""
    first_lines: dict[Optional[LinkKey], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name = _HEADER.match(line)
        section = " ".join(name[1].split()) if name else ""
        if link_kind(section):
            with suppress(UnusableError):
                first_lines.setdefault(links.section_key(section), number)
    return first_lines
