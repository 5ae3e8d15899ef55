"""`neuca-selftest run`: test peers, store the reports and compare with earlier tests."""

# SPDX-License-Identifier: MIT

import argparse
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import NamedTuple, Optional

from neuca_tools.backends.hostid import boot_id
from neuca_tools.commands import selftest_options
from neuca_tools.commands.common import is_root
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.selftest_agent import outlook_of
from neuca_tools.commands.selftest_explain import styled_text, write_reports
from neuca_tools.commands.selftest_parsers import log
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError, SelftestError, UsageError
from neuca_tools.model import Host as Address
from neuca_tools.model.printable import json_document, printable_line
from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.diagnosis.compare import Comparison, compare
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Step
from neuca_tools.selftest.measure import archive, program
from neuca_tools.selftest.measure.host.planned import AgentPlan, permitted_route
from neuca_tools.selftest.measure.iperf.command import PROGRAM
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.live import can_draw, draw_progress, planned_stages
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.report.record import (
    Test,
    entry_of,
    nagios_line,
    report_data,
    report_json,
)
from neuca_tools.selftest.report.text import conclusion_text, differences_text, step_line

FEWEST = 3  # earlier tests with which a test can be worse than before
# The exit codes in order of severity: the worst peer determines the exit code of a run.
SEVEREST = (
    ExitCode.ERROR,
    ExitCode.UNREACHABLE,
    ExitCode.BUSY,
    ExitCode.BELOW,
    ExitCode.NOT_AS_PLANNED,
    ExitCode.WORSE,
    ExitCode.INCONCLUSIVE,
    ExitCode.PASS,
)


class _Setup(NamedTuple):
    """What the tests of all peers share."""

    arguments: argparse.Namespace
    config: Config
    options: Options
    plan: str
    planned: AgentPlan

    @property
    def is_for_programs(self) -> bool:
        """Whether programs read the output."""
        return bool(self.arguments.json or self.arguments.nagios)

    def line(self, step: Step) -> str:
        """The line to print when a step has ended; empty for none."""
        if self.is_for_programs or step.text == NOT_ASKED:
            return ""
        return styled_text(self.arguments, step_line(step), ExitCode.PASS)

    def show(self, step: Step) -> None:
        line = self.line(step)
        if line:
            print(line, flush=True)


def run(arguments: argparse.Namespace) -> int:
    """Test each peer in turn. Raises UsageError and SelftestError."""
    config = load_configuration(arguments)
    entries = selftest_options.configured_peers(arguments, config)
    if not entries:
        log("no PEER, and no [selftest] peers in the configuration: nothing to test")
        return ExitCode.NOTHING_CONFIGURED
    several = len(entries) > 1
    if several and any((arguments.nagios, arguments.html)):
        raise UsageError("--nagios and --html are for one PEER")
    _warn_of_unknown_options(config)
    if not has_iperf3():
        return without_iperf3(arguments.at_boot)
    options = selftest_options.measurement_options(arguments, config)
    plan = selftest_options.plan_name(arguments, config)
    addresses = [selftest_options.address_of(entry, arguments.family) for entry in entries]
    planned = outlook_of(arguments, config)
    check_peers(((address, options.interface) for address in addresses), planned)
    setup = _Setup(arguments, config, options, plan, planned)
    results = []
    for entry, address in zip(entries, addresses):
        if several and not arguments.json:
            print(printable_line(f"— {entry}"))
        results.append(_test_peer(setup, address))
    return _report_all(arguments, results)


def _warn_of_unknown_options(config: Config) -> None:
    for name in sorted(config.selftest.keys() - set(selftest_options.SETTINGS)):
        log(f'warning: [selftest] "{name}": unknown option, ignoring it')


def check_peers(peers: Iterable[tuple[Address, Optional[str]]], planned: AgentPlan) -> None:
    """Raise UsageError if a peer must not be tested, before minutes are spent on another one.

    Each may have an interface through which it is to be tested.
    """
    for address, interface in peers:
        # That there is no route is a result of the test.
        with suppress(OSError):
            permitted_route(address, planned, interface)


def has_iperf3() -> bool:
    return shutil.which(PROGRAM, path=program.PATH) is not None


