"""The commands of the pages are run, and their output is captured again: it is still what the pages show."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "docs" / "capture"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
EXECUTED = re.compile(r"^```sh executed\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The date of a pass, how long it took.
VARIABLE = {r"\d{4}-\d\d-\d\dT[\d:]+Z": "DATE", r"\b[\d.]+ s,": "TIME,"}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="these tests do not run as root, and have no other user to become"
)


def fixed(text: str) -> str:
    for pattern, word in VARIABLE.items():
        text = re.sub(pattern, word, text)
    return text


def commands(page: Path) -> list[tuple[str, int]]:
    """Each command with its exit status: 0, or N for a comment that ends in `exits N`."""
    found = []
    for block in EXECUTED.findall(page.read_text()):
        for line in block.splitlines():
            command, _, comment = line.partition("#")
            status = re.search(r"exits (\d+)$", comment)
            found.append((command.strip(), int(status[1]) if status else 0))
    return found


def test_what_was_captured_is_still_printed(tmp_path):
    done = subprocess.run([CAPTURE, "--to", tmp_path], capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)
    now = {path.name: fixed(path.read_text()) for path in tmp_path.iterdir()}
    kept = {path.name: fixed(path.read_text()) for path in (ROOT / "docs" / "captured").iterdir()}
    assert now == kept, "run docs/capture, and copy the text into the pages"


@pytest.mark.long
def test_the_commands_of_the_pages_run(tmp_path):
    given = [one for page in PAGES for one in commands(page)]
    file = tmp_path / "commands"
    file.write_text("".join(f"{command}\n" for command, _ in given))
    done = subprocess.run(
        [CAPTURE, "--commands", file], capture_output=True, text=True, check=False
    )
    expected = [f"{status} {command}" for command, status in given]
    assert done.stdout.splitlines() == expected, done.stderr
    assert len(given) > 10


def test_every_claim_of_the_demo_holds():
    done = subprocess.run([ROOT / "demo" / "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("   ok: ") > 10
