"""`neuca-selftest`: the self-test's own subcommands, with its own exit codes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ..errors import SelftestError
from ..fileio import write_files
from ..selftest.codec import encode
from ..selftest.codes import NAGIOS, WORDS, ExitCode
from ..selftest.compare import compare
from ..selftest.diagnosis import diagnose
from ..selftest.documents import evidence_of
from ..selftest.readers import LARGEST
from ..selftest.readers.lines import parse_rate
from ..selftest.report.nagios import nagios
from ..selftest.report.page import page
from ..selftest.report.prometheus import prometheus
from ..selftest.report.record import record
from ..selftest.report.text import comparison, text
from .context import guarded

PURPOSE = "Says what limits a dataplane, by how much, and what to do."
EXPLAINS = "Diagnoses a run of iperf3 (its JSON or its text), of iperf 2 (its text), or a report of neuca-selftest itself."
COMPARES = "Compares a run with earlier ones: hosts with the last of them, rates with the median of all."


def main(words: Sequence[str]) -> int:
    """Run one subcommand and return its exit code: see `ExitCode`."""
    parser = _parser()
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return ExitCode.USAGE
    return guarded({"explain": _explain, "compare": _compare}[arguments.command], arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neuca-selftest", description=PURPOSE)
    rows = parser.add_subparsers(dest="command", metavar="COMMAND")
    rows.add_parser("explain", parents=[explain_parser()], description=explain_parser().description,
                    help="what a run of iperf3 or iperf 2 says of a path")
    rows.add_parser("compare", parents=[compare_parser()], description=compare_parser().description,
                    help="what changed since earlier runs, and whether it is worse")
    return parser


def compare_parser() -> argparse.ArgumentParser:
    row = argparse.ArgumentParser(add_help=False, description=COMPARES)
    row.add_argument("before", metavar="BEFORE", nargs="+", help="earlier reports or runs, in order of time")
    row.add_argument("after", metavar="AFTER", help="the one to judge")
    row.add_argument("--json", action="store_true", help="JSON, for scripts")
    return row


def explain_parser() -> argparse.ArgumentParser:
    explain = argparse.ArgumentParser(add_help=False, description=EXPLAINS)
    explain.add_argument("file", metavar="FILE", help="the document, - for standard input")
    explain.add_argument("--expect", metavar="RATE", type=_rate, help="the rate that the path should have, such as 5G")
    explain.add_argument("--rtt", metavar="MS", type=_milliseconds, help="the round-trip time of the idle path, in milliseconds")
    form = explain.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON, for scripts")
    form.add_argument("--nagios", action="store_true", help="one line, with the exit codes of a Nagios plugin")
    explain.add_argument("--html", metavar="PATH", type=Path, help="write the report as one HTML file too")
    explain.add_argument("--prometheus", metavar="PATH", type=Path, help="write a text file for Prometheus' node exporter too")
    explain.add_argument("--before", metavar="FILE", help="an earlier run, to show beside this one in the HTML report")
    return explain


def _rate(word: str) -> float:
    found = parse_rate(word)
    if not found:
        raise argparse.ArgumentTypeError(f'"{word}" is no rate, such as 5G or 100M')
    return found


def _milliseconds(word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = 0.0
    if not 0 < found < 60_000:
        raise argparse.ArgumentTypeError(f'"{word}" is no time in milliseconds')
    return found / 1000


def _explain(arguments: argparse.Namespace) -> int:
    evidence = evidence_of(_content(arguments.file), arguments.expect, arguments.rtt)
    diagnosis = diagnose(evidence)
    before = diagnose(evidence_of(_content(arguments.before))) if arguments.before else None
    files = {arguments.html: page(evidence, diagnosis, before), arguments.prometheus: prometheus(diagnosis)}
    write_files({path: content.encode() for path, content in files.items() if path is not None})
    if arguments.nagios:
        print(nagios(diagnosis))
        return NAGIOS[diagnosis.exit_code]
    print(record(evidence, diagnosis) if arguments.json else text(diagnosis))
    return diagnosis.exit_code


def _compare(arguments: argparse.Namespace) -> int:
    before = [evidence_of(_content(name)) for name in arguments.before]
    found = compare(before, evidence_of(_content(arguments.after)))
    if arguments.json:
        print(json.dumps({"version": 1, "verdict": WORDS[found.exit_code], "exit_code": int(found.exit_code), **cast(
            dict[str, Any], encode(found))}, indent=1, ensure_ascii=False))
    else:
        print(comparison(found))
    return found.exit_code


def _content(name: str) -> bytes:
    """At most one byte more than a reader takes, so that it can say so."""
    if name == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    try:
        with Path(name).open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        raise SelftestError(f'read "{name}": {error.strerror}') from error
