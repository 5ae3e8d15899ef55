"""Runs all features of the guest in turn, in a process that no pass waits for: `neucad --guest`.

If one feature fails, the others still run. A document that arrives meanwhile is processed as soon
as the run has ended.
"""

# SPDX-License-Identifier: MIT

import logging
import signal
from collections.abc import Iterator, Mapping
from typing import Callable, NoReturn, Optional

from neuca_tools.config import Config
from neuca_tools.errors import ConfigError, NeucaError
from neuca_tools.files import locked, write_files
from neuca_tools.guest import hostname, outcome, scripts, storage, users
from neuca_tools.guest.base import FEATURES, Finding, Guest
from neuca_tools.guest.outcome import Outcome
from neuca_tools.model import Document
from neuca_tools.state.active_document import last_confirmed

log = logging.getLogger("neuca")

LOCK = "guest.lock"  # in the run directory
RETRY_SECONDS = 30.0  # as RestartSec= of neuca-guest.service
# Methods of a Logger, by state.
_LEVELS = {"failed": "error", "refused": "warning", "pending": "info", "ok": "info"}

# Each does what the document requests and is not done yet, and yields findings as it goes. A
# NeucaError that it raises becomes a finding as well, to be tried again.
Run = Callable[[Guest], Iterator[Finding]]
RUNS: Mapping[str, Run] = {
    "hostname": hostname.apply_hostname,
    "users": users.set_up_users,
    "storage": storage.set_up_storage,
    "scripts": scripts.run_scripts,
}


def run_guest(
    config: Config, runs: Mapping[str, Run] = RUNS, read: Optional[Callable[[], Config]] = None
) -> bool:
    """Run every feature that is switched on, until no new document has arrived meanwhile.

    `read` loads the configuration anew before each round. Returns False if something should be
    tried again. Raises NeucaError if nothing can be done at all.
    """
    with locked(config.run_directory / LOCK, config.command_timeout):
        while True:
            outcome.begin_run(config.run_directory)
            try:
                config = read() if read else config
            except ConfigError as error:
                log.error("%s; the previous configuration stays active", error.text)
            config.demand_protection()
            intake = last_confirmed(config.state, config.run_directory)
            if intake.document is None or intake.stored is None:
                outcome.end_run(config.run_directory, "")
                return True
            guest = Guest(config, intake.document)
            needs_retry = False
            for name, feature in FEATURES.items():
                if feature.is_on(config):
                    needs_retry |= _run_and_save(name, runs[name], guest).needs_retry
                else:
                    write_files({config.run_directory / outcome.file_name(name): None})
            outcome.end_run(config.run_directory, intake.stored.sha256)
            if not outcome.is_due(config.run_directory):
                return not needs_retry


def run_forever(config: Config, read: Callable[[], Config]) -> NoReturn:
    """Run whenever a run is due, and again RETRY_SECONDS seconds after a failure.

    For hosts without systemd, where neuca-guest.path and Restart= do this. The first run of a boot
    is due after the first pass.
    """
    pause_seconds = min(config.poll_interval, RETRY_SECONDS)
    must_retry = outcome.has_run(config.run_directory)
    while True:
        waited = 0.0
        while not outcome.is_due(config.run_directory) and not (
            must_retry and waited >= RETRY_SECONDS
        ):
            _wait_for_signal(pause_seconds)
            waited += pause_seconds
        try:
            must_retry = not run_guest(config, read=read)
        except NeucaError as error:
            log.error("%s", error.text)
            must_retry = True


def _wait_for_signal(seconds: float) -> None:
    """Wait this long. Raises SystemExit on SIGTERM or SIGINT."""
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    number = signal.sigtimedwait(ends, seconds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
    if number is not None:
        raise SystemExit(0)


def run_feature(config: Config, name: str, document: Document) -> Outcome:
    """Run one feature now, whether it is switched on or not. Raises ApplyError."""
    with locked(config.run_directory / LOCK, config.command_timeout):
        return _run_and_save(name, RUNS[name], Guest(config, document))


def _run_and_save(name: str, run: Run, guest: Guest) -> Outcome:
    """Run a feature, saving its findings as it goes. Raises ApplyError if they cannot be saved."""
    directory = guest.config.run_directory
    before = outcome.load_outcome(directory, name) or Outcome(name)
    now = Outcome(name)
    for finding in _findings_of(name, run, guest):
        now = now.with_finding(finding)
        outcome.save_outcome(directory, now)
        if finding not in before.findings:
            getattr(log, _LEVELS[finding.state])("%s: %s", name, finding.text)
    now = now.ended()
    outcome.save_outcome(directory, now)
    return now


def _findings_of(name: str, run: Run, guest: Guest) -> Iterator[Finding]:
    """The findings of a feature, with an exception as the last of them."""
    try:
        yield from run(guest)
    except NeucaError as error:
        yield Finding("failed", error.text, needs_retry=True)
    except Exception:  # the outermost loop: one feature failed, the others still run
        log.exception("%s: failed because of a bug", name)
        yield Finding("failed", "it failed because of a bug: see the log")