def without_iperf3(at_boot: bool = False) -> int:
    """Raise SelftestError, or only warn at boot: a missing test must not make the boot fail."""
    if not at_boot:
        hint = "install the package iperf3 here and on the peer"
        raise SelftestError("run iperf3: it is not installed", hint)
    log("iperf3 is not installed: no test")
    return ExitCode.NOTHING_CONFIGURED


def _test_peer(setup: _Setup, address: Address) -> Test:
    """Test one peer, compare with earlier tests, store and print."""
    earlier = _earlier_tests(setup, address)
    evidence = _dated_evidence(setup, address)
    diagnosis, compared = diagnose(evidence), None
    if earlier:
        compared = _compare_with(earlier, evidence)
        diagnosis = diagnosis._replace(since=compared.exit_code)
    if is_root():
        _keep_report(setup, evidence, diagnosis)
    if not setup.is_for_programs:
        texts = (_differences_text(compared), conclusion_text(diagnosis, setup.arguments.verbose))
        text = "\n".join(filter(None, texts))
        print(styled_text(setup.arguments, text, diagnosis.exit_code))
    return evidence, diagnosis


def _report_all(arguments: argparse.Namespace, tests: Sequence[Test]) -> int:
    """Print the output for programs, write reports, and return the exit code of the worst peer."""
    if arguments.json:
        reports = [report_data(*test) for test in tests]
        print(json_document(reports if len(reports) > 1 else reports[0]))
    # After that, because a file that cannot be written must not cost the result of minutes.
    write_reports(arguments, tests)
    if arguments.nagios:
        print(nagios_line(tests[0][1]))
        return NAGIOS[tests[0][1].exit_code]
    return min((diagnosis.exit_code for _, diagnosis in tests), key=SEVEREST.index)


def _dated_evidence(setup: _Setup, address: Address) -> Evidence:
    """Test one peer. Raises SelftestError."""
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        evidence = _run_test(setup, address)
    except OSError as error:
        raise SelftestError(f"test {address}: {error.strerror or error}") from error
    return replace(evidence, taken=taken, boot=boot_id())


def _earlier_tests(setup: _Setup, address: Address) -> list[Evidence]:
    try:
        return archive.earlier_tests(setup.config.state_directory, str(address))
    except SelftestError as error:
        log(f"{error}, ignoring")
        return []


def _keep_report(setup: _Setup, evidence: Evidence, diagnosis: Diagnosis) -> None:
    """Store the report and add the test to the archive; an error in either is only printed."""
    state, name = setup.config.state_directory, None
    try:
        name = archive.keep_report(state, evidence, report_json(evidence, diagnosis)).name
    except ApplyError as error:
        log(f"{error}, ignoring")
    entry = entry_of(evidence, diagnosis, setup.plan, setup.options.seconds, name)
    try:
        archive.append_entry(state, entry)
    except ApplyError as error:
        log(f"{error}, ignoring")


def _run_test(setup: _Setup, address: Address) -> Evidence:
    """The test of one peer; on a terminal, with a live line."""
    options = setup.options
    if setup.is_for_programs or not can_draw():
        return PeerTest(address, options, setup.planned, setup.show).run()
    with draw_progress(planned_stages(options)) as tell:

        def show(step: Step) -> None:
            tell(step.name, setup.line(step))

        return PeerTest(address, options, setup.planned, show).run()


def _compare_with(earlier: Sequence[Evidence], evidence: Evidence) -> Comparison:
    comparison = compare(earlier, evidence, FEWEST)
    if earlier[-1].boot != evidence.boot:
        return comparison
    # Within one boot an administrator, not a defect, changed the identity of the host.
    changes = tuple(replace(change, identity=False) for change in comparison.changes)
    return replace(comparison, changes=changes)


def _differences_text(comparison: Optional[Comparison]) -> str:
    """What changed or got worse since earlier tests; the verdict follows."""
    if comparison is None:
        return ""
    # A test without a rate is reported by its own step.
    rates = tuple(rate for rate in comparison.rates if rate.after is not None)
    comparison = replace(comparison, rates=rates)
    if not comparison.changes and not any(rate.worse for rate in comparison.rates):
        return ""
    return f"— compared with earlier tests\n{differences_text(comparison)}"
