"""`neuca check`: validates documents offline, as any user, without reading the host."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuca_tools.commands.common import uses_color
from neuca_tools.documents.check import MAX_BYTES, Checked, check
from neuca_tools.errors import EXIT_INVALID, EXIT_OK, NeucaError
from neuca_tools.model.printable import GREEN, RED, YELLOW, painted, plain

STANDARD_INPUT = "-"
INKS = {"error": RED, "warning": YELLOW}
TITLES = {
    "neuca": "NEuca's format",
    "network_data.json": "OpenStack's network_data.json",
    "network-config": "NoCloud's network-config, or netplan's format",
}


def run(arguments: argparse.Namespace) -> int:
    """Check every file; EXIT_INVALID if one has an error or, with --strict, a warning."""
    found = [(name, check(_content(name), arguments.format or "")) for name in arguments.file]
    if arguments.json:
        print(json.dumps(_json(found, arguments.strict), indent=1))
    else:
        for name, checked in found:
            _print(name, checked, uses_color(arguments))
    valid = all(checked.is_valid(arguments.strict) for _, checked in found)
    return EXIT_OK if valid else EXIT_INVALID


def _content(name: str) -> bytes:
    """The beginning of a file: enough for the reader to refuse one that is too long."""
    if name == STANDARD_INPUT:
        return sys.stdin.buffer.read(MAX_BYTES)
    try:
        with Path(name).open("rb") as stream:
            return stream.read(MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NeucaError(f'read "{name}": {reason}') from error


def _print(name: str, checked: Checked, color: bool) -> None:
    """One line for each fault, as compilers print them, and a line about the whole file."""
    for one in checked.findings:
        place = f"{name}:{one.line}" if one.line else name
        severity = painted(one.severity, INKS[one.severity], color)
        print(f"{plain(place)}: {severity}: {plain(one.text)}")
    errors = sum(one.severity == "error" for one in checked.findings)
    warnings = len(checked.findings) - errors
    result = painted("no faults", GREEN, color)
    if checked.findings:
        result = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
    print(f"{plain(name)}: {result}; read as {TITLES[checked.kind]}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _json(found: Sequence[tuple[str, Checked]], strict: bool) -> dict[str, Any]:
    files = [
        {
            "file": name,
            "format": checked.kind,
            "valid": checked.is_valid(strict),
            "faults": [
                {
                    "line": one.line or None,
                    "severity": one.severity,
                    "text": one.text,
                    "meant": one.meant or None,
                }
                for one in checked.findings
            ],
        }
        for name, checked in found
    ]
    return {"version": 1, "files": files}
