"""The parsers of `neuca-selftest`, with the options of each in groups, and readers of values.

Those of the commands that run a test or serve tests are in `selftest_options`.
"""

# SPDX-License-Identifier: MIT

import argparse
import sys
from collections import ChainMap
from ipaddress import ip_address
from typing import Callable, NamedTuple

from neuca_tools.commands.arguments import (
    CONFIG,
    JSON,
    VERSION,
    Options,
    add_options,
    add_output_options,
    file_path,
    flag,
    value,
)
from neuca_tools.commands.parsers import Parser
from neuca_tools.model import Host as Address
from neuca_tools.model.printable import printable_line
from neuca_tools.selftest.readers.lines import parse_rate

# --- Readers of single values; each raises argparse.ArgumentTypeError ---


def refused_value(word: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f'"{word}" is not {expected}')


def link_rate(word: str) -> float:
    """Parse a rate such as 5G, which needs a unit; return bit/s."""
    bits = parse_rate(word)
    if not bits or word.strip()[-1].isdecimal():
        raise refused_value(word, "a rate such as 5G or 100M")
    return bits


def parse_milliseconds(word: str) -> float:
    """Parse milliseconds; return seconds."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < 60_000:
        raise refused_value(word, "a time in milliseconds")
    return number / 1000


def parse_address(word: str) -> Address:
    try:
        return ip_address(word)
    except ValueError:
        raise refused_value(word, "an IP address") from None


def integer(what: str, low: int, high: int) -> Callable[[str], int]:
    """A reader of integers from `low` (1 or more) to `high`."""

    def read(word: str) -> int:
        number = int(word) if word.isdecimal() and len(word) < 20 else 0
        if not low <= number <= high:
            raise refused_value(word, f"{what} from {low} to {high}")
        return number

    return read


# --- Options ---

EXPECT_OPTION: Options = {
    "expect": value("RATE", "the expected rate of the path (e.g. 5G)", type=link_rate)
}
_METRICS = "(OpenMetrics) for the textfile collector of the Prometheus node exporter"
OUTPUT_OPTIONS: Options = {
    **JSON,
    "nagios": flag("print one line and exit as a Nagios plugin does"),
    "html": value("PATH", "also write the report to an HTML file", type=file_path),
    "prometheus": value("PATH", f"also write metrics {_METRICS}", type=file_path),
}
SERIES_OPTIONS: Options = {
    "csv": value("PATH", "also write the series over time to a CSV file", type=file_path),
    "svg": value("PATH", "also write the plot of these to an SVG file", type=file_path),
}


# --- Parsers ---

PROGRAM = "neuca-selftest"


def log(text: str) -> None:
    """Print a message to standard error."""
    print(f"{PROGRAM}: {printable_line(text)}", file=sys.stderr, flush=True)


_SECRET = "--secret-file /etc/neuca/selftest.secret"
# The titles of the groups in --help, in this order, and the options in each.
GROUPS = (
    ("what to test", "plan time parallel bidir udp rate only skip rounds"),
    ("what to list", "peer last"),
    ("the path", "interface netns container family port address numa"),
    ("the peer", "ssh secret-file"),
    ("the service", "for stdio"),
    ("expectations", "expect rtt"),
    ("output", "json nagios html prometheus csv svg label"),
    ("configuration", "config at-boot"),
    ("what is printed", "verbose quiet color"),
)
GROUPED = frozenset(name for _, names in GROUPS for name in names.split())
EXCLUSIVE = frozenset({"json", "nagios"})  # cannot be combined


class Text(NamedTuple):
    """What --help says of a subcommand."""

    purpose: str
    description: str
    example: str


TEXTS = {
    "run": Text(
        "test the path to each peer and report what limits it",
        "Measure the path to each PEER, given as ADDRESS or NAME@ADDRESS, and report what limits"
        " it. Without a PEER, test those listed as peers in section [selftest] of the"
        " configuration. The peer must run neuca-selftest serve with the same secret, or"
        " iperf3 -s -p 45678.",
        f"run --plan quick --expect 5G {_SECRET} 172.16.0.1",
    ),
    "serve": Text(
        "serve tests to peers that have the secret, for a limited time",
        "Serve tests on the addresses of the dataplane, one at a time, to hosts that have the"
        " secret. When the time is over, nothing is left listening.",
        f"serve --for 300 {_SECRET}",
    ),
    "explain": Text(
        "diagnose the output of an earlier run",
        "Diagnose a run of iperf3 (JSON or text) or of iperf 2 (text), or a report of"
        " neuca-selftest.",
        "explain --expect 5G run.json",
    ),
    "compare": Text(
        "compare a run with earlier ones",
        "Compare a run with earlier runs: the host with the last of them, the rates with the"
        " median of all. RUN is a file, or the label of a kept report. With last-boot as the"
        " only RUN, compare the last test of this boot with the tests of the previous boot.",
        "compare monday tuesday",
    ),
    "history": Text(
        "list the tests in the archive",
        "List the tests that were run on this host, the oldest first: when, the peer, the"
        " interface, the plan, the verdict, the rates and what limited them.",
        "history --peer 172.16.0.1 --last 10",
    ),
    "compare-paths": Text(
        "run the same test over several paths and compare them",
        "Run the same test over each PATH in turn, for several rounds, and compare each path with"
        " the first, the baseline. PATH is LABEL=PEER. To start in another network namespace or"
        " container, or to use a certain interface or port, append ,netns=NAME ,container=NAME"
        " ,interface=NAME or ,port=PORT.",
        f"compare-paths {_SECRET} host=172.16.0.1 vxlan=10.9.0.1",
    ),
    "mesh": Text(
        "test the paths between many hosts, and name the host, group or pair at fault",
        "Plan tests between all HOSTS of a list, run them, and report what is at fault. Each"
        " command describes itself with --help; see neuca-selftest-mesh(1).",
        "mesh plan --rate 1G hosts",
    ),
}


def overview_parser() -> argparse.ArgumentParser:
    """What `neuca-selftest --help` shows, and reports a command that does not exist."""
    parser = Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND [OPTION ...] [ARGUMENT ...]",
        description="Measure a dataplane path and find what limits it.",
        epilog="neuca-selftest COMMAND --help describes a command. Without a command, the options"
        " and arguments are those of run, or with --serve those of serve. neuca-selftest run HOST"
        " tests a host that has the name of a command.",
    )
    add_options(parser, VERSION)
    rows = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, text in TEXTS.items():
        rows.add_parser(name, help=text.purpose)
    return parser


def explain_parser() -> argparse.ArgumentParser:
    parser = parser_of("explain")
    parser.add_argument("file", **value("FILE", "the file to read, - for standard input"))
    rtt = "round-trip time of the idle path in milliseconds"
    own = {"rtt": value("MILLISECONDS", rtt, type=parse_milliseconds)}
    add_grouped(parser, EXPECT_OPTION, OUTPUT_OPTIONS, SERIES_OPTIONS, own)
    return parser


def compare_parser() -> argparse.ArgumentParser:
    parser = parser_of("compare")
    runs = value("RUN", "runs in order of time; the last is judged")
    parser.add_argument("runs", nargs="+", **runs)
    parser.set_defaults(usage=parser.format_usage)
    html = value("PATH", "also write an HTML file with all runs in one plot", type=file_path)
    add_grouped(parser, CONFIG, JSON, {"html": html}, SERIES_OPTIONS)
    return parser


def history_parser() -> argparse.ArgumentParser:
    parser = parser_of("history")
    own = {
        "peer": value("ADDRESS", "list the tests of this peer only", type=parse_address),
        "last": value("NUMBER", "list the last tests only", type=integer("a number", 1, 10**6)),
    }
    add_grouped(parser, own, JSON, CONFIG)
    return parser


class _Formatter(argparse.HelpFormatter):
    """Does not break the line of the example, so that it can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("Example: "):
            return text
        return super()._fill_text(text, width, indent)


def parser_of(name: str, kind: type[Parser] = Parser) -> argparse.ArgumentParser:
    """The parser of a command, without its options."""
    text = TEXTS[name]
    return kind(
        prog=f"{PROGRAM} {name}",
        description=text.description,
        epilog=f"Example: {PROGRAM} {text.example}",
        formatter_class=_Formatter,
    )


def add_grouped(parser: argparse.ArgumentParser, *tables: Options) -> None:
    """Add the options of `tables`, each to its group; --json and --nagios cannot be combined."""
    options = dict(ChainMap(*map(dict, reversed(tables))))
    for title, names in GROUPS:
        present = {name: options[name] for name in names.split() if name in options}
        if present:
            add_exclusive(parser.add_argument_group(title), present)
    add_options(parser, {name: options[name] for name in options if name not in GROUPED})
    add_output_options(parser.add_argument_group(GROUPS[-1][0]))


def add_exclusive(group: argparse._ActionsContainer, options: Options) -> None:
    """Add options, of which --json and --nagios cannot be combined."""
    # An empty group is an error for argparse.
    either = group.add_mutually_exclusive_group() if EXCLUSIVE & options.keys() else group
    for name, keywords in options.items():
        add_options(either if name in EXCLUSIVE else group, {name: keywords})
