"""Type=notify, against a real datagram socket: READY once the first pass is over, STATUS in words, WATCHDOG in time."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import select
import signal
import socket
import time

import pytest
from lab import mac
from test_netns_trial import Trial

from neuca_tools.files import locked

PATIENCE = 120.0  # seconds, as in lab.py
DOCUMENT = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24\n"


class Manager:
    """systemd's end of the socket."""

    def __init__(self, path):
        self.path = path
        self.said = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def close(self):
        self._socket.close()

    def hear(self, word, count=1):
        """Everything that was said, once so many lines are this word."""
        deadline = time.monotonic() + PATIENCE
        while self.said.count(word) < count:
            assert select.select([self._socket], [], [], max(0, deadline - time.monotonic()))[0], (
                self.said
            )
            self.said += self._socket.recv(65536).decode().splitlines()
        return self.said


@pytest.fixture
def manager(tmp_path):
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


def test_it_is_ready_when_the_last_good_document_is_applied(lab, manager):
    lab.veth("dp1", 1)
    lab.once(DOCUMENT)
    lab.ip("address flush dev dp1")
    lab.start(NOTIFY_SOCKET=str(manager.path))
    manager.hear("READY=1")
    assert lab.addresses("dp1") == {"172.16.1.1/24"}
    said = manager.hear(f"STATUS=ok; document of file:{lab.document_file}")
    assert "WATCHDOG=1" not in said
    assert not [line for line in said if "degraded" in line]
    assert "stale" not in lab.daemon.log()
    assert lab.daemon.stop() == 0
    assert manager.hear("STOPPING=1").count("READY=1") == 1


def test_without_a_document_it_is_ready_at_once_and_says_what_it_waits_for(lab, manager):
    lab.veth("dp1", 1)
    lab.start(NOTIFY_SOCKET=str(manager.path))
    manager.hear("READY=1")
    manager.hear("STATUS=waiting for the first document")
    lab.document(DOCUMENT)
    manager.hear(f"STATUS=ok; document of file:{lab.document_file}")
    assert lab.addresses("dp1") == {"172.16.1.1/24"}


def test_without_a_document_it_is_ready_while_another_pass_holds_the_lock(lab, manager):
    with locked(lab.folder / "run/lock", PATIENCE):
        lab.start(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="400000")
        manager.hear("READY=1")
        manager.hear("WATCHDOG=1", 4)
    lab.veth("dp1", 1)
    lab.document(DOCUMENT)
    lab.wait("it is configured", lambda: lab.addresses("dp1") == {"172.16.1.1/24"})


def test_the_watchdog_is_fed_twice_in_its_time(lab, manager):
    lab.document(DOCUMENT)
    lab.veth("dp1", 1)
    lab.configure(poll=600)
    lab.start(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="6000000")
    manager.hear("READY=1")
    manager.hear("WATCHDOG=1")
    began = time.monotonic()
    manager.hear("WATCHDOG=1", manager.said.count("WATCHDOG=1") + 2)
    # 6 s when fed twice in its time, 12 s when once: a busy machine has as many to spare.
    assert time.monotonic() - began < 2 * 6


def test_a_hung_service_does_not_starve_the_watchdog(lab, manager):
    lab.management()
    lab.veth("dp1", 1)
    lab.service(DOCUMENT).mode = "hang"
    lab.configure(sources="ec2", timeout=60)
    lab.start(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="400000")
    manager.hear("WATCHDOG=1", 4)
    lab.metadata.recover()
    lab.wait("it is configured", lambda: lab.addresses("dp1") == {"172.16.1.1/24"})


def test_it_is_ready_during_a_trial_and_makes_its_pass_afterwards(lab, manager):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.once(DOCUMENT)
    (lab.folder / "later").write_text(DOCUMENT.replace("172.16.1.1", "172.16.9.1"))
    trial = Trial(lab, 3600)
    lab.ip("address flush dev dp2")
    lab.document(DOCUMENT + f"[interface {mac(2)}]\naddresses = 172.16.2.1/24\n")
    lab.start(NOTIFY_SOCKET=str(manager.path))
    said = manager.hear("READY=1")
    assert any("is on trial until" in line for line in said), said
    assert lab.addresses("dp1") == {"172.16.9.1/24"}
    trial.process.terminate()
    trial.process.wait(PATIENCE)
    os.kill(trial.pid, signal.SIGTERM)
    lab.wait("its own document", lambda: lab.addresses("dp2") == {"172.16.2.1/24"}, 30)
    assert lab.addresses("dp1") == {"172.16.1.1/24"}
    lab.wait("status agrees", lambda: lab.status()[0] == 0)
