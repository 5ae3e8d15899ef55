"""`tests/able`: which tiers run where namespaces or overlayfs are missing, and what it says of the others."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ABLE = Path(__file__).parents[1] / "able"
TIERS = ["tests/unit", "tests/netns", "tests/package", "tests/machine"]
ROOT, USER = 0, 1000
CHROOT = "unshare: cannot change root filesystem propagation: Invalid argument"
IN_A_CHROOT = (
    "this root is not a mount point; outside of the chroot: mount --bind DIRECTORY DIRECTORY,"
    " then enter it again"
)
CONTAINER = "unshare: unshare failed: Operation not permitted"
IN_A_CONTAINER = (
    "no namespaces here (unshare failed: Operation not permitted): a container needs"
    " CAP_SYS_ADMIN and CAP_NET_ADMIN, or run make outside"
)
IN_A_CONTAINER_AS_A_USER = (
    "no namespaces for this user here (unshare failed: Operation not permitted): run make as root"
)
UBUNTU = "unshare: write failed /proc/self/uid_map: Operation not permitted"
ON_UBUNTU = (
    "no namespaces for this user here (write failed /proc/self/uid_map: Operation not permitted):"
    " run make as root, or permit them: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)
REST = "what needs more than a user namespace (DHCP servers, other users, packet filters"


def able(tmp_path, user: int, unshare: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it as this user, with an unshare(1) that is this shell script."""
    for name, script in (("unshare", unshare), ("id", f"echo {user}")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    return subprocess.run(
        [ABLE, *TIERS],
        capture_output=True,
        text=True,
        env={"PATH": path, "TUN": str(tmp_path), **environment},
        check=False,
    )


def test_everything_runs_where_nothing_is_missing(tmp_path):
    done = able(tmp_path, ROOT, "exit 0")
    assert (done.stdout.split(), done.stderr, done.returncode) == (TIERS, "", 0)


@pytest.mark.parametrize(("device", "more"), [("", ""), ("none", ", tap devices")])
def test_a_user_is_told_in_one_line_which_tests_are_skipped(tmp_path, device, more):
    done = able(tmp_path, USER, "exit 0", TUN=str(tmp_path / device))
    assert (done.stdout.split(), done.returncode) == (TIERS, 0)
    assert done.stderr == f"not run: {REST}{more}): run make as root\n"


@pytest.mark.parametrize(
    ("user", "said", "reason"),
    [
        (ROOT, CHROOT, IN_A_CHROOT),
        (ROOT, CONTAINER, IN_A_CONTAINER),
        (USER, CONTAINER, IN_A_CONTAINER_AS_A_USER),
        (USER, UBUNTU, ON_UBUNTU),
    ],
    ids=["chroot", "container", "user", "Ubuntu"],
)
def test_without_namespaces_the_pure_tiers_run_and_one_line_says_why(tmp_path, user, said, reason):
    done = able(tmp_path, user, f'echo "{said}" >&2; exit 1')
    assert done.stdout.split() == ["tests/unit"]
    assert done.stderr == f"not run: netns package machine: {reason}\n"
    assert done.returncode == 0
    assert able(tmp_path, user, "exit 1", CI="true").returncode == 1


@pytest.mark.parametrize(
    ("user", "reason"),
    [(ROOT, "no overlayfs here"), (USER, "in a user namespace, this root cannot")],
)
def test_without_overlayfs_only_the_packages_are_left_out(tmp_path, user, reason):
    done = able(tmp_path, user, 'case "$*" in *overlay*) exit 1 ;; esac')
    assert done.stdout.split() == ["tests/unit", "tests/netns", "tests/machine"]
    assert done.stderr.startswith(f"not run: package: {reason}")
