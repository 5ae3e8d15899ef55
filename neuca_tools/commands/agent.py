"""What `neucad` does: the agent in the foreground; systemd or start-stop-daemon puts it into the background."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Optional

from neuca_tools import __version__
from neuca_tools.commands.context import configuration, guarded, is_root
from neuca_tools.commands.logs import to_journal
from neuca_tools.config import DEFAULT_PATH, Config
from neuca_tools.errors import EXIT_FAILED, EXIT_OK, ApplyError, LockedError, NeucaError
from neuca_tools.files import locked, write_files


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the agent, or one pass of it. The exit code of `--once` is that of `neuca status`."""
    return guarded(_run, _parser().parse_args(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="neucad", description="Keeps the dataplane NICs of this host as its document asks."
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="make one pass and exit, with the exit code of neuca status",
    )
    parser.add_argument(
        "--names",
        action="store_true",
        help="give every NIC its own name back and exit: for the boot, before the network",
    )
    parser.add_argument(
        "--guest",
        action="store_true",
        help="do what the document asks of the host itself and exit: its host"
        " name, users, scripts and storage",
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help="with --guest: do not exit, and do it again whenever it is due",
    )
    parser.add_argument(
        "--foreground",
        action="store_true",
        help="accepted, and changes nothing: it always stays there",
    )
    parser.add_argument("--config", metavar="FILE", help=f"the configuration ({DEFAULT_PATH})")
    parser.add_argument("--version", action="version", version=f"NEuca version {__version__}")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    if not is_root():
        raise NeucaError("neucad: only root may run it")
    _configure_log(config)
    if arguments.names:
        return EXIT_OK if _names(config) else EXIT_FAILED
    if arguments.guest:
        from neuca_tools.guest import run

        read = partial(configuration, arguments, quiet=True)  # what is wrong in it has been told
        if arguments.stay:
            run.stay(config, read)
        return EXIT_OK if run.run_guest(config, read=read) else EXIT_FAILED
    if arguments.once:
        from neuca_tools.commands.change import apply_once

        return apply_once(config)
    from neuca_tools.agent.first_boot import check

    check(config)
    return _serve(config, Path(arguments.config or DEFAULT_PATH))


def _names(config: Config) -> bool:
    """The step before the network. What keeps a document from being asked ahead costs no NIC its name."""
    from neuca_tools.agent.boot_names import ask_ahead, mark_ahead, pin_names

    try:
        ahead = ask_ahead(config)
    except ApplyError as error:
        print(f"neucad: {error.text}", file=sys.stderr)
        pin_names(config)
        return False
    named = pin_names(config)
    mark_ahead(config, ahead)
    return named


def _serve(config: Config, path: Path) -> int:
    from neuca_tools.agent.daemon import Daemon

    with _alone(config), _pid_file(config):
        Daemon(config, path, _configure_log).run()
    return EXIT_OK


def _configure_log(config: Config) -> None:
    to_journal(config.log_level)


@contextmanager
def _alone(config: Config) -> Iterator[None]:
    """One daemon for each run directory. Raises ApplyError."""
    try:
        with locked(config.run_directory / "neucad.lock", 0.1):
            yield
    except LockedError as error:
        raise NeucaError(
            f'neucad: another one runs already, with the run directory "{config.run_directory}"'
        ) from error


@contextmanager
def _pid_file(config: Config) -> Iterator[None]:
    """For SysV scripts, systemd needs none; one that cannot be written costs only itself."""
    if "NOTIFY_SOCKET" in os.environ:
        yield
        return
    path = config.pid_path
    try:
        write_files({path: f"{os.getpid()}\n".encode()})
    except ApplyError as error:
        print(f"neucad: {error.text}, ignoring", file=sys.stderr)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
