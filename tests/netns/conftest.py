"""One laboratory for each test; whoever let the agent write is checked at its end: nothing left to do, nothing foreign changed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("lab", "foreign", "monitor", "metadata", "running")

from lab import Lab  # noqa: E402 - once its assertions are readable

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "call":
        item.stash[PASSED] = report.passed


@pytest.fixture
def lab(request, tmp_path):
    made = Lab(tmp_path)
    try:
        yield made
        if request.node.stash.get(PASSED, False) and made.applied:
            made.finish()
    finally:
        made.close()
