"""One job of the daemon in a child process: ask the sources if it is time to, make a pass if there is reason to, report, end.

A child rather than a thread: it can be killed at its deadline, a crash costs nothing, and its memory goes with it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import logging
import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn, Optional

from .config import Config
from .errors import NeucaError
from .intake import Intake, confirmed, fetch, keep, last_good
from .record import DOCUMENT
from .sources import Session, parse_source

log = logging.getLogger("neuca")
LARGEST_REPORT = 1 << 20  # bytes
GRACE = 10.0  # seconds for a pass to finish when the daemon is told to stop


@dataclass(frozen=True)
class Job:
    """`fetch`: ask the sources. `run`: make a pass even if the document (`sha256`) is the same. `start`: drift is set right."""

    config: Config
    fetch: bool = False
    run: bool = False
    start: bool = False
    sha256: str = ""
    session: Session = field(default_factory=Session)

    def has_last_good(self) -> bool:
        """Whether there is a document from before."""
        return (self.config.state_directory / DOCUMENT).exists()


@dataclass(frozen=True)
class Outcome:
    """What a job reports. `attentive`: a NIC is absent or contested, so any change of a link may matter."""

    ran: bool = False
    failed: int = 0
    sha256: str = ""
    session: Session = field(default_factory=Session)
    attentive: bool = False
    text: str = ""


class Worker:
    """A child that does one job; its pipe becomes readable when it has something to say, and closes when it has ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.deadline = time.monotonic() + job.config.timeout + job.config.command_timeout
        self._said = b""
        self._pipe, report = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._pipe)
            _child(job, report)
        os.close(report)

    def fileno(self) -> int:
        return self._pipe

    def read(self) -> bool:
        """Take in what there is to read. True once the child has closed its end."""
        part = os.read(self._pipe, 65536)
        self._said += part
        return not part or len(self._said) > LARGEST_REPORT

    def wait(self) -> None:
        """Give it a moment to finish; `finish` then ends it in any case."""
        deadline = time.monotonic() + GRACE
        while select.select([self._pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if self.read():
                return

    def finish(self) -> Optional[Outcome]:
        """Reap the child, by force if it still runs. None if it left no report."""
        os.close(self._pipe)
        with suppress(ProcessLookupError):
            if os.waitpid(self._child, os.WNOHANG)[0] == 0:
                ended = self._said.endswith(b"\n")
                os.kill(self._child, 0 if ended else signal.SIGKILL)
                os.waitpid(self._child, 0)
        return _outcome(self._said)


def _outcome(said: bytes) -> Optional[Outcome]:
    with suppress(ValueError, TypeError):
        data = json.loads(said)
        return Outcome(**{**data, "session": Session.from_json(data["session"])})
    return None


def _child(job: Job, report: int) -> NoReturn:
    """Never returns into the daemon's code, whatever happens."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # systemd signals the whole group; the daemon says when to stop
        outcome = work(job)
        text = json.dumps({**outcome.__dict__, "session": outcome.session.to_json()}) + "\n"
        os.write(report, text.encode())
        status = 0
    except NeucaError as error:
        log.error("%s", error.text)
    except Exception:  # the outermost loop: one job failed, the daemon lives
        log.exception("a pass failed on a defect of its own")
    finally:
        os._exit(status)


def work(job: Job) -> Outcome:
    """Do the job in this process. Raises NeucaError."""
    config = job.config
    intake = _intake(job)
    news = bool(intake.sha256) and intake.sha256 != job.sha256
    if not (job.run or news):
        keep(intake, config.state_directory, config.run_directory)
        return Outcome(sha256=job.sha256, session=intake.session)
    from .reconcile import run_pass, status_now  # imports pyroute2

    result = run_pass(config, intake, job.start)
    status = status_now(config, intake)
    codes = {problem["code"] for one in status.data["interfaces"] for problem in one["problems"]}
    return Outcome(True, len(result.problems), intake.sha256 or (intake.stored.sha256 if intake.stored else ""), intake.session,
                   bool(codes & {"absent", "contested"}), _text(status.data["state"], intake))


def _intake(job: Job) -> Intake:
    config = job.config
    if not job.fetch:
        start = last_good(config.state_directory, "not asked yet since the start") if job.start else None
        return start or confirmed(config.state_directory, config.run_directory)
    specs = [parse_source(text) for text in config.sources]
    return fetch(specs, config.timeout, job.session, config.state_directory)


def _text(state: str, intake: Intake) -> str:
    origin = f"document of {intake.stored.source}" if intake.stored else "no document"
    return f"{state}; {origin}{' (stale)' if intake.stale else ''}"
