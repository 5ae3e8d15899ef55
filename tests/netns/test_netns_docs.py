"""The commands of the pages are run, and their output is captured again: it is still what the pages show."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import shutil
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


SEED = re.compile(r"^```sh seed\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("xorriso") is None, reason="xorriso is not installed")
def test_the_seed_of_the_guide_gives_a_guest_its_document(lab, tmp_path):
    """As the guest sees the volume: its label, and what is in it."""
    (block,) = SEED.findall((ROOT / "docs" / "GUIDE.md").read_text())
    document = (ROOT / "examples" / "user-data.ini").read_text()
    (tmp_path / "user-data.ini").write_text(document)
    subprocess.run(["sh", "-ec", block], cwd=tmp_path, check=True, capture_output=True)
    volume = (tmp_path / "seed.iso").read_bytes()
    assert volume[32808:32840].strip() == b"cidata"  # ECMA-119, 8.4: the volume identifier
    words = ("xorriso", "-osirrox", "on", "-indev", "seed.iso", "-extract", "/", "seed")
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    shown = lab.neuca("show", "document", "--source", f"nocloud={tmp_path}/seed", "--json")
    assert shown.json["hostname"] == "Node0"
    assert len(shown.json["links"]) == 5
