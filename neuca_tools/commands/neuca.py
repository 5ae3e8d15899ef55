"""The `neuca` command: its table of subcommands and options, and the dispatch to their modules.

A subcommand's module is imported only when it runs. The former names still work: `neuca-SUBCOMMAND`
is that subcommand, and `neuca-netconf` is `apply`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from neuca_tools.commands import collect_rarely, with_output
from neuca_tools.commands.arguments import (
    CONFIG,
    JSON,
    VERSION,
    VERSION_TEXT,
    Keywords,
    add_options,
    add_output_options,
    flag,
    seconds_up_to,
    value,
)

# Imports inside functions: a command loads its own modules only, which saves up to 280 ms; those
# that take no arguments save argparse, 5 ms.

if TYPE_CHECKING:
    from neuca_tools.commands.parsers import Parser


class Command(NamedTuple):
    """One subcommand.

    The function `run` of `module` takes the parsed arguments and returns the exit code. `options`
    names keys of `_OPTIONS` and `positional` keys of `_POSITIONALS`, both separated by spaces.
    """

    name: str
    module: str
    purpose: str
    options: str = ""
    positional: str = ""


_ROWS = (
    (
        *("status", "look", "show whether each NIC is configured as requested"),
        "json prometheus wait timeout",
    ),
    ("plan", "look", "show what a pass would do now, in order", "json source"),
    (
        *("show", "look", "show the document, the desired or the observed state"),
        *("json source", "stage"),
    ),
    ("explain", "look", "show each setting of an interface and its origin", "json source", "link"),
    ("export", "export", "print a document that requests what the dataplane NICs have now"),
    (
        *("check", "check", "validate documents offline, without looking at this host"),
        *("json strict format", "file"),
    ),
    ("apply", "apply", "make one pass now and correct any drift", "json dry-run source try"),
    ("confirm", "trial", "keep what apply --try has applied"),
    (
        *("release", "change", "remove neucad's configuration from a NIC and ignore the NIC"),
        *("json undo dry-run", "link"),
    ),
    ("trust", "change", "vouch for the NIC through which metadata is requested", "", "link"),
    (
        *("revert", "change"),
        "restore every sysctl, MTU, txqueuelen and device setting that was changed",
        "json dry-run",
    ),
    (
        *("image", "clean", "write a clean copy of this guest to a tar file"),
        *("dry-run", "verb destination"),
    ),
    (
        *("clean", "clean", "remove what clones of an image must not inherit"),
        "json keep-identity dry-run",
    ),
    (
        *("tune", "tune", "show, apply or revert the tuning of this host"),
        *("json dry-run source profile rate rtt interface", "action"),
    ),
    ("read-drive", "drive", "copy the documents of a config drive or NoCloud volume", "", "device"),
    ("get", "data", "print one item of the user-data", "", "words"),
    ("user-data", "data", "print the NEuca document of the user-data as text"),
    ("interfaces", "data", "print the interfaces requested in the user-data", "json"),
    ("routes", "data", "print the requested routes, and whether this host is a router", "json"),
    ("users", "data", "print the users requested in the user-data", "json"),
    ("storage", "data", "print the storage requested in the user-data", "json"),
    ("user-script", "data", "print the boot script of the user-data"),
    ("all-user-scripts", "data", "print every script of the user-data"),
    (
        *("run-scripts", "scripts"),
        "run the scripts of the user-data that have not run on this instance",
        "json dry-run",
    ),
    (
        *("collect-logs", "collect"),
        "collect logs and diagnostics, without secrets, in a tar file",
        "output",
    ),
    ("get-public-ip", "data", "print the public IPv4 address from the metadata service"),
    ("distro", "data", "print the ID of the distribution"),
    ("analyze", "analyze", "show where the time of this boot went", "json"),
    ("version", "", "print the version"),
    ("help", "", "describe a command", "", "subject"),
)
COMMANDS = tuple(Command(*row) for row in _ROWS)
_BY_NAME = {command.name: command for command in COMMANDS}
SELFTEST = "measure a path between two hosts, see neuca-selftest(1)"
_GROUPS = {
    "look": "status plan show explain export check analyze collect-logs",
    "change": "apply confirm release trust revert tune",
    "measure": "selftest",
    "images": "clean image",
    "parts of the user-data": "user-data get interfaces routes users storage user-script"
    " all-user-scripts run-scripts",
    "other": "read-drive get-public-ip distro version help",
}
ALIASES = {"neuca-netconf": "apply"}
LONGEST_TRIAL = 3600  # seconds
LONGEST_WAIT = 86400  # seconds


def _choice_of(text: str, *words: str) -> Keywords:
    return {"choices": words, "metavar": f"{{{','.join(words)}}}", "help": text}


_SOURCES = "auto, file:PATH, configdrive, nocloud, openstack, ec2 or others, see neuca(1)"
_TUNE = (
    "audit: show the current tuning; plan: show what apply would change; apply: apply the"
    " tuning; revert: undo what apply has selected"
)
_OPTIONS: dict[str, Keywords] = {
    **JSON,
    "source": value("SOURCE", f"read the document from SOURCE: {_SOURCES}"),
    "profile": value("NAMES", "use these profiles (comma-separated), not the configured ones"),
    "rate": value("RATE", "rate of the path, for the profile bdp (e.g. 10Gbit)"),
    "rtt": value("TIME", "round-trip time of the path, for the profile bdp (e.g. 50ms)"),
    "interface": value("MAC-or-name", "limit to the settings of this interface"),
    "wait": flag("wait while the state is pending"),
    "timeout": value(
        "SECONDS",
        "with --wait: wait no longer than this (default: 300)",
        type=seconds_up_to(LONGEST_WAIT, low=0),
    ),
    "prometheus": value(
        "FILE", "print metrics for the node exporter, or write them to FILE", nargs="?", const="-"
    ),
    "keep-identity": flag("remove only what neucad wrote"),
    "dry-run": flag("print what would be done, but change nothing"),
    "output": value("FILE", "name of the tar file (default: ./neuca-logs-HOST-TIME.tar.gz)"),
    "try": value(
        "SECONDS",
        "roll back after SECONDS unless confirmed",
        type=seconds_up_to(LONGEST_TRIAL),
        dest="trial",
    ),
    "strict": flag("count warnings as errors"),
    "format": {
        "choices": ("neuca", "network_data.json", "network-config", "configuration"),
        "metavar": "FORMAT",
        "help": "neuca, network_data.json, network-config or configuration (default: detected)",
    },
    "undo": flag("manage a released NIC again"),
}
_POSITIONALS: dict[str, Keywords] = {
    "stage": _choice_of("what to show", "document", "desired", "observed"),
    "action": _choice_of(_TUNE, "audit", "plan", "apply", "revert"),
    "link": value("MAC-or-name", "the interface"),
    "verb": _choice_of("copy the root file system, without what clean removes", "capture"),
    "destination": value("DEST", "the file to write: .tar, .tar.gz or .tar.xz"),
    "file": value("FILE", "a document or a configuration file, or - for standard input", nargs="+"),
    "subject": value("COMMAND", "the command", nargs="?"),
    "device": value("DEVICE", "the volume, or the directory where it is mounted"),
    "words": value("FIELD", "a field of [global], or a section followed by a field", nargs="+"),
}


def main(arguments: Optional[Sequence[str]] = None, program: Optional[str] = None) -> int:
    """Run a subcommand, called as `program`; return its exit code (the EXIT_* of `errors`)."""
    called = (program or sys.argv[0]).rpartition("/")[2]
    if arguments is None:
        collect_rarely()
        return with_output(lambda: main(sys.argv[1:], called), called)
    words = list(arguments)
    if called.startswith("neuca-"):
        words.insert(0, ALIASES.get(called, called[len("neuca-") :]))
    if words == ["version"] or words[:1] == ["--version"]:
        print(VERSION_TEXT)
        return 0
    if words and words[0] == "selftest":
        # It has its own subcommands and exit codes.
        from neuca_tools.commands.selftest import main as selftest

        return selftest(words[1:])
    return _run_command(words)


def _run_command(words: list[str]) -> int:
    command = _BY_NAME.get("".join(words[:1]))
    if command is None:
        return _no_command(words)
    # The parsers of all commands would take longer to build than most commands take.
    parser = _command_parser(command)
    parsed = parser.parse_args(words[1:])
    parsed.command = command.name
    if command.name == "version":
        return main(["version"], "neuca")
    if command.name == "help":
        return _print_help(parsed.subject, parser)
    from importlib import import_module

    from neuca_tools.commands.common import run_guarded

    return run_guarded(import_module(f".{command.module}", __package__).run, parsed)


def _no_command(words: list[str]) -> int:
    """Print the help, or exit with what is wrong: the first word, or an option before it."""
    parser = _overview_parser()
    command = next((word for word in words[1:] if word in _BY_NAME), None)
    if command and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        parser.error(f'options follow the command, as in "neuca {command} {words[0]}"')
    named = next((word for word in words if word[:1] != "-"), None)
    _check_name(named, parser)
    parser.parse_args(words)
    parser.print_help()
    return 2


def _print_help(subject: Optional[str], parser: Parser) -> int:
    if subject == "selftest":
        return main(["selftest", "--help"], "neuca")
    _check_name(subject, parser)
    described = _command_parser(_BY_NAME[subject]) if subject else _overview_parser()
    described.print_help()
    return 0


def _check_name(name: Optional[str], parser: Parser) -> None:
    """Exit with a suggestion if there is no command of this name; None is no name."""
    if name is None or name in _BY_NAME:
        return
    from neuca_tools.commands.parsers import no_command

    parser.error(no_command(name, (*_BY_NAME, "selftest")))


def _overview_parser() -> Parser:
    """The parser of the whole command line: it lists the commands, without their options."""
    from neuca_tools.commands.parsers import Parser

    parser = Parser(
        prog="neuca",
        usage="neuca COMMAND [OPTION ...] [ARGUMENT ...]",
        description="Show and change the network configuration that neucad manages on this host.",
        epilog="Example: neuca plan --source file:user-data.ini. neuca help COMMAND describes a"
        " command; see neuca(1) for all of them, and neuca-user-data(5) for the document.",
    )
    add_options(parser, VERSION)
    for title, names in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name in names.split():
            purpose = SELFTEST if name == "selftest" else _BY_NAME[name].purpose
            group.add_argument(name, nargs="?", help=purpose)
    return parser


def _command_parser(command: Command) -> Parser:
    """The parser of what follows the name of a command."""
    from neuca_tools.commands.parsers import Parser

    sentence = f"{command.purpose[0].upper()}{command.purpose[1:]}."
    parser = Parser(prog=f"neuca {command.name}", description=sentence)
    parser.set_defaults(usage=parser.format_usage)
    add_options(parser, CONFIG)
    add_output_options(parser)
    add_options(parser, {name: _OPTIONS[name] for name in command.options.split()})
    for name in command.positional.split():
        parser.add_argument(name, **_POSITIONALS[name])
    return parser
