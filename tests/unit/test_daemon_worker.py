"""The child that does a job, and when the job for events begins."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from neuca_tools.agent import worker as worker_module
from neuca_tools.agent.backoff import WHOLE_PASS
from neuca_tools.agent.daemon import (
    DEBOUNCE_SECONDS,
    EVENT_GAP_SECONDS,
    SECONDS_BETWEEN_PASSES,
    UDEV_NAMING_SECONDS,
    Daemon,
    Plans,
)
from neuca_tools.agent.worker import (
    COLDPLUG_SECONDS,
    PASS_GRACE_SECONDS,
    Job,
    JobResult,
    Worker,
    do_job,
)
from neuca_tools.backends.processes import process_note
from neuca_tools.commands.neucad import _single_instance
from neuca_tools.config import Config
from neuca_tools.files import locked
from neuca_tools.model.rows import StoredDocument
from neuca_tools.state import records
from neuca_tools.state.active_document import Intake
from neuca_tools.state.store import REASON_FILE, save_state


@pytest.fixture
def daemon(tmp_path):
    config = Config()._replace(
        state_directory=tmp_path / "state",
        run_directory=tmp_path / "run",
        managers="none",
        sources=(),
    )
    made = Daemon(config, tmp_path / "config", lambda _: None)
    yield made
    made._close()


def test_a_child_that_dies_of_its_job_is_a_failure_that_waits(daemon):
    daemon._begin(Job(daemon.config))
    child = daemon._worker._child
    os.kill(child, signal.SIGKILL)
    while daemon._worker:
        daemon._read_worker()
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)  # it is no zombie
    assert bool(daemon._backoff)
    assert daemon._plans.retry is not None


def test_a_child_ends_its_job_although_the_daemon_has_ended(daemon):
    daemon.config.run_directory.mkdir()
    with locked(daemon.config.pass_lock, 1.0):
        worker = Worker(Job(daemon.config))
        worker._socket.close()
    assert os.waitpid(worker._child, 0)[1] == 0


@pytest.mark.parametrize(
    ("start", "busy", "managers", "waits"),
    [
        (True, True, "auto", True),
        (True, False, "auto", False),
        (False, True, "auto", False),
        (True, True, "none", False),
    ],
)
def test_a_first_pass_waits_for_what_udev_does_to_the_nics(
    daemon, monkeypatch, start, busy, managers, waits
):
    waited = []
    monkeypatch.setattr("neuca_tools.backends.udev.is_busy", lambda: busy)
    monkeypatch.setattr("neuca_tools.backends.udev.serves_this_namespace", lambda: True)
    monkeypatch.setattr("neuca_tools.backends.udev.await_empty_queue", waited.append)
    do_job(Job(daemon.config._replace(managers=managers), start=start))
    assert waited == ([COLDPLUG_SECONDS] if waits else [])


def test_a_full_run_directory_has_what_failed_left_alone(daemon, monkeypatch):
    jobs, left_out = [], {"a": 7}
    monkeypatch.setattr(
        "neuca_tools.agent.worker._make_pass", lambda job, *_: jobs.append(job) or JobResult()
    )
    save_state(
        daemon.config.state_directory, REASON_FILE, {"reason": "write: no space left"}, 0o644
    )
    do_job(Job(daemon.config, left_out=left_out))
    assert [job.left_out for job in jobs] == [left_out]


def test_the_time_that_the_sources_took_is_known(daemon):
    read = worker_module._Reader(Job(daemon.config._replace(sources=("none",)), fetch=True))
    assert (read().stored.text, 0 < read.seconds < 60) == ("", True)


def test_no_child_is_made_for_an_event_during_a_job(daemon):
    daemon._begin(Job(daemon.config))
    busy = daemon._worker
    daemon._plan_event_pass(0.1, {7})
    assert daemon._worker is busy


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (JobResult(made_pass=True, completed_pass=True), False),
        (JobResult(made_pass=True, completed_pass=True, failed={WHOLE_PASS: 0}), True),
        (JobResult(made_pass=True, completed_pass=True, failed={"a": 7}), True),
        (JobResult(), False),
    ],
)
def test_after_a_failure_or_a_manager_without_an_answer_there_is_another_pass(
    daemon, outcome, again
):
    daemon._plan_retry(outcome)
    assert (daemon._plans.retry is not None, bool(daemon._backoff)) == (again, again)


@pytest.mark.parametrize(
    ("starting", "drift", "failed", "run"),
    [
        (False, "report", {}, False),
        (False, "enforce", {}, True),
        (True, "report", {}, True),
        (True, "report", {"a": 7}, False),
        (False, "enforce", {"a": 7}, False),
    ],
)
def test_a_poll_makes_a_pass_at_the_start_or_to_enforce_unless_a_retry_is_planned(
    daemon, monkeypatch, starting, drift, failed, run
):
    jobs = []
    monkeypatch.setattr(daemon, "_begin", jobs.append)
    daemon.config = daemon.config._replace(drift=drift)
    daemon._plan_retry(JobResult(made_pass=True, completed_pass=True, failed=failed))
    daemon._plans, daemon._is_starting = Plans(poll=100.0), starting
    daemon._start_what_is_due(100.0)
    assert [(job.fetch, job.run) for job in jobs] == [(True, run)]


class Clock:
    """The time of a daemon whose passes take no time, and when it began them."""

    def __init__(self, daemon, monkeypatch):
        self.now, self.passes, self._daemon = 100.0, [], daemon
        monkeypatch.setattr(
            "neuca_tools.agent.daemon.time", SimpleNamespace(monotonic=lambda: self.now)
        )
        monkeypatch.setattr(daemon, "_begin", lambda _: self.passes.append(round(self.now, 3)))
        daemon._plans = Plans(poll=1000.0)

    def run(self, until):
        """Let the daemon do what is due by then."""
        while self._daemon._plans.next() <= until:
            self.now = max(self.now, self._daemon._plans.next())
            self._daemon._start_what_is_due(self.now)
        self.now = until


@pytest.fixture
def clock(daemon, monkeypatch):
    return Clock(daemon, monkeypatch)


def test_the_pass_for_an_event_begins_as_soon_as_no_other_follows(daemon, clock):
    for moment in (100.0, 100.004, 100.008):
        clock.run(moment)
        daemon._plan_event_pass(EVENT_GAP_SECONDS, {7})
    clock.run(200.0)
    assert clock.passes == [round(100.008 + EVENT_GAP_SECONDS, 3)]


@pytest.mark.parametrize("gap", [0.001, 0.009, 0.011, 0.05])
def test_a_burst_of_events_does_not_cause_a_pass_for_each(daemon, clock, gap):
    events = int(1 / gap)  # within one second
    for number in range(events):
        clock.run(100 + number * gap)
        daemon._plan_event_pass(EVENT_GAP_SECONDS, {7})
    clock.run(200.0)
    assert len(clock.passes) <= 1 + 1 / SECONDS_BETWEEN_PASSES + 1
    assert clock.passes[0] <= 100 + DEBOUNCE_SECONDS
    pauses = [later - earlier for earlier, later in zip(clock.passes, clock.passes[1:])]
    assert all(pause >= SECONDS_BETWEEN_PASSES - 0.001 for pause in pauses)
    assert clock.passes[-1] > 100 + (events - 1) * gap  # so that no event is missed


def test_a_nic_waits_for_udev_until_its_patience_ends(daemon, clock):
    daemon._await_udev({7})
    clock.run(101.0)
    daemon._await_udev({7})
    clock.run(200.0)
    assert clock.passes == [100 + UDEV_NAMING_SECONDS]


def test_the_word_of_udev_ends_the_wait(daemon, clock):
    daemon._await_udev({7})
    clock.run(101.0)
    daemon._plan_event_pass(EVENT_GAP_SECONDS, {7})
    daemon._await_udev({7})  # the rename, as the kernel reports it
    clock.run(200.0)
    assert clock.passes == [101 + EVENT_GAP_SECONDS]


@pytest.mark.parametrize(
    ("events", "begins"),
    [
        ([{0}], 100 + EVENT_GAP_SECONDS),
        ([{7}], 100 + UDEV_NAMING_SECONDS),
        ([{7}, {0}], 100 + UDEV_NAMING_SECONDS),
        ([{0}, {7}], 100 + UDEV_NAMING_SECONDS),
    ],
)
def test_an_address_does_not_wait_for_udev_unless_a_nic_does(
    daemon, clock, monkeypatch, events, begins
):
    monkeypatch.setattr(daemon, "_udev", object())
    for links in events:
        monkeypatch.setattr(daemon._links, "drain", lambda links=links, **_: links)
        daemon._link_events()
    clock.run(200.0)
    assert clock.passes == [begins]


@pytest.mark.parametrize("created", [(), (1,)])
def test_the_links_that_a_pass_has_created_are_no_news_when_it_ends(daemon, created):
    ends = os.pipe()
    daemon._watch_descriptor(ends[0], lambda: None)
    result = JobResult(made_pass=True, completed_pass=True, sha256="x", new_links=created)
    daemon._worker = SimpleNamespace(
        config=daemon.config, fileno=lambda: ends[0], result=lambda: result, end=lambda: None
    )
    daemon._plan_event_pass(EVENT_GAP_SECONDS, {1})
    daemon._end()
    assert (daemon._plans.events is None) is bool(created)
    for descriptor in ends:
        os.close(descriptor)


@pytest.mark.parametrize("content", [None, "[global]\n"])
def test_a_start_without_a_document_asks_the_sources_and_lets_the_boot_go_on(
    daemon, monkeypatch, content
):
    if content:
        records.save_document(daemon.config.state, StoredDocument("ec2", "0", "now", content))
    jobs = []

    def begin(job):
        jobs.append((job.start, job.run, job.fetch))
        daemon._is_stopping = True

    monkeypatch.setattr(daemon, "_begin", begin)
    daemon.run()
    assert jobs == [(True, True, content is None)]
    assert daemon._is_ready is (content is None)


# --- A stop while a child works -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "misses"),
    [
        (b"", False),  # a job that only fetches is under way
        (b'{"ran": false}\n', True),
        (b'pass\n{"ran": true}\n', True),
    ],
)
def test_a_stop_waits_for_a_pass_only_and_for_no_report_that_is_there(said, misses):
    worker = object.__new__(Worker)
    worker._socket, child = socket.socketpair()
    worker._received = b""
    with worker._socket, child:
        child.sendall(said)
        began = time.monotonic()
        assert worker.wait() is misses
        assert time.monotonic() - began < PASS_GRACE_SECONDS
    assert worker._received == said


@pytest.mark.parametrize("said", [b"pass\n", b'pass\n{"ran": '])
def test_a_pass_that_does_not_end_is_not_waited_for_for_ever(monkeypatch, said):
    """The daemon then kills it, and the next one repeats it."""
    monkeypatch.setattr(worker_module, "PASS_GRACE_SECONDS", 0.01)
    worker = object.__new__(Worker)
    worker._socket, child = socket.socketpair()
    worker._received = b""
    with worker._socket, child:
        child.sendall(said)
        assert worker.wait()
        assert worker.result() is None


# --- One daemon -----------------------------------------------------------------------------------


def test_a_child_that_outlives_the_daemon_does_not_keep_another_from_starting(tmp_path):
    config = Config(run_directory=tmp_path / "run", state_directory=tmp_path / "state")
    reader, writer = os.pipe()
    with _single_instance(config):
        child = os.fork()
        if child == 0:
            os.write(writer, b"!")
            signal.pause()
        assert os.read(reader, 1) == b"!"
    try:
        with _single_instance(config):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def test_a_retry_that_is_far_away_does_not_delay_the_end_of_a_wait(daemon):
    now = time.monotonic()
    failed = JobResult(made_pass=True, completed_pass=True, failed={"a": 7}, deadline=now + 1.0)
    daemon._plan_retry(failed)
    assert daemon._plans.retry == now + 1.0
    daemon._plan_retry(failed._replace(deadline=now + 9999.0))
    assert daemon._plans.retry == daemon._backoff.due()


def test_a_job_that_cannot_begin_leaves_no_watch_for_all_routes(daemon, monkeypatch):
    def fail():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def groups():
        inode = str(os.fstat(daemon._links.fileno()).st_ino)
        rows = map(str.split, Path("/proc/self/net/netlink").read_text().splitlines())
        return next(row[3] for row in rows if row[-1] == inode)

    before = groups()
    monkeypatch.setattr(socket, "socketpair", fail)
    daemon._begin(daemon._job)
    assert (daemon._worker, groups()) == (None, before)
    assert daemon._plans.retry == daemon._backoff.due() > time.monotonic()


@pytest.mark.parametrize("fetch", [False, True])
def test_a_job_that_gets_no_descriptor_is_tried_again_later(daemon, fetch):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        daemon._begin(Job(daemon.config, fetch=fetch))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert daemon._worker is None
    assert daemon._plans.retry == daemon._backoff.due() > time.monotonic()


def test_what_disappeared_is_known_until_a_pass_has_completed(daemon):
    """The pass that failed may not have recorded it."""
    daemon._job = replace(daemon._job, gone=(7,))
    daemon._remember(JobResult(made_pass=True, failed={WHOLE_PASS: 0}))
    assert daemon._job.gone == (7,)
    daemon._remember(JobResult(made_pass=True, completed_pass=True))
    assert daemon._job.gone == ()


def test_a_pass_that_failed_does_not_end_the_wait_for_an_address(daemon):
    """Its result is no answer, and neither is that of a job without a pass."""
    result = JobResult(made_pass=True, completed_pass=True, waits_for_address=True)
    for last in (result, JobResult(made_pass=True, failed={WHOLE_PASS: 0}), JobResult()):
        daemon._remember(last)
        assert daemon._waits_for_address
    daemon._remember(result._replace(waits_for_address=False))
    assert not daemon._waits_for_address


@pytest.mark.parametrize(
    "result",
    [JobResult(made_pass=True, failed={"a": 7}), JobResult(made_pass=True, new_links=(1,)), None],
)
def test_what_failed_before_the_configuration_was_reloaded_is_tried_with_the_new_one(
    daemon, monkeypatch, result
):
    """A reload may come while a pass runs, which has the earlier configuration."""
    daemon.path.write_text("")
    daemon._begin(Job(daemon.config))
    monkeypatch.setattr(daemon._worker, "result", lambda: result)
    daemon._reload_configuration()
    plans = replace(daemon._plans)
    daemon._end()
    assert daemon._backoff.left_out(time.monotonic()) == {}
    assert (daemon._plans.poll, daemon._plans.events) == (plans.poll, plans.events)


def test_a_signal_that_arrives_while_the_handlers_are_installed_ends_the_daemon(
    daemon, monkeypatch
):
    install, turn, turns = signal.signal, daemon._turn, []

    def install_and_signal(number, handler):
        before = install(number, handler)
        if number == signal.SIGTERM:
            monkeypatch.setattr(signal, "signal", install)
            os.kill(os.getpid(), signal.SIGTERM)
        return before

    def counted_turn():
        turns.append(turn())
        assert len(turns) < 3

    monkeypatch.setattr(daemon, "_begin", lambda _: None)
    monkeypatch.setattr(daemon, "_turn", counted_turn)
    monkeypatch.setattr(signal, "signal", install_and_signal)
    daemon.run()
    assert len(turns) == 1


def test_a_second_signal_does_not_end_the_wait_for_a_pass(daemon, monkeypatch):
    def begin(_):
        daemon._is_stopping, daemon._worker = True, worker

    worker = SimpleNamespace(
        fileno=lambda: 0, end=lambda: None, wait=lambda: os.kill(os.getpid(), signal.SIGTERM)
    )
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append(1))
    monkeypatch.setattr(daemon, "_begin", begin)
    monkeypatch.setattr(daemon._selector, "unregister", lambda _: None)
    daemon.run()
    signal.signal(signal.SIGTERM, before)
    assert received == []


def test_a_job_that_began_during_a_trial_is_done_later_if_a_pass_follows_the_trial(
    daemon, monkeypatch
):
    """It waits for no lock, which is held for a moment only by then."""
    config = daemon.config
    trial = subprocess.Popen(["sleep", "600"])
    note = process_note(trial.pid).decode()
    records.save_trial(config.state, records.Trial(pid=trial.pid, process=note))

    def end_trial(*_):
        trial.kill()
        trial.wait()
        (config.state_directory / records.TRIAL).unlink(missing_ok=True)
        return Intake()

    monkeypatch.setattr("neuca_tools.agent.worker.last_confirmed", end_trial)
    with other_process_with_lock(config.pass_lock):
        assert do_job(Job(config)).waits_for_trial


@contextmanager
def other_process_with_lock(path):
    """Another process that holds the lock."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        with locked(path, 1.0):
            os.write(send, b"held")
            signal.pause()
    try:
        assert os.read(receive, 4) == b"held"
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(receive)
        os.close(send)
