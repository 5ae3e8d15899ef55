"""The laboratory as fixtures, for every tier that has one: what its conftest.py imports."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from ends import Ends
from lab import ROOT, Lab
from warm import Warm

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "call":
        item.stash[PASSED] = report.passed


@pytest.fixture(scope="session")
def warm():
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
        if request.node.stash.get(PASSED, False) and made.applied:
            made.finish()
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
