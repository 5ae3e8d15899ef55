"""`neuca-selftest PEER…` tests peers, stores the reports and compares; `--serve` answers such tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from neuca_tools.backends.hostid import boot_id
from neuca_tools.backends.namespace import enter
from neuca_tools.commands.context import configuration, is_root
from neuca_tools.commands.selftest_agent import Outlook, outlook
from neuca_tools.commands.selftest_options import SETTINGS, address_of, options, peers, port, secret
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError, SelftestError, UsageError
from neuca_tools.files import write_files
from neuca_tools.model import Device
from neuca_tools.model import Host as Address
from neuca_tools.model.printable import document, plain
from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.diagnosis.compare import Comparison, compare
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Step
from neuca_tools.selftest.measure import program, store
from neuca_tools.selftest.measure.helper.serve import Server, serve_pipes
from neuca_tools.selftest.measure.host import kernel, where
from neuca_tools.selftest.measure.host.fixes import STEP, fix_for
from neuca_tools.selftest.measure.iperf.command import PROGRAM
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.probes.broadcast import LocalAddress
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.report.nagios import nagios
from neuca_tools.selftest.report.page import page
from neuca_tools.selftest.report.prometheus import prometheus
from neuca_tools.selftest.report.record import record
from neuca_tools.selftest.report.text import comparison, conclusion, step_line

if TYPE_CHECKING:
    import argparse

# The exit codes, the most severe first: the worst peer determines the exit code of a run.
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


def run(arguments: argparse.Namespace) -> int:
    """Test each peer in turn, or serve tests. Raises UsageError and SelftestError."""
    config = configuration(arguments)
    if arguments.serve:
        return _serve(arguments, config)
    return _test_peers(arguments, config)


def _test_peers(arguments: argparse.Namespace, config: Config) -> int:
    entries = peers(arguments, config)
    if not entries:
        print(
            "neuca-selftest: no PEER, and no [selftest] peers in the configuration: nothing to test",
            file=sys.stderr,
        )
        return ExitCode.NOTHING_CONFIGURED
    if len(entries) > 1:
        _check_several_peers(arguments)
    _warn_about_unknown_options(config)
    if not has_iperf3():
        return without_iperf3(arguments.at_boot)
    wanted = options(arguments, config)
    addresses = [address_of(entry, arguments.family) for entry in entries]
    planned = _outlook(arguments, config)
    with_titles = len(entries) > 1 and not arguments.json
    results = []
    for entry, address in zip(entries, addresses):
        if with_titles:
            print(plain(f"— {entry}"))
        results.append(_test_peer(arguments, address, wanted, planned, config))
    return _conclude(arguments, results)


def _check_several_peers(arguments: argparse.Namespace) -> None:
    if arguments.nagios or arguments.html or arguments.prometheus:
        raise UsageError("neuca-selftest: --nagios, --html and --prometheus are for one PEER")


def _warn_about_unknown_options(config: Config) -> None:
    for name in sorted(config.selftest.keys() - set(SETTINGS)):
        print(f'neuca: warning: [selftest] "{name}": unknown option, ignoring it', file=sys.stderr)


def has_iperf3() -> bool:
    return shutil.which(PROGRAM, path=program.PATH) is not None


def without_iperf3(at_boot: bool = False) -> int:
    """Raise SelftestError, or only warn at boot: a missing test must not make the boot fail."""
    if not at_boot:
        raise SelftestError(
            "run iperf3: it is not installed",
            hint="install the package iperf3 here and on the peer",
        )
    print("neuca-selftest: iperf3 is not installed: no test", file=sys.stderr)
    return ExitCode.NOTHING_CONFIGURED


def _test_peer(
    arguments: argparse.Namespace,
    address: Address,
    wanted: Options,
    planned: Outlook,
    config: Config,
) -> PeerResult:
    """Test one peer, compare with earlier tests, apply --try-fix, write reports and print."""
    for_programs = arguments.json or arguments.nagios
    show = silent if for_programs else _show_step
    earlier = store.earlier(config.state_directory, str(address))
    evidence, diagnosis = _measure(address, wanted, planned, config, show)
    compared = _compare(earlier, evidence) if earlier else None
    if arguments.try_fix:
        evidence = _try_fix(address, wanted, planned, evidence, diagnosis, show)
    _write(arguments, evidence, diagnosis, diagnose(earlier[-1]) if earlier else None)
    code = _exit_code(diagnosis, compared)
    if not for_programs:
        texts = (conclusion(diagnosis), _differences(compared, code))
        print("\n".join(text for text in texts if text))
    return PeerResult(record(evidence, diagnosis), diagnosis, code)


def _conclude(arguments: argparse.Namespace, results: Sequence[PeerResult]) -> int:
    """Print the output for programs and return the exit code of the worst result."""
    if arguments.json:
        reports = [result.report for result in results]
        if len(reports) == 1:
            print(reports[0])
        else:
            print(document([json.loads(report) for report in reports]))
    if arguments.nagios:
        print(nagios(results[0].diagnosis))
        return NAGIOS[results[0].code]
    return min((result.code for result in results), key=SEVEREST.index)


def _outlook(arguments: argparse.Namespace, config: Config) -> Outlook:
    """The agent's plan for this host; enters --netns or --container, where the plan is empty."""
    if arguments.netns and arguments.container:
        raise UsageError("neuca-selftest: --netns and --container are two places")
    if arguments.netns:
        enter(where.named(arguments.netns))
    elif arguments.container:
        enter(where.of_container(arguments.container))
    else:
        return outlook(config)
    return Outlook()


