"""Random sequences of documents on this kernel: fixed seeds, one random seed that is printed, and that a broken promise is seen."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")
FIXED = "1-4"
MAX_SECONDS = 600  # far more than this takes on a busy machine


def play(*words, **environment):
    """The exit code and the output of run.py."""
    done = subprocess.run([sys.executable, str(RUN), *words], capture_output=True, text=True, timeout=MAX_SECONDS, check=False,
                          env={**os.environ, **environment})  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", [FIXED, pytest.param("random", marks=pytest.mark.long)])
def test_sequences_of_random_documents_break_no_promise(seeds):
    seeds = str(secrets.randbelow(1_000_000)) if seeds == "random" else seeds
    print(f"seeds {seeds}")
    code, said = play("--seeds", seeds, "--shrink", "20", "--jobs", "1")
    assert code == 0, said


@pytest.mark.parametrize(("by_hand", "promise"), [
    ("ip link set mgmt0 mtu 1400", "protected NICs and default routes never change"),
    ("ip address flush dev dp1", "a second pass does nothing"),
    ("ip link set dp1 mtu 1400", "the order of documents does not matter"),
])  # fmt: skip
def test_what_breaks_a_promise_is_seen(tmp_path, by_hand, promise):
    """A program that changes the host beside the agent stands for a defect."""
    section = {"header": "[interface 02:00:00:00:01:01]", "lines": ["addresses = 10.1.0.1/24"]}
    step = {"action": "apply", "sections": [section], "events": [], "number": 1}
    path = tmp_path / "sequence.json"
    path.write_text(json.dumps({"steps": [step], "by hand": by_hand}))
    code, said = play("--replay", str(path))
    assert (code, promise in said) == (1, True), said
