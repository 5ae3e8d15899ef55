"""`neuca-selftest PEER…`: measures, concludes, compares with earlier tests, and keeps the report; and `--serve`."""

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


class Done(NamedTuple):
    """The test of one peer."""

    report: str
    diagnosis: Diagnosis
    code: ExitCode


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    if arguments.serve:
        return _serve(arguments, config)
    entries = peers(arguments, config)
    if not entries:
        print(
            "neuca-selftest: no PEER, and no [selftest] peers in the configuration: nothing to test",
            file=sys.stderr,
        )
        return ExitCode.NOTHING_CONFIGURED
    if len(entries) > 1 and (arguments.nagios or arguments.html or arguments.prometheus):
        raise UsageError("neuca-selftest: --nagios, --html and --prometheus are for one PEER")
    for name in sorted(config.selftest.keys() - set(SETTINGS)):
        print(f'neuca: warning: [selftest] "{name}": unknown option, ignoring it', file=sys.stderr)
    if not has_iperf3():
        return without_iperf3(arguments.at_boot)
    wanted = options(arguments, config)
    addresses = [address_of(entry, arguments.family) for entry in entries]
    seen = _outlook(arguments, config)
    done = []
    for entry, address in zip(entries, addresses):
        if len(entries) > 1 and not arguments.json:
            print(plain(f"— {entry}"))
        done.append(_one(arguments, address, wanted, seen, config))
    return _told(arguments, done)


def has_iperf3() -> bool:
    return shutil.which(PROGRAM, path=program.PATH) is not None


def without_iperf3(at_boot: bool = False) -> int:
    """A host that has peers for another reason is not broken: at a boot there is just nothing to do."""
    if not at_boot:
        raise SelftestError(
            "run iperf3: it is not installed",
            hint="install the package iperf3, here and at the other end",
        )
    print("neuca-selftest: iperf3 is not installed: no test", file=sys.stderr)
    return ExitCode.NOTHING_CONFIGURED


def _one(
    arguments: argparse.Namespace, address: Address, wanted: Options, seen: Outlook, config: Config
) -> Done:
    """One peer, from the first packet to the last line."""
    tell = silent if arguments.json or arguments.nagios else _say
    earlier = store.earlier(config.state_directory, str(address))
    evidence, diagnosis = _test(address, wanted, seen, config, tell)
    found = _compared(earlier, evidence) if earlier else None
    if arguments.try_fix:
        evidence = _try_fix(address, wanted, seen, evidence, diagnosis, tell)
    _write(arguments, evidence, diagnosis, diagnose(earlier[-1]) if earlier else None)
    code = _exit_code(diagnosis, found)
    if tell is _say:
        print("\n".join(filter(None, [conclusion(diagnosis), _differences(found, code)])))
    return Done(record(evidence, diagnosis), diagnosis, code)


def _told(arguments: argparse.Namespace, done: Sequence[Done]) -> int:
    """What programs are told at the end; the exit code is that of the worst."""
    if arguments.json:
        reports = [one.report for one in done]
        print(reports[0] if len(reports) == 1 else document([json.loads(one) for one in reports]))
    if arguments.nagios:
        print(nagios(done[0].diagnosis))
        return NAGIOS[done[0].code]
    return min((one.code for one in done), key=SEVEREST.index)


def _outlook(arguments: argparse.Namespace, config: Config) -> Outlook:
    """What the agent wants of this host. Of another network namespace, which is entered here, it wants nothing."""
    if arguments.netns and arguments.container:
        raise UsageError("neuca-selftest: --netns and --container are two places")
    if not arguments.netns and not arguments.container:
        return outlook(config)
    enter(
        where.named(arguments.netns) if arguments.netns else where.of_container(arguments.container)
    )
    return Outlook()


def _test(
    address: Address, wanted: Options, seen: Outlook, config: Config, tell: Callable[[Step], None]
) -> tuple[Evidence, Diagnosis]:
    """One peer: measured, judged, and kept."""
    try:
        evidence = PeerTest(address, wanted, seen, tell).run()
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


def _compared(before: Sequence[Evidence], evidence: Evidence) -> Comparison:
    """What a reboot must not change may change while the host is up: then somebody has meant it."""
    found = compare(before, evidence)
    if before[-1].boot != evidence.boot:
        return found
    return replace(found, changes=tuple(replace(one, identity=False) for one in found.changes))


