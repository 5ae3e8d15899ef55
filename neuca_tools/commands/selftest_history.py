"""`neuca-selftest history`: list the tests in the archive."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import sys

from neuca_tools.commands.context import configuration
from neuca_tools.model.printable import document
from neuca_tools.selftest.measure.archive import entries
from neuca_tools.selftest.report.entry import history_line, without_evidence


def run(arguments: argparse.Namespace) -> int:
    """Print the archived tests, the oldest first. Raises SelftestError."""
    state = configuration(arguments).state_directory
    tests, damaged = entries(state)
    if damaged:
        lines = "1 line" if damaged == 1 else f"{damaged} lines"
        text = f"neuca-selftest: {lines} of the archive cannot be read, ignoring"
        print(text, file=sys.stderr)
    if arguments.peer:
        tests = [test for test in tests if test.get("peer") == arguments.peer]
    if arguments.last:
        tests = tests[-arguments.last :]
    if arguments.json:
        print(document(list(map(without_evidence, tests))))
    elif tests:
        print("\n".join(map(history_line, tests)))
    else:
        print(f'neuca-selftest: no test is archived in "{state}"', file=sys.stderr)
    return 0
