"""`neuca-selftest mesh`: plan, run and report tests between many hosts."""

# SPDX-License-Identifier: MIT

import argparse
import json
import os
import time
from collections.abc import Collection, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from neuca_tools.commands import selftest_parsers as parsers
from neuca_tools.commands.arguments import (
    CONFIG,
    Options,
    add_output_options,
    file_path,
    seconds_up_to,
    value,
)
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.parsers import Parser
from neuca_tools.commands.selftest_agent import read_agent_plan
from neuca_tools.commands.selftest_explain import read_content, styled_text
from neuca_tools.commands.selftest_options import port_number, read_secret
from neuca_tools.commands.selftest_parsers import log
from neuca_tools.commands.selftest_serve import check_servable
from neuca_tools.errors import UsageError
from neuca_tools.files import write_files
from neuca_tools.model import Host as Address
from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.mesh import results
from neuca_tools.selftest.measure.mesh.coordinate import (
    START_SECONDS,
    Coordinator,
    Engine,
    StoppedError,
    stopped_by_signals,
)
from neuca_tools.selftest.measure.mesh.host import MAX_MESSAGE_BYTES, Member, await_plan
from neuca_tools.selftest.measure.wait import Lines
from neuca_tools.selftest.mesh import report
from neuca_tools.selftest.mesh.model import MeshHost, MeshPlan, plan_record, read_plan, tests_of
from neuca_tools.selftest.mesh.page import mesh_page
from neuca_tools.selftest.mesh.schedule import budget_line, make_plan, read_hosts
from neuca_tools.selftest.mesh.verdict import judge_mesh

ENGINE = "clush"
REMOTE = "neuca-selftest mesh join -"
# File descriptors that clush needs: for each host, with three pipes, and for itself.
DESCRIPTORS_OF_A_HOST, OTHER_DESCRIPTORS = 4, 256
MAX_LIST_BYTES = 4 * 2**20  # of a list of hosts


PLAN_OPTIONS: Options = {
    "rate": value(
        "RATE", "the highest rate of each transfer (1G)", type=parsers.link_rate, required=True
    ),
    "expect": value("RATE", "the rate that every path should achieve", type=parsers.link_rate),
    "rounds": value(
        "NUMBER",
        "tests of each host (default: all up to 64 hosts, otherwise 8)",
        type=parsers.integer("a number of rounds", 1, 4096),
        default=0,
    ),
    "seed": value(
        "NUMBER",
        "the seed of the plan (default: %(default)d)",
        type=parsers.integer("a seed", 1, 10**9),
        default=1,
    ),
    "group": value("LABEL", "the label that defines the groups, such as rack"),
    "per-uplink": value(
        "NUMBER",
        "tests at a time across the border of a group (default: %(default)d)",
        type=parsers.integer("a number of tests", 1, 4096),
        default=MeshPlan.per_uplink,
    ),
    "time": value(
        "SECONDS",
        "duration of each transfer (default: %(default)g)",
        dest="seconds",
        type=seconds_up_to(60),
        default=MeshPlan.seconds,
    ),
    "guard": value(
        "SECONDS",
        "time between slots, twice the permitted clock difference (default: %(default)g)",
        type=seconds_up_to(60, low=0.5),
        default=MeshPlan.guard,
    ),
    "port": value(
        "PORT", "port of iperf3 (default: %(default)d)", type=port_number, default=MeshPlan.port
    ),
}
# The fields of a plan that these set.
PLAN_SETTINGS = "rate expect rounds seed group per_uplink seconds guard port".split()
RUN_OPTIONS: Options = {
    "output": value("FILE", "file for the results; it replaces those of an earlier run",
                    type=file_path, required=True),
    "remote": value("COMMAND", "the command for each host (default: %(default)s)", default=REMOTE),
    "patience": value(
        "SECONDS", "how long hosts may take to start (default: %(default)g)",
        type=seconds_up_to(3600),
        default=START_SECONDS,
    ),
}  # fmt: skip
JOIN_OPTIONS: Options = {
    "name": value("NAME", "the name of this host in the plan (default: its host name)"),
    "start": value(
        "SECONDS",
        "when the first slot begins, in seconds since the epoch",
        type=seconds_up_to(results.LATEST, low=0),
    ),
    "secret-file": value("FILE", "file with the secret shared by all hosts"),
    **CONFIG,
}


