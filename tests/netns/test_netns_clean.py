"""`neuca clean` on a host at work: the daemon ends, no file of the agent is left, and the network as it is now is left alone."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

DOCUMENT = f"""[interface {mac(1)}]
addresses = 172.16.1.1/24, fd00:16::1/64
mtu = 9000
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
[interface {mac(2)}]
addresses = 172.16.2.1/24
[routes]
10.20.0.0/16 = 172.16.1.254
"""
NOT_THE_AGENTS = {
    "config",
    "user-data",
    "daemon.log",
    "run/lock",
    "run/neucad.lock",
    "run/guest.lock",
}


@pytest.fixture
def running(lab):
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    lab.document(DOCUMENT)
    lab.start()
    lab.wait("the document is in force", lambda: lab.status()[0] == 0)
    return lab


def left(lab):
    return {
        str(path.relative_to(lab.folder)) for path in lab.folder.rglob("*") if path.is_file()
    } - NOT_THE_AGENTS


def left_at_work(lab):
    """The same while the daemon may be at a look: a file that it just writes has its final name in a moment."""
    return {name for name in left(lab) if not name.endswith(".neuca-new")}


def test_the_daemon_ends_its_files_go_and_the_network_stays(running):
    assert (
        running.neuca("tune", "apply", "--profile", "bdp", "--rate", "1Gbit", "--rtt", "10ms").code
        == 0
    )
    written = {
        "state/record.json",
        "nm/neuca.conf",
        "sysctl/neuca.conf",
        "run/last-pass.json",
        "run/tuning.json",
    }
    before = left_at_work(running)
    assert written <= before
    with running.monitored() as monitor:
        would = running.neuca("clean", "--keep-identity", "--dry-run")
        assert running.daemon.running
        assert left_at_work(running) == before
        done = running.neuca("clean", "--keep-identity")
        assert monitor.lines() == []
    assert (done.code, done.err, done.out) == (0, "", would.out)
    assert (
        done.out.splitlines()[0]
        == f"stop neucad, process {running.daemon.pid}: it starts again at the next boot"
    )
    assert running.daemon.stop() == 0
    assert left(running) == set()
    assert running.neuca("clean", "--keep-identity").out == "nothing to remove\n"
    assert running.addresses("dp1") == {"172.16.1.1/24", "fd00:16::1/64"}
    assert running.once().code == 0


def test_after_it_a_daemon_starts_as_on_a_host_that_never_had_one(running):
    running.neuca("clean", "--keep-identity")
    running.document_file.unlink()
    running.configure(sources="ec2=http://127.0.0.1:9")
    code, status = running.status()
    assert (code, status["state"], status["document"]["sha256"], status["document"]["stale"]) == (
        3,
        "pending",
        None,
        False,
    )
    running.configure()
    assert running.once(DOCUMENT).code == 0
