"""`neuca-selftest compare`: compare a run with earlier ones, from files or the archive."""

# SPDX-License-Identifier: MIT

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.selftest_explain import read_content, styled_text, write_series
from neuca_tools.errors import ArgumentsError, SelftestError
from neuca_tools.files import write_files
from neuca_tools.model.printable import json_document
from neuca_tools.selftest.codes import WORDS, ExitCode
from neuca_tools.selftest.diagnosis.compare import Comparison, compare
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.measure.archive import reported_evidence, reported_tests
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.page import Runs, comparison_page
from neuca_tools.selftest.report.text import comparison_text


def run(arguments: argparse.Namespace) -> int:
    """Print the differences. Raises UsageError, SelftestError."""
    if arguments.runs == ["last-boot"]:
        runs = _tests_of_last_boot(arguments)
    elif len(arguments.runs) >= 2:
        runs = [_find_run(name, arguments) for name in arguments.runs]
    else:
        raise ArgumentsError("compare: at least two runs are required, or last-boot")
    changes = compare(runs[:-1], runs[-1])
    if any(run.phases for run in runs) and not (changes.rates or changes.changes):
        raise SelftestError("compare: no test of the last run has a rate in an earlier one")
    code = changes.exit_code
    _write_files(arguments, list(zip(_run_names(arguments, runs), runs)), changes)
    if arguments.json:
        verdict = {"version": 1, "verdict": WORDS[code], "exit_code": int(code)}
        print(json_document({**verdict, **cast(dict[str, Any], encode(changes))}))
    else:
        print(styled_text(arguments, comparison_text(changes), code))
    return code


def _run_names(arguments: argparse.Namespace, runs: Sequence[Evidence]) -> list[str]:
    """A different name for each run in a plot."""
    names = arguments.runs
    if names == ["last-boot"]:
        names = [*["previous boot"] * (len(runs) - 1), "last test"]
    counts = Counter(names)
    return [
        f"{name} ({number})" if counts[name] > 1 else name for number, name in enumerate(names, 1)
    ]


def _write_files(arguments: argparse.Namespace, runs: Runs, changes: Comparison) -> None:
    """Write the files that were requested. Raises ApplyError."""
    write_series(arguments, runs)
    if arguments.html:
        state = "good" if changes.exit_code == ExitCode.PASS else "bad"
        page = comparison_page(runs, comparison_text(changes), state)
        write_files({arguments.html: page.encode()})


def _find_run(name: str, arguments: argparse.Namespace) -> Evidence:
    """The run in a file; if none can be read, the last kept report with this label."""
    try:
        content = read_content(name)
    except SelftestError as error:
        state = load_configuration(arguments).state_directory
        for entry in reversed(reported_tests(state)):
            evidence = reported_evidence(state, entry) if entry.get("label") == name else None
            if evidence is not None:
                return evidence
        hint = "no kept report that can be read has this label either"
        raise SelftestError(error.text, hint) from error
    try:
        return evidence_of(content)
    except SelftestError as error:
        raise SelftestError(f'compare "{name}": {error.text}') from error


def _tests_of_last_boot(arguments: argparse.Namespace) -> list[Evidence]:
    """The last archived test, preceded by all tests of its peer in the boot before."""
    state = load_configuration(arguments).state_directory
    tests = reported_tests(state)
    earlier = [
        test
        for test in tests
        if test.get("boot") != tests[-1].get("boot") and test["peer"] == tests[-1]["peer"]
    ]
    if not earlier:
        reason = "there are no tests of the same peer from two boots"
        raise SelftestError(f"compare with the previous boot: {reason}")
    previous = [test for test in earlier if test.get("boot") == earlier[-1].get("boot")]
    runs = [reported_evidence(state, test) for test in (*previous, tests[-1])]
    known = list(filter(None, runs))
    if len(known) < 2 or runs[-1] is None:
        raise SelftestError("compare with the previous boot: the archived tests cannot be read")
    return known
