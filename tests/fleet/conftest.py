"""The collection where Ansible finds it, and Ansible itself, the newest and the oldest that is promised."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from venvs import Interpreter, cached_venv, interpreters

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# The Pythons that each can be run by (the "ansible-core control node" column of its support matrix).
PYTHONS = {
    "requirements.txt": ((3, 11), (3, 14)),
    "requirements-lint.txt": ((3, 11), (3, 13)),
    "requirements-oldest.txt": ((3, 9), (3, 11)),
}
LIMIT = 3600  # seconds, for what hangs


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    """A copy of the collection in a tree of its own, as ansible-test wants it: in a git work tree."""
    top = tmp_path_factory.mktemp("collections")
    place = top / "ansible_collections" / "neuca" / "guest"
    shutil.copytree(ROOT / "ansible", place, symlinks=True)
    for words in (("init", "--quiet"), ("add", "--all")):
        subprocess.run(["git", *words], cwd=place, check=True, timeout=60)
    return place


class Ansible:
    """The programs of one version of Ansible, with the collection."""

    def __init__(self, programs: Path, collection: Path, home: Path) -> None:
        self.programs, self.collection, self.home = programs, collection, home

    def __call__(self, program, *words, cwd=None, **environment):
        """Run a program, and return it with its output."""
        given = {
            "PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(self.collection.parents[2]),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            **environment,
        }
        return subprocess.run(
            [str(self.programs / program), *map(str, words)],
            cwd=cwd or self.collection,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )


@pytest.fixture
def ansible(request, collection, tmp_path):
    """The Ansible of the requirements file that the test names, by default the newest."""
    return made(getattr(request, "param", "requirements.txt"), collection, tmp_path)


def made(requirements, collection, home):
    low, high = PYTHONS[requirements]
    own = Interpreter(Path(sys.executable).resolve())
    usable = [one for one in (own, *interpreters()) if low <= one.version[:2] <= high]
    if not usable:
        pytest.skip(f"no Python that can run the Ansible of {requirements} on this machine")
    python = cached_venv(usable[0], HERE / requirements)
    return Ansible(python.parent, collection, home)
