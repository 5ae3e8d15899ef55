"""The image of `make image`: it is built, boots, and its agent starts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "packaging" / "images"
LIMIT = 3600  # seconds, for what hangs


@pytest.mark.long
def test_the_image_of_make_boots_and_its_agent_starts(tmp_path):
    sudo = ["sudo"] if os.geteuid() else []
    for program in ("build", "boot"):
        done = subprocess.run(
            [*sudo, IMAGES / program, tmp_path / "image"],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr}"
    assert done.stdout.splitlines()[-1] == "the image has booted, and the agent has started"
