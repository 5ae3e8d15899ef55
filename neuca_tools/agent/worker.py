"""Jobs of the daemon, done in a child process: ask the sources, make a pass if needed, report.

Unlike a thread, a child can be killed at its deadline, a crash of it costs a single job, and its
memory is freed when it exits. The daemon loads only the modules of a poll without news (1.4 MiB);
the child that makes a pass loads the others.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Optional

from neuca_tools.agent import drives, trial_file
from neuca_tools.agent.backoff import WHOLE_PASS
from neuca_tools.agent.in_force import document_in_force
from neuca_tools.backends import hostid, processes, udev
from neuca_tools.config import Config
from neuca_tools.errors import LockedError, NeucaError, ObserveError, RecordError
from neuca_tools.sources import Session, load_queries, parse_source
from neuca_tools.state.active_document import (
    NOT_ASKED,
    Intake,
    fetch_document,
    keep_document,
    last_confirmed,
)
from neuca_tools.state.records import load_machine, load_source_answers
from neuca_tools.state.store import run_problem, save_unsaved_files, unsaved_reason

# Imports inside functions: the idle daemon has no module of a pass, which takes 65 ms and 8 MiB.

log = logging.getLogger("neuca")

if TYPE_CHECKING:
    from neuca_tools.status.judge import Report, Status

LARGEST_REPORT = 1 << 20  # bytes
COLDPLUG_SECONDS = 5.0  # that a first pass waits for udev
PASS_GRACE_SECONDS = 10.0  # for a pass to finish when the daemon is told to stop
REPORT_END = b"}\n"  # of a report
DHCP = "dhcp"  # the directory of DHCP clients (`backends.dhcpclients`)
PASS_BEGUN = b"pass\n"  # is sent by a child before it changes anything


# No NamedTuple: _replace() leaves tuples in the interpreter's free lists, so the daemon would grow.
@dataclass(frozen=True)
class Job:
    """`fetch`: ask the sources. `run`: make a pass even if the document (`sha256`) has not changed.

    `start`: the pass corrects all drift. `left_out`: what failed in earlier passes and is not to be
    tried yet, unless the document has changed, with interface indexes (`agent.backoff`). `gone`:
    the indexes of interfaces that disappeared, whether or not they are back. `at_start`: see
    `document_in_force`; None after a trial or a pass for another document.
    """

    config: Config
    fetch: bool = False
    run: bool = False
    start: bool = False
    sha256: str = ""
    session: Session = field(default_factory=Session)
    left_out: Mapping[str, int] = field(default_factory=dict)
    gone: Sequence[int] = ()
    at_start: Optional[tuple[str, str]] = None

    def after(self, result: JobResult) -> Job:
        """What the next job is made from, after one with this result."""
        started_with = self.at_start[0] if self.at_start else ""
        is_for_another = result.made_pass and result.sha256 != started_with
        at_start = None if result.waits_for_trial or is_for_another else self.at_start
        gone = () if result.completed_pass else self.gone
        sha256 = result.sha256 or self.sha256
        return replace(self, sha256=sha256, session=result.session, gone=gone, at_start=at_start)


class JobResult(NamedTuple):
    """The result of a job, which the child sends.

    `failed`: the parts of the scope that failed in the pass, with interface indexes
    (`agent.backoff`); `left_out`: those that it did not try. `watches_all_links`: a NIC is absent
    or contested, so any change of a link may matter. `waits_for_address`: a NIC waits for a sign of
    the management NIC, or a route for its source address, so addresses matter too, and there is a
    pass at each poll. `has_routing_to_keep`: routing rules and tables have to be kept, which any
    change of a link, an address or a rule may affect. `new_links`: the indexes of the links that
    the pass created and udev has processed, whose events are no news. `unanswered`: whether no
    source responded; None if none was asked. `text`: a line for systemctl status.
    `waits_for_trial`: a trial holds the lock, so the job has to be done later. `deadline`: when a
    decision may change with the age of the host, on the monotonic clock; None if none will.
    """

    made_pass: bool = False
    failed: Mapping[str, int] = {}
    left_out: Sequence[str] = ()
    sha256: str = ""
    session: Session = Session()
    watches_all_links: bool = False
    text: str = ""
    completed_pass: bool = False
    waits_for_address: bool = False
    has_routing_to_keep: bool = False
    new_links: Sequence[int] = ()
    unanswered: Optional[bool] = None
    waits_for_trial: bool = False
    deadline: Optional[float] = None


class Worker:
    """A child that does one job; its socket is readable when it has sent or exited.

    `deadline` is that of the job, on the monotonic clock. Raises OSError.
    """

    def __init__(self, job: Job) -> None:
        self.config = job.config
        fetching = 2 * job.config.timeout  # a changed document is read twice
        self.deadline = time.monotonic() + fetching + job.config.command_timeout
        self._received = b""
        if job.fetch:
            _load_for_polls(job.config)
        self._socket, report = socket.socketpair()
        self._child = os.fork()
        if self._child == 0:
            self._socket.close()
            _run_child(job, report)
        report.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bool:
        """Read what the child has sent. Returns True once the job, or the child, has ended."""
        part = self._socket.recv(65536)
        self._received += part
        is_whole = self._received.endswith(REPORT_END)
        return not part or is_whole or len(self._received) > LARGEST_REPORT

    def wait(self) -> bool:
        """Wait at most PASS_GRACE_SECONDS for a pass, but not for a job that only fetches.

        Returns False if such a job is under way, which can be dropped.
        """
        ended = self._read_until(time.monotonic())
        if not ended and self._received.startswith(PASS_BEGUN):
            self._read_until(time.monotonic() + PASS_GRACE_SECONDS)
            return True
        return ended

    def _read_until(self, deadline: float) -> bool:
        """Read until the job has ended, at most until the deadline; return whether it has."""
        while select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if self.read():
                return True
        return False

    def result(self) -> Optional[JobResult]:
        """The report of the ended job; None if there is none."""
        with suppress(ValueError, TypeError):
            data = json.loads(self._received.removeprefix(PASS_BEGUN))
            data["session"] = Session.from_json(data["session"])
            return JobResult(**data)
        return None

    def end(self) -> None:
        """Kill and reap the child."""
        self._socket.close()
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)


def _load_for_polls(config: Config) -> None:
    """Load once what each poll needs, on a host that a metadata service has answered."""
    if "http.client" in sys.modules:
        return  # the loop of the daemon reads no file at each poll
    with suppress(ImportError, OSError, ObserveError, RecordError):  # which the child reports
        if load_machine(config.state).origin:
            load_queries()
            import neuca_tools.agent.metadata_access  # noqa: F401


def _run_child(job: Job, report: socket.socket) -> NoReturn:
    """Do the job and send its result; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # systemd signals the whole control group; the daemon decides when a child stops.
            signal.signal(number, signal.SIG_IGN)
        result = do_job(job, lambda: _send(report, PASS_BEGUN))
        data = {**result._asdict(), "session": result.session.tokens}
        _send(report, json.dumps(data).encode() + b"\n")
        os._exit(0)
    except NeucaError as error:
        log.error("%s", error.text)
    except Exception:  # the outermost loop: one job failed, the daemon lives
        log.exception("a pass failed because of a bug")
    finally:
        os._exit(1)


