"""The laboratory as fixtures, for every tier that has one: what its conftest.py imports."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest
from ends import Ends
from lab import ROOT, Lab
from warm import Warm

from neuca_tools.desired.management import MANAGEMENT_DHCP_SECONDS

OUTCOME = pytest.StashKey[str]()
CLONE_NEWTIME = 0x80  # linux/sched.h


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "call":
        item.stash[OUTCOME] = report.outcome


def _leave_first_minutes():
    """Have what is started from now on see a machine that booted an hour ago: in the first minutes the agent waits for its NIC."""
    if os.geteuid() or time.clock_gettime(time.CLOCK_BOOTTIME) > MANAGEMENT_DHCP_SECONDS:
        return
    if ctypes.CDLL(None).unshare(CLONE_NEWTIME) == 0:
        Path("/proc/self/timens_offsets").write_text("boottime 3600 0")
        subprocess._USE_VFORK = False  # refused before Linux 6.0


@pytest.fixture(scope="session")
def warm():
    _leave_first_minutes()
    made = Warm(ROOT)
    yield made
    made.close()


@pytest.fixture
def daemons():
    """They end after the laboratory, which makes a last pass."""
    started = []
    yield started
    for one in started:
        one.stop()
        getattr(one, "close", int)()


@pytest.fixture
def lab(request, tmp_path, warm):
    made = Lab(tmp_path, warm)
    try:
        yield made
        outcome = request.node.stash.get(OUTCOME, "")
        if made.applied and outcome == "passed":
            made.finish()
        if made.applied and outcome == "failed":
            made.explain()
    finally:
        made.close()


@pytest.fixture
def host(lab):
    """The laboratory with the management NIC and two dataplane NICs."""
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    return lab


@pytest.fixture
def ends(lab):
    made = Ends(lab)
    try:
        yield made
    finally:
        made.close()
