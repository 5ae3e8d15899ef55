"""The `neuca` command: its table of subcommands and options, and the dispatch to their modules.

A subcommand's module is imported only when that subcommand runs. The former program names still
work: `neuca-SUBCOMMAND` runs that subcommand, and `neuca-netconf` runs `apply`.
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
    """One subcommand.

    The function `run` of `module` takes the parsed arguments and returns the exit code. `options`
    names keys of `_OPTIONS`, separated by spaces; `positional` names a key of `_POSITIONALS`.
    """

    name: str
    module: str
    purpose: str
    options: str = ""
    positional: str = ""


COMMANDS = (
    Command(
        "status", "look", "show whether each NIC is configured as requested", "json wait timeout"
    ),
    Command("plan", "look", "show what a pass would do now, in order", "json source"),
    Command(
        "show",
        "look",
        "show the document, the desired state or the observed state",
        "json source",
        "stage",
    ),
    Command(
        "explain",
        "look",
        "show every setting of an interface, its origin and what it overrides",
        "json source",
        "link",
    ),
    Command("apply", "change", "make one pass now and correct any drift", "source"),
    Command(
        "release",
        "change",
        "remove our configuration from a NIC and ignore it from now on",
        "undo",
        "link",
    ),
    Command(
        "revert",
        "change",
        "restore every sysctl, MTU, txqueuelen and device setting that was changed",
    ),
    Command(
        "clean",
        "clean",
        "remove everything that clones of an image must not inherit",
        "keep-identity dry-run",
    ),
    Command(
        "tune",
        "tune",
        "show, apply or revert the tuning of this host",
        "json source profile rate rtt interface",
        "action",
    ),
    Command(
        "read-drive",
        "drive",
        "copy the documents of a config drive or NoCloud volume for the agent",
        "",
        "device",
    ),
    Command("get", "data", "print one item of the user-data", "", "item"),
    Command("user-data", "data", "print the user-data as received"),
    Command("interfaces", "data", "print the interfaces requested in the user-data"),
    Command(
        "routes",
        "data",
        "print the routes requested in the user-data, and whether this host is a router",
    ),
    Command("users", "data", "print the users requested in the user-data"),
    Command("storage", "data", "print the storage requested in the user-data"),
    Command("user-script", "data", "print the boot script of the user-data"),
    Command("all-user-scripts", "data", "print every script of the user-data"),
    Command(
        "run-scripts",
        "scripts",
        "run every script of the user-data that has not run on this instance yet",
    ),
    Command(
        "collect-logs",
        "collect",
        "collect logs and diagnostics, without secrets, in a tar file",
        "output",
    ),
    Command("get-public-ip", "data", "print the public IPv4 address from the metadata service"),
    Command("distro", "data", "print the ID of the distribution"),
    Command("version", "", "print the version"),
)
ALIASES = {"neuca-netconf": "apply"}
_FLAG = "store_true"
# Keyword arguments of argparse's add_argument, by the name of the option.
_OPTIONS: dict[str, dict[str, Any]] = {
    "json": {"action": _FLAG, "help": "print JSON"},
    "source": {
        "metavar": "SOURCE",
        "help": "read the document from SOURCE: auto, file:PATH, configdrive, nocloud, openstack"
        " or ec2",
    },
    "profile": {
        "metavar": "NAMES",
        "help": "use these profiles instead of the configured ones (comma-separated)",
    },
    "rate": {"metavar": "RATE", "help": "rate of the path, for the profile bdp (e.g. 10Gbit)"},
    "rtt": {
        "metavar": "TIME",
        "help": "round-trip time of the path, for the profile bdp (e.g. 50ms)",
    },
    "interface": {"metavar": "MAC-or-name", "help": "limit to the settings of this interface"},
    "wait": {"action": _FLAG, "help": "wait while the state is pending"},
    "timeout": {
        "metavar": "SECONDS",
        "type": float,
        "default": 300.0,
        "help": "how long --wait waits at most (default: %(default)g)",
    },
    "keep-identity": {"action": _FLAG, "help": "remove only what neucad wrote"},
    "dry-run": {"action": _FLAG, "help": "print what would be removed, but change nothing"},
    "output": {
        "metavar": "FILE",
        "help": "name of the tar file (default: neuca-logs-HOST-TIME.tar.gz in the working"
        " directory)",
    },
    "undo": {"action": _FLAG, "help": "manage a released NIC again"},
}
# The name of a positional argument and its keyword arguments, by the key used in COMMANDS.
_POSITIONALS: dict[str, tuple[str, dict[str, Any]]] = {
    "stage": ("stage", {"choices": ("document", "desired", "observed"), "help": "what to show"}),
    "action": (
        "action",
        {
            "choices": ("audit", "plan", "apply", "revert"),
            "help": "audit: show the current tuning; plan: show what apply would do;"
            " apply: apply it; revert: restore the values from before",
        },
    ),
    "link": ("link", {"metavar": "MAC-or-name", "help": "the interface"}),
    "device": (
        "device",
        {"metavar": "DEVICE", "help": "the volume, or the directory where it is mounted"},
    ),
    "item": (
        "words",
        {
            "metavar": "FIELD",
            "nargs": "+",
            "help": "a field of [global], or a section followed by a field",
        },
    ),
}


def main(arguments: Optional[Sequence[str]] = None, program: Optional[str] = None) -> int:
    """Run one subcommand and return its exit code (the EXIT_* constants of `errors`).

    `program` is the name under which the program was called.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    called = (program or sys.argv[0]).rsplit("/", 1)[-1]
    if called.startswith("neuca-"):
        words.insert(0, ALIASES.get(called, called[len("neuca-") :]))
    if words in (["version"], ["--version"]):
        print(f"NEuca version {__version__}")
        return 0
    if words and words[0] == "selftest":
        # It has subcommands and exit codes of its own.
        from neuca_tools.commands.selftest import main as selftest

        return selftest(words[1:])
    return _run(words)


def _run(words: list[str]) -> int:
    from importlib import import_module

    parser = _parser()
    parsed = parser.parse_args(words)
    command = next((command for command in COMMANDS if command.name == parsed.command), None)
    if command is None:
        parser.print_help()
        return 2
    if not command.module:
        return main(["version"], "neuca")
    from neuca_tools.commands.context import guarded

    return guarded(import_module(f".{command.module}", __package__).run, parsed)


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="neuca",
        description="Show and change the network configuration that neucad manages on this host.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    rows = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        row = rows.add_parser(
            command.name, help=command.purpose, description=_sentence(command.purpose)
        )
        row.add_argument(
            "--config",
            metavar="FILE",
            help="read the configuration from FILE (default: /etc/neuca/config)",
        )
        for option in command.options.split():
            row.add_argument(f"--{option}", **_OPTIONS[option])
        if command.positional:
            name, keywords = _POSITIONALS[command.positional]
            row.add_argument(name, **keywords)
    return parser


def _sentence(purpose: str) -> str:
    return f"{purpose[0].upper()}{purpose[1:]}."
