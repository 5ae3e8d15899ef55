"""Options of commands as data: argparse's keyword arguments, by the name of the option."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuca_tools import __version__

if TYPE_CHECKING:
    import argparse

Keywords = Mapping[str, Any]
Options = Mapping[str, Keywords]


def flag(text: str) -> Keywords:
    """An option without a value, with its help text."""
    return {"action": "store_true", "help": text}


def value(metavar: str, text: str, **more: object) -> Keywords:
    """An option or argument with a value, with its help text."""
    return {"metavar": metavar, "help": text, "type": filled_in, **more}


def filled_in(text: str) -> str:
    """A text that is not empty, as an unset variable of a script would be."""
    if not text:
        # As in `seconds_up_to`.
        from argparse import ArgumentTypeError

        raise ArgumentTypeError("it is empty")
    return text


def file_path(text: str) -> Path:
    """A path; an empty one would be the current directory."""
    return Path(filled_in(text))


def seconds_up_to(high: float, low: float = 1.0) -> Callable[[str], float]:
    """A reader of a number of seconds within these bounds."""

    def read(text: str) -> float:
        # Those that take no arguments do not load argparse: 5 ms.
        from argparse import ArgumentTypeError

        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not low <= number <= high:  # nor is NaN
            raise ArgumentTypeError(f'"{text}" is not a number of seconds from {low:g} to {high:g}')
        return number

    return read


def add_options(parser: argparse._ActionsContainer, options: Options) -> None:
    for name, keywords in options.items():
        parser.add_argument(f"--{name}", **keywords)


def add_output_options(parser: argparse._ActionsContainer) -> None:
    """Add the options about what is printed, which every command has."""
    more = "also print notes about the configuration, and details of a plan or report"
    loud = parser.add_mutually_exclusive_group()
    loud.add_argument("-v", "--verbose", **flag(more))
    loud.add_argument("-q", "--quiet", **flag("print only errors and warnings"))
    parser.add_argument(
        "--color", choices=COLORS, default="auto", help="whether to color the output"
    )


CONFIG: Options = {
    "config": value("FILE", "read the configuration from FILE (default: /etc/neuca/config)")
}
COLORS = ("auto", "always", "never")
JSON: Options = {"json": flag("print JSON")}
VERSION_TEXT = f"NEuca version {__version__}"
VERSION: Options = {
    "version": {"action": "version", "version": VERSION_TEXT, "help": "print the version and exit"}
}
