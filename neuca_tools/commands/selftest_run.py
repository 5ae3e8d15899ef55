"""`neuca-selftest PEER…` tests peers, stores the reports and compares; `--serve` serves tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.backends.hostid import boot_id
from neuca_tools.commands.context import configuration, is_root
from neuca_tools.commands.selftest import write_reports
from neuca_tools.commands.selftest_agent import Outlook, entered, outlook
from neuca_tools.commands.selftest_options import SETTINGS, address_of, options, peers, port, secret
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError, SelftestError, UsageError
from neuca_tools.model import Device
from neuca_tools.model import Host as Address
from neuca_tools.model.printable import document, plain
from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.diagnosis.compare import Comparison, compare
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Step
from neuca_tools.selftest.measure import program, store
from neuca_tools.selftest.measure.helper.serve import Server, serve_pipes
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.fixes import STEP, fix_for
from neuca_tools.selftest.measure.iperf.command import PROGRAM
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.probes.broadcast import LocalAddress
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.report.nagios import nagios
from neuca_tools.selftest.report.record import record
from neuca_tools.selftest.report.text import comparison, conclusion, step_line

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


class PeerResult(NamedTuple):
    """The result of the test of one peer; `report` is the JSON document."""

    report: str
    diagnosis: Diagnosis
    code: ExitCode


class _Setup(NamedTuple):
    """What the tests of all peers share."""

    arguments: argparse.Namespace
    state_directory: Path
    options: Options
    planned: Outlook

    @property
    def for_programs(self) -> bool:
        """Whether programs read the output."""
        return bool(self.arguments.json or self.arguments.nagios)

    def show(self, step: Step) -> None:
        if not self.for_programs and step.text != NOT_ASKED:
            print(step_line(step), flush=True)


def run(arguments: argparse.Namespace) -> int:
    """Test each peer in turn, or serve tests. Raises UsageError and SelftestError."""
    config = configuration(arguments)
    if arguments.serve:
        return _serve(arguments, config)
    return _test_peers(arguments, config)


def _test_peers(arguments: argparse.Namespace, config: Config) -> int:
    entries = peers(arguments, config)
    if not entries:
        text = "no PEER, and no [selftest] peers in the configuration: nothing to test"
        print(f"neuca-selftest: {text}", file=sys.stderr)
        return ExitCode.NOTHING_CONFIGURED
    several = len(entries) > 1
    if several and any((arguments.nagios, arguments.html, arguments.prometheus)):
        raise UsageError("neuca-selftest: --nagios, --html and --prometheus are for one PEER")
    for name in sorted(config.selftest.keys() - set(SETTINGS)):
        print(f'neuca: warning: [selftest] "{name}": unknown option, ignoring it', file=sys.stderr)
    if not has_iperf3():
        return without_iperf3(arguments.at_boot)
    wanted = options(arguments, config)
    addresses = [address_of(entry, arguments.family) for entry in entries]
    setup = _Setup(arguments, config.state_directory, wanted, _outlook(arguments, config))
    results = []
    for entry, address in zip(entries, addresses):
        if several and not arguments.json:
            print(plain(f"— {entry}"))
        results.append(_test_peer(setup, address))
    return _conclude(arguments, results)


def has_iperf3() -> bool:
    return shutil.which(PROGRAM, path=program.PATH) is not None


def without_iperf3(at_boot: bool = False) -> int:
    """Raise SelftestError, or only warn at boot: a missing test must not make the boot fail."""
    if not at_boot:
        hint = "install the package iperf3 here and on the peer"
        raise SelftestError("run iperf3: it is not installed", hint)
    print("neuca-selftest: iperf3 is not installed: no test", file=sys.stderr)
    return ExitCode.NOTHING_CONFIGURED


def _test_peer(setup: _Setup, address: Address) -> PeerResult:
    """Test one peer, compare with earlier tests, apply --try-fix, write reports and print."""
    earlier = store.earlier(setup.state_directory, str(address))
    evidence, diagnosis = _measure(setup, address)
    compared = before = None
    if earlier:
        compared, before = _compare(earlier, evidence), diagnose(earlier[-1])
    if setup.arguments.try_fix:
        evidence = _try_fix(setup, address, evidence, diagnosis)
    write_reports(setup.arguments, evidence, diagnosis, before)
    code = _exit_code(diagnosis, compared)
    if not setup.for_programs:
        print("\n".join(filter(None, (conclusion(diagnosis), _differences(compared, code)))))
    return PeerResult(record(evidence, diagnosis), diagnosis, code)


def _conclude(arguments: argparse.Namespace, results: Sequence[PeerResult]) -> int:
    """Print the output for programs and return the exit code of the worst result."""
    if arguments.json and len(results) == 1:
        print(results[0].report)
    elif arguments.json:
        print(document([json.loads(result.report) for result in results]))
    if arguments.nagios:
        print(nagios(results[0].diagnosis))
        return NAGIOS[results[0].code]
    return min((result.code for result in results), key=SEVEREST.index)


def _outlook(arguments: argparse.Namespace, config: Config) -> Outlook:
    """The agent's plan for this host; enters --netns or --container, where the plan is empty."""
    if arguments.netns and arguments.container:
        raise UsageError("neuca-selftest: --netns and --container exclude each other")
    return entered(arguments.netns, arguments.container) or outlook(config)


def _measure(setup: _Setup, address: Address) -> tuple[Evidence, Diagnosis]:
    """Test one peer and, as root, store the report. Raises SelftestError."""
    try:
        evidence = PeerTest(address, setup.options, setup.planned, setup.show).run()
    except OSError as error:
        raise SelftestError(f"test {address}: {error.strerror or error}") from error
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    evidence = replace(evidence, taken=taken, boot=boot_id() or None)
    diagnosis = diagnose(evidence)
    if is_root():
        try:
            store.keep(setup.state_directory, evidence, record(evidence, diagnosis))
        except ApplyError as error:
            print(f"neuca-selftest: {error}, ignoring", file=sys.stderr)
    return evidence, diagnosis