def _send(report: socket.socket, content: bytes) -> None:
    """Send to the daemon, or end if it was killed: nobody waits for the result."""
    try:
        report.sendall(content)
    except BrokenPipeError:
        os._exit(0)


def do_job(job: Job, begin_pass: Callable[[], object] = lambda: None) -> JobResult:
    """Do the job, unless a trial holds the lock. Raises NeucaError.

    `begin_pass` is called before anything is changed.
    """
    lock_seconds = trial_file.lock_seconds(job.config)
    try:
        return _do_locked_job(job, begin_pass, lock_seconds)
    except LockedError:
        # Without patience, the lock may be held by what followed a trial that has just ended.
        if lock_seconds and trial_file.lock_seconds(job.config):
            raise
    text = f"waiting: {trial_file.trial_note(job.config) or 'another pass'}"
    return JobResult(sha256=job.sha256, session=job.session, text=text, waits_for_trial=True)


def _do_locked_job(job: Job, begin_pass: Callable[[], object], lock_seconds: float) -> JobResult:
    if job.start:
        _await_coldplug(job.config)
    _report_volumes(job.config)
    config, read = job.config, _Reader(job)
    with document_in_force(
        config,
        read,
        from_own_sources=job.fetch,
        even_if_seen=not job.fetch,
        lock_seconds=lock_seconds,
        at_start=job.at_start,
    ) as intake:
        # With the lock held, no trial runs: the file of one that was killed or failed is left.
        is_saved = bool(unsaved_reason(config.state)) and save_unsaved_files(config.state)
        has_news = is_saved or _is_news(job, intake) or bool(trial_file.stored_trial(config))
        if job.run or has_news or _is_to_repeat(job):
            begin_pass()
            job = replace(job, left_out={}) if has_news else job
            result = _make_pass(job, intake, read.seconds)
        else:
            result = JobResult(sha256=job.sha256, text=_keep_answers(config, intake))
    unanswered = intake.unanswered if job.fetch else None
    return result._replace(session=intake.session, unanswered=unanswered)


def _is_to_repeat(job: Job) -> bool:
    """Whether a DHCP client has ended, or the full run directory took no report of the pass."""
    clients = job.config.run_directory / DHCP
    return processes.has_ended_process(clients, job.left_out) or bool(run_problem(job.config.state))


