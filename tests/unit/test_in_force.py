"""Which document is in force after a start of the daemon that an administrator does not wait for."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.agent import in_force
from neuca_tools.agent.worker import Job, JobResult
from neuca_tools.config import Config
from neuca_tools.model import Document
from neuca_tools.model.rows import StoredDocument
from neuca_tools.state.active_document import Intake, keep_document, last_confirmed

OWN, APPLIED, LATER = (
    Intake(Document(), StoredDocument(name, name * 64, "now", f"[global]\nhost_name = {name}\n"))
    for name in "abc"
)


@pytest.fixture
def config(tmp_path):
    """The own sources have a document that was not applied, as after a trial."""
    config = Config(run_directory=tmp_path / "run", state_directory=tmp_path / "state")
    config.run_directory.mkdir()
    keep_document(APPLIED._replace(seen=OWN.sha256), config.state, config.run_directory)
    return config


def make_pass(config, job, latest=None):
    """The job of the daemon: the first pass or, with the `latest` document, a poll."""

    def read():
        return latest or last_confirmed(config.state, config.run_directory)

    polls = latest is not None
    with in_force.document_in_force(
        config, read, from_own_sources=polls, even_if_seen=not polls, at_start=job.at_start
    ) as intake:
        keep_document(intake, config.state, config.run_directory)
        return intake.stored.source


def administrator_applies(config, intake):
    with in_force.document_in_force(
        config, lambda: intake, from_own_sources=False, even_if_seen=True
    ) as applied:
        keep_document(applied, config.state, config.run_directory)


@pytest.mark.parametrize("was_killed", [True, False])
@pytest.mark.parametrize("later", [None, LATER])
def test_what_is_applied_after_the_first_pass_has_begun_stays(config, was_killed, later):
    job = Job(config, at_start=in_force.digests(config))
    assert make_pass(config, job) == "b"
    result = JobResult(made_pass=not was_killed, sha256="" if was_killed else APPLIED.sha256)
    job = job.after(result)
    if later:
        administrator_applies(config, later)
    assert make_pass(config, job, OWN) == ("c" if later else "a")


def test_a_poll_without_an_answer_leaves_it_to_the_next(config):
    job = Job(config, at_start=in_force.digests(config))
    silent = APPLIED._replace(stale=True, unanswered=True)
    for latest, expected in ((silent, "b"), (OWN, "a")):
        assert make_pass(config, job, latest) == expected
        job = job.after(JobResult(sha256=APPLIED.sha256))


def test_what_is_applied_again_after_the_own_document_stays(config):
    job = Job(config, at_start=in_force.digests(config))
    assert make_pass(config, job, OWN) == "a"
    job = job.after(JobResult(made_pass=True, sha256=OWN.sha256))
    administrator_applies(config, APPLIED)
    assert make_pass(config, job, OWN) == "b"
