"""Programs of the distribution that tests run without installing them (tests/setup.sh unpacks them)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neuca-guest-tools"
ROOT = CACHE / "oracles"


def _paths(path: str) -> list[Path]:
    """Where a package may have a program; older ones have /sbin."""
    places = [ROOT / path, ROOT / path.removeprefix("usr/")]
    return [place for place in places if place.exists()]


def has_program(path: str) -> bool:
    return bool(_paths(path))


def program(path: str) -> Path:
    """The program that its package has at `path`, such as usr/sbin/NetworkManager."""
    assert has_program(path), f"{path} is missing: run tests/setup.sh netns"
    return _paths(path)[0]


def libraries() -> dict[str, str]:
    """The environment in which an unpacked program finds the libraries that came with it."""
    places = sorted((ROOT / "usr/lib").glob("*-linux-gnu*"))
    return {"LD_LIBRARY_PATH": ":".join(map(str, places))}
