"""`neuca-selftest explain`: diagnose the output of an earlier run."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuca_tools.commands.common import read_input, terminal_width, uses_color
from neuca_tools.errors import SelftestError
from neuca_tools.model.printable import json_document
from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.readers.documents import MAX_DOCUMENT_BYTES, evidence_of
from neuca_tools.selftest.report import record
from neuca_tools.selftest.report.record import Test
from neuca_tools.selftest.report.text import report_text, styled_report

# Imports inside functions: most runs write no report to a file.

if TYPE_CHECKING:
    from neuca_tools.selftest.report.page import Runs


def run(arguments: argparse.Namespace) -> int:
    """Print and write the diagnosis as requested. Raises SelftestError and ApplyError."""
    evidence = evidence_of(read_content(arguments.file), arguments.expect, arguments.rtt)
    diagnosis = diagnose(evidence)
    write_reports(arguments, [(evidence, diagnosis)])
    write_series(arguments, [(evidence.label or arguments.file, evidence)])
    if arguments.nagios:
        print(record.nagios_line(diagnosis))
        return NAGIOS[diagnosis.exit_code]
    subject = record.subject_of(evidence, arguments.file)
    if arguments.json:
        print(json_document({"subject": subject, **record.report_data(evidence, diagnosis)}))
    else:
        text = report_text(diagnosis, arguments.verbose)
        print(record.subject_line(subject))
        print(styled_text(arguments, text, diagnosis.exit_code))
    return diagnosis.exit_code


def styled_text(arguments: argparse.Namespace, text: str, code: ExitCode) -> str:
    """A report as this terminal shows it."""
    return styled_report(text, code, terminal_width(0), uses_color(arguments))


def write_reports(arguments: argparse.Namespace, tests: Sequence[Test]) -> None:
    """Write the files of --html, which is about one test, and --prometheus, if requested.

    Raises ApplyError.
    """
    files = {}
    if arguments.html:
        from neuca_tools.selftest.report.page import report_page

        files[arguments.html] = report_page(*tests[0]).encode()
    if arguments.prometheus:
        files[arguments.prometheus] = record.prometheus_text(tests).encode()
    if files:
        from neuca_tools.files import write_files

        write_files(files)


def write_series(arguments: argparse.Namespace, runs: Runs) -> None:
    """Write the intervals of these runs to --csv and --svg, if requested. Raises ApplyError."""
    if arguments.csv or arguments.svg:
        from neuca_tools.files import write_files
        from neuca_tools.selftest.report.page import csv_of, svg_of

        makers = {arguments.csv: csv_of, arguments.svg: svg_of}
        write_files({path: make(runs).encode() for path, make in makers.items() if path})


def read_content(name: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The content of a file, or of standard input for `-`. Raises SelftestError."""
    try:
        return read_input(name, max_bytes)
    except OSError as error:
        raise SelftestError(f'read "{name}": {error.strerror}') from error
