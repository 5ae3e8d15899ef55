"""`neuca-selftest compare-paths`: the same test over several paths, compared with the first."""

# SPDX-License-Identifier: MIT

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple, Optional

from neuca_tools.backends.namespace import namespaces_restored
from neuca_tools.commands import selftest_options
from neuca_tools.commands.arguments import JSON, value
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.selftest_agent import enter_namespace, read_agent_plan
from neuca_tools.commands.selftest_explain import styled_text
from neuca_tools.commands.selftest_parsers import add_grouped, integer, parser_of
from neuca_tools.commands.selftest_run import SEVEREST, check_peers, has_iperf3, without_iperf3
from neuca_tools.config import Config
from neuca_tools.errors import ArgumentsError, SelftestError
from neuca_tools.model import Host as Address
from neuca_tools.model.printable import printable_line
from neuca_tools.selftest.diagnosis.diagnose import phase_results
from neuca_tools.selftest.diagnosis.paths import Tests, compare_paths
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.measure import live
from neuca_tools.selftest.measure.host.planned import AgentPlan
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.report.paths import path_record, path_table
from neuca_tools.selftest.report.text import name_with_arrow, phase_words

SETTINGS = ("netns", "container", "interface", "port")
MAX_ROUNDS, ROUNDS, MAX_PATHS = 20, 3, 16
LABEL = re.compile(r"[^=,\s]{1,40}")
_rounds = integer("a number of rounds", 1, MAX_ROUNDS)


class Path(NamedTuple):
    """One path of the command line; see `compare-paths --help`."""

    label: str
    peer: str
    netns: Optional[str] = None
    container: Optional[str] = None
    interface: Optional[str] = None
    port: Optional[int] = None


