"""One run over all features of the guest, one after the other, in a process that no pass waits for: `neucad --guest`.

What one of them cannot do costs the others nothing. A document that comes meanwhile is worked on as soon as the run has ended.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Mapping
from typing import Callable, NoReturn, Optional

from neuca_tools.config import Config
from neuca_tools.errors import ConfigError, NeucaError
from neuca_tools.files import locked
from neuca_tools.guest import hostname, outcome, scripts, storage, users
from neuca_tools.guest.base import FEATURES, Finding, Guest
from neuca_tools.guest.outcome import Outcome
from neuca_tools.model import Document
from neuca_tools.state.active_document import confirmed

log = logging.getLogger("neuca")
LOCK = "guest.lock"  # in the run directory
RETRY = 30.0  # seconds, as RestartSec= of neuca-guest.service
_LEVELS = {
    "failed": logging.ERROR,
    "refused": logging.WARNING,
    "pending": logging.INFO,
    "ok": logging.INFO,
}

# Each does all that the document asks and is not so yet, and yields what became of it as it goes. A NeucaError that it raises
# is a finding too, and worth another try.
Run = Callable[[Guest], Iterator[Finding]]
RUNS: Mapping[str, Run] = {
    "hostname": hostname.run,
    "users": users.run,
    "storage": storage.run,
    "scripts": scripts.run,
}


def run_guest(
    config: Config, runs: Mapping[str, Run] = RUNS, read: Optional[Callable[[], Config]] = None
) -> bool:
    """Run every feature that is switched on for the document in force, until it is the same afterwards.

    `read` gives the configuration of then, for each time. False: something is worth another try. Raises NeucaError where
    nothing can be done at all.
    """
    with locked(config.run_directory / LOCK, config.command_timeout):
        while True:
            outcome.begin(config.run_directory)
            config = _anew(config, read) if read else config
            intake = confirmed(config.state, config.run_directory)
            if intake.document is None or intake.stored is None:
                outcome.ran(config.run_directory, "")
                return True
            guest = Guest(config, intake.document)
            again = [_feature(name, runs[name], guest) for name in FEATURES]
            outcome.ran(config.run_directory, intake.stored.sha256)
            if not outcome.is_due(config.run_directory):
                return not any(again)


def stay(config: Config, read: Callable[[], Config]) -> NoReturn:
    """For a host without systemd, which has neuca-guest.path and Restart= for it: run whenever a run is due, or worth a try.

    The first run of a boot is due after its first pass.
    """
    well = not outcome.has_run(config.run_directory)
    while True:
        waited = 0.0
        while not outcome.is_due(config.run_directory) and (well or waited < RETRY):
            _wait(config.poll_interval)
            waited += config.poll_interval
        try:
            well = run_guest(config, read=read)
        except NeucaError as error:
            log.error("%s", error.text)
            well = False


def _anew(config: Config, read: Callable[[], Config]) -> Config:
    """The configuration of now; one that cannot be read changes nothing."""
    try:
        return read()
    except ConfigError as error:
        log.error("%s; the configuration of before stays in force", error.text)
        return config


def _wait(seconds: float) -> None:
    """So long, or until a signal says that the process has to end: it then does as soon as signals are let in again."""
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    number = signal.sigtimedwait(ends, seconds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
    if number is not None:
        raise SystemExit(0)


def _feature(name: str, run: Run, guest: Guest) -> bool:
    """Run one feature. Whether it is worth another try. Raises ApplyError where what it said cannot be kept."""
    directory = guest.config.run_directory
    if not FEATURES[name].is_on(guest.config):
        outcome.forget(directory, name)
        return False
    return _run(name, run, guest).again


def run_feature(config: Config, name: str, document: Document) -> Outcome:
    """Run this one at once, whether it is switched on or not. Raises ApplyError."""
    with locked(config.run_directory / LOCK, config.command_timeout):
        return _run(name, RUNS[name], Guest(config, document))


def _run(name: str, run: Run, guest: Guest) -> Outcome:
    """Run a feature, and keep what it finds as it goes. Raises ApplyError where that cannot be kept."""
    directory = guest.config.run_directory
    before = outcome.load(directory, name) or Outcome(name)
    now = Outcome(name)
    for finding in _guarded(name, run, guest):
        now = now.having(finding)
        outcome.save(directory, now)
        if finding not in before.findings:
            log.log(_LEVELS[finding.state], "%s: %s", name, finding.text)
    now = now.ended()
    outcome.save(directory, now)
    return now


def _guarded(name: str, run: Run, guest: Guest) -> Iterator[Finding]:
    """What it finds, and what it raises."""
    try:
        yield from run(guest)
    except NeucaError as error:
        yield Finding("failed", error.text, again=True)
    except Exception:  # the outermost loop: one feature failed, the others have their turn
        log.exception("%s: failed on a defect of its own", name)
        yield Finding("failed", "it failed on a defect of its own: see the log")
