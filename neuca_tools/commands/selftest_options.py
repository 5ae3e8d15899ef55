"""The options of tests, the parsers of `run` and `serve`, and the defaults of `[selftest]`."""

# SPDX-License-Identifier: MIT

import argparse
import os
import socket
import stat
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Callable, Optional

from neuca_tools.commands import selftest_parsers as parsers
from neuca_tools.commands.arguments import CONFIG, VERSION, add_options, flag, seconds_up_to, value
from neuca_tools.commands.arguments import Options as Table
from neuca_tools.commands.parsers import Parser
from neuca_tools.commands.selftest_parsers import PROGRAM
from neuca_tools.config import Config
from neuca_tools.config.options import TRUTH, split_list
from neuca_tools.errors import UsageError
from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.iperf.plans import PLANS, PORT, STEPS, Options

NUMA_NODES = Path("/sys/devices/system/node")
SHORTEST_SECRET, LONGEST_SECRET = 16, 4096  # bytes
# How to make a secret, and where one is usually kept.
MAKE_SECRET = "(umask 077; head -c 32 /dev/urandom | base64 > {name}); copy it to the peer"
SECRET_FILE = "/etc/neuca/selftest.secret"
MAX_TEST_SECONDS = 3600.0
MAX_SERVICE_SECONDS = 86400.0


# --- Readers of single values; each raises argparse.ArgumentTypeError ---

# The helper uses the two ports above that of iperf3.
port_number = parsers.integer("a port", 1024, 65533)
_stream_count = parsers.integer("a number of streams", 1, 128)


def _stream_counts(word: str) -> tuple[int, ...]:
    return tuple(sorted(set(map(_stream_count, word.split(",")))))


def _step_names(word: str) -> frozenset[str]:
    steps = frozenset(split_list(word))
    for wrong in sorted(steps - set(STEPS)) if steps else [word]:
        raise parsers.refused_value(wrong, f"one of the steps {', '.join(STEPS)}")
    return steps


def _plan_name(word: str) -> str:
    if word not in PLANS:
        raise parsers.refused_value(word, "a plan: quick, standard or full")
    return word


def _boolean(word: str) -> bool:
    if word.lower() not in TRUTH:
        raise parsers.refused_value(word, "true or false")
    return TRUTH[word.lower()]


# The options of section [selftest].
SETTINGS: Mapping[str, Callable[[str], object]] = {
    "peers": split_list,
    "plan": _plan_name,
    "time": seconds_up_to(MAX_TEST_SECONDS),
    "port": port_number,
    "expect": parsers.link_rate,
    "rate": parsers.link_rate,
    "interface": str,
    "secret-file": str,
    "run-at-boot": _boolean,
}


# --- Option tables ---

_PLANS = "about 20 seconds (quick), 2 minutes (standard, the default) or 4 minutes (full)"
# Shared by a test of one path and by compare-paths.
MEASURING_OPTIONS: Table = {
    **CONFIG,
    "plan": {"choices": sorted(PLANS), "help": f"how long to test: {_PLANS}"},
    "time": value(
        "SECONDS", "duration of each throughput test", type=seconds_up_to(MAX_TEST_SECONDS)
    ),
    "port": value(
        "PORT", f"port of iperf3; the helper uses the next two (default: {PORT})", type=port_number
    ),
    "parallel": value("NUMBERS", "numbers of parallel streams (e.g. 1,8,128)", type=_stream_counts),
    "bidir": flag("test both directions at once, even with --plan quick"),
    "udp": flag("test UDP, even with --plan quick"),
    "rate": value("RATE", "limit the sending rate (e.g. 500M)", type=parsers.link_rate),
    **parsers.EXPECT_OPTION,
    "skip": value(
        "STEPS",
        f"skip these steps (comma-separated): {', '.join(STEPS)}",
        type=_step_names,
        default=frozenset(),
    ),
    "only": value("STEPS", "run only these steps, and reach", type=_step_names),
    "numa": value("NODE", "run iperf3 on this NUMA node; auto selects the node of the NIC"),
    "ssh": value("HOST", "start the helper on the peer by ssh"),
    "secret-file": value("FILE", "file with the secret shared with the peer"),
}
RUN_OPTIONS: Table = {
    "interface": value("NAME", "test through this interface, even if it is the management NIC"),
    "netns": value("NAME", "test from this network namespace"),
    "container": value("NAME", "test from this container's network namespace (docker, podman)"),
    "family": {"choices": ("4", "6"), "help": "resolve a PEER to IPv4 or IPv6 only"},
    "label": value("TEXT", "label of the stored report, for compare"),
    "at-boot": flag("run a quick test, or none if run-at-boot in section [selftest] is off"),
}
SERVE_OPTIONS: Table = {
    "for": value(
        "SECONDS",
        "how long to serve (default: %(default)g)",
        dest="period",
        type=seconds_up_to(MAX_SERVICE_SECONDS),
        default=600.0,
    ),
    "address": value(
        "ADDRESS",
        "listen on this address only; may be repeated",
        action="append",
        type=parsers.parse_address,
    ),
    "stdio": flag("serve one test on standard input and output, for --ssh"),
}


