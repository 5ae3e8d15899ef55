"""Shared by all commands: errors become messages and exit codes, results are printed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from neuca_tools.commands import INTERRUPTED
from neuca_tools.errors import ArgumentsError, NeucaError
from neuca_tools.model.printable import painted_lines, plain_lines, visible_length

if TYPE_CHECKING:
    import argparse

LISTED = "neuca status lists the interfaces of this host"  # a hint


def run_guarded(run: Callable[[Any], int], arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code; print an error on one line, its hint on another."""
    _reset_signals()
    try:
        with _discarded_output() if getattr(arguments, "quiet", False) else nullcontext():
            return run(arguments)
    except NeucaError as error:
        usage = getattr(arguments, "usage", None)
        if isinstance(error, ArgumentsError) and usage:
            print(usage(), end="", file=sys.stderr)
        print(f"{message_prefix(arguments)}: {plain_lines(error.text)}", file=sys.stderr)
        if error.hint:
            print(f"       {plain_lines(error.hint)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _reset_signals() -> None:
    """Undo what a parent has left.

    It may ignore SIGCHLD, without which no child has an exit status (waitpid(2)), or block SIGALRM,
    which ends the wait for a lock.
    """
    signal = sys.modules.get("signal")  # what does neither has not loaded it
    if signal is not None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def message_prefix(arguments: argparse.Namespace) -> str:
    """What messages begin with: the `program` of the arguments, or "neuca" if there is none."""
    return str(getattr(arguments, "program", "neuca"))


@contextmanager
def _discarded_output() -> Iterator[None]:
    # The name of a file may not be valid UTF-8.
    with Path(os.devnull).open("w", errors="replace") as nowhere, redirect_stdout(nowhere):
        yield


def uses_color(arguments: argparse.Namespace) -> bool:
    """Whether to color the output: --color, else on a terminal without NO_COLOR (no-color.org)."""
    if arguments.color != "auto":
        return bool(arguments.color == "always")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def terminal_width(otherwise: int = 80) -> int:
    """The width of the terminal in characters; `otherwise`: that of output to a file or pipe."""
    # The daemon loads this module, and prints nothing.
    from shutil import get_terminal_size

    return get_terminal_size((otherwise, 24)).columns


def open_input(name: str) -> AbstractContextManager[BinaryIO]:
    """Open a file that a command names, or standard input for `-`. Raises OSError, ValueError."""
    if name != "-":
        return Path(name).open("rb")
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return nullcontext(sys.stdin.buffer)  # "-" may be named twice


def read_input(name: str, most: int) -> bytes:
    """The content of `open_input`. Raises OSError for more than `most` bytes, early if it can."""
    with open_input(name) as stream:
        status = os.fstat(stream.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        content = b"" if size > most else stream.read(most + 1)
    if max(size, len(content)) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB")
    return content


def is_root() -> bool:
    return os.geteuid() == 0


def require_root(command: str) -> None:
    """Raise NeucaError unless run by root; `command` is named as after "neuca"."""
    if not is_root():
        raise NeucaError(f"{command}: only root may do this", "run it as root, or with sudo")


def show(
    data: Mapping[str, Any], as_json: bool, text: Callable[[Any], str], *, wraps: bool = True
) -> None:
    """Print data as JSON, or as the text that `text` makes of it.

    On a terminal, or with COLUMNS, lines are wrapped, unless they have to be whole (`wraps`). Those
    may be for another program, which gets them with all their characters.
    """
    if as_json:
        print(json.dumps(data, indent=1))
        return
    lines, on_terminal = text(data), sys.stdout.isatty()
    if wraps or on_terminal:
        lines = painted_lines(lines)
    if wraps and (on_terminal or os.environ.get("COLUMNS")):
        lines = "\n".join(_wrapped_line(line, terminal_width()) for line in lines.split("\n"))
    print(lines)


def _wrapped_line(line: str, width: int) -> str:
    """A line in lines no longer than the width, the later ones indented."""
    if visible_length(line) <= width:
        return line
    # Not in a process that prints no such line: 2 ms.
    import textwrap

    indent = " " * (len(line) - len(line.lstrip()) + 4)
    wrapper = textwrap.TextWrapper(width, subsequent_indent=indent)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.fill(line)
