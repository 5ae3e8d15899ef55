"""The parser of the command lines: a wrong one gets the usage of its subcommand and one message."""

# SPDX-License-Identifier: MIT

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn, Optional

from neuca_tools.errors import EXIT_USAGE
from neuca_tools.model.printable import plain_lines

SHORTEST_PART = 3  # letters of a part of a command's name


class Parser(argparse.ArgumentParser):
    """A parser whose messages look like all others of the program."""

    def __init__(self, **keywords: Any) -> None:  # noqa: ANN401 - as the library has it
        # A script that abbreviates an option would break with the next option like it.
        super().__init__(allow_abbrev=False, **keywords)

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Optional[argparse.Namespace] = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Reject unknown arguments here, so that the usage is that of the subcommand."""
        parsed, unknown = super().parse_known_args(args, namespace or argparse.Namespace())
        # The library leaves the end of the options over if no argument follows.
        if unknown and unknown != ["--"]:
            # After a mistake only.
            from shlex import join

            option = unknown[0].partition("=")[0]
            known = self._option_string_actions if option[:2] == "--" else ()
            suggestion = spelling_suggestion(option, known, 0.75)  # the dashes are alike
            self.error(f"unrecognized arguments: {join(unknown)}{suggestion}")
        return parsed, []

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Reject a value that is not one of the choices, with the nearest spelling."""
        if action.choices is None or value in action.choices:
            return
        known, word = [str(choice) for choice in action.choices], str(value)
        if isinstance(action.choices, Mapping):  # the parsers of subcommands, by name
            raise argparse.ArgumentError(None, no_command(word, known))
        *others, last = (f'"{choice}"' for choice in known)
        listed = " or ".join(filter(None, (", ".join(others), last)))
        named = action if action.option_strings else None
        text = f'"{word}" is not {listed}{spelling_suggestion(word, known)}'
        raise argparse.ArgumentError(named, text)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with EXIT_USAGE."""
        print(self.format_usage(), end="", file=sys.stderr)
        # The messages of neucad and neuca look alike.
        program = self.prog.split()[0].replace("neucad", "neuca")
        print(f"{program}: {plain_lines(message)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def no_command(word: str, known: Collection[str]) -> str:
    """The message about a word that is not a command, with the command that is probably meant."""
    suggestion = spelling_suggestion(word, known)
    longer = [name for name in known if len(word) >= SHORTEST_PART and word in name]
    if not suggestion and longer:
        suggestion = f'; did you mean "{longer[0]}"?'
    return f'there is no command "{word}"{suggestion}'


def spelling_suggestion(word: str, known: Collection[str], cutoff: float = 0.65) -> str:
    """The end of a message: the known word that is probably meant, if any (`closest_word`)."""
    # After a mistake only; it saves difflib, 1 ms.
    from neuca_tools.documents.spelling import closest_word

    meant = closest_word(word, known, cutoff)
    return f'; did you mean "{meant}"?' if meant else ""