def _keep_answers(config: Config, intake: Intake) -> str:
    """Save what the sources said; return the new line, empty if that of the last pass holds."""
    before = load_source_answers(config.run_directory)
    keep_document(intake, config.state, config.run_directory)
    after = load_source_answers(config.run_directory)
    if after == before or (before.get("reason") == NOT_ASKED and intake.is_confirmed):
        return ""
    from neuca_tools.agent.status import status_now

    return _status_line(status_now(config, intake))


def _await_coldplug(config: Config) -> None:
    """Let udev process the NICs that are there: until then, it may rename one or set sysctls."""
    if config.managers == "auto" and udev.is_busy() and udev.serves_this_namespace():
        udev.await_empty_queue(COLDPLUG_SECONDS)


def _make_pass(job: Job, intake: Intake, source_seconds: float) -> JobResult:
    """Make a pass; `source_seconds` is how long the sources took."""
    from neuca_tools.agent.reconcile import run_pass
    from neuca_tools.state import changes, records

    sha256 = intake.stored.sha256 if intake.stored else ""
    result = JobResult(made_pass=True, sha256=sha256, left_out=tuple(job.left_out))
    try:
        if job.gone:  # forget what was set on these interfaces, even on those that are back
            record = records.load_record(job.config.state)
            record = changes.without_indexes(record, lambda _, index: index in job.gone)
            records.save_record(job.config.state, record)
        waits = not job.start  # systemd waits for the first pass
        report, status = run_pass(job.config, intake, job.start, job.left_out, waits_for_dad=waits)
    except NeucaError as error:
        log.error("%s", error.text)
        return result._replace(failed={WHOLE_PASS: 0}, text=error.text)
    result = _with_report(result, report, status)
    if job.start or report.changed or result.failed:
        _log_end(report, status, source_seconds)
    return result._replace(text=_status_line(status), completed_pass=True)


def _with_report(result: JobResult, report: Report, status: Status) -> JobResult:
    """The result with what failed in the pass, and what the next events depend on."""
    failed, age = dict(report.failed), report.next_age
    codes_of_status = {problem.code for problem in status.problems}
    codes = {problem.code for problem in report.problems}
    if status.has_silent_manager or (codes - {"pending"} and not (failed or result.left_out)):
        failed[WHOLE_PASS] = 0
    return result._replace(
        failed=failed,
        watches_all_links=not {"absent", "contested"}.isdisjoint(codes_of_status),
        waits_for_address=status.waits_for_management or "pending" in codes,
        has_routing_to_keep=status.has_routing_to_keep,
        new_links=report.new_links,
        deadline=None if age is None else time.monotonic() - hostid.boot_age() + age,
    )


def _log_end(report: Report, status: Status, source_seconds: float) -> None:
    """One line for a pass that did something, or was the first."""
    from neuca_tools.model import messages

    changed, failed, state = len(report.changed), len(report.problems), status.data["state"]
    fields = messages.message_fields(
        messages.PASS,
        seconds=report.seconds,
        source_seconds=f"{source_seconds:.3f}",
        changed=changed,
        failed=failed,
        state=state,
    )
    # At each boot, the first pass is for the last boot's document.
    reason = " (stale document)" if status.data["document"]["stale"] else ""
    log.info(
        "pass: %d changed, %d failed, in %g s: %s%s",
        changed, failed, report.seconds, state, reason, extra=fields,
    )  # fmt: skip


def _is_news(job: Job, intake: Intake) -> bool:
    """Whether the document or the machine differs from that of the last pass."""
    is_other = intake.stored is not None and intake.stored.sha256 != job.sha256
    return bool(intake.other_machine or is_other)


def _report_volumes(config: Config) -> None:
    try:
        lines = drives.unused_volumes(config.run_directory)
        for line in drives.unreported_lines(lines, config.run_directory):
            log.warning("%s", line)
    except NeucaError as error:
        log.warning("%s, ignoring", error.text)


class _Reader:
    """Reads the response of the sources if the job is to ask them, else their last one."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.seconds = 0.0  # that the sources took

    def __call__(self) -> Intake:
        config, session = self._job.config, self._job.session
        if not self._job.fetch:
            return last_confirmed(config.state, config.run_directory)._replace(session=session)
        from neuca_tools.agent.metadata_access import read_surroundings

        began = time.monotonic()
        specs = [parse_source(text) for text in config.sources]
        surroundings = read_surroundings(config, specs)
        intake = fetch_document(specs, config.timeout, session, config.state, surroundings)
        self.seconds = time.monotonic() - began
        return intake


def _status_line(status: Status) -> str:
    document = status.data["document"]
    origin = f"document of {document['source']}" if document["source"] else "no document"
    return f"{status.data['state']}; {origin}{' (stale)' if document['stale'] else ''}"
