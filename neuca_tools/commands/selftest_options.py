"""The options of `neuca-selftest`, and their defaults from section `[selftest]` of the configuration."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import os
import socket
import stat
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

from neuca_tools.config import Config
from neuca_tools.config.options import TRUTH, listed
from neuca_tools.errors import UsageError
from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.iperf.plans import PLANS, PORT, STEPS, Options
from neuca_tools.selftest.measure.probes.broadcast import MOST
from neuca_tools.selftest.readers.lines import parse_rate

Value = TypeVar("Value")
# The options of section [selftest].
SETTINGS = tuple("peers plan time port expect rate interface secret-file run-at-boot".split())
SHORTEST_SECRET, LONGEST_SECRET = 16, 4096  # bytes
LONGEST = 3600.0  # seconds of one test
LONGEST_SERVICE = 86400.0  # seconds
DESCRIPTION = (
    "Measure the path to each PEER, given as ADDRESS or NAME@ADDRESS, and report what limits it. Without a PEER, test"
    " those listed as peers in section [selftest] of the configuration. The peer must run neuca-selftest --serve with"
    " the same secret, or iperf3 -s -p 45678. See also neuca-selftest explain, compare and compare-paths."
)


# --- Option tables: the keyword arguments of argparse's add_argument, by option --------------------

_FLAG = "store_true"
OptionTable = Mapping[str, Mapping[str, Any]]


def add_options(parser: argparse._ActionsContainer, table: OptionTable) -> None:
    """Add all options of a table to a parser or to a group of one."""
    for name, keywords in table.items():
        parser.add_argument(f"--{name}", **keywords)


def rate(word: str) -> float:
    """Parse a rate such as 5G; return bit/s. Raises argparse.ArgumentTypeError."""
    found = parse_rate(word)
    if not found:
        raise argparse.ArgumentTypeError(f'"{word}" is no rate, such as 5G or 100M')
    return found


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
    """Parse an integer from `low` (1 or more) to `high`. Raises argparse.ArgumentTypeError."""
    found = int(word) if word.isdecimal() and len(word) < 10 else 0
    if not low <= found <= high:
        raise argparse.ArgumentTypeError(f'"{word}" is no {what} from {low} to {high}')
    return found


def port_number(word: str) -> int:
    """Parse an iperf3 port; the two ports above it are used too. Raises ArgumentTypeError."""
    return whole(word, "port", 1024, 65533)


def _stream_counts(word: str) -> tuple[int, ...]:
    found = [int(part) if part.isdecimal() and len(part) < 4 else 0 for part in word.split(",")]
    if not all(1 <= count <= 128 for count in found):
        raise argparse.ArgumentTypeError(
            f'"{word}" is no list of numbers of streams, from 1 to 128'
        )
    return tuple(sorted(set(found)))


def _host_count(word: str) -> int:
    return whole(word, "number of hosts", 1, MOST)


def _steps(word: str) -> frozenset[str]:
    found = frozenset(listed(word))
    wrong = sorted(found - set(STEPS))
    if wrong:
        raise argparse.ArgumentTypeError(f'"{wrong[0]}" is none of the steps {", ".join(STEPS)}')
    return found


CONFIG_OPTION: OptionTable = {
    "config": {
        "metavar": "FILE",
        "help": "read the configuration from FILE (default: /etc/neuca/config)",
    }
}
EXPECT_OPTION: OptionTable = {
    "expect": {"metavar": "RATE", "type": rate, "help": "the expected rate of the path (e.g. 5G)"}
}
JSON_OPTION: OptionTable = {"json": {"action": _FLAG, "help": "print JSON"}}
# --json and --nagios exclude each other.
OUTPUT_OPTIONS: OptionTable = {
    **JSON_OPTION,
    "nagios": {"action": _FLAG, "help": "print one line and exit as a Nagios plugin does"},
}
REPORT_OPTIONS: OptionTable = {
    "html": {"metavar": "PATH", "type": Path, "help": "also write the report to an HTML file"},
    "prometheus": {
        "metavar": "PATH",
        "type": Path,
        "help": "also write metrics for the textfile collector of the Prometheus node exporter",
    },
}
# Shared by a test of one path and by compare-paths.
MEASURING_OPTIONS: OptionTable = {
    **CONFIG_OPTION,
    "plan": {
        "choices": sorted(PLANS),
        "help": "how long to test: about 15 seconds (quick), 3 minutes (standard, the default) or"
        " 10 minutes (full)",
    },
    "time": {
        "metavar": "SECONDS",
        "type": _seconds,
        "help": "duration of each throughput test",
    },
    "port": {
        "metavar": "PORT",
        "type": port_number,
        "help": f"port of iperf3; the helper uses the next two (default: {PORT})",
    },
    "parallel": {
        "metavar": "NUMBERS",
        "type": _stream_counts,
        "help": "numbers of parallel streams (e.g. 1,8,128)",
    },
    "bidir": {"action": _FLAG, "help": "test both directions at once, even with --plan quick"},
    "udp": {"action": _FLAG, "help": "test UDP, even with --plan quick"},
    "rate": {"metavar": "RATE", "type": rate, "help": "limit the sending rate (e.g. 500M)"},
    **EXPECT_OPTION,
    "skip": {
        "metavar": "STEPS",
        "type": _steps,
        "default": frozenset(),
        "help": f"skip these steps (comma-separated): {', '.join(STEPS)}",
    },
    "only": {"metavar": "STEPS", "type": _steps, "help": "run only these steps, and reach"},
    "broadcast": {
        "metavar": "NUMBER",
        "type": _host_count,
        "help": "also test broadcasts, and expect NUMBER hosts to answer",
    },
    "numa": {
        "metavar": "NODE",
        "help": "run iperf3 on this NUMA node; auto selects the node of the NIC",
    },
    "ssh": {"metavar": "HOST", "help": "start the helper on the peer by ssh"},
    "secret-file": {"metavar": "FILE", "help": "file with the secret shared with the peer"},
}
_ORIGIN_OPTIONS: OptionTable = {
    "interface": {
        "metavar": "NAME",
        "help": "test through this interface, even if it is the management NIC",
    },
    "netns": {"metavar": "NAME", "help": "test from this network namespace"},
    "container": {
        "metavar": "NAME",
        "help": "test from the network namespace of this container (docker, podman)",
    },
    "family": {"choices": ("4", "6"), "help": "resolve a PEER to IPv4 or IPv6 only"},
}
_RUN_OPTIONS: OptionTable = {
    "try-fix": {
        "action": _FLAG,
        "help": "apply the recommended sysctl, test again and keep it if it helps",
    },
    "label": {"metavar": "TEXT", "help": "label of the stored report, for compare"},
    "at-boot": {
        "action": _FLAG,
        "help": "run a quick test, or none if run-at-boot in section [selftest] is off",
    },
}
_SERVE_OPTIONS: OptionTable = {
    "serve": {"action": _FLAG, "help": "serve tests to peers for a limited time"},
    "for": {
        "metavar": "SECONDS",
        "dest": "period",
        "type": _period,
        "default": 600.0,
        "help": "with --serve: how long to serve (default: %(default)g)",
    },
    "address": {
        "metavar": "ADDRESS",
        "action": "append",
        "type": ip_address,
        "help": "with --serve: listen on this address only; may be repeated",
    },
    "stdio": {
        "action": _FLAG,
        "help": "with --serve: serve one test over standard input and output, as used by --ssh",
    },
}


def run_parser() -> argparse.ArgumentParser:
    """The parser of `neuca-selftest PEER…` and `neuca-selftest --serve`."""
    parser = argparse.ArgumentParser(prog="neuca-selftest", description=DESCRIPTION)
    parser.add_argument("peers", metavar="PEER", nargs="*", help="the host to test against")
    for table in (MEASURING_OPTIONS, _ORIGIN_OPTIONS, _RUN_OPTIONS):
        add_options(parser, table)
    add_options(parser.add_mutually_exclusive_group(), OUTPUT_OPTIONS)
    for table in (REPORT_OPTIONS, _SERVE_OPTIONS):
        add_options(parser, table)
    return parser


# --- The values in effect --------------------------------------------------------------------------


def options(arguments: argparse.Namespace, config: Config) -> Options:
    """The options of one test: the command line, then the configuration, then the plan.

    Raises UsageError.
    """
    known = config.selftest
    plan = _plan(arguments, known)
    return Options(
        steps=_selected_steps(arguments, plan),
        seconds=arguments.time or _configured(known, "time", _seconds) or plan.seconds,
        parallel=arguments.parallel or plan.parallel,
        round_trips=plan.round_trips,
        port=port(arguments, config),
        rate=arguments.rate or _configured(known, "rate", rate),
        expect=arguments.expect or _configured(known, "expect", rate),
        interface=arguments.interface or known.get("interface") or None,
        numa=_numa_node(arguments.numa),
        ssh=arguments.ssh,
        secret=secret(arguments, config),
        label=_label(arguments),
        broadcast=arguments.broadcast,
    )


def _plan(arguments: argparse.Namespace, known: Mapping[str, str]) -> Options:
    if arguments.at_boot:
        return PLANS["quick"]
    return PLANS[arguments.plan or _configured(known, "plan", _plan_name) or "standard"]


def _label(arguments: argparse.Namespace) -> Optional[str]:
    if arguments.label:
        return str(arguments.label)
    return "boot" if arguments.at_boot else None


def _selected_steps(arguments: argparse.Namespace, plan: Options) -> frozenset[str]:
    """The steps of the plan or of --only, with those that other options imply, less --skip."""
    steps = set(plan.steps)
    if arguments.only is not None:
        steps = {"reach", *arguments.only}
    implied = {
        "tcp-bidir": arguments.bidir,
        "udp": arguments.udp,
        "tcp-parallel": arguments.parallel,
        "broadcast": arguments.broadcast,
    }
    steps.update(step for step, value in implied.items() if value)
    return frozenset(steps - arguments.skip)


def peers(arguments: argparse.Namespace, config: Config) -> list[str]:
    """The peers of the command line, else those of the configuration. Raises UsageError.

    With --at-boot, none if `run-at-boot` is off.
    """
    if arguments.at_boot and _configured(config.selftest, "run-at-boot", _boolean) is False:
        return []
    return list(arguments.peers) or list(listed(config.selftest.get("peers", "")))


def port(arguments: argparse.Namespace, config: Config) -> int:
    """The port of iperf3. Raises UsageError."""
    found: int = arguments.port or _configured(config.selftest, "port", port_number) or PORT
    return found


def secret(arguments: argparse.Namespace, config: Config) -> Optional[bytes]:
    """The secret shared with the peer; None if no file is configured.

    Raises UsageError if the file cannot be read, is owned or readable by another user, or holds
    fewer than SHORTEST_SECRET bytes.
    """
    name = arguments.secret_file or config.selftest.get("secret-file")
    if not name:
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            found = stream.read(LONGEST_SECRET).strip()
    except OSError as error:
        raise UsageError(f'read the secret "{name}": {error.strerror}') from error
    # A pipe, such as bash's <(...), has no owner or mode that says anything.
    if stat.S_ISREG(status.st_mode):
        _check_private(name, status)
    if len(found) < SHORTEST_SECRET:
        raise UsageError(
            f'read the secret "{name}": it is shorter than {SHORTEST_SECRET} bytes',
            hint=f"(umask 077; head -c 32 /dev/urandom | base64 > {name}), and the same file on the peer",
        )
    return found


def _check_private(name: str, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(
            f'read the secret "{name}": it belongs to user {status.st_uid}, who can change it',
            hint=f"chown root {name}",
        )
    if status.st_mode & 0o077:
        raise UsageError(
            f'read the secret "{name}": others can read it too', hint=f"chmod 600 {name}"
        )


def _configured(
    known: Mapping[str, str], name: str, read: Callable[[str], Value]
) -> Optional[Value]:
    """The value of one option of [selftest], None if not set. Raises UsageError."""
    if not known.get(name):
        return None
    try:
        return read(known[name])
    except argparse.ArgumentTypeError as reason:
        raise UsageError(f"[selftest] {name}: {reason}") from None


def _plan_name(word: str) -> str:
    if word not in PLANS:
        raise argparse.ArgumentTypeError(f'"{word}" is no plan: quick, standard or full')
    return word


def _boolean(word: str) -> bool:
    if word.lower() not in TRUTH:
        raise argparse.ArgumentTypeError(f'"{word}" is neither true nor false')
    return TRUTH[word.lower()]


def _numa_node(word: Optional[str]) -> Optional[str]:
    if word is not None and word != "auto" and not (word.isdecimal() and len(word) < 4):
        raise UsageError(f'--numa "{word}": it is neither a number nor auto')
    return word


# --- Peers -----------------------------------------------------------------------------------------


def literal(text: str) -> Optional[Address]:
    """The address in ADDRESS or NAME@ADDRESS; None if the peer is given as a host name."""
    try:
        return ip_address(text.rpartition("@")[2].strip())
    except ValueError:
        return None


def address_of(entry: str, family: Optional[str] = None) -> Address:
    """The address of a peer; a host name is resolved, to `family` ("4" or "6") if given.

    Raises UsageError.
    """
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
