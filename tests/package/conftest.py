"""Both packages, built once from a copy of the tracked files; and a root of its own to install them in."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The tools of packages are in there, also where an ordinary user's PATH has no sbin.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}

# All of the host's files, changes to them in memory, and networks, mounts and processes of its own: what a package's scripts
# start, stop and delete is never the host's.
OWN_ROOT = """set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
for directory in run tmp; do mount -t tmpfs none "$1/root/$directory"; done
mkdir "$1/root/run/lock"
mount --rbind /dev "$1/root/dev"
cat > "$1/root/tmp/script"
cp "$2"/* "$1/root/tmp/"
cd "$1/root"
exec chroot . /bin/bash -eu /tmp/script
"""


def run(*words: object, fine: bool = True, **more: object) -> subprocess.CompletedProcess[str]:
    """Run a program with a plain environment; `fine`: it has to succeed."""
    given = {"env": ENVIRONMENT, "timeout": 300, **more}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **given)
    assert done.returncode == 0 or not fine, f"{words}:\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Path:
    """A copy of the tracked files as they now are, that nobody changes while it is built from."""
    directory = tmp_path_factory.mktemp("checkout")
    run(ROOT / "packaging" / "sources", directory / "tree")
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
    """Runs a script as root in a root of its own, with the given files in its /tmp, and returns what it says."""

    def inside(script: str, *files: Path) -> str:
        root, given = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("files")
        for file in files:
            (given / file.name).write_bytes(file.read_bytes())
        (given / "nothing").touch()
        users = [] if os.getuid() == 0 else ["--map-root-user"]
        return run("unshare", *users, "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", OWN_ROOT, "sh",
                   root, given, input=script).stdout

    return inside
