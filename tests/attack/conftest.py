"""The laboratory of tests/netns with a hostile host in it; the laws at a test's end are the same."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "netns"))
pytest.register_assert_rewrite(
    "lab",
    "foreign",
    "monitor",
    "metadata",
    "running",
    "warm",
    "ends",
    "attacker",
    "stranger",
    "boots",
)

from attacker import Attacker  # noqa: E402 - once its assertions are readable
from fixtures import daemons, ends, lab, pytest_runtest_makereport, warm  # noqa: E402, F401


@pytest.fixture
def guest(lab):  # noqa: F811 - the fixture
    """A guest as it is outside of a laboratory: it accepts router advertisements. No NIC yet."""
    for key in ("all", "default"):
        lab.sysctl(f"net/ipv6/conf/{key}/accept_ra", 1)
    return lab


@pytest.fixture
def attackers(lab):  # noqa: F811
    """Makes hostile hosts; where each of them is, a test says."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Attacker(lab)))
