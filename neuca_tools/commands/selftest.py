"""`neuca-selftest`: dispatch to its subcommands, each imported only when it runs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Callable

from neuca_tools.commands import selftest_parsers as parsers
from neuca_tools.commands.common import guarded

# Imports inside functions: each command loads only what it needs of 150 to 280 ms.


def main(words: Sequence[str]) -> int:
    """Run a subcommand and return its `ExitCode`.

    Without one, the words are those of `run` or, with --serve, of `serve`. Then a first word that
    is like a subcommand, and that cannot be resolved as the name of a host, is an error.
    """
    command = "".join(words[:1])
    if command in COMMANDS:
        return COMMANDS[command](words[1:])
    meant = _misspelt(command)
    if meant:
        parsers.misspelt_parser().error(
            f'there is no command "{command}", and no host of that name can be resolved;'
            f' did you mean "{meant}"?'
        )
    from neuca_tools.commands.selftest_test_parsers import former_parser

    arguments = former_parser().parse_args(words)
    if arguments.serve:
        from neuca_tools.commands.selftest_serve import serve

        return _guarded(serve, arguments)
    from neuca_tools.commands.selftest_run import run

    return _guarded(run, arguments)


def _guarded(run: Callable[[Any], int], arguments: argparse.Namespace) -> int:
    arguments.program = parsers.PROGRAM  # the prefix of its messages
    return guarded(run, arguments)


def _misspelt(word: str) -> str:
    """The subcommand that is meant by a word which is none, and no host; empty for a host."""
    from neuca_tools.commands.selftest_options import address_of
    from neuca_tools.documents.spelling import closest
    from neuca_tools.errors import UsageError

    meant = closest(word, COMMANDS)
    if not meant or word.startswith("-") or {*word} & {*".:@"}:
        return ""
    try:
        address_of(word)
    except UsageError:
        return meant
    return ""


def _run(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_run import run
    from neuca_tools.commands.selftest_test_parsers import run_parser

    return _guarded(run, run_parser().parse_args(words))


def _serve(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_serve import serve
    from neuca_tools.commands.selftest_test_parsers import serve_parser

    return _guarded(serve, serve_parser().parse_args(words))


def _explain(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_explain import explain

    return _guarded(explain, parsers.explain_parser().parse_args(words))


def _compare(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_compare import compare_runs

    return _guarded(compare_runs, parsers.compare_parser().parse_args(words))


def _history(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_history import history

    return _guarded(history, parsers.history_parser().parse_args(words))


def _compare_paths(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_paths import paths_parser, run_paths

    return _guarded(run_paths, paths_parser().parse_args(words))


def _mesh(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_mesh import mesh, parsed

    return _guarded(mesh, parsed(words))


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": _run,
    "serve": _serve,
    "explain": _explain,
    "compare": _compare,
    "history": _history,
    "compare-paths": _compare_paths,
    "mesh": _mesh,
}
