"""`neuca-selftest`: dispatch to its subcommands, each imported only when it runs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

from neuca_tools.commands import selftest_parsers as parsers
from neuca_tools.commands.context import guarded


def main(words: Sequence[str]) -> int:
    """Run a subcommand and return its `ExitCode`.

    Without one, the words are those of `run` or, with --serve, of `serve`.
    """
    command = "".join(words[:1])
    if command in COMMANDS:
        return COMMANDS[command](words[1:])
    arguments = parsers.former_parser().parse_args(words)
    if arguments.serve:
        from neuca_tools.commands.selftest_serve import serve

        return guarded(serve, arguments)
    from neuca_tools.commands.selftest_run import run

    return guarded(run, arguments)


def _run(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_run import run

    return guarded(run, parsers.run_parser().parse_args(words))


def _serve(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_serve import serve

    return guarded(serve, parsers.serve_parser().parse_args(words))


def _explain(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_explain import explain

    return guarded(explain, parsers.explain_parser().parse_args(words))


def _compare(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_compare import compare_runs

    return guarded(compare_runs, parsers.compare_parser().parse_args(words))


def _history(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_history import history

    return guarded(history, parsers.history_parser().parse_args(words))


def _compare_paths(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_paths import paths_parser, run_paths

    return guarded(run_paths, paths_parser().parse_args(words))


def _mesh(words: Sequence[str]) -> int:
    from neuca_tools.commands.selftest_mesh import mesh, parsed

    return guarded(mesh, parsed(words))


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": _run,
    "serve": _serve,
    "explain": _explain,
    "compare": _compare,
    "history": _history,
    "compare-paths": _compare_paths,
    "mesh": _mesh,
}
