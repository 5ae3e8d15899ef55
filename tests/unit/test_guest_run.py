"""Runs over the guest's features: none costs another, what they say is kept, and a run is due when there is reason to."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.config import Config
from neuca_tools.documents import parse
from neuca_tools.documents.neuca.ini_document import MAX_ROWS
from neuca_tools.errors import ApplyError
from neuca_tools.guest import outcome, run
from neuca_tools.guest.base import FEATURES, Finding
from neuca_tools.guest.outcome import Outcome
from neuca_tools.guest.run import RUNS, run_guest
from neuca_tools.model.rows import StoredDocument
from neuca_tools.state.active_document import Intake, last_good
from neuca_tools.state.records import save_document
from neuca_tools.status import render
from neuca_tools.status.judge import Status

ROOT = Path(__file__).parents[2]
STAY = """
import sys
from pathlib import Path
from neuca_tools.config import load_config
from neuca_tools.guest import run
ran = run.outcome.end_run
def told(*words):
    ran(*words)
    Path(sys.argv[2]).write_text("ran")
run.outcome.end_run = told
run.run_forever(load_config(Path(sys.argv[1])), lambda: load_config(Path(sys.argv[1])))
"""
TEXT = "[global]\nhost_name = Node0\n"


@pytest.fixture
def config(tmp_path):
    return Config(
        state_directory=tmp_path / "state",
        run_directory=tmp_path / "run",
        hosts_file=tmp_path / "hosts",
    )


def store(config, text=TEXT, sha256="a" * 64):
    save_document(
        config.state_directory, StoredDocument("ec2", sha256, "2026-11-20T19:00:00Z", text)
    )


def runs(hostname):
    """All features, of which this one alone does anything."""
    return {**{name: lambda _: iter(()) for name in RUNS}, "hostname": hostname}


def test_every_feature_has_its_work():
    assert list(RUNS) == list(FEATURES)


def test_what_a_feature_finds_is_kept_and_the_run_went_well(config):
    store(config)
    assert run_guest(config, runs(lambda guest: iter([Finding("ok", guest.document.hostname)])))
    kept = outcome.load_outcome(config.run_directory, "hostname")
    assert (kept.state, kept.findings) == ("ok", (Finding("ok", "Node0"),))
    assert kept.finished.endswith("Z")


def test_without_a_document_nothing_is_done(config):
    def never(_):
        raise AssertionError

    assert run_guest(config, runs(never))
    assert list(config.run_directory.glob("guest-*.json")) == []


def test_what_is_worth_another_try_makes_the_run_one_to_repeat(config):
    store(config)
    assert not run_guest(
        config, runs(lambda _: iter([Finding("failed", "late", needs_retry=True)]))
    )
    assert run_guest(config, runs(lambda _: iter([Finding("failed", "for good")])))


def test_an_error_of_one_feature_is_a_finding_and_worth_another_try(config, caplog):
    def refused(_):
        yield Finding("ok", "so far")
        raise ApplyError("no")

    store(config)
    assert not run_guest(config, runs(refused))
    assert outcome.load_outcome(config.run_directory, "hostname").findings == (
        Finding("ok", "so far"),
        Finding("failed", "no", needs_retry=True),
    )
    assert caplog.messages[-1] == "hostname: no"


def test_a_defect_of_one_feature_costs_the_others_nothing(config, caplog):
    def defect(_):
        raise ZeroDivisionError

    store(config)
    others = []
    every = {name: lambda _, name=name: iter(others.append(name) or ()) for name in RUNS}
    assert run_guest(config, {**every, "hostname": defect})
    assert others == [name for name in RUNS if name != "hostname"]
    assert outcome.load_outcome(config.run_directory, "hostname").state == "failed"
    assert "hostname: failed because of a bug" in caplog.text


def test_what_was_said_before_is_not_logged_again(config, caplog):
    caplog.set_level("INFO", "neuca")
    store(config)
    for _ in range(2):
        run_guest(config, runs(lambda _: iter([Finding("refused", "that name")])))
    assert caplog.messages == ["hostname: that name"]


def test_a_later_finding_takes_the_place_of_an_earlier_one_about_the_same(config):
    said = [
        Finding("pending", "runs", "boot"),
        Finding("ok", "other", "x"),
        Finding("ok", "ended", "boot"),
    ]
    store(config)
    run_guest(config, runs(lambda _: iter(said)))
    assert outcome.load_outcome(config.run_directory, "hostname").findings == (said[1], said[2])


def test_no_failure_is_lost_among_the_findings_of_as_many_users_as_a_document_may_have():
    kept = outcome.Outcome("users").with_finding(Finding("failed", "it failed", "user 0", True))
    for number in range(1, 4 * MAX_ROWS):
        kept = kept.with_finding(Finding("ok", "it is well", f"user {number}"))
    assert (kept.ended().state, kept.needs_retry) == ("failed", True)


def test_a_feature_at_work_is_pending(config):
    def seen(_):
        yield Finding("ok", "first")
        assert outcome.load_outcome(config.run_directory, "hostname").state == "pending"

    store(config)
    run_guest(config, runs(seen))
    assert outcome.load_outcome(config.run_directory, "hostname").state == "ok"


def test_a_feature_that_is_switched_off_does_nothing_and_says_nothing(config):
    store(config)
    run_guest(config, runs(lambda _: iter([Finding("failed", "no")])))
    off = config._replace(guest_hostname=False)
    assert run_guest(off, runs(lambda _: iter([Finding("failed", "no", needs_retry=True)])))
    assert outcome.load_outcome(config.run_directory, "hostname") is None


def test_a_document_that_comes_meanwhile_is_worked_on_by_the_same_run(config):
    names = []

    def work(guest):
        names.append(guest.document.hostname)
        if len(names) == 1:
            store(config, "[global]\nhost_name = Node1\n", "b" * 64)
            outcome.request_run(config, last_good(config.state_directory))
        return iter(())

    store(config)
    assert run_guest(config, runs(work))
    assert names == ["Node0", "Node1"]
    assert not outcome.is_due(config.run_directory)


def test_a_document_that_comes_back_during_the_run_for_another_is_worked_on(config):
    names = []

    def work(guest):
        names.append(guest.document.hostname)
        if len(names) == 2:
            store(config)
            outcome.request_run(config, last_good(config.state_directory))
        return iter(())

    store(config)
    assert run_guest(config, runs(work))
    store(config, "[global]\nhost_name = Node1\n", "b" * 64)
    assert run_guest(config, runs(work))
    assert names == ["Node0", "Node1", "Node0"]


def test_what_was_left_in_the_file_of_an_outcome_may_be_anything(config):
    config.run_directory.mkdir()
    for rubbish in (
        b"",
        b"{",
        b"[]",
        b'{"findings": [{}]}',
        b'{"findings": 7, "finished": null}',
        b"\xff",
    ):
        (config.run_directory / "guest-hostname.json").write_bytes(rubbish)
        assert outcome.load_outcome(config.run_directory, "hostname") is None


# --- When a run is due ----------------------------------------------------------------------------------------------


def ask(config, text=TEXT, sha256="a" * 64):
    outcome.request_run(config, Intake(parse(text), StoredDocument("ec2", sha256, "", text)))
    return outcome.is_due(config.run_directory)


def test_a_run_is_due_once_for_each_document_in_a_boot(config):
    assert ask(config)
    store(config)
    run_guest(config, runs(lambda _: iter(())))
    assert not outcome.is_due(config.run_directory)
    assert not ask(config)
    assert ask(config, sha256="b" * 64)


def test_a_run_that_is_due_already_is_not_asked_for_again(config):
    ask(config)
    before = (config.run_directory / outcome.DUE).stat()
    ask(config, sha256="b" * 64)
    assert (config.run_directory / outcome.DUE).stat() == before


def test_a_document_that_asks_nothing_of_the_guest_costs_no_run(config):
    assert not ask(config, "[interfaces]\nfe163e006daf = up\n")
    assert not ask(config._replace(guest_hostname=False))


def test_a_run_is_due_where_there_may_be_something_to_take_away(config):
    config.state_directory.mkdir()
    (config.state_directory / "guest-users.json").touch()
    assert ask(config, "[interfaces]\nfe163e006daf = up\n")


def test_without_a_document_no_run_is_due(config):
    outcome.request_run(config, Intake(none_for_us=True))
    assert not outcome.is_due(config.run_directory)


def test_a_mark_that_cannot_be_made_costs_nothing(config, tmp_path, caplog):
    (tmp_path / "file").touch()
    assert not ask(config._replace(run_directory=tmp_path / "file"))
    assert "ignoring" in caplog.text


# --- Status ---------------------------------------------------------------------------------------------------------


def status(state="ok", code=0):
    return Status({"state": state, "problems": [], "notes": []}, code)


def kept(directory, *findings, ended=True):
    one = Outcome("hostname", findings)
    outcome.save_outcome(directory, one.ended() if ended else one)


def test_without_any_request_for_the_guest_the_status_is_that_of_the_network(tmp_path):
    assert outcome.with_guest(status(), tmp_path) == Status(
        {"state": "ok", "problems": [], "notes": [], "guest": []}, 0
    )


@pytest.mark.parametrize(
    ("network", "finding", "expected"),
    [
        (("ok", 0), "ok", ("ok", 0)),
        (("ok", 0), "failed", ("failed", 1)),
        (("ok", 0), "refused", ("degraded", 4)),
        (("ok", 0), "pending", ("pending", 3)),
        (("degraded", 4), "pending", ("pending", 3)),
        (("failed", 1), "ok", ("failed", 1)),
        (("pending", 3), "refused", ("pending", 3)),
        (("degraded", 78), "failed", ("failed", 78)),
    ],
    ids=str,
)
def test_the_worse_of_network_and_guest_is_the_state_of_the_host(
    tmp_path, network, finding, expected
):
    kept(tmp_path, Finding(finding, "text"))
    merged = outcome.with_guest(status(*network), tmp_path)
    assert (merged.data["state"], merged.exit_code) == expected


def test_a_run_that_is_due_or_under_way_is_pending(config):
    store(config)
    directory = config.run_directory
    assert ask(config)
    assert outcome.with_guest(status(), directory).exit_code == 3
    seen = []
    run_guest(
        config,
        runs(lambda _: iter(seen.append(outcome.with_guest(status(), directory).exit_code) or ())),
    )
    assert (seen, outcome.with_guest(status(), directory).exit_code) == ([3], 0)


def test_a_run_that_was_killed_is_pending_until_the_next_has_ended(config):
    store(config)
    outcome.begin_run(config.run_directory)
    assert outcome.with_guest(status(), config.run_directory).exit_code == 3
    run_guest(config, runs(lambda _: iter(())))
    assert outcome.with_guest(status(), config.run_directory).exit_code == 0


def test_a_status_that_waits_for_a_run_says_so(config):
    """A table without a problem would not explain the state."""
    store(config)
    assert ask(config)
    merged = outcome.with_guest(status(), config.run_directory)
    assert merged.data["notes"] == [
        "requests for the host itself have not been carried out yet; neucad --guest does that"
    ]
    run_guest(config, runs(lambda _: iter(())))
    assert outcome.with_guest(status(), config.run_directory).data["notes"] == []


def test_what_failed_or_is_refused_is_among_the_problems_of_the_host(tmp_path):
    kept(tmp_path, Finding("ok", "fine"), Finding("refused", "not that"), Finding("failed", "no"))
    merged = outcome.with_guest(status(), tmp_path)
    assert merged.data["problems"] == [
        {"code": "refused", "text": "hostname: not that"},
        {"code": "failed", "text": "hostname: no"},
    ]
    assert [
        (one["feature"], one["state"], len(one["findings"])) for one in merged.data["guest"]
    ] == [("hostname", "failed", 3)]
    json.dumps(merged.data)


def test_people_see_what_went_well_for_the_guest_and_the_rest_among_the_problems(tmp_path):
    kept(
        tmp_path,
        Finding("failed", "no"),
        Finding("ok", "first: exit status 0 after 0.1 s"),
        Finding("pending", "second: runs"),
    )
    document = {"source": "", "stale": False, "reason": ""}
    data = {
        "neuca": "2.0.0",
        "document": document,
        "last_pass": None,
        "interfaces": [],
        "notes": [],
    }
    merged = outcome.with_guest(Status({**status().data, **data}, 0), tmp_path)
    assert render.status_text(merged.data, color=False).splitlines()[-4:] == [
        "!! failed: hostname: no",
        "guest: hostname failed",
        "      hostname: first: exit status 0 after 0.1 s",
        "      hostname: second: runs",
    ]


# --- Without systemd ------------------------------------------------------------------------------------------------


def test_the_staying_process_runs_when_due_with_fresh_configuration_until_a_signal(
    tmp_path,
):
    text = (
        f"[runtime]\nstate-directory = {tmp_path}/state\nrun-directory = {tmp_path}/run\nhosts-file = {tmp_path}/hosts\n"
        "[metadata]\npoll-interval = 1\n[guest]\nhostname = no\n"
    )
    (tmp_path / "config").write_text(text)
    (tmp_path / "run").mkdir()
    config = Config(state_directory=tmp_path / "state", run_directory=tmp_path / "run")
    store(config)
    (tmp_path / "run" / outcome.DUE).touch()
    os.mkfifo(tmp_path / "said")
    process = subprocess.Popen(
        [sys.executable, "-c", STAY, tmp_path / "config", tmp_path / "said"], cwd=ROOT
    )
    try:
        assert (tmp_path / "said").read_text() == "ran"
        assert not outcome.is_due(tmp_path / "run")
        assert outcome.load_outcome(tmp_path / "run", "users")
        (tmp_path / "config").rename(tmp_path / "before")
        (tmp_path / "config").mkdir()  # it cannot be read
        (tmp_path / "run" / outcome.DUE).touch()
        assert (tmp_path / "said").read_text() == "ran"
        assert outcome.load_outcome(tmp_path / "run", "users")
        (tmp_path / "before").write_text(f"{text}users = no\n")
        (tmp_path / "config").rmdir()
        (tmp_path / "before").rename(tmp_path / "config")
        (tmp_path / "run" / outcome.DUE).touch()
        assert (tmp_path / "said").read_text() == "ran"
        assert not outcome.load_outcome(tmp_path / "run", "users")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    finally:
        process.kill()


def test_sources_that_are_rarely_queried_delay_no_run(config, monkeypatch):
    """`poll-interval` is about the sources; a failed run is repeated after 30 seconds."""
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            outcome.write_files({config.run_directory / outcome.DUE: b""})

    def read():
        raise SystemExit(0)

    monkeypatch.setattr(run, "_wait_for_signal", wait)
    with pytest.raises(SystemExit):
        run.run_forever(config._replace(poll_interval=86400.0), read)
    assert waits == [30.0, 30.0]
