"""`neuca-selftest history`: list the tests in the archive."""

# SPDX-License-Identifier: MIT

import argparse

from neuca_tools.commands.common import terminal_width
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.selftest_parsers import log
from neuca_tools.model.printable import counted, json_document
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.measure.archive import read_entries
from neuca_tools.selftest.report.record import history_line
from neuca_tools.selftest.report.text import styled_report


def run(arguments: argparse.Namespace) -> int:
    """Print the archived tests, the oldest first. Raises SelftestError."""
    state = load_configuration(arguments).state_directory
    tests, damaged = read_entries(state)
    if damaged:
        log(f"{counted(damaged, 'line')} of the archive cannot be read, ignoring")
    if arguments.peer:
        tests = [test for test in tests if test.get("peer") == str(arguments.peer)]
    if arguments.last:
        tests = tests[-arguments.last :]
    if arguments.json:
        print(json_document(tests))
    elif tests:
        lines = "\n".join(map(history_line, tests))
        print(styled_report(lines, ExitCode.PASS, terminal_width(0), color=False))
    else:
        peer = f" of {arguments.peer}" if arguments.peer else ""
        log(f'no test{peer} is archived in "{state}"')
    return 0
