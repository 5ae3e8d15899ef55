"""Check a document offline: the faults of its reader, with lines and probable spellings.

What a pass only warns about, because another program may need it, is an error here if it looks like
a misspelt section, option or key.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Literal

from neuca_tools.dataclass import dataclass, replace
from neuca_tools.documents.envelope import MAX_UNZIPPED_BYTES, find_document, is_foreign
from neuca_tools.documents.neuca import link_kinds
from neuca_tools.documents.neuca.ini_document import GLOBALS, parse
from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.platform import combined, foreign_keys, netplan, openstack
from neuca_tools.documents.platform.tree import Tree, from_json, from_yaml, lines_of
from neuca_tools.documents.privacy import LINK_KINDS, SECTIONS, is_known_section
from neuca_tools.documents.spelling import closest, meant_by, spelt
from neuca_tools.errors import DocumentError
from neuca_tools.lazy import pattern
from neuca_tools.model import Document, Fault, Virtual

Kind = Literal["neuca", "network_data.json", "network-config", ""]
NEUCA: Kind = "neuca"
MAX_BYTES = MAX_UNZIPPED_BYTES + 1
MOST_SPELLINGS = 200  # unknown words that are compared with the known ones
_YAML = pattern(r"""(?:---|["']?[\w.-]+["']?\s*:(?:\s|$))""")
_LINE = pattern(r"\bline (\d+)")
_HEADER = pattern(r"\s*\[([^]]*)\]")


@dataclass(frozen=True)
class Finding:
    """One fault. `line` is 0 if it has no line; `meant` is the probable spelling, if any."""

    line: int
    severity: Literal["error", "warning"]
    text: str
    meant: str = ""


@dataclass(frozen=True)
class Checked:
    """The kind of a document, empty if it could not be told, and its faults by line."""

    kind: Kind
    findings: tuple[Finding, ...] = ()

    def is_valid(self, strict: bool = False) -> bool:
        """Whether there is no error; with `strict`, no warning either."""
        return not any(strict or one.severity == "error" for one in self.findings)


def check(data: bytes, kind: Kind = "") -> Checked:
    """Check the bytes of a document; without a kind, its first line tells which it is."""
    kind = kind or kind_of(data)
    try:
        findings = [*(_neuca(data) if kind == NEUCA else _platform(data, kind))]
    except DocumentError as error:
        # The last line in the text is where the error is, one before it where its context begins.
        line = int(([0, *_LINE.findall(error.text)])[-1])
        findings = [Finding(line, "error", error.text)]
    return Checked(kind, tuple(sorted(set(findings), key=lambda one: (one.line, one.text))))


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
    if isinstance(tree, dict) and tree.keys() & {"network", "version", "ethernets"}:
        return "network-config"
    return "network_data.json"


# --- NEuca's own format ---------------------------------------------------------------------------


def _neuca(data: bytes) -> Iterator[Finding]:
    text = find_document(data)
    if text is None:
        reason = "it is empty, or user-data for another program, and has no NEuca document"
        raise DocumentError(f"cannot read the document: {reason}")
    document = parse(text)
    for number, fault in enumerate(document.faults):
        yield _of_line(fault, number < MOST_SPELLINGS)
    yield from _globals(document)
    yield from _incomplete(document, text)


def _of_line(fault: Fault, compared: bool) -> Finding:
    """The finding for a fault, with the probable spelling of an unknown section or key."""
    fault = spelt(fault) if compared else fault
    meant, severity = meant_by(fault), fault.severity
    if compared and not fault.key and not is_known_section(fault.section):
        meant = _section_meant(fault.section)
        fault = (
            replace(fault, reason=f'{fault.reason}; did you mean "{meant}"?') if meant else fault
        )
    if meant:
        severity = "error"
    fault = replace(fault, severity=severity)
    text = fault.text.partition(": ")[2] if fault.line else fault.text
    return Finding(fault.line, severity, text, meant)


def _section_meant(name: str) -> str:
    """The section that a name probably means: `[vlan MAC.ID]` for `[vlna MAC.ID]`."""
    kind, _, rest = name.partition(" ")
    if not rest:
        return closest(name, SECTIONS)
    word = closest(kind, (*LINK_KINDS, "rule"))
    return f"{word} {clip(rest)}" if word else ""


def _globals(document: Document) -> Iterator[Finding]:
    """Keys of [global] that look like one of its options; others are for `neuca get`."""
    keys = [item for item in document.items if item.section == "global"]
    for item in keys[:MOST_SPELLINGS]:
        meant = closest(item.key, tuple(GLOBALS), 0.75)
        if meant:
            text = f'[global] "{clip(item.key)}": it has no effect; did you mean "{meant}"?'
            yield Finding(item.line, "error", text, meant)


def _incomplete(document: Document, text: str) -> Iterator[Finding]:
    """Virtual links of which this document says too little, unless it only adds to another one."""
    lines = dict(_headers(text))
    described = [one for one in document.links if one.virtual not in (None, Virtual())]
    for request in described:
        reason = link_kinds.fault(request.key, request.virtual)
        if reason:
            name = str(request.key)
            said = f"[{name}]: {reason}, unless the platform's document provides it"
            yield Finding(lines.get(name, 0), "warning", said)


def _headers(text: str) -> Iterator[tuple[str, int]]:
    """The name of each section with its line."""
    for number, line in enumerate(text.splitlines(), 1):
        found = _HEADER.match(line)
        if found:
            yield " ".join(found[1].split()), number


# --- the formats of platforms ---------------------------------------------------------------------


def _platform(data: bytes, kind: Kind) -> Iterator[Finding]:
    load = from_json if kind == openstack.NAME else from_yaml
    tree = load(data, kind)
    if not isinstance(tree, dict):
        raise DocumentError(f"cannot read {kind}: it is not an object")
    lines = lines_of(data)
    known, cutoff = _known(kind)
    misspelt = dict(_misspelt(tree, known, cutoff))
    for path, meant in misspelt.items():
        text = f'"{clip(path)}": unknown key; did you mean "{meant}"?'
        yield Finding(_line(lines, path), "error", text, meant)
    text = combined.reduced({kind: data})
    for fault in combined.parse(text).faults if text else ():
        if fault.key not in misspelt:
            yield Finding(_line(lines, fault.key), fault.severity, _without_name(fault, kind))


def _known(kind: Kind) -> tuple[frozenset[str], float]:
    """The known keys, and how alike an unknown one has to be: clouds add keys of their own."""
    if kind == openstack.NAME:
        return openstack.KEYS | foreign_keys.OPENSTACK, 0.8
    return netplan.KEYS | foreign_keys.NETPLAN | foreign_keys.NAMED, 0.7


def _misspelt(tree: Tree, known: frozenset[str], cutoff: float) -> Iterator[tuple[str, str]]:
    """The path of each key that looks like a known one, and that one."""
    unknown = ((path, key) for path, key in _keys(tree) if key not in known)
    for path, key in islice(unknown, MOST_SPELLINGS):
        meant = closest(key, known - {_parent(path)}, cutoff)
        if meant:
            yield path, meant


def _parent(path: str) -> str:
    """The key above the last one of a path, which is never what the last one means."""
    return path.rpartition(".")[0].rpartition(".")[2].partition("[")[0]


def _keys(tree: Tree) -> Iterator[tuple[str, str]]:
    """The path of each key and the key; without those that are names which the author chose."""
    waiting: list[tuple[Tree, str, bool]] = [(tree, "", False)]
    while waiting:
        item, path, named = waiting.pop()
        if isinstance(item, list):
            waiting += [(one, f"{path}[{number}]", False) for number, one in enumerate(item)]
        elif isinstance(item, dict):
            paths = {key: f"{path}.{key}".lstrip(".") for key in item}
            if not named:
                yield from ((paths[key], key) for key in item)
            for key, value in item.items():
                waiting.append((value, paths[key], not named and key in foreign_keys.NAMED))


def _line(lines: Mapping[str, int], path: str) -> int:
    """The line of a path, or of the nearest thing around it that has one; 0 if unknown."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path, 0)


def _without_name(fault: Fault, kind: Kind) -> str:
    """The text of a fault without the name of the document."""
    return fault.text[len(kind) :].strip() if fault.text.startswith(kind) else fault.text
