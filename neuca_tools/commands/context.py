"""What every command shares: the configuration, the document to work on, and how an error is shown."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from neuca_tools.agent.metadata_access import surroundings
from neuca_tools.config import DEFAULT_PATH, Config, load
from neuca_tools.errors import (
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_OK,
    EXIT_USAGE,
    ConfigError,
    DocumentError,
    NeucaError,
    UsageError,
)
from neuca_tools.model.printable import plain_lines
from neuca_tools.sources import Session, SourceSpec, parse_source
from neuca_tools.state.active_document import Intake, confirmed, fetch

if TYPE_CHECKING:
    import argparse

INTERRUPTED = 130  # as a shell says of a program that SIGINT ended


def guarded(run: Callable[[Any], int], arguments: argparse.Namespace) -> int:
    """The outermost loop of a command: an error is one line, with its hint on a line of its own."""
    for stream in (sys.stdout, sys.stderr):  # an interface may have a name that is no text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return run(arguments)
    except NeucaError as error:
        print(f"neuca: {plain_lines(error.text)}", file=sys.stderr)
        if error.hint:
            print(f"       {plain_lines(error.hint)}", file=sys.stderr)
        invalid = isinstance(error, (ConfigError, DocumentError))
        return (
            EXIT_USAGE
            if isinstance(error, UsageError)
            else EXIT_INVALID
            if invalid
            else EXIT_FAILED
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # so that the interpreter's own flush is quiet
        return EXIT_OK


def is_root() -> bool:
    return os.geteuid() == 0


def configuration(arguments: argparse.Namespace, quiet: bool = False) -> Config:
    """The configuration; what is wrong in it goes to standard error. A file that was named has to be there."""
    path = Path(arguments.config or DEFAULT_PATH)
    if arguments.config and not path.exists():
        raise ConfigError(f'read the configuration "{path}": there is no such file')
    config = load(path)
    for fault in () if quiet else config.faults:
        print(f"neuca: {fault.severity}: {fault.text}", file=sys.stderr)
    return config


def specs(config: Config, source: Optional[str] = None) -> list[SourceSpec]:
    """The sources to ask: the one of the command line, or those of the configuration. Raises UsageError."""
    return [parse_source(text) for text in ([source] if source else config.sources)]


def document(config: Config, source: Optional[str]) -> Intake:
    """The document to work on: asked for by root or from a file, else the copy of the last pass. Raises UsageError."""
    asked = specs(config, source)
    if is_root() or all(spec.kind == "file" for spec in asked):
        around = surroundings(config, asked)
        intake = fetch(asked, config.timeout, Session(), config.state, around)
        if source and intake.refused:
            raise DocumentError(intake.refused)
        if source and intake.reason and not intake.none_for_us:
            raise NeucaError(intake.reason)
        if intake.reason:
            print(f"neuca: {intake.reason}", file=sys.stderr)
        return intake
    if source:
        raise NeucaError(f'read the document from "{source}": only root asks the network')
    return confirmed(config.state, config.run_directory)


def report_faults(intake: Intake, config: Config) -> int:
    """Every bad line on standard error; 78 if there is any, in the document or in the configuration."""
    for fault in intake.document.faults if intake.document else ():
        print(f"neuca: {fault.severity}: {fault.text}", file=sys.stderr)
    if intake.refused:
        print(f"neuca: {intake.refused}", file=sys.stderr)
    bad_document = intake.refused or (intake.document is not None and not intake.document.complete)
    bad_config = any(fault.severity == "error" for fault in config.faults)
    return EXIT_INVALID if bad_document or bad_config else EXIT_OK
