"""The skip policy: under CI=true a skip is a failure, but for the reasons listed here.

A test that silently does not run is the same as no test. To add a reason: it must be about the machine, name what the machine
has not, and say where the test does run instead.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re

import pytest

ALLOWED_SKIPS = (
    # Small CI kernels come without them. The guests of tests/machine have all of them.
    r"this kernel has no (8021q|bond|dummy|macvlan|tun)\b",
    # A machine with neither has only its distribution's interpreter; the lane of the newest Python runs there.
    r"no pyenv and no python3\.9 on this machine$",
    # pyenv's lie in root's home. What other users see is tested with the distribution's.
    r"only root can reach this interpreter$",
    # In user namespaces there is nobody else to become.
    r"these tests do not run as root, and have no other user to become$",
)


def unexpected(reason: str) -> bool:
    """Whether a skip for this reason fails the run."""
    return os.environ.get("CI") == "true" and not any(re.match(allowed, reason) for allowed in ALLOWED_SKIPS)


def _judge(report) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason[len("Skipped: "):] if reason.startswith("Skipped: ") else reason
    if unexpected(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped under CI for a reason that tests/conftest.py does not list: {reason}"


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):  # noqa: ARG001 - pytest's names
    _judge((yield).get_result())


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):  # noqa: ARG001 - a module may skip itself whole
    _judge((yield).get_result())
