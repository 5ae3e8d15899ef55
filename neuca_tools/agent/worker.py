"""Jobs of the daemon in a child process: ask the sources if it is time to, make a pass if there is reason to, report.

A child rather than a thread: it can be killed at its deadline, a crash costs one job, and its memory goes with it. One that
has made a pass stays for a little while, since what a boot or a new NIC stirs up comes in a row: most of what a job costs is
the import of pyroute2.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Callable, NoReturn, Optional

from neuca_tools.agent import drives
from neuca_tools.agent.metadata_access import surroundings
from neuca_tools.agent.reconcile import run_pass
from neuca_tools.agent.status import status_now
from neuca_tools.config import Config
from neuca_tools.errors import NeucaError
from neuca_tools.files import locked
from neuca_tools.guest import outcome as guest
from neuca_tools.sources import Session, parse_source
from neuca_tools.state.active_document import Intake, confirmed, fetch, keep
from neuca_tools.state.records import has_document, load_look
from neuca_tools.state.store import catch_up, unsaved
from neuca_tools.status.judge import Status

log = logging.getLogger("neuca")
LARGEST_REPORT = 1 << 20  # bytes
LIFETIME = 30.0  # seconds after which a child is not given another job
GRACE = 10.0  # seconds for a pass to finish when the daemon is told to stop
END = b"}\n"
IN_PASS = b"pass\n"  # what a child says before it changes anything


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
        return has_document(self.config.state)


@dataclass(frozen=True)
class Outcome:
    """What a job reports. `attentive`: a NIC is absent or contested, so any change of a link may matter.

    `held`: one waits for a sign of the management NIC, so addresses matter too, and there is a pass at each poll.
    `unanswered`: whether all sources were silent or failed; None where they were not asked.
    """

    ran: bool = False
    failed: int = 0
    sha256: str = ""
    session: Session = field(default_factory=Session)
    attentive: bool = False
    text: str = ""
    passed: bool = False
    held: bool = False
    unanswered: Optional[bool] = None


class Worker:
    """A child that does jobs, one at a time; its socket becomes readable when it has something to say, or has ended."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.retires = time.monotonic() + LIFETIME
        self.deadline: Optional[float] = None  # of the job that it does; None: it waits for one
        self.started = self.passed = False  # its job is that of a start; it has made a pass
        self.job = Job(config)
        self._said = b""
        self._socket, jobs = socket.socketpair()
        self._child = os.fork()
        if self._child == 0:
            self._socket.close()
            _child(config, jobs)
        jobs.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def begin(self, job: Job) -> None:
        """Have it do this. Raises OSError where the child has just died."""
        self._said, self.started, self.job = b"", job.start, job
        self.deadline = (
            time.monotonic() + 2 * job.config.timeout + job.config.command_timeout
        )  # a change is read twice
        self._socket.sendall(
            _line(
                {
                    "fetch": job.fetch,
                    "run": job.run,
                    "start": job.start,
                    "sha256": job.sha256,
                    "session": job.session.to_json(),
                }
            )
        )

    def read(self) -> bool:
        """Take in what there is to read. True once the job, or the child, has ended."""
        try:
            part = self._socket.recv(65536)
        except ConnectionResetError:  # it died before it read its job
            part = b""
        self._said += part
        return not part or self._said.endswith(END) or len(self._said) > LARGEST_REPORT

    @property
    def unheard(self) -> bool:
        """It has done a job before, and has not said a word of this one: one that ends so was killed while it waited for it."""
        return self.passed and not self._said

    def wait(self) -> None:
        """Give a pass a moment to finish; `end` then ends the child in any case, and at once one that only asks sources."""
        deadline = time.monotonic() + (GRACE if self._in_pass() else 0.0)
        while select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if self.read():
                return

    def _in_pass(self) -> bool:
        while select.select([self._socket], [], [], 0)[0] and not self.read():
            pass
        return self._said.startswith(IN_PASS)

    def outcome(self) -> Optional[Outcome]:
        """What it reported of the job that has ended, None for nothing; then it waits for the next one."""
        self.deadline = None
        self.passed = self.passed or self._said.startswith(IN_PASS)
        return _outcome(self._said)

    def end(self) -> None:
        """Reap the child, by force: what it has done is done, and what it only waits for is not worth waiting for."""
        self._socket.close()
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)


