"""Faults that an attacker, a neighbour or chance brings about: lost events, no descriptors, clock jumps, NICs by the thousand.

`NEUCA_NICS=1500 NEUCA_ROUNDS=10 make test-attack ARGS='-k faults'` is the campaign; the usual run is a short one.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from lab import mac

NICS = int(os.environ.get("NEUCA_NICS", "40"))
ROUNDS = int(os.environ.get("NEUCA_ROUNDS", "2"))
SOON = 60.0 + NICS / 5  # seconds, on a busy machine
STORM = 30_000  # addresses that come and go: twice as many messages, more than 8 MiB hold
GROWTH = 2 << 20  # bytes of resident memory that allocators may keep
TEXT = "".join(f"[interface {mac(n)}]\naddresses = 172.16.{n}.1/24\n" for n in (1, 2))
TROUBLE = re.compile(r"Traceback|[Ee]rror|(?<! 0 )failed")  # "pass: 1 changed, 0 failed"


@pytest.fixture
def host(guest):
    guest.management()
    guest.veth("dp1", 1)
    guest.service(TEXT)
    guest.configure(sources="ec2")
    return guest


def running(host, **environment):
    daemon = host.start(**environment)
    host.wait("dp1 is as asked", lambda: host.addresses("dp1") == {"172.16.1.1/24"}, SOON)
    looks(host, 2)
    return daemon


def looks(host, count):
    """Until the daemon has asked for its document so many times more."""
    target = host.metadata.seen() + count
    host.wait(f"{count} more requests", lambda: host.metadata.seen() >= target, SOON)


def held(daemon):
    """Bytes of resident memory, and how many descriptors."""
    place = Path(f"/proc/{daemon.pid}")
    return int((place / "statm").read_text().split()[1]) * 4096, len(list((place / "fd").iterdir()))


def dropped(host, daemon):
    """Messages that the kernel had no room for in a netlink socket of the daemon's (proc(5))."""
    rows = [row.split() for row in host.run("cat", "/proc/net/netlink").out.splitlines()[1:]]
    inodes = {one.stat().st_ino for one in sockets(daemon)}
    return sum(int(row[8]) for row in rows if int(row[9]) in inodes)


def sockets(daemon):
    return [
        one for one in Path(f"/proc/{daemon.pid}/fd").iterdir() if "socket:" in str(one.readlink())
    ]


def batch(host, lines, where=None):
    host.run("ip", "-batch", "-", where=where, text="".join(f"{line}\n" for line in lines))


def test_lost_events_are_made_good(host):
    """ENOBUFS: while the daemon does not read, more happens than its socket holds; a NIC appears meanwhile."""
    daemon = running(host)
    daemon.signal(signal.SIGSTOP)
    words = [f"address {verb} 127.9.{n >> 8 & 255}.{n & 255}/32 dev lo" for n in range(STORM)
             for verb in ("add", "del")]  # fmt: skip
    batch(host, words)
    host.veth("dp2", 2)
    assert dropped(host, daemon) > 0
    daemon.signal(signal.SIGCONT)
    host.wait("the new NIC is as asked", lambda: host.addresses("dp2") == {"172.16.2.1/24"}, SOON)
    assert TROUBLE.search(daemon.log()) is None


@pytest.mark.long
def test_without_descriptors_the_daemon_lives_and_recovers(host):
    """EMFILE: the limit is lowered to what is open, and raised again."""
    daemon = running(host)
    before = held(daemon)[1]
    host.run("prlimit", f"--pid={daemon.pid}", "--nofile=4:4096")
    host.veth("dp2", 2)
    host.wait("it says so", lambda: "Too many open files" in daemon.log(), SOON)
    assert daemon.running, daemon.log()
    assert "Traceback" not in daemon.log()
    host.run("prlimit", f"--pid={daemon.pid}", "--nofile=4096:4096")
    host.wait("it recovers", lambda: host.addresses("dp2") == {"172.16.2.1/24"}, SOON)
    looks(host, 1)
    assert held(daemon)[1] <= before + 2


def test_jumps_of_the_clock_change_nothing(host, tmp_path):
    """libfaketime, since no namespace has a wall clock, and the offsets of a time namespace are fixed before it has a process.
    The monotonic clock, which the kernel never sets, is left alone.
    """
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    place = tmp_path / "clock"
    place.write_text("+0\n")
    daemon = running(host, LD_PRELOAD=str(library), FAKETIME_TIMESTAMP_FILE=str(place),
                     FAKETIME_NO_CACHE="1", FAKETIME_DONT_FAKE_MONOTONIC="1")  # fmt: skip
    with host.monitored() as monitor:
        for jump in ("+20y", "-10y", "+1h", "-1d", "+0"):
            place.write_text(f"{jump}\n")
            looks(host, 2)
        assert monitor.lines() == []
    assert daemon.running
    assert TROUBLE.search(daemon.log()) is None


def test_nics_that_come_and_go_leave_nothing_behind(host):
    daemon = running(host)
    names = [f"n{number}" for number in range(NICS)]
    sizes = []
    for _ in range(ROUNDS + 1):
        with host.foreign.changing():
            made = (f"link add {name} type veth peer name {name} index {9000 + number} netns {host.outside.pid}"
                    for number, name in enumerate(names))  # fmt: skip
            batch(host, made)
            looks(host, 1)
            batch(host, (f"link del {name}" for name in names))
            host.settle()
        looks(host, 2)
        sizes.append(held(daemon))
    assert daemon.running
    print(f"{NICS} NICs, resident bytes and descriptors after each round: {sizes}")
    assert sizes[-1][0] - sizes[0][0] < GROWTH
    assert sizes[-1][1] <= sizes[0][1]
    assert TROUBLE.search(daemon.log()) is None
    assert host.addresses("dp1") == {"172.16.1.1/24"}
