"""The commands that print parts of the user-data, the public address or the distribution."""

# SPDX-License-Identifier: MIT

import argparse
import json
import sys
from pathlib import Path
from typing import Optional

from neuca_tools.agent.metadata_access import read_surroundings
from neuca_tools.commands.common import is_root
from neuca_tools.commands.context import load_configuration, read_document, source_specs
from neuca_tools.config import Config
from neuca_tools.documents import find_value
from neuca_tools.errors import EXIT_FAILED, EXIT_OK, ArgumentsError, NeucaError
from neuca_tools.files import text_of
from neuca_tools.model import Document
from neuca_tools.model.printable import plain_lines
from neuca_tools.sources import Session, SourceSpec, fetch_path
from neuca_tools.state.active_document import Intake, last_confirmed

NOT_FOUND = "Not found"
SECTIONS = ("interfaces", "routes", "users", "storage")  # that can be printed as JSON


def run(arguments: argparse.Namespace) -> int:
    if arguments.command == "distro":
        return _print_or_fail(_distribution_id())
    if arguments.command == "get" and len(arguments.words) > 2:
        raise ArgumentsError("get: expected a field, or a section and a field")
    config = load_configuration(arguments)
    if arguments.command == "get-public-ip":
        return _print_or_fail(_public_ip(config))
    return _print_from(stored_document(config), arguments)


def _print_from(intake: Intake, arguments: argparse.Namespace) -> int:
    if arguments.command == "user-data":
        return _print_lines([intake.stored.text.rstrip("\n")] if intake.stored else [])
    data = intake.document or Document()
    if arguments.command == "get":
        section, field = ["global", *arguments.words][-2:]
        return _print_or_fail(find_value(data, section, field))
    if arguments.command in SECTIONS and arguments.json:
        print(json.dumps(_section_json(arguments.command, data), indent=1))
        return EXIT_OK
    return _print_part(arguments.command, data)


def _section_json(name: str, data: Document) -> dict[str, object]:
    """The lines of a section; none if the document has no such section."""
    items = {item.key: item.value for item in data.items if item.section == name}
    section: dict[str, object] = {"version": 1, "section": name, "items": items}
    if name == "routes":
        section["router"] = data.router
    return section


def _print_part(name: str, data: Document) -> int:
    if name == "user-script":
        bodies = (script.body for script in data.scripts if script.name == "bootscript")
        return _print_or_fail(next(bodies, None), "No user script found.")
    if name == "all-user-scripts":
        return _print_lines([f"{script.name}:\n{script.body}" for script in data.scripts])
    if name == "routes":
        print(f"Router: {data.router}")
    section = [item for item in data.items if item.section == name]
    return _print_lines([f"{item.key} = {item.value}" for item in section])


def _print_lines(lines: list[str]) -> int:
    return _print_or_fail("\n".join(lines) or None)


def _print_or_fail(text: Optional[str], otherwise: str = NOT_FOUND) -> int:
    """Print the text; if it is None, print `otherwise` and return EXIT_FAILED.

    Programs get it as it is, a terminal no control characters but tabs and line ends.
    """
    if text is None:
        print(otherwise)
        return EXIT_FAILED
    if sys.stdout.isatty():
        text = "\t".join(map(plain_lines, text.split("\t")))
    print(text)
    return EXIT_OK


def stored_document(config: Config) -> Intake:
    """The last good document; if there is none, root reads the sources. Raises NeucaError."""
    intake = last_confirmed(config.state, config.run_directory)
    if intake.document is not None:
        return intake
    if not is_root():
        raise NeucaError(f"read the document: {intake.reason}; only root may query the sources")
    return read_document(config, None)


def _public_ip(config: Config) -> Optional[str]:
    if not is_root():
        raise NeucaError("read the public address: only root may query the network")
    asked = next((spec for spec in source_specs(config) if spec.kind == "ec2"), SourceSpec("ec2"))
    surroundings = read_surroundings(config, [asked])
    path = "/latest/meta-data/public-ipv4"  # OpenStack: empty without a floating address
    return fetch_path(asked, path, config.timeout, Session(), surroundings) or None


def _distribution_id() -> Optional[str]:
    """The ID in os-release(5), None if there is none."""
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        for line in text_of(Path(place)).splitlines():
            if line.startswith("ID="):
                return line[len("ID=") :].strip("\"'")
    return None