class _Parser(Parser):
    """Puts the words after "--", which are options of clush, into `arguments.engine`."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: Optional[argparse.Namespace] = None
    ) -> argparse.Namespace:
        own, engine = list(args), list[str]()
        if "--" in own:
            index = own.index("--")
            own, engine = own[:index], own[index + 1 :]
        arguments = super().parse_args(own, namespace)
        arguments.engine = engine
        if engine and arguments.act is not _run:
            log("mesh: only run accepts options of clush")
            raise SystemExit(ExitCode.USAGE)
        return arguments


def mesh_parser() -> argparse.ArgumentParser:
    parser = parsers.parser_of("mesh", _Parser)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, command in COMMANDS.items():
        description = f"{command.purpose.capitalize()}."
        subparser = commands.add_parser(name, help=command.purpose, description=description)
        for word, keywords in command.positional.items():
            subparser.add_argument(word, **keywords)
        parsers.add_exclusive(subparser, command.options)
        add_output_options(subparser)
        subparser.set_defaults(act=command.act)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run a subcommand. Raises UsageError, SelftestError, ApplyError."""
    code: int = arguments.act(arguments)
    return code


# --- plan ---


def _print_plan(arguments: argparse.Namespace) -> int:
    text = read_content(arguments.hosts, MAX_LIST_BYTES).decode("utf-8-sig", "replace")
    hosts = read_hosts(text)
    if arguments.group and not any(arguments.group in host.labels for host in hosts):
        raise UsageError(f'mesh plan: no host has the label "{arguments.group}"')
    settings = {name: getattr(arguments, name) for name in PLAN_SETTINGS}
    plan = read_plan(plan_record(make_plan(MeshPlan(hosts, (), **settings))))
    if plan.expect and plan.rate < plan.expect:
        raise UsageError("mesh plan: --rate is below --expect, so that no path can achieve it")
    print(json.dumps(plan_record(plan), separators=(",", ":")))
    log(budget_line(plan))
    return ExitCode.PASS


# --- run ---


def _run(arguments: argparse.Namespace) -> int:
    plan = results.read_results([arguments.plan]).plan
    log(budget_line(plan))
    began, is_known = time.time(), arguments.output.is_file()
    with results.open_results(arguments.output) as output:
        if is_known:
            log(f'a new run replaces the one in "{arguments.output}"')
        output.plan(plan)
        run, is_stopped = _coordinate_run(arguments, plan, output)
    recorded = results.RecordedRun(run.plan, run.rows, began, run.reasons)
    code = _show_result(arguments, recorded)
    return code or ExitCode.INCONCLUSIVE if is_stopped else code


def _coordinate_run(
    arguments: argparse.Namespace, plan: MeshPlan, output: results.Results
) -> tuple[Coordinator, bool]:
    """Execute the run; return it, and whether it was stopped."""
    engine = Engine(clush_command(plan, arguments.engine, arguments.remote))
    run = Coordinator(plan, engine, output, log)
    try:
        with stopped_by_signals():
            run.run(arguments.patience)
    except StoppedError:
        log(f'stopped; the results so far are in "{arguments.output}"')
        return run, True
    finally:
        engine.end()
    return run, False


def clush_command(plan: MeshPlan, options: Sequence[str], remote: str) -> list[str]:
    """The command that starts all hosts at the same time, as `join` lasts as long as the run."""
    # The kernel limits the length of one argument: MAX_ARG_STRLEN, 128 KiB.
    hosts = [word for host in plan.hosts for word in ("-w", host.name)]
    descriptors = len(plan.hosts) * DESCRIPTORS_OF_A_HOST + OTHER_DESCRIPTORS
    limits = ["-f", str(len(plan.hosts)), "-O", f"fd_max={descriptors}"]
    return [ENGINE, *hosts, *limits, *options, remote]


# --- join ---


