"""`make install` below /usr/local, in a guest that has no package of ours: the service starts, survives a reboot, and leaves."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import subprocess

import images
import pytest
from guest import nics
from steps import (
    ADDRESSES,
    DOCUMENT,
    assert_left_alone,
    assert_nothing_odd,
    dataplane,
    in_force,
    names,
)

PREFIX = "/usr/local"
MAIN_PID = "systemctl show --property=MainPID --value neuca-guest-tools"
WHERE = (images.ROOT / "packaging" / "python-directory").read_text()
UNINSTALL = (images.ROOT / "packaging" / "uninstall-all").read_text()


@pytest.mark.long
def test_what_make_install_puts_below_a_prefix_runs_and_boots(guests, tmp_path):
    guest = guests("A", nics(3), packaged=False)
    guest.serve(DOCUMENT)
    guest.boot()
    directory = guest.check(f"sh -s /usr/bin/python3 {PREFIX}", 300, WHERE.encode()).strip()
    said = made(tmp_path / "tree", directory)
    packed = subprocess.run(
        ["tar", "--create", "--owner=0", "--group=0", "."], cwd=tmp_path / "tree", check=True,
        stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    guest.check("tar --extract --directory=/ --no-overwrite-dir", 600, packed)
    # What it prints is what its user does next.
    guest.check(said.partition("to run it: ")[2].replace(", then ", " && "), 900)
    in_force(guest, DOCUMENT)
    assert dataplane(guest) == ADDRESSES
    before = names(guest)
    running = guest.check(f"tr '\\0' ' ' < /proc/$({MAIN_PID})/cmdline")
    assert f"{PREFIX}/bin/neucad" in running
    assert guest.check("command -v neuca neuca-selftest").split() == [
        f"{PREFIX}/bin/neuca",
        f"{PREFIX}/bin/neuca-selftest",
    ]
    pid = guest.check(MAIN_PID)
    guest.check("systemctl reload neuca-guest-tools")
    assert guest.check(MAIN_PID) == pid
    guest.reboot()
    in_force(guest, DOCUMENT)
    assert (names(guest), dataplane(guest)) == (before, ADDRESSES)
    assert_left_alone(guest)
    assert_nothing_odd(guest)
    assert json.loads(guest.run("neuca plan --json").output)["operations"] == []
    assert "failed" not in guest.check("systemctl list-units --all --plain 'neuca*'")
    assert guest.reachable()
    said = guest.check(f"sh -s '' {PREFIX} ''", 300, UNINSTALL.encode())
    assert said.splitlines()[-1] == f"uninstalled below {PREFIX}"
    assert guest.check("systemctl list-units --plain --no-legend 'neuca*'") == ""
    assert guest.check("systemctl is-system-running --wait || true").strip() == "running"
    assert guest.check(f"find {PREFIX} /etc/systemd /usr/lib/systemd -name '*neuca*'").split() == [
        f"/etc/systemd/network/05-neuca-{kind}.network" for kind in ("nics", "vlans")
    ]
    assert (names(guest), dataplane(guest)) == (before, ADDRESSES)
    assert guest.reachable()


def made(tree, directory):
    """`make install` of this checkout into a tree; what it printed."""
    command = ["make", "--no-print-directory", "install", f"DESTDIR={tree}", f"PREFIX={PREFIX}"]
    done = subprocess.run(
        [*command, f"PYTHONDIR={directory}"], cwd=images.ROOT, check=True, timeout=300,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout
