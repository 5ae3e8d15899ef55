"""The command line of `neucad`, which runs in the foreground under systemd or start-stop-daemon."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Optional, cast

from neuca_tools.agent import trial_file
from neuca_tools.commands import collect_rarely, with_output
from neuca_tools.commands.arguments import CONFIG, VERSION, Options, add_options, flag
from neuca_tools.commands.common import require_root, run_guarded
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.logs import to_journal
from neuca_tools.config import DEFAULT_PATH, Config
from neuca_tools.errors import (
    EXIT_FAILED,
    EXIT_OK,
    ApplyError,
    ArgumentsError,
    LockedError,
    NeucaError,
    ObserveError,
    RecordError,
)
from neuca_tools.files import lock_holder, locked, write_files
from neuca_tools.state.records import load_trial
from neuca_tools.state.store import NO_ROOM

# Imports inside functions: each mode loads only what it needs of 50 to 120 ms.

if TYPE_CHECKING:
    import argparse

_STEPS: Options = {
    "once": flag("make one pass and exit with the exit code of neuca apply"),
    "names": flag("restore the name of every NIC and exit (for early boot, before the network)"),
    "guest": flag("apply the host name, users, storage and scripts of the document, and exit"),
}
_OPTIONS: Options = {
    "stay": flag("with --guest, keep running and apply the document again when it changes"),
    "foreground": flag("obsolete, without effect: neucad always runs in the foreground"),
    **CONFIG,
}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the agent, or one step of it. The exit code of `--once` is that of `neuca apply`."""
    if arguments is None:
        collect_rarely()
        return with_output(lambda: main(sys.argv[1:]), "neucad")
    return run_guarded(_run, arguments_of_units(arguments) or _parser().parse_args(arguments))


def arguments_of_units(arguments: Sequence[str]) -> Optional[argparse.Namespace]:
    """The arguments in the forms of the units; None: others, for argparse, which costs memory."""
    words, path = list(arguments), None
    if words[-2:-1] == ["--config"] and words[-1][:1] not in ("", "-"):
        path = words.pop()
        words.pop()
    steps = {f"--{name}": name for name in _STEPS}
    if len(words) > 1 or not steps.keys() >= set(words):
        return None
    values = dict.fromkeys([*_STEPS, *_OPTIONS], False)
    values.update({steps[word]: True for word in words})
    # Nobody asks more of it than its attributes.
    return cast("argparse.Namespace", SimpleNamespace(**{**values, "config": path}))


def _parser() -> argparse.ArgumentParser:
    from neuca_tools.commands.parsers import Parser

    parser = Parser(
        prog="neucad",
        description="Configure the dataplane NICs of this host as its user-data requests.",
    )
    add_options(parser.add_mutually_exclusive_group(), _STEPS)
    add_options(parser, _OPTIONS)
    parser.set_defaults(usage=parser.format_usage)
    add_options(parser, VERSION)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.stay and not arguments.guest:
        raise ArgumentsError("--stay: it requires --guest")
    config = load_configuration(arguments, notes=True)
    require_root("neucad")
    _configure_log(config)
    _end_trial(config)
    if arguments.names:
        return EXIT_OK if _restore_names(config) else EXIT_FAILED
    if arguments.guest:
        return _configure_guest(arguments, config)
    if not arguments.once:
        return _run_daemon(config, Path(arguments.config or DEFAULT_PATH))
    from neuca_tools.commands.apply import apply_once

    return apply_once(config)


def _end_trial(config: Config) -> None:
    """After a boot in the middle of a trial, names and all else are those from before it."""
    try:
        trial = load_trial(config.state)
        if trial is None or trial_file.is_running(trial):
            return
        with locked(config.pass_lock, config.command_timeout):
            is_dropped = trial_file.recover_from_trial(config)
        if is_dropped:
            text = "a trial was interrupted by a reboot, dropping its record"
            print(f"neuca: {text}", file=sys.stderr)
    except (ApplyError, ObserveError, RecordError) as error:
        print(f"neuca: {error.text}, ignoring", file=sys.stderr)


def _configure_guest(arguments: argparse.Namespace, config: Config) -> int:
    from neuca_tools.guest import run

    # Quiet: the faults of the configuration were reported when it was first read.
    read = partial(load_configuration, arguments, quiet=True)
    if arguments.stay:
        run.run_forever(config, read)
    return EXIT_OK if run.run_guest(config, read=read) else EXIT_FAILED


def _restore_names(config: Config) -> bool:
    """The early-boot step. Names are restored even if the local sources cannot be read."""
    from neuca_tools.agent.boot_names import mark_nics, pin_names, read_local_sources

    try:
        intake = read_local_sources(config)
    except (ApplyError, ObserveError) as error:
        print(f"neuca: {error.text}", file=sys.stderr)
        pin_names(config)
        return False
    are_named = pin_names(config)
    mark_nics(config, intake)
    return are_named


def _run_daemon(config: Config, path: Path) -> int:
    from neuca_tools.agent.daemon import SIGNALS, Daemon
    from neuca_tools.agent.first_boot import set_aside_foreign_state

    set_aside_foreign_state(config)
    # Who reads the PID file may send one before the daemon has its handlers, and unblocks them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with _single_instance(config), _pid_file(config):
        Daemon(config, path, _configure_log).run()
    return EXIT_OK


def _configure_log(config: Config) -> None:
    to_journal(config.log_level)


@contextmanager
def _single_instance(config: Config) -> Iterator[None]:
    """Allow one daemon for each run directory. Raises NeucaError for a second one, ApplyError.

    The lock in the state directory, if that can be written, holds if the run directory is removed.
    """
    kept = config.state_directory / config.daemon_lock.name
    try:
        with locked(config.daemon_lock, 0.1), ExitStack() as stack:
            try:
                if lock_holder(kept):
                    raise LockedError(f'lock "{kept}": another process holds it')
                stack.enter_context(locked(kept, 0.1, shared=True))
            except ApplyError as error:
                if error.errno not in NO_ROOM:
                    raise
            yield
    except LockedError as error:
        reason = f'it already runs with the run directory "{config.run_directory}"'
        raise NeucaError(f"start neucad: {reason}") from error


@contextmanager
def _pid_file(config: Config) -> Iterator[None]:
    """Write a PID file for SysV scripts; a failure is not fatal. systemd needs none."""
    if "NOTIFY_SOCKET" in os.environ:
        yield
        return
    path = config.pid_path
    try:
        write_files({path: f"{os.getpid()}\n".encode()})
    except ApplyError as error:
        print(f"neuca: {error.text}, ignoring", file=sys.stderr)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
