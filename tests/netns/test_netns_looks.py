"""How often a pass looks and plans: once, and once more for what was changed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import collections
import sys
import time

import pytest
from lab import ROOT, mac

from neuca_tools.files import locked

# What is read by name for each link and each file; the kernel is asked for all links at once.
WATCHED = """import sys
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[1:]
from neuca_tools.commands.neucad import main
seen = {("sysctl.py", "read_value"): "sysctl", ("files.py", "observed_content"): "file", ("kernel_state.py", "read_world"): "kernel",
        ("plan.py", "plan_operations"): "plan", ("records.py", "save_record"): "record",
        ("intentions.py", "record_intentions"): "intentions"}
def profile(frame, event, _):
    code = frame.f_code
    what = seen.get((code.co_filename.rpartition("/")[2], code.co_name))
    if event == "call" and what:
        print("read", what, frame.f_locals.get("path"), file=sys.stderr)
sys.setprofile(profile)
main(sys.argv[1:])
"""
NICS = 6


def document(changed_mtu):
    lines = [f"[interface {mac(number)}]\nmtu = 1400" for number in range(1, NICS)]
    return "\n".join([*lines, f"[interface {mac(NICS)}]\nmtu = {changed_mtu}"])


def reads(guest):
    """How often each sysctl and each file was read in a pass, and how often the kernel was asked."""
    command = ("--once", "--config", str(guest.config_file))
    done = guest.run(sys.executable, "-B", "-c", WATCHED, str(ROOT), *command, check=False)
    lines = [line.split(" ", 2)[1:] for line in done.err.splitlines() if line.startswith("read ")]
    return collections.Counter(map(tuple, lines))


def test_a_pass_that_changes_something_looks_once_more_to_verify_it(lab):
    lab.management()
    for number in range(1, NICS + 1):
        lab.veth(f"dp{number}", number)
    lab.document(document(1400))
    lab.once()
    quiet = reads(lab)
    assert set(quiet.values()) == {1}, "a pass with nothing to do looks and plans once"
    assert not {"record", "intentions"} & {what for what, _ in quiet}, "and saves nothing"
    lab.document(document(1300))
    after = reads(lab)
    assert lab.link(f"dp{NICS}")["mtu"] == 1300
    assert (after["kernel", "None"], max(after.values())) == (2, 2)
    assert after["plan", "None"] == 2
    assert (after["intentions", "None"], after["record", "None"]) == (2, 2)


@pytest.mark.parametrize("lock", ["lock", "neucad.lock"])
def test_status_waits_for_the_report_of_a_pass_that_runs(lab, lock):
    """Also for the first one, of a daemon that has just started."""
    lab.management()
    lab.once("")
    (lab.folder / "run/last-pass.json").unlink()
    with locked(lab.folder / "run" / lock, 1.0):
        began = time.monotonic()
        assert lab.status("--wait", "--timeout", "1")[0] == 0
        assert time.monotonic() - began >= 1
    assert lab.status("--wait")[0] == 0
