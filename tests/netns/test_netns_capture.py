"""A capture of a root whose directories are links or other file systems, in a mount namespace of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from neuca_tools.guest import blocks

ROOT = Path(__file__).parents[2]
KEYS = f"{blocks.BEGIN.decode()}\nkey of a document\n{blocks.END.decode()}\nmine\n"
USER = "daemon"  # every host has it
HOME = pwd.getpwnam(USER).pw_dir.lstrip("/")
PROGRAM = """
import sys
from pathlib import Path
from neuca_tools.agent.image_capture import capture_image
from neuca_tools.agent.image_clean import Findings, Trace
from neuca_tools.config import Config
from neuca_tools.guest.users import UserWithdrawal
root = Path(sys.argv[1])
own = {name: root / "state" for name in ("state_directory", "run_directory", "log_directory")}
others = ("udev", "networkmanager", "networkd", "sysctl")
config = Config(**own, **{f"{name}_directory": root / name for name in others})
findings = Findings((UserWithdrawal(sys.argv[2]), Trace(root / "etc/secret")))
capture_image(config, root, findings, Path(sys.argv[3]))
"""


@pytest.fixture
def root(tmp_path):
    """A root with a user who has a key of a document and one of his own."""
    user, directory = pwd.getpwnam(USER), tmp_path / "root" / HOME / ".ssh"
    directory.mkdir(parents=True)
    (directory / "authorized_keys").write_text(KEYS)
    for path in (directory, directory / "authorized_keys"):
        os.chown(path, user.pw_uid, user.pw_gid)
    (tmp_path / "root/etc").mkdir()
    (tmp_path / "root/etc/secret").write_text("secret")
    return tmp_path / "root"


def capture(root, archive, before):
    program = [sys.executable, "-c", PROGRAM, root, USER, archive]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{before}\nexec "$@"', "sh", *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def captured(root, before=""):
    """The content of each file of the archive; `before` is a shell command to run first."""
    archive = root.parent / "image.tar"
    done = capture(root, archive, before)
    assert (done.returncode, done.stderr) == (0, "")
    with tarfile.open(archive) as members:
        return {
            member.name: members.extractfile(member).read().decode()
            for member in members
            if member.isreg()
        }


def test_a_clone_has_no_key_of_the_document(root):
    assert captured(root) == {f"./{HOME}/.ssh/authorized_keys": "mine\n"}


def test_an_archive_that_does_not_fit_below_the_size_limit_of_files_is_an_error(root):
    """The kernel writes what still fits, and refuses only the next write."""
    archive = root.parent / "image.tar"
    assert capture(root, archive, "").returncode == 0
    blocks_of_512 = archive.stat().st_size // 512
    for path in root.parent.glob("image.tar*"):
        path.unlink()
    done = capture(root, archive, f"ulimit -f {blocks_of_512 - 10}")  # tar writes 20 at once
    assert done.returncode == 1
    assert f'ApplyError: write "{archive}": File too large' in done.stderr
    assert sorted(path.name for path in root.parent.iterdir()) == ["root"]


def test_a_home_on_another_file_system_is_not_captured_and_no_obstacle(root):
    (root / HOME).rename(root.parent / "disk")
    (root / HOME).mkdir()
    assert captured(root, f"mount --bind {root.parent}/disk {root / HOME}") == {}


def test_what_is_behind_a_link_is_left_out_at_its_real_path(root):
    for name in (HOME, "etc"):
        (root / name).rename(root / f"real-{len(name)}")
        (root / name).symlink_to(root / f"real-{len(name)}")
    assert captured(root) == {f"./real-{len(HOME)}/.ssh/authorized_keys": "mine\n"}