def _join(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments, quiet=True)
    lines: Optional[Lines] = None
    secret: Optional[bytes]
    if arguments.plan == "-":
        lines = Lines(0, MAX_MESSAGE_BYTES)
        plan, secret = await_plan(lines, START_SECONDS)
    else:
        plan = results.read_results([Path(arguments.plan)]).plan
        secret = read_secret(arguments, config)
        if secret is None or arguments.start is None:
            raise UsageError("mesh join: a PLAN in a file requires --start and --secret-file")
    node, devices = os.uname().nodename, kernel.devices_by_address()
    if arguments.name:
        host = own_host(plan, [arguments.name], ())
    else:
        host = own_host(plan, [node, node.partition(".")[0]], devices)
    planned, address = read_agent_plan(config), ip_address(host.address)
    try:
        check_servable(address, devices.get(address), None, planned)
    except UsageError as error:
        # Its hint names an option that a mesh does not have: a management NIC is never used.
        raise UsageError(f"join a mesh: {error.text}") from None
    if lines is None:
        results.lock_plan(Path(arguments.plan), plan.hosts.index(host))
    member = Member(plan, host.name, planned, secret, partial(print, flush=True), lines)
    if lines is None:
        member.follow_schedule(tuple(enumerate(plan.slots)), arguments.start)
    else:
        member.announce()
        member.run()
    return ExitCode.PASS


def own_host(plan: MeshPlan, names: Sequence[str], own_addresses: Collection[Address]) -> MeshHost:
    """This host: by one of its names or, if none is in the plan, by the address that it has."""
    host_by_name = {host.name: host for host in plan.hosts}
    for name in names:
        if name in host_by_name:
            return host_by_name[name]
    hosts_here = [host for host in plan.hosts if ip_address(host.address) in own_addresses]
    if len(hosts_here) == 1:
        return hosts_here[0]
    raise UsageError(f'join a mesh: "{names[0]}" is not in the plan', hint="--name NAME")


# --- report, stop ---


def _report_results(arguments: argparse.Namespace) -> int:
    return _show_result(arguments, results.read_results(arguments.files))


def _show_result(arguments: argparse.Namespace, run: results.RecordedRun) -> int:
    """Print what was requested, write the files, and return the exit code."""
    verdict = judge_mesh(run.plan, run.rows, run.reasons)
    result = report.MeshResult(run.plan, tests_of(run.plan, run.rows), verdict, run.began)
    if arguments.json:
        print(report.report_json(result))
    elif not arguments.nagios:
        print(styled_text(arguments, report.report_text(result), verdict.exit_code))
    writers = {arguments.html: mesh_page, arguments.prometheus: report.report_metrics}
    write_files({path: text_of(result).encode() for path, text_of in writers.items() if path})
    if arguments.nagios:
        print(report.nagios_line(result))
        return NAGIOS[verdict.exit_code]
    return verdict.exit_code


def _stop_run(arguments: argparse.Namespace) -> int:
    if not results.stop_run(arguments.file):
        log(f'no run is writing "{arguments.file}"')
        return ExitCode.ERROR
    return ExitCode.PASS


class Subcommand(NamedTuple):
    """A command of `mesh`: its line of --help, its function, its arguments and options."""

    purpose: str
    act: Callable[[argparse.Namespace], int]
    positional: Options
    options: Options


COMMANDS = {
    "plan": Subcommand(
        "print a plan: which hosts test each other, and when",
        _print_plan,
        {"hosts": value("HOSTS", "a file with NAME ADDRESS [LABEL=VALUE …] on each line")},
        PLAN_OPTIONS,
    ),
    "run": Subcommand(
        "run a plan on all hosts, and report",
        _run,
        {"plan": value("PLAN", "the plan; after --, options of clush follow", type=file_path)},
        {**RUN_OPTIONS, **parsers.OUTPUT_OPTIONS},
    ),
    "join": Subcommand(
        "take part in a mesh on this host; run starts it",
        _join,
        {"plan": value("PLAN", "the plan; - for messages on standard input")},
        JOIN_OPTIONS,
    ),
    "report": Subcommand(
        "report the results of a run",
        _report_results,
        {"files": value("FILE", "a plan, or results", nargs="+", type=file_path)},
        parsers.OUTPUT_OPTIONS,
    ),
    "stop": Subcommand(
        "stop a run, or mesh join with a plan",
        _stop_run,
        {"file": value("FILE", "the output of the run, or the plan", type=file_path)},
        {},
    ),
}
