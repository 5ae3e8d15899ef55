"""`neuca SUBCOMMAND` and its old names: a command is a row of the table, its module is imported when it is called.

`neuca-version` = `neuca version`, `neuca-netconf` = `neuca apply`, and so on: the name that the program is called by decides.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from neuca_tools import __version__

if TYPE_CHECKING:
    import argparse


class Command(NamedTuple):
    """One subcommand: the function `run` of its module gets the parsed arguments and returns the exit code."""

    name: str
    module: str
    purpose: str
    options: str = ""
    positional: str = ""


COMMANDS = (
    Command(
        "status", "look", "how far the host is from what is asked, NIC by NIC", "json wait timeout"
    ),
    Command("plan", "look", "what a pass would do now, in order; changes nothing", "json source"),
    Command(
        "show",
        "look",
        "one stage to look at: document, desired or observed",
        "json source",
        "stage",
    ),
    Command(
        "explain",
        "look",
        "every setting of one NIC: value, where it came from, what it overrode",
        "json source",
        "link",
    ),
    Command("apply", "change", "one pass, which sets drift right too", "source"),
    Command(
        "release",
        "change",
        "hand one NIC back: what is ours on it goes, and it is ignored from then on",
        "undo",
        "link",
    ),
    Command(
        "revert",
        "change",
        "put back every sysctl, MTU, txqueuelen and device setting that was changed",
    ),
    Command(
        "clean",
        "clean",
        "before an image is captured: what its clones must not inherit goes",
        "keep-identity dry-run",
    ),
    Command(
        "tune",
        "tune",
        "tuning: audit shows it, plan what apply would do, revert puts back what was changed",
        "json source profile rate rtt interface",
        "action",
    ),
    Command(
        "read-drive",
        "drive",
        "copy what a config drive or NoCloud volume says, for the agent",
        "",
        "device",
    ),
    Command("get", "data", "one item of the user-data", "", "item"),
    Command("user-data", "data", "the user-data as it was read"),
    Command("interfaces", "data", "the interfaces that the user-data asks for"),
    Command(
        "routes",
        "data",
        "whether this host is a router, and the routes that the user-data asks for",
    ),
    Command("users", "data", "the users that the user-data asks for"),
    Command("storage", "data", "the storage that the user-data asks for"),
    Command("user-script", "data", "the boot script of the user-data"),
    Command("all-user-scripts", "data", "every script of the user-data"),
    Command(
        "run-scripts",
        "scripts",
        "run at once every script of the user-data that has not run on this instance yet",
    ),
    Command(
        "collect-logs",
        "collect",
        "one tar with what is needed to find out what happened here, and no secrets",
        "output",
    ),
    Command("get-public-ip", "data", "the public IPv4 address that the metadata service knows"),
    Command("distro", "data", "the distribution that this host runs"),
    Command("version", "", "the version"),
)
ALIASES = {"neuca-netconf": "apply"}
STAGES = ("document", "desired", "observed")
ACTIONS = ("audit", "plan", "apply", "revert")
_FLAG = "store_true"
_OPTIONS: dict[str, dict[str, Any]] = {  # what argparse's add_argument takes
    "json": {"action": _FLAG, "help": "JSON, for scripts"},
    "source": {
        "metavar": "SOURCE",
        "help": "read the document from here: auto, file:PATH, configdrive, nocloud, openstack, ec2",
    },
    "profile": {
        "metavar": "NAMES",
        "help": "these profiles, not those of the configuration: a comma list",
    },
    "rate": {"metavar": "RATE", "help": "of the path, for the profile bdp: 10Gbit"},
    "rtt": {"metavar": "TIME", "help": "round-trip time of the path, for the profile bdp: 50ms"},
    "interface": {"metavar": "MAC-or-name", "help": "the settings of this interface alone"},
    "wait": {"action": _FLAG, "help": "until nothing is left to do that is not done yet"},
    "timeout": {
        "metavar": "SECONDS",
        "type": float,
        "default": 300.0,
        "help": "for --wait (%(default)g)",
    },
    "keep-identity": {"action": _FLAG, "help": "only what neucad has written goes"},
    "dry-run": {"action": _FLAG, "help": "print the same, and change nothing"},
    "output": {
        "metavar": "FILE",
        "help": "write it here (neuca-logs-HOST-TIME.tar.gz in the working directory)",
    },
    "undo": {"action": _FLAG, "help": "take a released NIC back"},
}


def main(arguments: Optional[Sequence[str]] = None, program: Optional[str] = None) -> int:
    """Run one command and return its exit code: see `spec`, "Exit codes"."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    called = (program or sys.argv[0]).rsplit("/", 1)[-1]
    if called.startswith("neuca-"):
        words.insert(0, ALIASES.get(called, called[len("neuca-") :]))
    if words == ["version"] or words == ["--version"]:
        print(f"NEuca version {__version__}")
        return 0
    if words and words[0] == "selftest":  # it has subcommands and exit codes of its own
        from neuca_tools.commands.selftest import main as selftest

        return selftest(words[1:])
    return _run(words)


def _run(words: list[str]) -> int:
    from importlib import import_module

    parser = _parser()
    parsed = parser.parse_args(words)
    command = next((command for command in COMMANDS if command.name == parsed.command), None)
    if command is not None and not command.module:
        return main(["version"], "neuca")
    if command is None:
        parser.print_help()
        return 2
    from neuca_tools.commands.context import guarded

    return guarded(import_module(f".{command.module}", __package__).run, parsed)


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="neuca", description="Looks at, and sets, what neuca-guest-tools does on this host."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    rows = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        row = rows.add_parser(
            command.name, help=command.purpose, description=_sentence(command.purpose)
        )
        row.add_argument("--config", metavar="FILE", help="the configuration (/etc/neuca/config)")
        for option in command.options.split():
            row.add_argument(f"--{option}", **_OPTIONS[option])
        if command.positional == "stage":
            row.add_argument("stage", choices=STAGES)
        elif command.positional == "action":
            row.add_argument("action", choices=ACTIONS)
        elif command.positional == "link":
            row.add_argument("link", metavar="MAC-or-name")
        elif command.positional == "device":
            row.add_argument(
                "device", metavar="DEVICE", help="the volume, or a directory where it is mounted"
            )
        elif command.positional == "item":
            row.add_argument(
                "words", metavar="FIELD", nargs="+", help="FIELD of [global], or SECTION and FIELD"
            )
    return parser


def _sentence(purpose: str) -> str:
    return f"{purpose[0].upper()}{purpose[1:]}."
