"""The quick tiers again, with other interpreters and PyPI's libraries: the newest Python here and the oldest promised."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
import tempfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from venvs import Interpreter, cached_venv, interpreters, pyenv_root

ROOT = Path(__file__).parents[2]
OLDEST = (3, 9)  # python_requires of setup.cfg
LIMIT = (
    1500  # seconds for one lane; two of them must leave room in the hour that all tests may take
)
# What reads the source text, or makes a wheel of it, finds the same whoever looks.
ONCE = [f"tests/unit/test_{name}.py" for name in ("style", "layering", "packaging", "skip_policy")]


def oldest() -> Interpreter:
    found = [one for one in interpreters() if one.version[:2] == OLDEST]
    if not found and pyenv_root() is None:
        pytest.skip("no pyenv and no python3.9 on this machine")
    assert found, "pyenv is here, but without a Python 3.9: pyenv install 3.9"
    return max(found, key=lambda one: one.version)


def newest() -> Interpreter:
    # Never a skip: at the least it is the distribution's Python, with the newest libraries.
    return max(interpreters(), key=lambda one: one.version)


def _libraries(python: Path) -> str:
    site = [str(path) for path in python.parent.parent.glob("lib/python3*/site-packages")]
    versions = {one.metadata["Name"]: one.version for one in distributions(path=site)}
    return ", ".join(
        f"{name} {versions[name]}"
        for name in ("pyroute2", "pyudev", "dbus-python", "systemd-python", "pytest")
    )


@pytest.mark.parametrize("choose", [newest, oldest], ids=["newest", "oldest"])
def test_lane(choose, record_property, tmp_path):
    interpreter = choose()
    python = cached_venv(interpreter, ROOT / "tests" / "lanes" / "requirements.txt")
    tiers = ["tests/unit", "tests/dbus", "tests/netns", *(f"--ignore={path}" for path in ONCE)]
    # Into a file: a process that a test forgot would hold a pipe open for ever.
    output = tmp_path / "output"
    # A place of its own, and a short one: a pytest that starts closes the one that all share to other users, whom tests need.
    with output.open("w") as stream, tempfile.TemporaryDirectory(prefix="lane-") as place:
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tiers], env={**os.environ, "PYTEST_DEBUG_TEMPROOT": place},
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, timeout=LIMIT, check=False,
        )  # fmt: skip
    title = f"lane of {interpreter}, {_libraries(python)}"
    if done.returncode:
        pytest.fail(f"{title}\n{output.read_text()}", pytrace=False)
    record_property("lane", f"{title}: {output.read_text().splitlines()[-1]}")
