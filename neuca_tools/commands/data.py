"""The commands that print parts of the user-data, the public address or the distribution."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable, Optional

from neuca_tools.agent.metadata_access import surroundings
from neuca_tools.commands.context import configuration, document, is_root, specs
from neuca_tools.config import Config
from neuca_tools.documents import get
from neuca_tools.errors import EXIT_FAILED, EXIT_OK, NeucaError, UsageError
from neuca_tools.files import read_bytes
from neuca_tools.model.rows import Script
from neuca_tools.sources import Session, SourceSpec, fetch_path
from neuca_tools.state.active_document import Intake, confirmed

if TYPE_CHECKING:
    import argparse

NOT_FOUND = "Not found"


def run(arguments: argparse.Namespace) -> int:
    if arguments.command == "distro":
        return _print_or_fail(_distribution())
    config = configuration(arguments)
    if arguments.command == "get-public-ip":
        return _print_or_fail(_public_ip(config))
    intake = stored_document(config)
    if arguments.command == "get":
        return _print_or_fail(_item(arguments.words, intake))
    return _GETTERS[arguments.command](intake)


def _print_or_fail(text: Optional[str], otherwise: str = NOT_FOUND) -> int:
    """Print the text and return EXIT_OK; if it is None, print `otherwise` and return EXIT_FAILED."""
    if text is None:
        print(otherwise)
        return EXIT_FAILED
    print(text)
    return EXIT_OK


def stored_document(config: Config) -> Intake:
    """The last good document; if there is none, root reads the sources."""
    intake = confirmed(config.state, config.run_directory)
    if intake.document is None and is_root():
        return document(config, None)
    return intake


def _item(words: list[str], intake: Intake) -> Optional[str]:
    if len(words) > 2:
        raise UsageError("usage: neuca get [SECTION] FIELD")
    if intake.document is None:
        return None
    section, field = words if len(words) == 2 else ("global", words[0])
    return get(intake.document, section, field)


def _section(name: str) -> Callable[[Intake], int]:
    """A command that prints all items of one section."""

    def show(intake: Intake) -> int:
        items = intake.document.items if intake.document else ()
        lines = [f"{item.key} = {item.value}" for item in items if item.section == name]
        return _print_or_fail("\n".join(lines) or None)

    return show


def _routes(intake: Intake) -> int:
    print(f"Router: {intake.document.router if intake.document else 'user'}")
    return _section("routes")(intake)


def _user_data(intake: Intake) -> int:
    text = intake.stored.text.rstrip("\n") if intake.stored else ""
    return _print_or_fail(text or None)


def _boot_script(intake: Intake) -> int:
    for script in _scripts(intake):
        if script.name == "bootscript":
            return _print_or_fail(script.body)
    return _print_or_fail(None, "No user script found.")


def _all_scripts(intake: Intake) -> int:
    texts = [f"{script.name}:\n{script.body}" for script in _scripts(intake)]
    return _print_or_fail("\n".join(texts) or None)


def _scripts(intake: Intake) -> Sequence[Script]:
    return intake.document.scripts if intake.document else ()


def _public_ip(config: Config) -> Optional[str]:
    if not is_root():
        raise NeucaError(
            "ask the metadata service for the public address: only root asks the network"
        )
    asked = next((spec for spec in specs(config) if spec.kind == "ec2"), SourceSpec("ec2"))
    around = surroundings(config, [asked])
    return fetch_path(asked, "/latest/meta-data/public-ipv4", config.timeout, Session(), around)


def _distribution() -> Optional[str]:
    """The ID in os-release(5), None if there is no such file or no ID."""
    from pathlib import Path

    for place in ("/etc/os-release", "/usr/lib/os-release"):
        for line in (read_bytes(Path(place)) or b"").decode(errors="replace").splitlines():
            if line.startswith("ID="):
                return line[len("ID=") :].strip("\"'")
    return None


_GETTERS: dict[str, Callable[[Intake], int]] = {
    "user-data": _user_data,
    "interfaces": _section("interfaces"),
    "routes": _routes,
    "users": _section("users"),
    "storage": _section("storage"),
    "user-script": _boot_script,
    "all-user-scripts": _all_scripts,
}