# --- Parsers ---


class _FormerParser(Parser):
    """Its help is that of `neuca-selftest`, which has subcommands."""

    def format_help(self) -> str:
        return parsers.overview_parser().format_help()


def former_parser() -> argparse.ArgumentParser:
    """The parser of `neuca-selftest PEER…` and `neuca-selftest --serve`, without a subcommand."""
    parser = _FormerParser(prog=PROGRAM, usage=f"{PROGRAM} [run] [OPTION ...] [PEER ...]")
    parser.add_argument("peers", nargs="*")
    add_options(parser, VERSION)
    serve = {"serve": flag("serve tests to peers for a limited time")}
    of_run = (MEASURING_OPTIONS, RUN_OPTIONS, parsers.OUTPUT_OPTIONS)
    parsers.add_grouped(parser, *of_run, serve, SERVE_OPTIONS)
    return parser


def run_parser() -> argparse.ArgumentParser:
    parser = parsers.parser_of("run")
    parser.add_argument("peers", metavar="PEER", nargs="*", help="the host to test against")
    parsers.add_grouped(parser, MEASURING_OPTIONS, RUN_OPTIONS, parsers.OUTPUT_OPTIONS)
    return parser


def serve_parser() -> argparse.ArgumentParser:
    parser = parsers.parser_of("serve")
    shared = {**MEASURING_OPTIONS, **RUN_OPTIONS}
    names = ("config", "port", "secret-file", "netns", "container")
    own = {name: shared[name] for name in names}
    text = "serve on the addresses of this interface, even if it is the management NIC"
    parsers.add_grouped(parser, own, {"interface": value("NAME", text)}, SERVE_OPTIONS)
    parser.set_defaults(peers=[])
    return parser


# --- The values in effect ---


def measurement_options(arguments: argparse.Namespace, config: Config) -> Options:
    """The options of one test: the command line, then the configuration, then the plan."""
    section = config.selftest
    plan = PLANS[plan_name(arguments, config)]
    seconds = arguments.time or _configured_value(section, "time")
    return Options(
        steps=_selected_steps(arguments, plan),
        seconds=seconds or plan.seconds,
        parallel=arguments.parallel or plan.parallel,
        round_trips=plan.round_trips,
        port=port_in_effect(arguments, config),
        rate=arguments.rate or _configured_value(section, "rate"),
        expect=arguments.expect or _configured_value(section, "expect"),
        interface=arguments.interface or section.get("interface") or None,
        numa=_numa_node(arguments.numa),
        ssh=arguments.ssh,
        secret=read_secret(arguments, config),
        label=arguments.label or ("boot" if arguments.at_boot else None),
    )


def plan_name(arguments: argparse.Namespace, config: Config) -> str:
    """The name of the plan. Raises UsageError."""
    if arguments.at_boot:
        return "quick"
    return arguments.plan or _configured_value(config.selftest, "plan") or "standard"


