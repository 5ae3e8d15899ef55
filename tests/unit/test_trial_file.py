"""Whether a trial still runs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess

from neuca_tools.agent import trial_file
from neuca_tools.backends.processes import process_note
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
