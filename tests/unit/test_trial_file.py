"""Whether a trial still runs, and whether one that is confirmed was kept."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import nullcontext

import pytest

from neuca_tools.agent import trial, trial_file
from neuca_tools.agent.change import undo_release
from neuca_tools.backends.processes import process_note
from neuca_tools.config import Config
from neuca_tools.errors import NeucaError
from neuca_tools.files import locked
from neuca_tools.model import NicRecord, Record
from neuca_tools.state import records, store
from neuca_tools.state.records import Trial


def test_a_trial_runs_until_its_process_ends_even_if_no_parent_takes_notice():
    process = subprocess.Popen(("sleep", "infinity"))
    pid = process.pid
    trial = Trial(pid=pid, process=process_note(pid).decode())
    assert trial_file.is_running(trial)
    process.kill()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not trial_file.is_running(trial)  # a zombie
    process.wait()
    assert not trial_file.is_running(trial)
    assert not trial_file.is_running(None)


def test_a_process_that_has_the_id_of_an_ended_trial_is_not_the_trial():
    pid, _, began = process_note(os.getpid()).decode().partition(" ")
    assert trial_file.is_running(Trial(pid=int(pid), process=f"{pid} {began}"))
    assert not trial_file.is_running(Trial(pid=int(pid), process=f"{pid} {int(began) - 1}"))


@pytest.mark.parametrize("released", [True, False])
def test_a_release_that_was_undone_after_a_killed_trial_does_not_come_back(tmp_path, released):
    config = Config(run_directory=tmp_path / "run", state_directory=tmp_path / "state")
    other = NicRecord("eth1", released=True)
    record = Record(nics={"a": NicRecord("eth0", released=True), "b": other})
    earlier = Record(nics={"a": NicRecord("eth0", released=released), "b": other})
    records.save_record(config.state, record)
    records.save_trial(config.state, Trial(boot_id="another", record=earlier))
    undo_release(config, "a")
    assert records.load_record(config.state).nics == {"b": other}
    assert trial_file.recover_from_trial(config)
    kept = {} if released else {"a": NicRecord("eth0")}
    assert records.load_record(config.state).nics == {**kept, "b": other}


@pytest.fixture
def ending_trial(tmp_path):
    """Starts a process with a trial, which ends as told when it is confirmed."""
    config = Config(run_directory=tmp_path / "run", state_directory=tmp_path / "state")
    children, before = [], signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    def run(end, writing):
        with locked(config.pass_lock, 0.0):
            records.save_trial(config.state, Trial(pid=os.getpid()))
            os.write(writing, b"!")
            signal.sigwait([signal.SIGUSR1])
            if end:
                result = {"pid": os.getpid(), "end": end}
                store.save_state(config.run_directory, trial.RESULT, result, 0o644)

    def start(end):
        reading, writing = os.pipe()
        children.append(os.fork())
        if children[-1] == 0:
            try:
                run(end, writing)
            finally:
                os._exit(0)
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        return config

    yield start
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("end", [trial.KEPT, trial.ROLLED_BACK, trial.STUCK, None])
def test_a_trial_is_confirmed_only_if_it_was_kept_itself(ending_trial, end):
    config = ending_trial(end)
    earlier = {"pid": os.getpid(), "end": trial.KEPT}
    store.save_state(config.run_directory, trial.RESULT, earlier, 0o644)
    is_late = pytest.raises(NeucaError, match="confirm: too late, the trial has ended")
    with nullcontext() if end == trial.KEPT else is_late:
        trial.confirm_trial(config)


def test_without_a_trial_there_is_nothing_to_confirm(tmp_path):
    """A file that names a process is left by a trial that was killed."""
    config = Config(run_directory=tmp_path / "run", state_directory=tmp_path / "state")
    for pid in (None, os.getpid()):
        if pid:
            records.save_trial(config.state, Trial(pid=pid))
        with pytest.raises(NeucaError, match="confirm: no trial is in progress"):
            trial.confirm_trial(config)
