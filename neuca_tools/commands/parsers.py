"""The parser of the command lines: a wrong one gets the usage of its subcommand and one message."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from neuca_tools.errors import EXIT_USAGE


class Formatter(argparse.HelpFormatter):
    """The library's formatter, which would import `shutil` to find the width of the terminal.

    A parser makes a formatter for each option that it gets.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """The width of the terminal in characters, as shutil.get_terminal_size() finds it."""
    with suppress(KeyError, ValueError):
        given = int(os.environ["COLUMNS"])
        if given > 0:
            return given
    with suppress(OSError):
        return os.get_terminal_size(1).columns or 80
    return 80


class Parser(argparse.ArgumentParser):
    """A parser whose messages look like all others of the program."""

    def __init__(self, **keywords: Any) -> None:  # noqa: ANN401 - as the library has it
        super().__init__(**{"formatter_class": Formatter, **keywords})

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with EXIT_USAGE."""
        print(self.format_usage(), end="", file=sys.stderr)
        from neuca_tools.model.printable import plain_lines

        # The messages of neucad and neuca look alike.
        program = self.prog.split()[0].replace("neucad", "neuca")
        print(f"{program}: {plain_lines(message)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
