"""The words of `neuca-selftest PEER…` and `neuca-selftest --serve`, over what `[selftest]` in the configuration says."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import os
import socket
import stat
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Callable, Optional, TypeVar

from neuca_tools.config import Config
from neuca_tools.config.options import TRUTH, listed
from neuca_tools.errors import UsageError
from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.iperf.plans import PLANS, PORT, STEPS, Options
from neuca_tools.selftest.measure.probes.broadcast import MOST
from neuca_tools.selftest.readers.lines import parse_rate

Value = TypeVar("Value")
SETTINGS = tuple(
    "peers plan time port expect rate interface secret-file run-at-boot".split()
)  # of [selftest]
SHORTEST_SECRET, LONGEST_SECRET = 16, 4096  # bytes
LONGEST = 3600.0  # seconds of one test
LONGEST_SERVICE = 86400.0  # seconds
MEASURES = (
    "Measures the way to each PEER: an address, or NAME@ADDRESS. Without any, to those of [selftest] peers. At the other"
    " end runs neuca-selftest --serve with the same secret, or iperf3 -s -p 45678. neuca-selftest explain and compare"
    " look at runs that were made before, neuca-selftest compare-paths at several paths."
)


def run_parser() -> argparse.ArgumentParser:
    """Everything but the subcommands."""
    row = argparse.ArgumentParser(prog="neuca-selftest", description=MEASURES)
    row.add_argument("peers", metavar="PEER", nargs="*", help="who is at the other end")
    measuring(row)
    row.add_argument("--interface", metavar="NAME", help="leave through this one, whatever it is")
    row.add_argument("--netns", metavar="NAME", help="from this network namespace of the host")
    row.add_argument(
        "--container",
        metavar="NAME",
        help="from the network namespace of this container (docker, podman)",
    )
    row.add_argument("--family", choices=("4", "6"), help="of a PEER that is a host name")
    row.add_argument(
        "--try-fix",
        action="store_true",
        help="set what is advised, measure again, keep it if it is better",
    )
    row.add_argument(
        "--label", metavar="TEXT", help="kept with the report, for neuca-selftest compare"
    )
    row.add_argument(
        "--at-boot",
        action="store_true",
        help="quick, and nothing where [selftest] run-at-boot is off",
    )
    form = row.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON, for scripts")
    form.add_argument(
        "--nagios", action="store_true", help="one line, with the exit codes of a Nagios plugin"
    )
    row.add_argument(
        "--html", metavar="PATH", type=Path, help="write the report as one HTML file too"
    )
    row.add_argument(
        "--prometheus",
        metavar="PATH",
        type=Path,
        help="write a text file for Prometheus' node exporter too",
    )
    row.add_argument("--serve", action="store_true", help="be the other end, for a bounded time")
    row.add_argument(
        "--for",
        metavar="SECONDS",
        dest="period",
        type=_period,
        default=600.0,
        help="of --serve (%(default)g)",
    )
    row.add_argument(
        "--address",
        metavar="ADDRESS",
        action="append",
        type=ip_address,
        help="of --serve: this one alone, not all of the dataplane",
    )
    row.add_argument(
        "--stdio",
        action="store_true",
        help="of --serve: one test, asked for over standard input, as --ssh does",
    )
    return row


def measuring(row: argparse.ArgumentParser) -> None:
    """What a test is, whatever it is a part of."""
    row.add_argument("--config", metavar="FILE", help="the configuration (/etc/neuca/config)")
    row.add_argument(
        "--plan",
        choices=sorted(PLANS),
        help="how much: 15 seconds, 3 minutes (standard, the default), 10 minutes",
    )
    row.add_argument("--time", metavar="SECONDS", type=_seconds, help="of each throughput test")
    row.add_argument(
        "--port",
        metavar="PORT",
        type=port_number,
        help=f"of iperf3; a helper has the two after it ({PORT})",
    )
    row.add_argument(
        "--parallel", metavar="NUMBERS", type=_numbers, help="numbers of streams, such as 1,8,128"
    )
    row.add_argument(
        "--bidir", action="store_true", help="both ways at once too, in the plan quick"
    )
    row.add_argument("--udp", action="store_true", help="UDP too, in the plan quick")
    row.add_argument(
        "--rate", metavar="RATE", type=rate, help="send no faster than this, such as 500M"
    )
    row.add_argument(
        "--expect", metavar="RATE", type=rate, help="the rate that the path should have, such as 5G"
    )
    row.add_argument(
        "--skip",
        metavar="STEPS",
        type=_steps,
        default=frozenset(),
        help=f"leave out: {', '.join(STEPS)}",
    )
    row.add_argument(
        "--only", metavar="STEPS", type=_steps, help="nothing but these steps, and reach"
    )
    row.add_argument(
        "--broadcast",
        metavar="NUMBER",
        type=_hosts,
        help="broadcasts too, that so many hosts should answer",
    )
    row.add_argument(
        "--numa",
        metavar="NODE",
        help="run iperf3 on this NUMA node: a number, or auto for the NIC's",
    )
    row.add_argument("--ssh", metavar="HOST", help="start the helper at the other end by ssh")
    row.add_argument("--secret-file", metavar="FILE", help="the secret that both ends share")


def options(arguments: argparse.Namespace, config: Config) -> Options:
    """One test, as the command line has it, or else the configuration. Raises UsageError."""
    known = config.selftest
    plan = PLANS[
        "quick" if arguments.at_boot else arguments.plan or _one(known, "plan", _plan) or "standard"
    ]
    steps = frozenset({"reach", *arguments.only}) if arguments.only is not None else plan.steps
    steps |= ({"tcp-bidir"} if arguments.bidir else set()) | ({"udp"} if arguments.udp else set())
    steps |= {"tcp-parallel"} if arguments.parallel else set()
    steps |= {"broadcast"} if arguments.broadcast else set()
    return Options(
        steps - arguments.skip,
        arguments.time or _one(known, "time", _seconds) or plan.seconds,
        arguments.parallel or plan.parallel,
        plan.round_trips,
        arguments.port or _one(known, "port", port_number) or PORT,
        arguments.rate or _one(known, "rate", rate),
        arguments.expect or _one(known, "expect", rate),
        arguments.interface or known.get("interface") or None,
        _node(arguments.numa),
        arguments.ssh,
        secret(arguments, config),
        arguments.label or ("boot" if arguments.at_boot else None),
        arguments.broadcast,
    )


def peers(arguments: argparse.Namespace, config: Config) -> list[str]:
    """Who is to be tested: those of the command line, else those of the configuration. Raises UsageError."""
    wanted = _one(config.selftest, "run-at-boot", _truth)
    if arguments.at_boot and wanted is False:
        return []
    return list(arguments.peers) or list(listed(config.selftest.get("peers", "")))


def port(arguments: argparse.Namespace, config: Config) -> int:
    found: int = arguments.port or _one(config.selftest, "port", port_number) or PORT
    return found


def secret(arguments: argparse.Namespace, config: Config) -> Optional[bytes]:
    """What both ends share, from a file that nobody else can read; None where none is given. Raises UsageError."""
    name = arguments.secret_file or config.selftest.get("secret-file")
    if not name:
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            known = os.fstat(descriptor)
            found = stream.read(LONGEST_SECRET).strip()
    except OSError as error:
        raise UsageError(f'read the secret "{name}": {error.strerror}') from error
    if stat.S_ISREG(known.st_mode) and known.st_uid not in (0, os.geteuid()):
        raise UsageError(
            f'read the secret "{name}": it belongs to user {known.st_uid}, who can change it',
            hint=f"chown root {name}",
        )
    if stat.S_ISREG(known.st_mode) and known.st_mode & 0o077:
        raise UsageError(
            f'read the secret "{name}": others can read it too', hint=f"chmod 600 {name}"
        )
    if len(found) < SHORTEST_SECRET:
        raise UsageError(
            f'read the secret "{name}": it is shorter than {SHORTEST_SECRET} bytes',
            hint=f"(umask 077; head -c 32 /dev/urandom | base64 > {name}), and the same file at the other end",
        )
    return found


# --- Readers: each raises argparse.ArgumentTypeError ----------------------------------------------------------------------


def _one(known: Mapping[str, str], name: str, read: Callable[[str], Value]) -> Optional[Value]:
    if not known.get(name):
        return None
    try:
        return read(known[name])
    except argparse.ArgumentTypeError as reason:
        raise UsageError(f"[selftest] {name}: {reason}") from None


def rate(word: str) -> float:
    """In bit/s."""
    found = parse_rate(word)
    if not found:
        raise argparse.ArgumentTypeError(f'"{word}" is no rate, such as 5G or 100M')
    return found


def _plan(word: str) -> str:
    if word not in PLANS:
        raise argparse.ArgumentTypeError(f'"{word}" is no plan: quick, standard or full')
    return word


def _seconds(word: str) -> float:
    return _between(word, 1, LONGEST)


def _period(word: str) -> float:
    return _between(word, 1, LONGEST_SERVICE)


def _between(word: str, low: float, high: float) -> float:
    try:
        found = float(word)
    except ValueError:
        found = 0.0
    if not low <= found <= high:
        raise argparse.ArgumentTypeError(f'"{word}" is no time from {low:g} to {high:g} seconds')
    return found


def whole(word: str, what: str, low: int, high: int) -> int:
    """`low` is 1 or more."""
    found = int(word) if word.isdecimal() and len(word) < 10 else 0
    if not low <= found <= high:
        raise argparse.ArgumentTypeError(f'"{word}" is no {what} from {low} to {high}')
    return found


def port_number(word: str) -> int:
    return whole(word, "port", 1024, 65533)


def _numbers(word: str) -> tuple[int, ...]:
    found = [int(part) if part.isdecimal() and len(part) < 4 else 0 for part in word.split(",")]
    if not all(1 <= one <= 128 for one in found):
        raise argparse.ArgumentTypeError(
            f'"{word}" is no list of numbers of streams, from 1 to 128'
        )
    return tuple(sorted(set(found)))


def _hosts(word: str) -> int:
    return whole(word, "number of hosts", 1, MOST)


def _steps(word: str) -> frozenset[str]:
    found = frozenset(listed(word))
    wrong = sorted(found - set(STEPS))
    if wrong:
        raise argparse.ArgumentTypeError(f'"{wrong[0]}" is none of the steps {", ".join(STEPS)}')
    return found


def _truth(word: str) -> bool:
    if word.lower() not in TRUTH:
        raise argparse.ArgumentTypeError(f'"{word}" is neither true nor false')
    return TRUTH[word.lower()]


def _node(word: Optional[str]) -> Optional[str]:
    if word is not None and word != "auto" and not (word.isdecimal() and len(word) < 4):
        raise UsageError(f'--numa "{word}": it is neither a number nor auto')
    return word


def literal(text: str) -> Optional[Address]:
    """The address of a peer that is written as one, or as NAME@ADDRESS."""
    try:
        return ip_address(text.rpartition("@")[2].strip())
    except ValueError:
        return None


def address_of(entry: str, family: Optional[str] = None) -> Address:
    """Of a peer as it is written; a name is looked up. Raises UsageError."""
    found = literal(entry)
    if found is not None:
        return found
    kind = {"4": socket.AF_INET, "6": socket.AF_INET6, None: socket.AF_UNSPEC}[family]
    try:
        known = socket.getaddrinfo(entry, None, kind, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f'test "{entry}": it is no address, and no name that can be looked up: {error}'
        ) from error
    return ip_address(str(known[0][4][0]).partition("%")[0])
