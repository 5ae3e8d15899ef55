"""A job for a child that has just died: a new child does it, at once and once."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from neuca_tools.agent.daemon import Daemon
from neuca_tools.agent.worker import Job, Outcome, Worker
from neuca_tools.config import Config


@pytest.fixture
def daemon(tmp_path):
    config = replace(
        Config(),
        state_directory=tmp_path / "state",
        run_directory=tmp_path / "run",
        managers="none",
        sources=(),
    )
    made = Daemon(config, tmp_path / "config", lambda _: None)
    yield made
    made._retire()
    made._close()


def waiting(daemon):
    """The child that has made a pass and waits for its next job: stopped, so that it reads none."""
    worker = daemon._idle_worker()
    worker.passed = True
    os.kill(worker._child, signal.SIGSTOP)
    return worker


def kill(worker):
    os.kill(worker._child, signal.SIGKILL)
    os.waitid(os.P_PID, worker._child, os.WEXITED | os.WNOWAIT)


def assert_under_way(daemon, job, instead_of):
    assert isinstance(daemon._worker, Worker)
    assert daemon._worker is not instead_of
    assert (daemon._busy(), daemon._worker.job, daemon._plans.retry, daemon._failures) == (
        True,
        job,
        None,
        0,
    )


def test_a_job_for_a_child_that_is_dead_goes_to_a_new_one(daemon):
    dead, job = waiting(daemon), Job(daemon.config)
    kill(dead)
    daemon._begin(job)
    assert_under_way(daemon, job, dead)


def test_a_job_that_a_child_took_with_it_unread_goes_to_a_new_one(daemon):
    dead, job = waiting(daemon), Job(daemon.config)
    daemon._begin(job)
    kill(dead)
    daemon._read_worker()
    assert_under_way(daemon, job, dead)


def test_a_child_that_dies_of_its_first_job_is_a_failure_that_waits(daemon):
    worker = waiting(daemon)
    worker.passed = False
    daemon._begin(Job(daemon.config))
    kill(worker)
    daemon._read_worker()
    assert (daemon._worker, daemon._failures) == (None, 1)
    assert daemon._plans.retry is not None


def test_a_child_loads_the_modules_of_a_pass_while_the_events_settle(daemon, monkeypatch):
    made = []

    class Recorded(Worker):
        def __init__(self, config, ahead=False):
            made.append(ahead)
            super().__init__(config, ahead)

    monkeypatch.setattr("neuca_tools.agent.daemon.Worker", Recorded)
    daemon._dirty(0.1)
    daemon._dirty(0.1)
    prepared = daemon._worker
    assert (made, daemon._busy(), daemon._plans.retire) == ([True], False, None)
    daemon._begin(Job(daemon.config))
    assert (daemon._worker, daemon._busy(), made) == (prepared, True, [True])


def test_no_child_is_made_for_an_event_during_a_job(daemon):
    daemon._begin(Job(daemon.config))
    busy = daemon._worker
    daemon._dirty(0.1)
    assert daemon._worker is busy


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (Outcome(ran=True, passed=True), False),
        (Outcome(ran=True, passed=True, unheard=True), True),
        (Outcome(ran=True, passed=True, failed=1), True),
        (Outcome(), False),
    ],
)
def test_after_a_failure_or_a_manager_without_an_answer_there_is_another_pass(
    daemon, outcome, again
):
    daemon._plan_retry(outcome)
    assert (daemon._plans.retry is not None, daemon._failures) == (again, int(again))