def _measure(
    address: Address,
    wanted: Options,
    planned: Outlook,
    config: Config,
    show: Callable[[Step], None],
) -> tuple[Evidence, Diagnosis]:
    """Test one peer and, as root, store the report. Raises SelftestError."""
    try:
        evidence = PeerTest(address, wanted, planned, show).run()
    except OSError as error:
        raise SelftestError(f"test {address}: {error.strerror or error}") from error
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    evidence = replace(evidence, taken=taken, boot=boot_id() or None)
    diagnosis = diagnose(evidence)
    if is_root():
        try:
            store.keep(config.state_directory, evidence, record(evidence, diagnosis))
        except ApplyError as error:
            print(f"neuca-selftest: {error}, ignoring", file=sys.stderr)
    return evidence, diagnosis


def _compare(earlier: Sequence[Evidence], evidence: Evidence) -> Comparison:
    """Compare with earlier tests.

    Within one boot a change of the host's identity is no defect: an administrator made it.
    """
    found = compare(earlier, evidence)
    if earlier[-1].boot != evidence.boot:
        return found
    return replace(found, changes=tuple(replace(one, identity=False) for one in found.changes))


def _try_fix(
    address: Address,
    wanted: Options,
    planned: Outlook,
    evidence: Evidence,
    diagnosis: Diagnosis,
    show: Callable[[Step], None],
) -> Evidence:
    """The evidence with one more step: the result of applying the recommendation."""
    found = fix_for(evidence, diagnosis, wanted)
    if isinstance(found, str):
        step = Step(STEP, "skipped", found)
        show(step)
        return replace(evidence, steps=(*evidence.steps, step))
    fix, only = found
    again = PeerTest(address, only, planned, show, fix).run()
    return replace(evidence, steps=(*evidence.steps, *again.steps))


def _exit_code(diagnosis: Diagnosis, compared: Optional[Comparison]) -> ExitCode:
    """The diagnosis decides; if that found nothing wrong, the comparison with earlier tests does."""
    fine = diagnosis.exit_code is ExitCode.PASS or (
        diagnosis.exit_code is ExitCode.INCONCLUSIVE and not diagnosis.inconclusive
    )
    if not fine or compared is None or compared.exit_code is ExitCode.PASS:
        return diagnosis.exit_code
    return compared.exit_code


