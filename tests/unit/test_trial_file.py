"""Whether a trial still runs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess

from neuca_tools.agent import trial_file


def test_a_trial_runs_until_its_process_ends_even_if_no_parent_takes_notice():
    process = subprocess.Popen(("sleep", "infinity"))
    pid = process.pid
    assert trial_file.is_running({"pid": pid})
    process.kill()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not trial_file.is_running({"pid": pid})  # a zombie
    process.wait()
    assert not trial_file.is_running({"pid": pid})
    assert not trial_file.is_running({})