def _selected_steps(arguments: argparse.Namespace, plan: Options) -> frozenset[str]:
    """The steps of the plan or of --only, with those that other options imply, less --skip."""
    steps = set(plan.steps)
    if arguments.only is not None:
        steps = {"reach", *arguments.only}
    implied = {
        "tcp": "loaded" in steps,
        "tcp-bidir": arguments.bidir,
        "udp": arguments.udp,
        "tcp-parallel": arguments.parallel,
    }
    steps.update(step for step, value in implied.items() if value)
    return frozenset(steps - arguments.skip)


def configured_peers(arguments: argparse.Namespace, config: Config) -> list[str]:
    """The peers of the command line, else those of the configuration. Raises UsageError.

    With --at-boot, none if `run-at-boot` is off.
    """
    if arguments.at_boot and _configured_value(config.selftest, "run-at-boot") is False:
        return []
    return list(arguments.peers) or list(split_list(config.selftest.get("peers", "")))


def port_in_effect(arguments: argparse.Namespace, config: Config) -> int:
    """The port of iperf3. Raises UsageError."""
    number: int = arguments.port or _configured_value(config.selftest, "port") or PORT
    return number


def read_secret(arguments: argparse.Namespace, config: Config) -> Optional[bytes]:
    """The secret shared with the peer; None if no file is configured.

    Raises UsageError if the file is unreadable, owned or readable by another user, or too short.
    """
    name = arguments.secret_file or config.selftest.get("secret-file")
    if not name:
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            key = stream.read(LONGEST_SECRET).strip()
    except OSError as error:
        hint = MAKE_SECRET.format(name=name) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f'read the secret "{name}": {error.strerror}', hint=hint) from error
    # The owner and mode of a pipe, such as bash's <(...), are meaningless.
    if stat.S_ISREG(status.st_mode):
        _check_private(name, status)
    if len(key) < SHORTEST_SECRET:
        raise UsageError(
            f'read the secret "{name}": it is shorter than {SHORTEST_SECRET} bytes',
            hint=MAKE_SECRET.format(name=name),
        )
    return key


def _check_private(name: str, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(
            f'read the secret "{name}": it is owned by user {status.st_uid}, who can change it',
            hint=f"chown root {name}",
        )
    if status.st_mode & 0o077:
        raise UsageError(f'read the secret "{name}": others can read it', hint=f"chmod 600 {name}")


def _configured_value(section: Mapping[str, str], name: str) -> Any:  # noqa: ANN401 - its reader's
    """The value of one option of [selftest], None if not set. Raises UsageError."""
    if not section.get(name):
        return None
    try:
        return SETTINGS[name](section[name])
    except argparse.ArgumentTypeError as reason:
        raise UsageError(f"[selftest] {name}: {reason}") from None


def _numa_node(word: Optional[str]) -> Optional[str]:
    if word is not None and word != "auto" and not (word.isdecimal() and len(word) < 4):
        raise UsageError(f'--numa "{word}": it is neither a number nor auto')
    if word not in (None, "auto", "0") and not (NUMA_NODES / f"node{word}").is_dir():
        raise UsageError(f"--numa {word}: this host has no such NUMA node")
    return word


# --- Peers ---


def literal_address(text: str) -> Optional[Address]:
    """The address in ADDRESS or NAME@ADDRESS; None if the peer is given as a host name."""
    try:
        return ip_address(text.rpartition("@")[2].strip())
    except ValueError:
        return None


def address_of(entry: str, family: Optional[str] = None) -> Address:
    """The address of a peer; a host name is resolved, to `family` ("4" or "6") if given.

    Raises UsageError.
    """
    address = literal_address(entry)
    if address is not None:
        return address
    kind = {"4": socket.AF_INET, "6": socket.AF_INET6, None: socket.AF_UNSPEC}[family]
    try:
        resolved = socket.getaddrinfo(entry, None, kind, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        cause = getattr(error, "strerror", None) or error
        reason = f"it is not an address, and cannot be resolved: {cause}"
        raise UsageError(f'test "{entry}": {reason}') from error
    return ip_address(str(resolved[0][4][0]).partition("%")[0])
