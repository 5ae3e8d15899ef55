"""Both packages, built once from a copy of the tracked files; and a root of its own to install them in."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from packages import ENVIRONMENT, ROOT, in_own_root, run


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory) -> Path:
    """A home directory for the tools of packages: rpm keeps its database there, rpmlint its dictionary."""
    directory = tmp_path_factory.mktemp("home")
    ENVIRONMENT["HOME"] = str(directory)
    return directory


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Path:
    """A copy of the tracked files as they now are, that nobody changes while it is built from.

    It has no git, and is the release: a copy of a snapshot would say so in its changelog.
    """
    directory = tmp_path_factory.mktemp("checkout")
    run(ROOT / "packaging" / "sources", directory / "tree")
    changelog = Path("packaging/debian/changelog")
    (directory / "tree" / changelog).write_bytes((ROOT / changelog).read_bytes())
    return directory / "tree"


@pytest.fixture(scope="session")
def debs(checkout, tmp_path_factory) -> Path:
    """The directory with the Debian source and binary package."""
    directory = tmp_path_factory.mktemp("debs")
    run(checkout / "packaging" / "build-deb", directory)
    return directory


@pytest.fixture(scope="session")
def deb(debs) -> Path:
    return debs / "neuca-guest-tools_2.0.0_all.deb"


@pytest.fixture(scope="session")
def rpms(checkout, tmp_path_factory) -> Path:
    """The directory with the rpm source and binary package."""
    directory = tmp_path_factory.mktemp("rpms")
    run(checkout / "packaging" / "build-rpm", directory)
    return directory


@pytest.fixture(scope="session")
def rpm(rpms) -> Path:
    return rpms / "neuca-guest-tools-2.0.0-1.noarch.rpm"


@pytest.fixture
def own_root(tmp_path_factory) -> Callable[..., str]:
    """Runs a script as root in a root of its own, with copies of the given files in its /tmp; returns what it says."""

    def inside(script: str, *files: Path, more: Path | None = None) -> str:
        return in_own_root(tmp_path_factory.mktemp("own"), script, *files, more=more)

    return inside