def _try_fix(
    address: Address,
    wanted: Options,
    seen: Outlook,
    evidence: Evidence,
    diagnosis: Diagnosis,
    tell: Callable[[Step], None],
) -> Evidence:
    """The test as it was, with a step more: what became of the advice."""
    found = fix_for(evidence, diagnosis, wanted)
    if isinstance(found, str):
        step = Step(STEP, "skipped", found)
        tell(step)
        return replace(evidence, steps=(*evidence.steps, step))
    fix, only = found
    again = PeerTest(address, only, seen, tell, fix).run()
    return replace(evidence, steps=(*evidence.steps, *again.steps))


def _exit_code(diagnosis: Diagnosis, found: Optional[Comparison]) -> ExitCode:
    """A test that is fine by itself can be worse than the ones before it, or of a host that a reboot has changed."""
    fine = diagnosis.exit_code is ExitCode.PASS or (
        diagnosis.exit_code is ExitCode.INCONCLUSIVE and not diagnosis.inconclusive
    )
    if not fine or found is None or found.exit_code is ExitCode.PASS:
        return diagnosis.exit_code
    return found.exit_code


def _differences(found: Optional[Comparison], code: ExitCode) -> str:
    """Against earlier tests: only what is another way now, or worse. Its verdict is told where it is the one that counts."""
    if found is not None:  # a test that did not run has been told of as such
        found = replace(found, rates=tuple(one for one in found.rates if one.after is not None))
    if found is None or not (found.changes or any(one.worse for one in found.rates)):
        return ""
    told, _, verdict = comparison(found).rpartition("\n")
    return "\n".join(
        ["— against earlier tests", told, *([verdict] if code is found.exit_code else [])]
    )


def _say(step: Step) -> None:
    if step.text != NOT_ASKED:
        print(step_line(step), flush=True)


def silent(_: Step) -> None:
    """For a form that is for programs."""


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


# --- The other end --------------------------------------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace, config: Config) -> int:
    """Until the time is over."""
    if arguments.peers:
        raise UsageError(
            "neuca-selftest --serve: it takes no PEER; whoever has the secret is served"
        )
    addresses = _dataplane(
        arguments.address or [], arguments.interface, _outlook(arguments, config)
    )
    number = port(arguments, config)
    try:
        if arguments.stdio:
            serve_pipes(addresses[0], number, arguments.period, _tell)
            return ExitCode.PASS
        known = secret(arguments, config)
        if known is None:
            raise UsageError(
                "neuca-selftest --serve: it needs a secret: --secret-file, or secret-file in [selftest]"
            )
        server = Server(addresses, number, known, _tell, _places(addresses))
    except OSError as error:
        raise SelftestError(f"serve tests at port {number + 1}: {error.strerror}") from error
    _tell(
        f"serving tests for {arguments.period:g} s at {', '.join(map(str, addresses))}, ports {number} to {number + 2}"
    )
    server.run(arguments.period)
    return ExitCode.PASS


def _places(addresses: Sequence[Address]) -> list[LocalAddress]:
    devices = kernel.devices()
    held = {address: devices[index] for index, address in kernel.addresses() if index in devices}
    return [
        LocalAddress(address, held[address].name, held[address].index)
        for address in addresses
        if address in held
    ]


def _tell(text: str) -> None:
    print(f"neuca-selftest: {plain(text)}", file=sys.stderr, flush=True)


def _dataplane(asked: Sequence[Address], interface: Optional[str], seen: Outlook) -> list[Address]:
    """The addresses to serve at. Raises UsageError for one that is not ours, or not of the dataplane."""
    devices = kernel.devices()
    held = {address: devices[index] for index, address in kernel.addresses() if index in devices}
    free = {
        address: device
        for address, device in held.items()
        if device.name == interface
        or (interface is None and device.name != "lo" and device.index not in seen.reserved)
    }
    planned = {name for name, _ in seen.networks}
    for address in asked:
        if address not in held:
            raise UsageError(f"serve at {address}: this host has no such address")
        if address not in free:
            why = seen.reserved.get(
                held[address].index, "another interface" if interface else "no dataplane"
            )
            raise UsageError(
                f"serve at {address}: it is on {held[address].name}, {why}",
                hint=f"--interface {held[address].name} says that this is meant",
            )
    found = list(asked) or [
        address
        for address, device in free.items()
        if not address.is_link_local
        and device.up
        and (not planned or interface or device.name in planned)
    ]
    if not found:
        raise UsageError(
            "serve: no dataplane interface here has an address",
            hint="--address, or --interface NAME",
        )
    return found
