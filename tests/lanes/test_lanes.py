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
LIMIT = 7200  # seconds, for what hangs
OPTIONS = ("-q", "-p", "no:cacheprovider", "--reruns", "1", "-r", "R")
# What reads the source text, or makes a wheel of it, finds the same whoever looks.
ONCE = ("style", "layering", "packaging", "skip_policy")
# What computes with our own types alone, and computes for long.
COMPUTING = (
    "properties",
    "documents_properties",
    "documents_platform_properties",
    "fuzz",
    "selftest",
    "tuning_layer",
)
# Links, addresses, routes, names and the daemon's word to systemd: all that a library has a part in.
OVER_LIBRARIES = ("addresses", "routes", "names", "notify", "devices", "netlink")
# Of the unit tests, `make test` runs every 32nd file in a lane, and the one that imports every module.
SAMPLE, IMPORTING = 32, ("imports",)


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


def parts() -> dict[str, list[str]]:
    """The tests of a lane: what `make test` runs, and the rest in parts that run side by side."""
    unit, netns = _files("unit"), _files("netns")
    computing = [path for path in unit if path.startswith(_paths("unit", COMPUTING))]
    once = [path for path in unit if path.startswith(_paths("unit", ONCE))]
    libraries = [path for path in netns if path.startswith(_paths("netns", OVER_LIBRARIES))]
    rest = [path for path in netns if path not in libraries]
    others = [path for path in unit if path not in computing + once]
    sample = [path for path in others if path.startswith(_paths("unit", IMPORTING))]
    sample = sorted({*sample, *others[::SAMPLE]})
    return {
        "chosen": ["tests/dbus", *libraries, *sample],
        "unit": [path for path in others if path not in sample],
        "computing": computing,
        "netns-1": rest[::2],
        "netns-2": rest[1::2],
    }


def _files(tier: str) -> list[str]:
    return [
        f"tests/{tier}/{path.name}" for path in sorted((ROOT / "tests" / tier).glob("test_*.py"))
    ]


def _paths(tier: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """How the paths of tests with these names begin."""
    before = "netns_" if tier == "netns" else ""
    return tuple(f"tests/{tier}/test_{before}{name}" for name in names)


PARTS = parts()


def test_the_parts_of_a_lane_are_all_of_its_tiers_once():
    run = sorted(path for part in PARTS.values() for path in part)
    once = [path for path in _files("unit") if path.startswith(_paths("unit", ONCE))]
    assert run == sorted({"tests/dbus", *_files("unit"), *_files("netns")} - set(once))


@pytest.mark.parametrize("choose", [newest, oldest], ids=["newest", "oldest"])
@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=[pytest.mark.long] * (part != "chosen")) for part in PARTS],
)
def test_lane(choose, part, request, record_property, tmp_path):
    interpreter = choose()
    python = cached_venv(interpreter, ROOT / "tests" / "lanes" / "requirements.txt")
    # Into a file: a process that a test forgot would hold a pipe open for ever.
    output = tmp_path / "output"
    # A place of its own, and a short one: a pytest that starts closes the one that all share to other users, whom tests need.
    chosen = ["-m", request.config.option.markexpr, *PARTS[part]]  # `make test` leaves out the same
    with output.open("w") as stream, tempfile.TemporaryDirectory(prefix="lane-") as place:
        done = subprocess.run(
            [python, "-m", "pytest", *OPTIONS, *chosen], env={**os.environ, "PYTEST_DEBUG_TEMPROOT": place},
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, timeout=LIMIT, check=False,
        )  # fmt: skip
    title = f"lane of {interpreter} ({part}), {_libraries(python)}"
    if done.returncode:
        pytest.fail(f"{title}\n{output.read_text()}", pytrace=False)
    record_property("lane", f"{title}: {output.read_text().splitlines()[-1]}")
