"""`neuca check`: validates documents offline, as any user, without reading the host."""

# SPDX-License-Identifier: MIT

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neuca_tools.commands.common import open_input, uses_color
from neuca_tools.config.files import Entry, parse_entries
from neuca_tools.config.load import parse_config
from neuca_tools.config.options import RAW_SECTIONS, SECTIONS
from neuca_tools.documents.check import MAX_BYTES, CheckResult, Kind, check, in_order
from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.privacy import LINK_KINDS
from neuca_tools.documents.privacy import SECTIONS as DOCUMENT_SECTIONS
from neuca_tools.documents.spelling import Finding, closest_word, with_suggestion
from neuca_tools.errors import EXIT_INVALID, EXIT_OK, ConfigError, NeucaError
from neuca_tools.model.printable import GREEN, RED, YELLOW, counted, painted_text, printable_line
from neuca_tools.model.rows import Severity

_HEADER = re.compile(rb"^(?:\xef\xbb\xbf)?\[([\w -]+)\]", re.MULTILINE)
COLOR_BY_SEVERITY = {"error": RED, "warning": YELLOW}
TITLES = {
    "neuca": "NEuca's format",
    "network_data.json": "OpenStack's network_data.json",
    "configuration": "the agent's configuration",
    "network-config": "NoCloud's network-config, or netplan's format",
}


def run(arguments: argparse.Namespace) -> int:
    """Check every file; EXIT_INVALID if one has an error or, with --strict, a warning."""
    checked_files = [
        (name, check_content(_read_start(name), arguments.format or "")) for name in arguments.file
    ]
    if arguments.json:
        print(json.dumps(_faults_json(checked_files, arguments.strict), indent=1))
    else:
        for name, document in checked_files:
            _print_faults(name, document, uses_color(arguments), only_errors=arguments.quiet)
    valid = all(document.is_valid(arguments.strict) for _, document in checked_files)
    return EXIT_OK if valid else EXIT_INVALID


def check_content(data: bytes, kind: Kind = "") -> CheckResult:
    """Check the bytes of a document or of a configuration file; its content tells which it is."""
    if kind != "configuration" and (kind or not _is_configuration(data)):
        return check(data, kind)
    try:
        return in_order("configuration", _configuration_findings(data))
    except ConfigError as error:
        return in_order("configuration", [Finding(0, "error", error.text)])


def _is_configuration(data: bytes) -> bool:
    """Whether most sections that only one of both can have are those of a configuration."""
    headers = {match.decode().split(None, 1)[0] for match in _HEADER.findall(data) if match.strip()}
    own = headers & {*SECTIONS}
    return bool(own) and len(own) > len(headers & ({*DOCUMENT_SECTIONS, "rule"} - {*LINK_KINDS}))


def _configuration_findings(data: bytes) -> Iterator[Finding]:
    """The faults of a file. Raises ConfigError if it cannot be read at all."""
    for fault in parse_config(data).faults:
        if fault.severity == "note":
            continue
        severity: Severity = "error" if fault.meant else fault.severity
        text = fault.text.partition(": ")[2]
        yield Finding(fault.line, severity, text, fault.meant)
    entries, _ = parse_entries(data)
    of_selftest = [entry for entry in entries if entry.option and entry.section in RAW_SECTIONS]
    if of_selftest:
        yield from _selftest_findings(of_selftest)


def _selftest_findings(entries: Iterable[Entry]) -> Iterator[Finding]:
    """The faults of section [selftest], which `neuca-selftest` reports when it reads it."""
    # Only for a file with this section: it imports most of the self-test.
    from neuca_tools.commands.selftest_options import SETTINGS

    for entry in entries:
        place, name = f"[{entry.section}] ", entry.option.lower()
        if name not in SETTINGS:
            meant = closest_word(name, SETTINGS)
            text = with_suggestion(f'{place}"{clip(name)}": unknown option, ignoring it', meant)
            severity: Severity = "error" if meant else "warning"
            yield Finding(entry.lines[-1], severity, text, meant)
        elif entry.value:
            try:
                SETTINGS[name](entry.value)
            except argparse.ArgumentTypeError as reason:
                yield Finding(entry.lines[-1], "error", f"{place}{name}: {reason}")


def _read_start(name: str) -> bytes:
    """The beginning of a file: enough for the reader to refuse one that is too long."""
    try:
        with open_input(name) as stream:
            return stream.read(MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NeucaError(f'read "{name}": {reason}') from error


def _print_faults(name: str, document: CheckResult, color: bool, *, only_errors: bool) -> None:
    """One line for each fault, as compilers print them, and a line about the whole file."""
    for finding in document.findings:
        place = f"{name}:{finding.line}" if finding.line else name
        severity = painted_text(finding.severity, COLOR_BY_SEVERITY[finding.severity], color)
        # With --quiet, nothing of standard output is printed.
        to_stderr = only_errors and finding.severity == "error"
        text = f"{printable_line(place)}: {severity}: {printable_line(finding.text)}"
        print(text, file=sys.stderr if to_stderr else sys.stdout)
    errors = sum(finding.severity == "error" for finding in document.findings)
    warnings = len(document.findings) - errors
    summary = painted_text("no faults", GREEN, color)
    if document.findings:
        summary = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    print(f"{printable_line(name)}: {summary}; read as {TITLES[document.kind]}")


def _faults_json(checked_files: Sequence[tuple[str, CheckResult]], strict: bool) -> dict[str, Any]:
    files = [
        {
            "file": name,
            "format": document.kind,
            "valid": document.is_valid(strict),
            "faults": [
                {**each._asdict(), "line": each.line or None, "meant": each.meant or None}
                for each in document.findings
            ],
        }
        for name, document in checked_files
    ]
    return {"version": 1, "files": files}
