"""Prints the demonstration: chapters, commands with their output, and claims with their results."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

BOLD, GREEN, RED, CYAN = 1, 32, 31, 36  # ECMA-48, SGR


class Story:
    """`failed` counts the claims that did not hold."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.chapters = self.failed = 0
        self._color = sys.stdout.isatty()

    def chapter(self, title: str) -> None:
        self.chapters += 1
        self._line(f"\n{self._paint(f'{self.chapters}. {title}', BOLD)}")

    def say(self, text: str) -> None:
        self._line(f"   {text}")

    def show(self, text: str) -> None:
        """Print quoted text, such as the output of a command."""
        for line in text.rstrip("\n").split("\n") if text else ():
            self._line(f"   | {line}".rstrip())

    def command(self, line: str, exits: int = 0) -> str:
        """Run a command, show its output, and check its exit status."""
        self._line(f"   {self._paint(f'$ {line}', CYAN)}")
        done = subprocess.run(
            shlex.split(line),
            cwd=self.directory,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.show(done.stdout)
        if done.returncode != exits:
            self.claim(f"its exit status is {exits} (it is {done.returncode})", False)
        return done.stdout

    def claim(self, text: str, holds: bool) -> None:
        self.failed += not holds
        result = self._paint("ok:", GREEN) if holds else self._paint("FAILED:", RED)
        self._line(f"   {result} {text}")

    def end(self, well: bool) -> None:
        self._line("")
        if well:
            self._line(self._paint("All claims hold.", GREEN))
        else:
            self._line(self._paint("Some claims do not hold: see above.", RED))

    def _paint(self, text: str, code: int) -> str:
        return f"\033[{code}m{text}\033[0m" if self._color else text

    def _line(self, text: str) -> None:
        print(text, flush=True)
