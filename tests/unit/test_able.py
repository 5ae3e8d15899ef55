"""`tests/able`: which tiers run where namespaces or overlayfs are missing, and what it says of the others."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ABLE = Path(__file__).parents[1] / "able"
TIERS = ["tests/unit", "tests/netns", "tests/package", "tests/machine"]
CHROOT = "unshare: cannot change root filesystem propagation: Invalid argument"
IN_A_CHROOT = (
    "this root is not a mount point; outside of the chroot: mount --bind DIRECTORY DIRECTORY,"
    " then enter it again"
)
IN_A_CONTAINER = (
    "no namespaces here (unshare failed: Operation not permitted): a container needs"
    " CAP_SYS_ADMIN and CAP_NET_ADMIN, or run make outside"
)
IN_A_CONTAINER_AS_A_USER = (
    "no namespaces for this user here (unshare failed: Operation not permitted): in a chroot or a"
    " container, run make as root"
)
CONTAINER = "unshare: unshare failed: Operation not permitted"


def able(tmp_path, unshare: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with an unshare(1) that is this shell script."""
    program = tmp_path / "unshare"
    program.write_text(f"#!/bin/sh\n{unshare}\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    return subprocess.run(
        [ABLE, *TIERS],
        capture_output=True,
        text=True,
        env={"PATH": path, **environment},
        check=False,
    )


def test_everything_runs_where_nothing_is_missing(tmp_path):
    done = able(tmp_path, "exit 0")
    assert (done.stdout.split(), done.stderr, done.returncode) == (TIERS, "", 0)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (CHROOT, IN_A_CHROOT),
        (CONTAINER, IN_A_CONTAINER if os.geteuid() == 0 else IN_A_CONTAINER_AS_A_USER),
    ],
    ids=["chroot", "container"],
)
def test_without_namespaces_the_pure_tiers_run_and_one_line_says_why(tmp_path, said, reason):
    done = able(tmp_path, f'echo "{said}" >&2; exit 1')
    assert done.stdout.split() == ["tests/unit"]
    assert done.stderr == f"not run: netns package machine: {reason}\n"
    assert done.returncode == 0
    assert able(tmp_path, "exit 1", CI="true").returncode == 1


def test_without_overlayfs_only_the_packages_are_left_out(tmp_path):
    done = able(tmp_path, 'case "$*" in *overlay*) exit 1 ;; esac')
    assert done.stdout.split() == ["tests/unit", "tests/netns", "tests/machine"]
    reason = "no overlayfs here" if os.geteuid() == 0 else "in a user namespace, this root cannot"
    assert done.stderr.startswith(f"not run: package: {reason}")
