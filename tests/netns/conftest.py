"""One laboratory for each test; whoever let the agent write is checked at its end: nothing left, nothing foreign changed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("lab", "foreign", "monitor", "metadata", "running", "warm", "ends")

from ends import Ends  # noqa: E402 - once its assertions are readable
from lab import ROOT, Lab  # noqa: E402
from warm import Warm  # noqa: E402

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
def lab(request, tmp_path, warm):
    made = Lab(tmp_path, warm)
    try:
        yield made
        if request.node.stash.get(PASSED, False) and made.applied:
            made.finish()
    finally:
        made.close()


@pytest.fixture
def ends(lab):
    made = Ends(lab)
    try:
        yield made
    finally:
        made.close()
