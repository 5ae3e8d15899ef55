"""Programs of the distribution that tests run without installing them (tests/setup.sh unpacks them)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neuca-guest-tools"
ROOT = CACHE / "oracles"


def program(path: str) -> Path:
    """The program that its package has at `path`, such as usr/sbin/NetworkManager; older ones have /sbin."""
    found = [ROOT / path, ROOT / path.removeprefix("usr/")]
    assert any(one.exists() for one in found), f"{found[0]} is missing: run tests/setup.sh netns"
    return next(one for one in found if one.exists())


def libraries() -> dict[str, str]:
    """The environment in which an unpacked program finds the libraries that came with it."""
    places = sorted((ROOT / "usr/lib").glob("*-linux-gnu*"))
    return {"LD_LIBRARY_PATH": ":".join(map(str, places))}
