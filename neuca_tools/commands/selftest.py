"""`neuca-selftest`: dispatch to its subcommands, and `explain` and `compare`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, cast

from neuca_tools.commands.arguments import CONFIG, JSON, add_options, value
from neuca_tools.commands.context import configuration, guarded
from neuca_tools.commands.selftest_options import (
    EXPECT_OPTION,
    OUTPUT_OPTIONS,
    REPORT_OPTIONS,
    refused,
    run_parser,
)
from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.files import write_files
from neuca_tools.model.printable import document
from neuca_tools.selftest.codes import NAGIOS, WORDS
from neuca_tools.selftest.diagnosis.compare import compare
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.readers import LARGEST
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.nagios import nagios
from neuca_tools.selftest.report.page import page
from neuca_tools.selftest.report.prometheus import prometheus
from neuca_tools.selftest.report.record import document as report
from neuca_tools.selftest.report.subject import subject, subject_line
from neuca_tools.selftest.report.text import comparison, text

EXPLAINS = (
    "Diagnose a run of iperf3 (JSON or text) or of iperf 2 (text), or a report of neuca-selftest."
)
COMPARES = (
    "Compare a run with earlier runs: the host with the last of them, the rates with the median of"
    " all. RUN is a file, or the label of a stored report. With last-boot as the only RUN, compare"
    " the last test of this boot with the tests of the previous boot."
)


def main(words: Sequence[str]) -> int:
    """Run a subcommand, or a test if none is given, and return its `ExitCode`."""
    command = "".join(words[:1])
    if command == "explain":
        return guarded(_explain, explain_parser().parse_args(words[1:]))
    if command == "compare":
        return guarded(_compare, _compare_parser().parse_args(words[1:]))
    if command == "compare-paths":
        from neuca_tools.commands.selftest_paths import paths_parser, run_paths

        return guarded(run_paths, paths_parser().parse_args(words[1:]))
    from neuca_tools.commands.selftest_run import run

    return guarded(run, run_parser().parse_args(words))


def _compare_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neuca-selftest compare", description=COMPARES)
    parser.add_argument(
        "runs", nargs="+", **value("RUN", "runs in order of time; the last is judged")
    )
    add_options(parser, {**CONFIG, **JSON})
    return parser


def explain_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neuca-selftest explain", description=EXPLAINS)
    parser.add_argument("file", **value("FILE", "the file to read, - for standard input"))
    rtt = "round-trip time of the idle path in milliseconds"
    add_options(parser, {**EXPECT_OPTION, "rtt": value("MS", rtt, type=_milliseconds)})
    add_options(parser.add_mutually_exclusive_group(), OUTPUT_OPTIONS)
    before = "also show this earlier run in the HTML report"
    add_options(parser, {**REPORT_OPTIONS, "before": value("FILE", before)})
    return parser


def _milliseconds(word: str) -> float:
    """Parse milliseconds; return seconds."""
    try:
        found = float(word)
    except ValueError:
        found = 0.0
    if not 0 < found < 60_000:
        raise refused(word, "a time in milliseconds")
    return found / 1000


def _explain(arguments: argparse.Namespace) -> int:
    evidence = evidence_of(_content(arguments.file), arguments.expect, arguments.rtt)
    diagnosis, before = diagnose(evidence), None
    if arguments.before:
        before = diagnose(evidence_of(_content(arguments.before)))
    write_reports(arguments, evidence, diagnosis, before)
    if arguments.nagios:
        print(nagios(diagnosis))
        return NAGIOS[diagnosis.exit_code]
    about = subject(evidence, arguments.file)
    if arguments.json:
        print(document({"subject": about, **report(evidence, diagnosis)}))
    else:
        print(f"{subject_line(about)}\n{text(diagnosis)}")
    return diagnosis.exit_code


def write_reports(
    arguments: argparse.Namespace,
    evidence: Evidence,
    diagnosis: Diagnosis,
    before: Optional[Diagnosis],
) -> None:
    """Write the files of --html and --prometheus, if requested."""
    files = {}
    if arguments.html:
        files[arguments.html] = page(evidence, diagnosis, before).encode()
    if arguments.prometheus:
        files[arguments.prometheus] = prometheus(diagnosis).encode()
    write_files(files)


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.runs == ["last-boot"]:
        runs = _of_last_boot(arguments)
    elif len(arguments.runs) >= 2:
        runs = [_run(name, arguments) for name in arguments.runs]
    else:
        raise UsageError("neuca-selftest compare: it needs at least two runs, or last-boot")
    found = compare(runs[:-1], runs[-1])
    if not arguments.json:
        print(comparison(found))
        return found.exit_code
    verdict = {"version": 1, "verdict": WORDS[found.exit_code], "exit_code": int(found.exit_code)}
    print(document({**verdict, **cast(dict[str, Any], encode(found))}))
    return found.exit_code


def _run(name: str, arguments: argparse.Namespace) -> Evidence:
    """The run in a file; if there is no such file, the last stored report with this label."""
    if name == "-" or Path(name).exists():
        return evidence_of(_content(name))
    labelled = [run for run in _kept(arguments) if run.label == name]
    return labelled[-1] if labelled else evidence_of(_content(name))


def _of_last_boot(arguments: argparse.Namespace) -> list[Evidence]:
    """The last stored test, preceded by the tests of the same peer in an earlier boot."""
    *kept, last = _kept(arguments) or [Evidence()]
    earlier = [run for run in kept if run.boot != last.boot and run.address == last.address]
    if not earlier:
        reason = "there are no tests of the same peer from two boots"
        raise SelftestError(f"compare with the previous boot: {reason}")
    return [*(run for run in earlier if run.boot == earlier[-1].boot), last]


def _kept(arguments: argparse.Namespace) -> list[Evidence]:
    from neuca_tools.selftest.measure.store import kept

    return kept(configuration(arguments).state_directory)


def _content(name: str) -> bytes:
    """The content of a file, up to one byte more than the readers accept, which they report."""
    if name == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    try:
        with Path(name).open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        raise SelftestError(f'read "{name}": {error.strerror}') from error
