"""The parser of the command lines: a wrong one gets the usage of its subcommand and one message."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from neuca_tools.errors import EXIT_USAGE


class Parser(argparse.ArgumentParser):
    """A parser whose messages look like all others of the program."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with EXIT_USAGE."""
        print(self.format_usage(), end="", file=sys.stderr)
        from neuca_tools.model.printable import plain_lines

        # The messages of neucad and neuca look alike.
        program = self.prog.split()[0].replace("neucad", "neuca")
        print(f"{program}: {plain_lines(message)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
