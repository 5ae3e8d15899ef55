"""The recipes of packaging/images that end in a disk: it is built, boots, and its agent starts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from images import BUILD_DEB

IMAGES = Path(__file__).parents[2] / "packaging" / "images"
LIMIT = 3600  # seconds, for what hangs
STARTED = "the image has booted, and the agent has started"
# Roots with mkosi, which Debian 12 does not have: 25 is in Debian 13, 27 in sid.
SUITES = ("trixie", "sid")
TOOLS = (
    "mkosi,systemd-boot,systemd-repart,systemd-ukify,e2fsprogs,dosfstools,mtools,cpio,zstd,kmod"
    ",uidmap,debian-archive-keyring,ca-certificates"
)
# Instead of mkosi's own, which has the archive of debugging symbols: many mirrors do not.
ARCHIVE = """Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
# mkosi moves its root: it has to be a mount point. /var/tmp is not for a sandbox to share.
IN_ROOT = """set -eu
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t sysfs sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs run "$1/run"
touch "$1/etc/resolv.conf"
mount --bind "$(readlink -f /etc/resolv.conf)" "$1/etc/resolv.conf"
exec chroot "$1" sh -c 'cd /recipe && exec mkosi --force build'
"""


def run(*words: object, **more: object) -> str:
    sudo = ["sudo"] if os.geteuid() else []
    command = [*sudo, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, **more
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def content(disk: Path, path: str) -> str:
    """A file, or the names in a directory, of the disk's file system for `/`."""
    rows = run("partx", "--raw", "--noheadings", "--output", "NAME,START", disk).splitlines()
    start = dict(row.split() for row in rows)["root-x86-64"]
    verb = "ls -p" if path.endswith("/") else "cat"
    return run("debugfs", "-R", f"{verb} {path}", f"{disk}?offset={int(start) * 512}")


@pytest.mark.long
def test_the_image_of_make_boots_and_its_agent_starts(tmp_path):
    run(IMAGES / "build", tmp_path / "image")
    said = run(IMAGES / "boot", tmp_path / "image")
    assert said.splitlines()[-1] == STARTED


@pytest.mark.long
@pytest.mark.parametrize("suite", SUITES)
def test_the_disk_of_mkosi_has_no_identity_boots_and_its_agent_starts(tmp_path, suite):
    root = tmp_path / "root"
    dated = '--aptopt=Acquire::Check-Valid-Until "false"'  # a mirror of sid may be behind
    run("mmdebstrap", "--quiet", "--variant=apt", dated, f"--include={TOOLS}", suite, root)
    run("chown", os.geteuid(), root)
    recipe = root / "recipe"
    shutil.copytree(IMAGES / "mkosi", recipe)
    sources = recipe / "mkosi.sandbox" / "etc" / "apt" / "sources.list.d"
    sources.mkdir(parents=True)
    (sources / "mkosi.sources").write_text(ARCHIVE)
    run(BUILD_DEB, tmp_path / "deb")
    (package,) = (tmp_path / "deb").glob("*.deb")
    shutil.copy(package, recipe / "neuca-guest-tools.deb")
    run("unshare", "--mount", "sh", "-c", IN_ROOT, "sh", root)
    disk = recipe / "neuca.raw"
    assert content(disk, "/etc/machine-id").strip() in ("", "uninitialized")
    assert content(disk, "/var/lib/neuca/") == ""
    assert run(IMAGES / "boot", disk).splitlines()[-1] == STARTED