def _line(data: object) -> bytes:
    return json.dumps(data).encode() + b"\n"


def _outcome(said: bytes) -> Optional[Outcome]:
    with suppress(ValueError, TypeError):
        data = json.loads(said[len(IN_PASS) :] if said.startswith(IN_PASS) else said)
        return Outcome(**{**data, "session": Session.from_json(data["session"])})
    return None


def _child(config: Config, jobs: socket.socket) -> NoReturn:
    """Never returns into the daemon's code, whatever happens; a job that fails ends it."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(
                number, signal.SIG_IGN
            )  # systemd signals the whole group; the daemon says when to stop
        for line in jobs.makefile("rb"):
            data = json.loads(line)
            outcome = work(
                Job(config, **{**data, "session": Session.from_json(data["session"])}),
                lambda: jobs.sendall(IN_PASS),
            )
            jobs.sendall(_line({**outcome.__dict__, "session": outcome.session.to_json()}))
        status = 0
    except NeucaError as error:
        log.error("%s", error.text)
    except Exception:  # the outermost loop: one job failed, the daemon lives
        log.exception("a pass failed on a defect of its own")
    finally:
        os._exit(status)


def work(job: Job, begin_pass: Callable[[], object] = lambda: None) -> Outcome:
    """Do the job in this process. `begin_pass` is called before anything is changed. Raises NeucaError."""
    config = job.config
    _report_volumes(config)
    intake = _intake(job)
    unanswered = intake.unanswered if job.fetch else None
    sha256 = intake.stored.sha256 if intake.stored else ""
    news = _saves(config) or _is_news(job, intake)
    if not (job.run or news):
        before = load_look(config.run_directory)
        keep(intake, config.state, config.run_directory)
        text = (
            ""
            if load_look(config.run_directory) == before
            else _text(intake, status_now(config, intake))
        )
        return Outcome(sha256=job.sha256, session=intake.session, text=text, unanswered=unanswered)
    begin_pass()
    try:
        report, status = run_pass(config, intake, job.start)
    except NeucaError as error:
        log.error("%s", error.text)
        return Outcome(True, 1, sha256, intake.session, text=error.text, unanswered=unanswered)
    finally:  # nobody's login waits for a network that cannot be set
        guest.ask(config, intake)
    parts = (status.data, *status.data["interfaces"])
    codes = {problem["code"] for one in parts for problem in one["problems"]}
    attentive = bool(codes & {"absent", "contested"})
    return Outcome(
        True,
        len(report.problems),
        sha256,
        intake.session,
        attentive,
        _text(intake, status),
        passed=True,
        held=status.held,
        unanswered=unanswered,
    )


def _is_news(job: Job, intake: Intake) -> bool:
    """Whether the sources say something else than at the last pass."""
    return bool(intake.other) or (bool(intake.sha256) and intake.sha256 != job.sha256)


def _saves(config: Config) -> bool:
    """Save what could not be saved before: whether there was anything, and now all of it is. Raises NeucaError."""
    if not unsaved(config.state):
        return False
    with locked(config.run_directory / "lock", config.command_timeout):
        return catch_up(config.state)


def _report_volumes(config: Config) -> None:
    try:
        lines = drives.refused(config.run_directory)
        for line in drives.unreported(lines, config.run_directory):
            log.warning("%s", line)
    except NeucaError as error:
        log.warning("%s, ignoring", error.text)


def _intake(job: Job) -> Intake:
    """What the sources say now if it is time to ask them, else what they said before."""
    if not job.fetch:
        before = confirmed(job.config.state, job.config.run_directory)
        return replace(before, session=job.session)
    specs = [parse_source(text) for text in job.config.sources]
    config = job.config
    around = surroundings(config, specs)
    return fetch(specs, config.timeout, job.session, config.state, around)


def _text(intake: Intake, status: Status) -> str:
    origin = f"document of {intake.stored.source}" if intake.stored else "no document"
    return f"{status.data['state']}; {origin}{' (stale)' if intake.stale else ''}"
