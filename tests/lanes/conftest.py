"""Says in the summary what each lane ran with: a lane is one test here, and hundreds in its own process."""

# SPDX-License-Identifier: MIT

from __future__ import annotations


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "lane" and report.when == "call":
                terminalreporter.write_line(value)