def compare_paths_parser() -> argparse.ArgumentParser:
    parser = parser_of("compare-paths")
    path = value("PATH", "LABEL=PEER[,netns=NAME…]; the baseline comes first", type=_parse_path)
    parser.add_argument("paths", nargs="+", **path)
    text = "number of tests of each path (default: %(default)d)"
    rounds = value("NUMBER", text, type=_rounds, default=ROUNDS)
    add_grouped(parser, selftest_options.MEASURING_OPTIONS, {"rounds": rounds}, JSON)
    parser.set_defaults(usage=parser.format_usage, at_boot=False, label=None, interface=None)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Test all paths, then compare them.

    Every round tests every path, so that a change of conditions affects all of them.
    """
    config = load_configuration(arguments)
    paths: Sequence[Path] = arguments.paths
    _check_labels([path.label for path in paths])
    if not has_iperf3():
        return without_iperf3()
    options = _path_options(arguments, config)
    planned = read_agent_plan(config)
    address_by_path = {path: selftest_options.address_of(path.peer) for path in paths}
    for path, address in address_by_path.items():
        with _start_of(path, planned) as plan:
            check_peers([(address, path.interface)], plan)
    turns = [
        _Turn(path, address, f"round {number} of {arguments.rounds}")
        for number in range(1, arguments.rounds + 1)
        for path, address in address_by_path.items()
    ]
    evidence_by_path = _test_paths_live(arguments, turns, options, planned)
    tests = [Tests(path.label, tuple(evidence_by_path[path])) for path in paths]
    return _print_comparison(tests, arguments)


def _check_labels(labels: Sequence[str]) -> None:
    """Raise ArgumentsError unless there are enough paths, with different labels."""
    if len({*labels}) < len(labels) or not 2 <= len(labels) <= MAX_PATHS:
        needed = f"2 to {MAX_PATHS} paths with different labels"
        raise ArgumentsError(f"compare-paths: {needed} are required")


class _Turn(NamedTuple):
    """One test of one path; `round` is "round 1 of 3"."""

    path: Path
    address: Address
    round: str

    @property
    def name(self) -> str:
        return f"{self.round}, {self.path.label}"


def _test_paths_live(
    arguments: argparse.Namespace, turns: Sequence[_Turn], options: Options, planned: AgentPlan
) -> dict[Path, list[Evidence]]:
    """The tests of each path; on a terminal, with a live line."""
    if arguments.json:
        return _test_in_turn(turns, options, planned, lambda *_: None)
    if not live.can_draw():
        return _test_in_turn(turns, options, planned, lambda _, text: print(text, flush=True))
    seconds = sum(stage.seconds for stage in live.planned_stages(options))
    stages = [live.Stage(turn.name, seconds) for turn in turns]
    with live.draw_progress(stages) as tell:
        return _test_in_turn(turns, options, planned, tell)


def _test_in_turn(
    turns: Sequence[_Turn], options: Options, planned: AgentPlan, tell: live.ReportStage
) -> dict[Path, list[Evidence]]:
    """Raises UsageError, SelftestError, ObserveError."""
    evidence_by_path = defaultdict[Path, list[Evidence]](list)
    for turn in turns:
        path, port = turn.path, turn.path.port or options.port
        own = replace(options, port=port, interface=path.interface, label=path.label)
        with _start_of(path, planned) as plan:
            evidence = PeerTest(turn.address, own, plan, lambda _: None).run()
        evidence_by_path[path].append(evidence)
        line = printable_line(f"{path.label:<12} {_summary_line(evidence)}")
        tell(turn.name, f"{turn.round}  {line}")
    return evidence_by_path


def _path_options(arguments: argparse.Namespace, config: Config) -> Options:
    """The options of the test of each path.

    They are those of a test of one path, but the default plan is `quick`, with parallel streams,
    and each path leads through an interface of its own.
    """
    arguments.plan = arguments.plan or "quick"
    options = replace(selftest_options.measurement_options(arguments, config), interface=None)
    if arguments.only is not None:
        return options
    steps = (options.steps | {"tcp-parallel"}) - {"as-planned"} - arguments.skip
    return replace(options, steps=steps)


@contextmanager
def _start_of(path: Path, planned: AgentPlan) -> Iterator[AgentPlan]:
    """Enter the network namespace where a path begins, and yield the agent's plan for it.

    Raises UsageError, SelftestError, ObserveError.
    """
    is_elsewhere = path.netns or path.container
    try:
        with namespaces_restored() if is_elsewhere else nullcontext():
            yield enter_namespace(path.netns, path.container) or planned
    except OSError as error:
        raise SelftestError(f"test {path.peer}: {error.strerror or error}") from error


def _summary_line(evidence: Evidence) -> str:
    """The rates of one test in a line, or the first step that failed."""
    rates = [
        f"{name_with_arrow(phase.name, phase.direction)} {phase_words(phase)}"
        for phase in phase_results(evidence)
    ]
    failed = [step for step in evidence.steps if step.verdict == "fail"]
    failures = [f"{step.name} failed: {step.text}" for step in failed]
    return "; ".join(rates or failures[:1] or ["nothing was measured"])


def _print_comparison(tests: Sequence[Tests], arguments: argparse.Namespace) -> int:
    """Print the comparison and return the most severe exit code of all paths."""
    comparison = compare_paths(tests)
    code = min((verdict.diagnosis.exit_code for verdict in comparison.verdicts), key=SEVEREST.index)
    if arguments.json:
        print(path_record(comparison, tests, code))
    else:
        print(styled_text(arguments, path_table(comparison, arguments.verbose), code))
    return code


def _parse_path(text: str) -> Path:
    """Parse LABEL=PEER[,WORD=VALUE…]. Raises argparse.ArgumentTypeError, as do the next."""
    label, _, rest = text.partition("=")
    peer, *settings = rest.split(",")
    known = dict(setting.partition("=")[::2] for setting in settings)
    _check_settings(text, known)
    if not LABEL.fullmatch(label) or not peer or len(known) < len(settings):
        raise argparse.ArgumentTypeError(f'"{text}": it is not LABEL=PEER[,netns=NAME…]')
    port = selftest_options.port_number(known["port"]) if "port" in known else None
    names = {name: known[name] for name in known if name != "port"}
    return Path(label, peer, port=port, **names)


def _check_settings(text: str, known: Mapping[str, str]) -> None:
    unknown = sorted(known.keys() - set(SETTINGS))
    wrong = unknown + sorted(name for name, value in known.items() if not value)
    if wrong:
        raise argparse.ArgumentTypeError(
            f'"{text}": "{wrong[0]}" is not one of {", ".join(SETTINGS)}, with a value'
        )
    if "netns" in known and "container" in known:
        raise argparse.ArgumentTypeError(f'"{text}": netns and container cannot be combined')
