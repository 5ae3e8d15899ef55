"""`neuca-selftest compare-paths`: one test over several paths in turn, and what each costs against the first."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Optional

from neuca_tools.backends.namespace import enter
from neuca_tools.commands.context import configuration
from neuca_tools.commands.selftest_agent import Outlook, outlook
from neuca_tools.commands.selftest_options import address_of, measuring, options, port_number, whole
from neuca_tools.commands.selftest_run import SEVEREST, has_iperf3, silent, without_iperf3
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
    "Makes the same test over each PATH in turn, several rounds of it, and says what each costs against the first,"
    " the baseline. A PATH is LABEL=PEER; where it begins elsewhere than on the host, leaves through a NIC that has"
    " to be named, or has the peer's ports elsewhere: LABEL=PEER,netns=NAME and so on, with netns, container,"
    " interface or port."
)
WORDS = ("netns", "container", "interface", "port")
MOST_ROUNDS, ROUNDS, MOST_PATHS = 20, 3, 16
LABEL = re.compile(r"[^=,\s]{1,40}")


@dataclass(frozen=True)
class Path:
    """One path, as it was asked for."""

    label: str
    peer: str
    netns: Optional[str] = None
    container: Optional[str] = None
    interface: Optional[str] = None
    port: Optional[int] = None


def paths_parser() -> argparse.ArgumentParser:
    row = argparse.ArgumentParser(prog="neuca-selftest compare-paths", description=COMPARES_PATHS)
    row.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=_path,
        help="LABEL=PEER[,netns=NAME…], the baseline first",
    )
    measuring(row)
    row.add_argument(
        "--rounds",
        metavar="NUMBER",
        type=_rounds,
        default=ROUNDS,
        help="tests of each path (%(default)d)",
    )
    row.add_argument("--json", action="store_true", help="JSON, for scripts")
    row.set_defaults(at_boot=False, label=None, interface=None)
    return row


def run_paths(arguments: argparse.Namespace) -> int:
    """Round by round, so that what changes meanwhile changes for all of them."""
    config = configuration(arguments)
    asked: list[Path] = arguments.paths
    if not 2 <= len(asked) <= MOST_PATHS or len({one.label for one in asked}) < len(asked):
        raise UsageError(
            f"neuca-selftest compare-paths: it takes 2 to {MOST_PATHS} paths, each with a label of its own"
        )
    if not has_iperf3():
        return without_iperf3()
    arguments.plan = arguments.plan or "quick"
    wanted = options(arguments, config)
    if arguments.only is None:
        wanted = replace(
            wanted, steps=(wanted.steps | {"tcp-parallel"}) - {"as-planned"} - arguments.skip
        )
    seen = outlook(config)
    peers = [address_of(one.peer) for one in asked]
    found: dict[str, list[Evidence]] = {one.label: [] for one in asked}
    for number in range(arguments.rounds):
        for one, peer in zip(asked, peers):
            evidence = apart(partial(_test, one, peer, wanted, seen))
            found[one.label].append(evidence)
            if not arguments.json:
                said = f"{one.label:<12} {_summary(evidence)}"
                print(f"round {number + 1} of {arguments.rounds}  {plain(said)}", flush=True)
    return _told([Tests(label, tuple(rounds)) for label, rounds in found.items()], arguments.json)


def _test(path: Path, peer: Address, wanted: Options, seen: Outlook) -> Evidence:
    """In a process of its own: a namespace that was entered is not left. What the agent wants of the host is not for it."""
    if path.netns or path.container:
        enter(where.named(path.netns) if path.netns else where.of_container(path.container or ""))
        seen = Outlook()
    mine = replace(
        wanted,
        port=path.port or wanted.port,
        interface=path.interface or wanted.interface,
        label=path.label,
    )
    return PeerTest(peer, mine, seen, silent).run()  # a line for each round is enough


def _summary(evidence: Evidence) -> str:
    failed = [f"{one.name} failed: {one.text}" for one in evidence.steps if one.verdict == "fail"]
    rates = [
        f"{one.name}{' ←' if one.direction == 'reverse' else ''} {phase_words(one)}"
        for one in phase_results(evidence)
    ]
    return "; ".join(rates or failed[:1] or ["nothing was measured"])


def _told(tests: Sequence[Tests], as_json: bool) -> int:
    found = compare_paths(tests)
    code = min((one.diagnosis.exit_code for one in found.verdicts), key=SEVEREST.index)
    print(path_record(found, tests, code) if as_json else path_table(found))
    return code


# --- Readers: each raises argparse.ArgumentTypeError ----------------------------------------------------------------------


def _path(text: str) -> Path:
    label, _, rest = text.partition("=")
    peer, *more = rest.split(",")
    known = dict(one.partition("=")[::2] for one in more)
    wrong = sorted(known.keys() - set(WORDS)) + sorted(
        name for name, value in known.items() if not value
    )
    if not LABEL.fullmatch(label) or not peer or wrong or len(known) < len(more):
        what = (
            f'"{wrong[0]}" in it is none of {", ".join(WORDS)}, with a value'
            if wrong
            else "it is no LABEL=PEER[,netns=NAME…]"
        )
        raise argparse.ArgumentTypeError(f'"{text}": {what}')
    if "netns" in known and "container" in known:
        raise argparse.ArgumentTypeError(f'"{text}": netns and container are two places')
    return Path(
        label,
        peer,
        known.get("netns"),
        known.get("container"),
        known.get("interface"),
        port_number(known["port"]) if "port" in known else None,
    )


def _rounds(word: str) -> int:
    return whole(word, "number of rounds", 1, MOST_ROUNDS)
