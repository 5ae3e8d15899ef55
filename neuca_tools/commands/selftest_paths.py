"""`neuca-selftest compare-paths`: the same test over several paths, each compared with the first."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Optional

from neuca_tools.backends.namespace import enter
from neuca_tools.commands.context import configuration
from neuca_tools.commands.selftest_agent import Outlook, outlook
from neuca_tools.commands.selftest_options import (
    JSON_OPTION,
    MEASURING_OPTIONS,
    add_options,
    address_of,
    options,
    port_number,
    whole,
)
from neuca_tools.commands.selftest_run import SEVEREST, has_iperf3, silent, without_iperf3
from neuca_tools.config import Config
from neuca_tools.errors import UsageError
from neuca_tools.model import Host as Address
from neuca_tools.model.printable import plain
from neuca_tools.selftest.diagnosis.diagnose import phase_results
from neuca_tools.selftest.diagnosis.paths import Tests, compare_paths
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.measure.helper.apart import apart
from neuca_tools.selftest.measure.host import where
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.report.paths import path_record, path_table
from neuca_tools.selftest.report.text import phase_words

COMPARES_PATHS = (
    "Run the same test over each PATH in turn, for several rounds, and compare each path with the first, the baseline."
    " PATH is LABEL=PEER. To start in another network namespace or container, to leave through a certain interface, or"
    " to use another port, append ,netns=NAME ,container=NAME ,interface=NAME or ,port=PORT."
)
WORDS = ("netns", "container", "interface", "port")
MOST_ROUNDS, ROUNDS, MOST_PATHS = 20, 3, 16
LABEL = re.compile(r"[^=,\s]{1,40}")


@dataclass(frozen=True)
class Path:
    """One path of the command line; see COMPARES_PATHS."""

    label: str
    peer: str
    netns: Optional[str] = None
    container: Optional[str] = None
    interface: Optional[str] = None
    port: Optional[int] = None


def paths_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="neuca-selftest compare-paths", description=COMPARES_PATHS
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=_path,
        help="LABEL=PEER[,netns=NAME…]; the baseline comes first",
    )
    add_options(parser, MEASURING_OPTIONS)
    parser.add_argument(
        "--rounds",
        metavar="NUMBER",
        type=_rounds,
        default=ROUNDS,
        help="number of tests of each path (default: %(default)d)",
    )
    add_options(parser, JSON_OPTION)
    parser.set_defaults(at_boot=False, label=None, interface=None)
    return parser


def run_paths(arguments: argparse.Namespace) -> int:
    """Test all paths, then compare them.

    Every round tests every path, so that a change of conditions affects all of them.
    """
    config = configuration(arguments)
    paths = _checked(arguments.paths)
    if not has_iperf3():
        return without_iperf3()
    wanted = _options(arguments, config)
    planned = outlook(config)
    peers = [address_of(path.peer) for path in paths]
    found: dict[str, list[Evidence]] = {path.label: [] for path in paths}
    for number in range(1, arguments.rounds + 1):
        for path, peer in zip(paths, peers):
            evidence = apart(partial(_test, path, peer, wanted, planned))
            found[path.label].append(evidence)
            if not arguments.json:
                line = plain(f"{path.label:<12} {_summary(evidence)}")
                print(f"round {number} of {arguments.rounds}  {line}", flush=True)
    tests = [Tests(label, tuple(rounds)) for label, rounds in found.items()]
    return _conclude(tests, arguments.json)


def _checked(paths: Sequence[Path]) -> Sequence[Path]:
    labels = {path.label for path in paths}
    if not 2 <= len(paths) <= MOST_PATHS or len(labels) < len(paths):
        raise UsageError(
            f"neuca-selftest compare-paths: it takes 2 to {MOST_PATHS} paths, each with a label of its own"
        )
    return paths


def _options(arguments: argparse.Namespace, config: Config) -> Options:
    """As for a test of one path, but the default plan is `quick`, with parallel streams."""
    arguments.plan = arguments.plan or "quick"
    wanted = options(arguments, config)
    if arguments.only is not None:
        return wanted
    steps = (wanted.steps | {"tcp-parallel"}) - {"as-planned"} - arguments.skip
    return replace(wanted, steps=steps)


def _test(path: Path, peer: Address, wanted: Options, planned: Outlook) -> Evidence:
    """Test one path. Run it in a child process: a process does not leave a namespace it entered.

    The agent's plan for the host does not apply inside another namespace.
    """
    if path.netns:
        enter(where.named(path.netns))
        planned = Outlook()
    elif path.container:
        enter(where.of_container(path.container))
        planned = Outlook()
    wanted = replace(
        wanted,
        port=path.port or wanted.port,
        interface=path.interface or wanted.interface,
        label=path.label,
    )
    # Not the single steps: one line for each round is enough.
    return PeerTest(peer, wanted, planned, silent).run()


def _summary(evidence: Evidence) -> str:
    """The rates of one test in a line, or the first step that failed."""
    rates = []
    for phase in phase_results(evidence):
        arrow = " ←" if phase.direction == "reverse" else ""
        rates.append(f"{phase.name}{arrow} {phase_words(phase)}")
    failed = [step for step in evidence.steps if step.verdict == "fail"]
    if rates:
        return "; ".join(rates)
    if failed:
        return f"{failed[0].name} failed: {failed[0].text}"
    return "nothing was measured"


def _conclude(tests: Sequence[Tests], as_json: bool) -> int:
    """Print the comparison and return the most severe exit code of all paths."""
    found = compare_paths(tests)
    code = min((verdict.diagnosis.exit_code for verdict in found.verdicts), key=SEVEREST.index)
    print(path_record(found, tests, code) if as_json else path_table(found))
    return code


# --- Readers: each raises argparse.ArgumentTypeError -----------------------------------------------


def _path(text: str) -> Path:
    """Parse LABEL=PEER[,WORD=VALUE…]."""
    label, _, rest = text.partition("=")
    peer, *settings = rest.split(",")
    known = dict(setting.partition("=")[::2] for setting in settings)
    _check_settings(text, known)
    if not LABEL.fullmatch(label) or not peer or len(known) < len(settings):
        raise argparse.ArgumentTypeError(f'"{text}": it is no LABEL=PEER[,netns=NAME…]')
    return Path(
        label,
        peer,
        netns=known.get("netns"),
        container=known.get("container"),
        interface=known.get("interface"),
        port=port_number(known["port"]) if "port" in known else None,
    )


def _check_settings(text: str, known: Mapping[str, str]) -> None:
    unknown = sorted(known.keys() - set(WORDS))
    wrong = unknown + sorted(name for name, value in known.items() if not value)
    if wrong:
        raise argparse.ArgumentTypeError(
            f'"{text}": "{wrong[0]}" in it is none of {", ".join(WORDS)}, with a value'
        )
    if "netns" in known and "container" in known:
        raise argparse.ArgumentTypeError(f'"{text}": netns and container are two places')


def _rounds(word: str) -> int:
    return whole(word, "number of rounds", 1, MOST_ROUNDS)
