"""One laboratory for each test; whoever let the agent write is checked at its end: nothing left, nothing foreign changed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("lab", "foreign", "monitor", "metadata", "running", "warm", "ends")

from fixtures import daemons, ends, host, lab, pytest_runtest_makereport, warm  # noqa: E402, F401 - now readable
