"""A misplaced or misspelled option that protects stops new configuration, and what is configured stays."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import signal

import pytest
from lab import MANAGEMENT_MAC, mac

OURS = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
MORE = f"{OURS}[interface {mac(2)}]\naddresses = 172.16.2.1/24\n"
WRONG = f"[runtime]\nmanagement-macs = {MANAGEMENT_MAC}\n"
MEANT = "did you mean [network] management-macs?"


@pytest.mark.parametrize(
    "command", [("once",), ("apply",), ("apply", "--try", "30"), ("tune", "apply")]
)
def test_nothing_new_is_configured_until_it_is_corrected(host, command):
    assert host.once(OURS).code == 0
    host.configure(WRONG)
    host.document(MORE)
    done = host.once() if command == ("once",) else host.neuca(*command)
    assert (done.code, MEANT in done.err) == (78, True), done
    assert (host.addresses("dp1"), host.addresses("dp2")) == ({"172.16.1.1/24"}, set())
    code, status = host.status()
    assert code == 78
    assert any(MEANT in problem["text"] for problem in status["problems"])
    host.configure()
    assert host.once().code == 0
    assert host.addresses("dp2") == {"172.16.2.1/24"}


@pytest.mark.parametrize(
    "command", ["plan", "apply --dry-run", "tune plan --profile exogeni", "tune revert --dry-run"]
)
def test_no_plan_shows_what_a_pass_would_not_do(host, command):
    assert host.once(OURS).code == 0
    host.configure(WRONG)
    host.document(MORE)
    done = host.neuca(*command.split())
    assert (done.code, done.out) == (78, "")
    assert "neuca: nothing new is configured until this is corrected: " in done.err
    host.configure()
    assert host.once().code == 0


def test_no_script_of_the_document_runs_by_a_command_either(host):
    assert host.once(f"{OURS}[scripts]\nbootscript = #!/bin/sh\n    echo ran\n").code == 0
    host.configure("[metadata]\nsource = none")
    done = host.neuca("run-scripts")
    assert (done.code, done.out) == (78, "")
    assert "did you mean [metadata] sources?" in done.err
    assert not list(host.folder.glob("log/script-*"))
    host.configure()


def test_the_daemon_keeps_what_is_configured_after_a_reload(host):
    host.document(OURS)
    daemon = host.start()
    host.wait("the first pass", lambda: host.addresses("dp1") == {"172.16.1.1/24"})
    host.configure(WRONG)
    daemon.signal(signal.SIGHUP)
    host.wait("the reload", lambda: MEANT in daemon.log())
    host.document(MORE)
    host.wait("the pass is refused", lambda: "nothing new is configured" in daemon.log())
    assert (host.addresses("dp1"), host.addresses("dp2")) == ({"172.16.1.1/24"}, set())
    host.configure()
    daemon.signal(signal.SIGHUP)
    host.wait("the second NIC", lambda: host.addresses("dp2") == {"172.16.2.1/24"})
