"""The parsers of the commands of `neuca-selftest` that run a test or serve tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse

from neuca_tools.commands.arguments import flag, value
from neuca_tools.commands.parsers import Parser
from neuca_tools.commands.selftest_options import MEASURING_OPTIONS, RUN_OPTIONS, SERVE_OPTIONS
from neuca_tools.commands.selftest_parsers import PROGRAM, add_grouped, overview_parser, parser_of
from neuca_tools.commands.selftest_values import OUTPUT_OPTIONS, REPORT_OPTIONS


class _Former(Parser):
    def format_help(self) -> str:
        return overview_parser().format_help()


def former_parser() -> argparse.ArgumentParser:
    """The parser of `neuca-selftest PEER…` and `neuca-selftest --serve`, without a subcommand."""
    parser = _Former(prog=PROGRAM, usage=f"{PROGRAM} [run] [OPTION ...] [PEER ...]")
    parser.add_argument("peers", nargs="*")
    serve = {"serve": flag("serve tests to peers for a limited time")}
    add_grouped(
        parser,
        {**MEASURING_OPTIONS, **RUN_OPTIONS, **OUTPUT_OPTIONS, **REPORT_OPTIONS, **serve},
        SERVE_OPTIONS,
    )
    return parser


def run_parser() -> argparse.ArgumentParser:
    parser = parser_of("run")
    parser.add_argument("peers", metavar="PEER", nargs="*", help="the host to test against")
    add_grouped(parser, MEASURING_OPTIONS, RUN_OPTIONS, OUTPUT_OPTIONS, REPORT_OPTIONS)
    return parser


def serve_parser() -> argparse.ArgumentParser:
    parser = parser_of("serve")
    shared = {**MEASURING_OPTIONS, **RUN_OPTIONS}
    names = ("config", "port", "secret-file", "netns", "container")
    interface = value(
        "NAME", "serve at the addresses of this interface, even of the management NIC"
    )
    add_grouped(
        parser, {name: shared[name] for name in names}, {"interface": interface}, SERVE_OPTIONS
    )
    parser.set_defaults(peers=[])
    return parser
