"""Shared by all commands: reading the configuration and the document, and reporting errors."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, Callable, Optional

from neuca_tools.agent.metadata_access import surroundings
from neuca_tools.config import DEFAULT_PATH, Config, load
from neuca_tools.errors import (
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_OK,
    EXIT_USAGE,
    ArgumentsError,
    ConfigError,
    DocumentError,
    NeucaError,
    UsageError,
)
from neuca_tools.model import Document, Problem
from neuca_tools.model.printable import plain_lines
from neuca_tools.sources import Session, SourceSpec, parse_source
from neuca_tools.state.active_document import Intake, confirmed, fetch

LISTED = "neuca status lists the interfaces of this host"  # a hint
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def guarded(run: Callable[[Any], int], arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code; print an error on one line, its hint on another."""
    for stream in (sys.stdout, sys.stderr):
        # The name of an interface may not be valid UTF-8.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _quiet() if getattr(arguments, "quiet", False) else nullcontext():
            return run(arguments)
    except NeucaError as error:
        if isinstance(error, ArgumentsError) and "usage" in arguments:
            print(arguments.usage(), end="", file=sys.stderr)
        print(f"{prefix(arguments)}: {plain_lines(error.text)}", file=sys.stderr)
        if error.hint:
            print(f"       {plain_lines(error.hint)}", file=sys.stderr)
        return _exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output again at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def prefix(arguments: argparse.Namespace) -> str:
    """What messages begin with: the `program` of the arguments, or "neuca" if there is none."""
    return str(getattr(arguments, "program", "neuca"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Discard standard output; errors are on standard error."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield


def uses_color(arguments: argparse.Namespace) -> bool:
    """Whether to color the output: --color, else on a terminal without NO_COLOR (no-color.org)."""
    if arguments.color != "auto":
        return bool(arguments.color == "always")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def log_level(arguments: argparse.Namespace) -> str:
    """The level of the log on standard error: with --quiet, no line for each operation."""
    return "ERROR" if arguments.quiet else "INFO"


def _exit_code(error: NeucaError) -> int:
    if isinstance(error, UsageError):
        return EXIT_USAGE
    if isinstance(error, (ConfigError, DocumentError)):
        return EXIT_INVALID
    return EXIT_FAILED


def is_root() -> bool:
    return os.geteuid() == 0


def require_root(command: str) -> None:
    """Raise NeucaError unless run by root; `command` is named as after "neuca"."""
    if not is_root():
        raise NeucaError(f"{command}: only root may do this", "run it as root, or with sudo")


def show(data: Mapping[str, Any], as_json: bool, text: Callable[[Any], str]) -> None:
    """Print data as JSON, or as the text that `text` makes of it."""
    if as_json:
        print(json.dumps(data, indent=1))
    else:
        print(text(data))


def configuration(
    arguments: argparse.Namespace, quiet: bool = False, notes: Optional[bool] = None
) -> Config:
    """Load the configuration; unless `quiet`, print its faults on standard error.

    `notes` are printed too if true, by default on a terminal only, as scripts may read the output.
    Raises ConfigError if the file named on the command line does not exist.
    """
    path = Path(arguments.config or DEFAULT_PATH)
    if arguments.config and not path.exists():
        raise ConfigError(f'read the configuration "{path}": there is no such file')
    config = load(path)
    if not quiet:
        shown = sys.stderr.isatty() if notes is None else notes
        shown = shown or getattr(arguments, "verbose", False)
        for fault in config.faults:
            if fault.severity == "note" and not shown:
                continue
            print(f"{prefix(arguments)}: {fault.severity}: {fault.text}", file=sys.stderr)
    return config


def specs(config: Config, source: Optional[str] = None) -> list[SourceSpec]:
    """The source of the command line, else the configured ones. Raises UsageError."""
    return [parse_source(text) for text in ((source,) if source else config.sources)]


def document(config: Config, source: Optional[str]) -> Intake:
    """The document of the sources, which only root may query, or of the last pass.

    Everyone may read a file.
    Raises UsageError, and DocumentError and NeucaError if `source` yields no usable document.
    """
    asked = specs(config, source)
    if is_root() or all(spec.kind == "file" for spec in asked):
        intake = fetch(asked, config.timeout, Session(), config.state, surroundings(config, asked))
        _report_problems(intake, fatal=bool(source))
        return intake
    if source:
        raise NeucaError(f'read the document from "{source}": only root may query the network')
    return confirmed(config.state, config.run_directory)


def _report_problems(intake: Intake, fatal: bool) -> None:
    """Print why there is no new document or, if `fatal`, raise DocumentError or NeucaError."""
    if fatal and intake.refused:
        raise DocumentError(intake.refused)
    if fatal and intake.reason and not intake.none_for_us:
        raise NeucaError(intake.reason)
    if intake.reason:
        print(f"neuca: {intake.reason}", file=sys.stderr)


def untold(problems: Iterable[Problem], intake: Intake, config: Config) -> list[Problem]:
    """The problems without the faults that `report_faults` and `configuration` print."""
    told = {fault.text for fault in (intake.document or Document()).faults}
    told |= {fault.text for fault in config.faults} | {intake.refused}
    return [one for one in problems if one.link or one.text not in told]


def report_faults(intake: Intake, config: Config) -> int:
    """Print the faults of the document; EXIT_INVALID if it or the configuration has errors."""
    document = intake.document or Document()
    for fault in document.faults:
        print(f"neuca: {fault.severity}: {fault.text}", file=sys.stderr)
    if intake.refused:
        print(f"neuca: {intake.refused}", file=sys.stderr)
    valid = document.complete and config.complete and not intake.refused
    return EXIT_OK if valid else EXIT_INVALID
