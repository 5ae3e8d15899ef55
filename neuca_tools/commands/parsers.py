"""The parser of the command lines: a wrong one gets the usage of its subcommand and one message."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from neuca_tools.errors import EXIT_USAGE


class Parser(argparse.ArgumentParser):
    """A parser whose messages look like all others of `neuca`."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with EXIT_USAGE."""
        print(self.format_usage(), end="", file=sys.stderr)
        print(f"neuca: {message}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
