"""`neuca-selftest`: dispatch to its subcommands, each imported only when it runs."""

# SPDX-License-Identifier: MIT

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

from neuca_tools.commands import selftest_parsers as parsers
from neuca_tools.commands.common import run_guarded
from neuca_tools.errors import NeucaError
from neuca_tools.model.printable import printable_line

# Imports inside functions: each command loads only what it needs of 150 to 280 ms.

NAGIOS_UNKNOWN = 3
# The module with `run` of each subcommand, and the one with its parser.
COMMANDS = {
    "run": ("selftest_run", "selftest_options"),
    "serve": ("selftest_serve", "selftest_options"),
    "explain": ("selftest_explain", "selftest_parsers"),
    "compare": ("selftest_compare", "selftest_parsers"),
    "history": ("selftest_history", "selftest_parsers"),
    "compare-paths": ("selftest_paths", "selftest_paths"),
    "mesh": ("selftest_mesh", "selftest_mesh"),
}


def main(words: Sequence[str]) -> int:
    """Run a subcommand and return its `ExitCode`."""
    try:
        module, arguments = _parse_command(words)
    except SystemExit as end:
        # For Nagios, the code of a wrong usage would be CRITICAL.
        raise SystemExit(NAGIOS_UNKNOWN if end.code and "--nagios" in words else end.code) from None
    arguments.program = parsers.PROGRAM  # the prefix of its messages
    run = import_module(f".{module}", __package__).run
    if getattr(arguments, "nagios", False):
        service = "MESH" if module == "selftest_mesh" else "DATAPLANE"
        run = partial(_run_for_nagios, run, service)
    return run_guarded(run, arguments)


def _parse_command(words: Sequence[str]) -> tuple[str, argparse.Namespace]:
    """The module of a subcommand, and its arguments.

    Without a subcommand, the words are those of `run` or, with --serve, of `serve`. Then a first
    word that is like a subcommand, and that cannot be resolved as the name of a host, is an error.
    """
    command = "".join(words[:1])
    if command in COMMANDS:
        module, place = COMMANDS[command]
        parser_module = import_module(f".{place}", __package__)
        make = getattr(parser_module, f"{command.replace('-', '_')}_parser")
        return module, make().parse_args(words[1:])
    meant = _misspelled_command(command)
    if meant:
        parsers.overview_parser().error(
            f'there is no command "{command}", and no host of that name can be resolved;'
            f' did you mean "{meant}"?'
        )
    from neuca_tools.commands.selftest_options import former_parser

    arguments = former_parser().parse_args(words)
    return "selftest_serve" if arguments.serve else "selftest_run", arguments


def _run_for_nagios(
    run: Callable[[argparse.Namespace], int], service: str, arguments: argparse.Namespace
) -> int:
    """Run a command that returns a state of Nagios; whatever else may happen is UNKNOWN."""
    try:
        return min(run(arguments), NAGIOS_UNKNOWN)
    except NeucaError as error:
        print(f"{service} UNKNOWN - {printable_line(error.text).replace('|', '/')}")
        return NAGIOS_UNKNOWN


def _misspelled_command(word: str) -> str:
    """The subcommand that a word is a misspelling of; empty for the name of a host."""
    from neuca_tools.commands.selftest_options import address_of
    from neuca_tools.documents.spelling import closest_word
    from neuca_tools.errors import UsageError

    meant = closest_word(word, COMMANDS)
    if not meant or word.startswith("-") or {*word} & {*".:@"}:
        return ""
    try:
        address_of(word)
    except UsageError:
        return meant
    return ""