def _differences(found: Optional[Comparison], code: ExitCode) -> str:
    """What changed or got worse since earlier tests, as text; empty if nothing did.

    The verdict of the comparison is included only if it determines the exit code.
    """
    if found is None:
        return ""
    # A test without a rate is reported by its own step.
    measured = tuple(rate for rate in found.rates if rate.after is not None)
    found = replace(found, rates=measured)
    if not found.changes and not any(rate.worse for rate in measured):
        return ""
    lines, _, verdict = comparison(found).rpartition("\n")
    text = f"— against earlier tests\n{lines}"
    return f"{text}\n{verdict}" if code is found.exit_code else text


def _show_step(step: Step) -> None:
    if step.text != NOT_ASKED:
        print(step_line(step), flush=True)


def silent(_: Step) -> None:
    """Show nothing, for output that programs read."""


def _write(
    arguments: argparse.Namespace,
    evidence: Evidence,
    diagnosis: Diagnosis,
    before: Optional[Diagnosis],
) -> None:
    makers: dict[Optional[Path], Callable[[], str]] = {
        arguments.html: lambda: page(evidence, diagnosis, before),
        arguments.prometheus: lambda: prometheus(diagnosis),
    }
    write_files({path: make().encode() for path, make in makers.items() if path is not None})


# --- Serving tests ---------------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace, config: Config) -> int:
    """Serve tests until the time is over. Raises UsageError and SelftestError."""
    if arguments.peers:
        raise UsageError(
            "neuca-selftest --serve: it takes no PEER; whoever has the secret is served"
        )
    addresses = _addresses_to_serve(
        arguments.address or [], arguments.interface, _outlook(arguments, config)
    )
    number = port(arguments, config)
    try:
        if arguments.stdio:
            serve_pipes(addresses[0], number, arguments.period, _log)
            return ExitCode.PASS
        key = secret(arguments, config)
        if key is None:
            raise UsageError(
                "neuca-selftest --serve: it needs a secret: --secret-file, or secret-file in [selftest]"
            )
        server = Server(addresses, number, key, _log, _places(addresses))
    except OSError as error:
        raise SelftestError(f"serve tests at port {number + 1}: {error.strerror}") from error
    _log(
        f"serving tests for {arguments.period:g} s at {', '.join(map(str, addresses))}, ports {number} to {number + 2}"
    )
    server.run(arguments.period)
    return ExitCode.PASS


def _log(text: str) -> None:
    print(f"neuca-selftest: {plain(text)}", file=sys.stderr, flush=True)


def _devices_by_address() -> dict[Address, Device]:
    devices = kernel.devices()
    return {address: devices[index] for index, address in kernel.addresses() if index in devices}


def _places(addresses: Sequence[Address]) -> list[LocalAddress]:
    held = _devices_by_address()
    return [
        LocalAddress(address, held[address].name, held[address].index)
        for address in addresses
        if address in held
    ]


def _addresses_to_serve(
    requested: Sequence[Address], interface: Optional[str], planned: Outlook
) -> list[Address]:
    """The addresses to listen on: those requested, else all of the dataplane or of `interface`.

    Raises UsageError for an address that is not on this host or not on a dataplane interface, and
    if there is no address at all.
    """
    held = _devices_by_address()
    for address in requested:
        _check_servable(address, held.get(address), interface, planned)
    found = list(requested) or [
        address
        for address, device in held.items()
        if _is_served_by_default(address, device, interface, planned)
    ]
    if not found:
        raise UsageError(
            "serve: no dataplane interface here has an address",
            hint="--address, or --interface NAME",
        )
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
    default = "another interface" if interface else "no dataplane"
    role = planned.reserved.get(device.index, default)
    raise UsageError(
        f"serve at {address}: it is on {device.name}, {role}",
        hint=f"--interface {device.name} says that this is meant",
    )