def _compare(earlier: Sequence[Evidence], evidence: Evidence) -> Comparison:
    """Compare with earlier tests."""
    found = compare(earlier, evidence)
    if earlier[-1].boot != evidence.boot:
        return found
    # Within one boot an administrator, not a defect, changed the identity of the host.
    return replace(found, changes=tuple(replace(one, identity=False) for one in found.changes))


def _try_fix(setup: _Setup, address: Address, evidence: Evidence, diagnosis: Diagnosis) -> Evidence:
    """The evidence with one more step: the result of applying the recommendation."""
    found = fix_for(evidence, diagnosis, setup.options)
    if isinstance(found, str):
        steps = [Step(STEP, "skipped", found)]
        setup.show(steps[0])
    else:
        fix, only = found
        steps = list(PeerTest(address, only, setup.planned, setup.show, fix).run().steps)
    return replace(evidence, steps=(*evidence.steps, *steps))


def _exit_code(diagnosis: Diagnosis, compared: Optional[Comparison]) -> ExitCode:
    """The diagnosis decides; if it found nothing wrong, the comparison with earlier tests does."""
    fine = diagnosis.exit_code is ExitCode.PASS or (
        diagnosis.exit_code is ExitCode.INCONCLUSIVE and not diagnosis.inconclusive
    )
    if not fine or compared is None or compared.exit_code is ExitCode.PASS:
        return diagnosis.exit_code
    return compared.exit_code


def _differences(found: Optional[Comparison], code: ExitCode) -> str:
    """What changed or got worse since earlier tests; with the verdict if that is the exit code."""
    if found is None:
        return ""
    # A test without a rate is reported by its own step.
    found = replace(found, rates=tuple(rate for rate in found.rates if rate.after is not None))
    if not found.changes and not any(rate.worse for rate in found.rates):
        return ""
    text = comparison(found)
    if code is not found.exit_code:
        text = text.rpartition("\n")[0]
    return f"— compared with earlier tests\n{text}"


def silent(_: Step) -> None:
    """Show nothing, because one line for each round is enough."""


def _serve(arguments: argparse.Namespace, config: Config) -> int:
    """Serve tests until the time is over. Raises UsageError and SelftestError."""
    if arguments.peers:
        raise UsageError("neuca-selftest --serve: no PEER is accepted; the secret admits peers")
    planned = _outlook(arguments, config)
    addresses = _addresses_to_serve(arguments.address or [], arguments.interface, planned)
    number = port(arguments, config)
    try:
        if arguments.stdio:
            serve_pipes(addresses[0], number, arguments.period, _log)
            return ExitCode.PASS
        key = secret(arguments, config)
        if key is None:
            needed = "--secret-file, or secret-file in [selftest]"
            raise UsageError(f"neuca-selftest --serve: it needs a secret: {needed}")
        server = Server(addresses, number, key, _log, _places(addresses))
    except OSError as error:
        raise SelftestError(f"serve tests at port {number + 1}: {error.strerror}") from error
    where = f"at {', '.join(map(str, addresses))}, ports {number} to {number + 2}"
    _log(f"serving tests for {arguments.period:g} s {where}")
    server.run(arguments.period)
    return ExitCode.PASS


def _log(text: str) -> None:
    print(f"neuca-selftest: {plain(text)}", file=sys.stderr, flush=True)


def _devices_by_address() -> dict[Address, Device]:
    devices = kernel.devices()
    return {address: devices[index] for index, address in kernel.addresses() if index in devices}


def _places(addresses: Sequence[Address]) -> list[LocalAddress]:
    held = _devices_by_address()
    found = [(address, held[address]) for address in addresses if address in held]
    return [LocalAddress(address, device.name, device.index) for address, device in found]


def _addresses_to_serve(
    requested: Sequence[Address], interface: Optional[str], planned: Outlook
) -> list[Address]:
    """The addresses to listen on: those requested, else all of the dataplane or of `interface`."""
    held = _devices_by_address()
    for address in requested:
        _check_servable(address, held.get(address), interface, planned)
    found = list(requested)
    for address, device in held.items():
        if not requested and _is_served_by_default(address, device, interface, planned):
            found.append(address)
    if not found:
        hint = "--address, or --interface NAME"
        raise UsageError("serve: no dataplane interface here has an address", hint)
    return found


def _may_serve(device: Device, interface: Optional[str], planned: Outlook) -> bool:
    """Whether a device is the named interface or, if none is named, may be of the dataplane."""
    if interface is not None:
        return device.name == interface
    return device.name != "lo" and device.index not in planned.reserved


def _is_served_by_default(
    address: Address, device: Device, interface: Optional[str], planned: Outlook
) -> bool:
    """If the agent manages any interface here, only managed ones or the named one are served."""
    if address.is_link_local or not device.up or not _may_serve(device, interface, planned):
        return False
    managed = {name for name, _ in planned.networks}
    return bool(interface) or not managed or device.name in managed


def _check_servable(
    address: Address,
    device: Optional[Device],
    interface: Optional[str],
    planned: Outlook,
) -> None:
    """Raise UsageError unless a requested address may be served."""
    if device is None:
        raise UsageError(f"serve at {address}: this host has no such address")
    if _may_serve(device, interface, planned):
        return
    default = "another interface" if interface else "which is not of the dataplane"
    role = planned.reserved.get(device.index, default)
    hint = f"to serve there, add --interface {device.name}"
    raise UsageError(f"serve at {address}: it is on {device.name}, {role}", hint)
