"""`neuca-selftest --ssh` through a real ssh client and a real ssh server, which let each other in by keys of this test's own.

The server is Dropbear: its Debian package is the program alone, and a machine that runs the tests gets no ssh service from it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ends import FAR, MAIN, TCP, steps
from lab import ROOT

PORT = 2222
SERVER, HOME = "/usr/sbin", Path("~root").expanduser()
OVER = "mount -t overlay overlay -o lowerdir={folder}:{place} {place}"  # read-only, and in this namespace alone


@pytest.fixture
def ssh(ends, tmp_path):
    """The host "far" of the guest's ~/.ssh/config; the server knows the guest's key, and finds neuca-selftest in its PATH."""
    if os.geteuid():
        pytest.skip("in a user namespace no ssh server can become anybody")
    for name in ("client/.ssh", "server/.ssh", "programs"):
        (tmp_path / name).mkdir(mode=0o700, parents=True)
    client, server = tmp_path / "client", tmp_path / "server"
    key, host_key = client / ".ssh" / "key", tmp_path / "host_key"
    ends.lab.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    write(server / ".ssh" / "authorized_keys", (client / ".ssh" / "key.pub").read_text())
    ends.lab.run("dropbearkey", "-t", "ed25519", "-f", host_key)
    shown = ends.lab.run("dropbearkey", "-y", "-f", host_key).out.splitlines()
    write(
        client / ".ssh" / "known_hosts",
        f"[{FAR}]:{PORT} {next(line for line in shown if line.startswith('ssh-'))}\n",
    )
    write(
        client / ".ssh" / "config",
        f"Host far stranger\n HostName {FAR}\n Port {PORT}\n User root\n IdentityFile ~/.ssh/key\n"
        " IdentitiesOnly yes\n StrictHostKeyChecking yes\n",
    )
    program = tmp_path / "programs" / "neuca-selftest"
    write(
        program,
        f"#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {sys.executable} -c '{MAIN}' --config {ends.far} \"$@\"\n",
        0o755,
    )
    ends.lab.run(*OVER.format(folder=client, place=HOME).split())
    ends.lab.run(*OVER.format(folder=server, place=HOME).split(), where=ends.lab.outside)
    ends.lab.run(*OVER.format(folder=program.parent, place=SERVER).split(), where=ends.lab.outside)
    ends.start(
        "dropbear", "-F", "-E", "-s", "-r", host_key, "-p", f"{FAR}:{PORT}", "-P", tmp_path / "pid"
    )
    ends.until(lambda: PORT in ends.listening())
    return client / ".ssh"


def write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)


@pytest.mark.usefixtures("ssh")
def test_a_test_whose_other_end_is_started_by_ssh(ends):
    _, report = ends.report("--ssh", "far", "--only", "latency,path-mtu,tcp,connections", *TCP[2:])
    assert steps(report) == dict.fromkeys(
        ("reach", "latency", "path-mtu", "tcp", "connections"), "pass"
    )
    assert "helper by ssh on far" in report["evidence"]["steps"][1]["text"]
    assert len(report["evidence"]["phases"][0]["receiver"]) >= 2
    assert report["evidence"]["peer"]["path"] == ["dp1"]
    ends.until(lambda: ends.listening() == {PORT})


def test_a_server_whose_host_key_is_another_is_not_talked_to(ends, ssh):
    known = ssh / "known_hosts"
    write(known, f"[{FAR}]:{PORT} {' '.join((ssh / 'key.pub').read_text().split()[:2])}\n")
    done = ends.test("--ssh", "far", *TCP)
    assert (done.code, done.err.splitlines()[-1]) == (
        1,
        'neuca-selftest: start neuca-selftest on "far" by ssh: it exited with 255',
    )
    assert "Host key verification failed" in done.err
    assert ends.listening() == {PORT}


def test_a_key_that_is_not_known_there_is_refused_without_a_question(ends, ssh):
    (ssh / "key").unlink()
    ends.lab.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "key")
    done = ends.test("--ssh", "far", *TCP)
    assert (done.code, done.err.splitlines()[-1]) == (
        1,
        'neuca-selftest: start neuca-selftest on "far" by ssh: it exited with 255',
    )
    assert "Permission denied (publickey)" in done.err


@pytest.mark.usefixtures("ssh")
def test_a_host_without_neuca_selftest_says_so(ends):
    ends.lab.run("umount", "--lazy", SERVER, where=ends.lab.outside)
    done = ends.test("--ssh", "far", *TCP)
    assert (done.code, done.err.splitlines()[-2:]) == (
        1,
        [
            'neuca-selftest: start neuca-selftest on "far" by ssh: it exited with 127',
            "       install neuca-guest-tools there",
        ],
    )
