"""`neuca-selftest`: the self-test's own subcommands, with its own exit codes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, cast

from neuca_tools.commands.context import configuration, guarded
from neuca_tools.commands.selftest_options import rate, run_parser
from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.files import write_files
from neuca_tools.model.printable import document
from neuca_tools.selftest.codes import NAGIOS, WORDS
from neuca_tools.selftest.diagnosis.compare import compare
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.readers import LARGEST
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.nagios import nagios
from neuca_tools.selftest.report.page import page
from neuca_tools.selftest.report.prometheus import prometheus
from neuca_tools.selftest.report.record import record
from neuca_tools.selftest.report.text import comparison, text

PURPOSE = "Says what limits a dataplane, by how much, and what to do."
EXPLAINS = "Diagnoses a run of iperf3 (its JSON or its text), of iperf 2 (its text), or a report of neuca-selftest itself."
COMPARES = (
    "Compares a run with earlier ones: hosts with the last of them, rates with the median of all. A run is a file, or the"
    " label of a kept report; last-boot alone: the last test of this boot with those of the boot before."
)


def main(words: Sequence[str]) -> int:
    """Run one subcommand, or a test, and return its exit code: see `ExitCode`."""
    if words and words[0] in SUBCOMMANDS:
        return guarded(SUBCOMMANDS[words[0]], _parser().parse_args(words))
    if words and words[0] == "compare-paths":
        from neuca_tools.commands.selftest_paths import paths_parser, run_paths

        return guarded(run_paths, paths_parser().parse_args(words[1:]))
    from neuca_tools.commands.selftest_run import run

    return guarded(run, run_parser().parse_args(words))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neuca-selftest", description=PURPOSE)
    rows = parser.add_subparsers(dest="command", metavar="COMMAND")
    rows.add_parser(
        "explain",
        parents=[explain_parser()],
        description=explain_parser().description,
        help="what a run of iperf3 or iperf 2 says of a path",
    )
    rows.add_parser(
        "compare",
        parents=[compare_parser()],
        description=compare_parser().description,
        help="what changed since earlier runs, and whether it is worse",
    )
    return parser


def compare_parser() -> argparse.ArgumentParser:
    row = argparse.ArgumentParser(add_help=False, description=COMPARES)
    row.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="reports or runs, in order of time: the last is the one to judge",
    )
    row.add_argument("--config", metavar="FILE", help="the configuration (/etc/neuca/config)")
    row.add_argument("--json", action="store_true", help="JSON, for scripts")
    return row


def explain_parser() -> argparse.ArgumentParser:
    explain = argparse.ArgumentParser(add_help=False, description=EXPLAINS)
    explain.add_argument("file", metavar="FILE", help="the document, - for standard input")
    explain.add_argument(
        "--expect", metavar="RATE", type=rate, help="the rate that the path should have, such as 5G"
    )
    explain.add_argument(
        "--rtt",
        metavar="MS",
        type=_milliseconds,
        help="the round-trip time of the idle path, in milliseconds",
    )
    form = explain.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON, for scripts")
    form.add_argument(
        "--nagios", action="store_true", help="one line, with the exit codes of a Nagios plugin"
    )
    explain.add_argument(
        "--html", metavar="PATH", type=Path, help="write the report as one HTML file too"
    )
    explain.add_argument(
        "--prometheus",
        metavar="PATH",
        type=Path,
        help="write a text file for Prometheus' node exporter too",
    )
    explain.add_argument(
        "--before",
        metavar="FILE",
        help="an earlier run, to show beside this one in the HTML report",
    )
    return explain


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
    files = {
        arguments.html: page(evidence, diagnosis, before),
        arguments.prometheus: prometheus(diagnosis),
    }
    write_files({path: content.encode() for path, content in files.items() if path is not None})
    if arguments.nagios:
        print(nagios(diagnosis))
        return NAGIOS[diagnosis.exit_code]
    print(record(evidence, diagnosis) if arguments.json else text(diagnosis))
    return diagnosis.exit_code


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.runs != ["last-boot"] and len(arguments.runs) < 2:
        raise UsageError("neuca-selftest compare: it takes two runs or more, or last-boot")
    runs = (
        _of_last_boot(arguments)
        if arguments.runs == ["last-boot"]
        else [_run(name, arguments) for name in arguments.runs]
    )
    found = compare(runs[:-1], runs[-1])
    if arguments.json:
        print(
            document(
                {
                    "version": 1,
                    "verdict": WORDS[found.exit_code],
                    "exit_code": int(found.exit_code),
                    **cast(dict[str, Any], encode(found)),
                }
            )
        )
    else:
        print(comparison(found))
    return found.exit_code


def _run(name: str, arguments: argparse.Namespace) -> Evidence:
    """A file; where there is none, the last report that was kept with this label."""
    if name == "-" or Path(name).exists():
        return evidence_of(_content(name))
    labelled = [one for one in _kept(arguments) if one.label == name]
    return labelled[-1] if labelled else evidence_of(_content(name))


def _of_last_boot(arguments: argparse.Namespace) -> list[Evidence]:
    """The tests of the boot before that of the last test, of the same peer; then that last test. Raises SelftestError."""
    kept = _kept(arguments)
    earlier = (
        [one for one in kept if one.boot != kept[-1].boot and one.address == kept[-1].address]
        if kept
        else []
    )
    if not earlier:
        raise SelftestError(
            "compare with the last boot: there are no tests of two boots, of the same peer"
        )
    return [*(one for one in earlier if one.boot == earlier[-1].boot), kept[-1]]


def _kept(arguments: argparse.Namespace) -> list[Evidence]:
    from neuca_tools.selftest.measure.store import kept

    return kept(configuration(arguments).state_directory)


def _content(name: str) -> bytes:
    """At most one byte more than a reader takes, so that it can say so."""
    if name == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    try:
        with Path(name).open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        raise SelftestError(f'read "{name}": {error.strerror}') from error


SUBCOMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "explain": _explain,
    "compare": _compare,
}
