"""Shared by the commands of the agent: its configuration, the document, files that they write."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from neuca_tools.commands.common import is_root, message_prefix
from neuca_tools.config import DEFAULT_PATH, Config, load_config
from neuca_tools.errors import (
    EXIT_DEGRADED,
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_OK,
    ConfigError,
    DocumentError,
    NeucaError,
    UsageError,
)
from neuca_tools.files import as_apply_error, mode_of
from neuca_tools.model import Document, Problem
from neuca_tools.sources import Session, SourceSpec, parse_source
from neuca_tools.state.active_document import Intake, fetch_document, last_confirmed

if TYPE_CHECKING:
    import argparse


def load_configuration(
    arguments: argparse.Namespace, quiet: bool = False, notes: Optional[bool] = None
) -> Config:
    """Load the configuration; unless `quiet`, print its faults on standard error.

    `notes` are printed too if true, by default on a terminal only, as scripts may read the output.
    Raises ConfigError if the file named on the command line does not exist.
    """
    path = Path(arguments.config or DEFAULT_PATH)
    config = load_config(path)
    if arguments.config and not path.exists():
        raise ConfigError(f'read the configuration "{path}": there is no such file')
    if not quiet:
        shows_notes = sys.stderr.isatty() if notes is None else notes
        shows_notes = shows_notes or getattr(arguments, "verbose", False)
        for fault in config.faults:
            if shows_notes or fault.severity != "note":
                text = f"{message_prefix(arguments)}: {fault.severity}: {fault.text}"
                print(text, file=sys.stderr)
    return config


def output_path(name: str) -> Path:
    """The absolute path of a file to write or replace in an existing directory. Raises NeucaError.

    A device is refused, as by `files.write_files`, before anything is done for it.
    """
    with as_apply_error(f'write "{name}"'):
        path = Path(name).absolute()  # the working directory may have been removed
    with as_apply_error(f'write "{path}"'):
        if not stat.S_ISDIR(mode_of(path.parent)):
            raise NeucaError(f'write "{path}": its directory does not exist')
        mode = mode_of(path)
        if mode and not stat.S_ISREG(mode):
            raise NeucaError(f'write "{path}": it exists, and is not a regular file')
    return path


def source_specs(config: Config, source: Optional[str] = None) -> list[SourceSpec]:
    """The source of the command line, else the configured ones. Raises UsageError."""
    try:
        return [parse_source(text) for text in ((source,) if source else config.sources)]
    except UsageError as error:
        with suppress(OSError):  # it is not a path, or this user may not look
            if source and Path(source).exists():
                raise UsageError(error.text, f'did you mean "file:{source}"?') from None
        raise


def read_document(config: Config, source: Optional[str]) -> Intake:
    """The document of the sources, which only root may query, or of the last pass.

    Everyone may name a file. A configured one may be readable for root only.
    Raises UsageError, and DocumentError and NeucaError if `source` yields no usable document.
    """
    asked = source_specs(config, source)
    if is_root() or (source and asked[0].kind == "file"):
        # The daemon loads this module, and has no module of a pass: 2 MiB.
        from neuca_tools.agent.metadata_access import read_surroundings

        surroundings = read_surroundings(config, asked)
        intake = fetch_document(asked, config.timeout, Session(), config.state, surroundings)
        _report_problems(intake, fatal=bool(source))
        return intake
    if source:
        raise NeucaError(f'read the document from "{source}": only root may query the network')
    return last_confirmed(config.state, config.run_directory)


def _report_problems(intake: Intake, fatal: bool) -> None:
    """Print why there is no new document or, if `fatal`, raise DocumentError or NeucaError."""
    if fatal and intake.refused:
        raise DocumentError(intake.refused)
    if fatal and intake.reason and not intake.none_for_us:
        raise NeucaError(intake.reason)
    if intake.reason:
        print(f"neuca: {intake.reason}", file=sys.stderr)


def problems_not_printed(
    problems: Iterable[Problem], intake: Intake, config: Config
) -> list[Problem]:
    """The problems without the faults that `report_faults` and `configuration` print."""
    reported = {fault.text for fault in (intake.document or Document()).faults}
    reported |= {fault.text for fault in config.faults} | {intake.refused}
    return [problem for problem in problems if problem.link or problem.text not in reported]


def report_faults(intake: Intake, config: Config) -> int:
    """Print the faults of the document; EXIT_INVALID if it or the configuration has errors."""
    document = intake.document or Document()
    for fault in document.faults:
        print(f"neuca: {fault.severity}: {fault.text}", file=sys.stderr)
    if intake.refused:
        print(f"neuca: {intake.refused}", file=sys.stderr)
    valid = document.is_complete and not intake.refused
    return exit_code(config) if valid else EXIT_INVALID


def exit_code(config: Config, *, failed: bool = False, degraded: bool = False) -> int:
    """The first exit code of neuca-status(7) that applies."""
    if not config.is_complete:
        return EXIT_INVALID
    if failed:
        return EXIT_FAILED
    return EXIT_DEGRADED if degraded else EXIT_OK
