"""Trials and `neuca apply` beside a running daemon: one document is in force, changed by one rule."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab import PATIENCE, mac
from test_netns_trial import MAIN, Trial

from neuca_tools.files import locked

A = f"[interface {mac(1)}]\naddresses = 10.1.0.1/24\n"
B = f"[interface {mac(1)}]\naddresses = 10.9.0.1/24\n"
C = f"[interface {mac(1)}]\naddresses = 10.7.0.1/24\n"


def has(lab, *addresses):
    return lambda: lab.addresses("eth1") == set(addresses)


@pytest.fixture
def served(lab):
    """A guest whose daemon has applied document A of the metadata service."""
    lab.management()
    lab.veth("eth1", 1)
    lab.service(A)
    lab.configure(sources="ec2")
    (lab.folder / "later").write_text(B)
    lab.start()
    lab.wait("A is applied", has(lab, "10.1.0.1/24"))
    lab.metadata.wait_for(1)
    return lab


def assert_stays(lab, *addresses):
    """Through polls, and a pass that an event causes."""
    lab.metadata.wait_for(2)
    lab.veth("other", 7)
    lab.metadata.wait_for(2)
    assert has(lab, *addresses)(), lab.daemon.log()


def test_a_document_of_another_source_stays_until_the_own_one_changes(served):
    done = served.neuca("apply", "--source", f"file:{served.folder}/later")
    assert done.code == 0, done
    assert_stays(served, "10.9.0.1/24")
    code, data = served.status()
    assert (code, data["state"], data["document"]["stale"]) == (0, "ok", False)
    assert any("has another document" in note for note in data["notes"])
    served.document(C)
    served.wait("C is applied", has(served, "10.7.0.1/24"))
    served.document(A)
    served.wait("A is applied again", has(served, "10.1.0.1/24"))


def test_a_confirmed_trial_stays_in_force(served):
    trial = Trial(served, 3600)
    served.veth("other2", 8)  # an event, whose pass waits for the trial
    assert served.neuca("confirm").code == 0
    assert trial.end()[0] == 0
    assert_stays(served, "10.9.0.1/24")
    served.document(C)
    served.wait("C is applied", has(served, "10.7.0.1/24"))


@pytest.fixture
def filed(lab):
    """As `served`, with the document in a file, which a trial reads before the next poll does."""
    lab.management()
    lab.veth("eth1", 1)
    lab.configure(poll=2)
    lab.document(A)
    lab.start()
    lab.wait("A is applied", lambda: lab.status()[1]["state"] == "ok")
    return lab


def is_at_work(process):
    """Whether a child of the process runs; one that is not reaped does not."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    states = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2] for child in children]
    return any(state.split()[0] != "Z" for state in states)


def own_trial(lab, seconds):
    """A trial of document B, which the daemon does not read before."""
    lab.daemon.signal(signal.SIGSTOP)
    lab.wait("its child has ended", lambda: not is_at_work(lab.daemon.pid))
    lab.document(B)
    trial = Trial(lab, seconds, source=None)
    assert has(lab, "10.9.0.1/24")()
    lab.daemon.signal(signal.SIGCONT)
    return trial


def remains(lab, address):
    """For more than two polls, with an event in between."""
    lab.veth("other", 7)
    with pytest.raises(AssertionError, match="not within"):
        lab.wait("it goes", lambda: not has(lab, address)(), 5)


def test_a_trial_of_the_own_document_that_nobody_confirms_is_not_applied(filed):
    trial = own_trial(filed, 4)
    filed.veth("other2", 8)  # an event, whose pass waits for the trial
    assert trial.end()[0] == 1
    remains(filed, "10.1.0.1/24")
    code, data = filed.status()
    assert (code, data["state"]) == (0, "ok")
    assert any("has another document" in note for note in data["notes"])
    filed.document(C)
    filed.wait("C is applied", has(filed, "10.7.0.1/24"))


def test_a_start_of_the_daemon_applies_what_a_trial_took_back(filed):
    assert own_trial(filed, 1).end()[0] == 1
    assert filed.daemon.stop() == 0
    filed.start()
    filed.wait("B is applied", has(filed, "10.9.0.1/24"))


def test_a_start_of_the_daemon_during_a_pass_applies_the_own_document(filed):
    assert filed.daemon.stop() == 0
    (filed.folder / "later").write_text(B)
    assert filed.neuca("apply", "--source", f"file:{filed.folder}/later").code == 0
    with locked(filed.folder / "run/lock", PATIENCE):
        daemon = filed.start()
        filed.wait("it waits", lambda: is_waiting(daemon.pid))
    filed.wait("A is applied again", has(filed, "10.1.0.1/24"))


def test_what_was_applied_after_a_start_stays_although_the_first_pass_was_killed(filed):
    assert filed.daemon.stop() == 0
    (filed.folder / "later").write_text(B)
    with locked(filed.folder / "run/lock", PATIENCE):
        daemon = filed.start()
        filed.wait("it waits", lambda: is_waiting(daemon.pid))
        daemon.signal(signal.SIGSTOP)
        (child,) = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
    assert filed.neuca("apply", "--source", f"file:{filed.folder}/later").code == 0
    daemon.signal(signal.SIGCONT)
    filed.wait("it notices", lambda: "ended without a report" in daemon.log())
    remains(filed, "10.9.0.1/24")
    filed.document(C)
    filed.wait("C is applied", has(filed, "10.7.0.1/24"))


def test_a_daemon_that_starts_during_a_pass_heeds_signals(filed):
    assert filed.daemon.stop() == 0
    with locked(filed.folder / "run/lock", PATIENCE):
        daemon = filed.start()
        filed.wait("it waits", lambda: is_waiting(daemon.pid))
        daemon.signal(signal.SIGHUP)
        filed.wait("it reloads", lambda: "configuration reloaded" in daemon.log())
        assert daemon.stop() == 0
    assert not any((filed.folder / "pid").iterdir())


def is_waiting(process):
    """Whether the process or a child of it waits for a lock."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return any("setlk" in Path(f"/proc/{pid}/wchan").read_text() for pid in (process, *children))


def test_apply_puts_in_force_what_a_trial_took_back(filed):
    assert own_trial(filed, 1).end()[0] == 1
    assert filed.neuca("apply").code == 0
    remains(filed, "10.9.0.1/24")


def test_an_apply_that_has_waited_does_not_undo_a_newer_document(filed):
    assert filed.daemon.stop() == 0
    (filed.folder / "later").write_text(B)
    trial = Trial(filed, 3600)
    command = [*filed.guest.enter, sys.executable, "-c", MAIN, "apply", "--config"]
    with subprocess.Popen(
        [*command, str(filed.config_file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=filed.environment) as late:  # fmt: skip
        lock = Path(f"/proc/{late.pid}/wchan")
        filed.wait("it waits", lambda: "setlk" in lock.read_text())
        late.send_signal(signal.SIGSTOP)
        os.kill(trial.pid, signal.SIGTERM)
        assert trial.end()[0] == 1
        filed.document(C)
        assert filed.neuca("apply").code == 0
        assert has(filed, "10.7.0.1/24")()
        late.send_signal(signal.SIGCONT)
        assert late.wait(PATIENCE) == 0
    assert has(filed, "10.7.0.1/24")()


NAMED = f"[interface {mac(1)}]\naddresses = 10.9.0.1/24\nname = renamed\nmtu = 1300\n"
BRIDGE = f"[bridge br0]\nmembers = {mac(2)}\naddresses = 10.8.0.1/24\n[routes]\n10.30.0.0/16 = 10.9.0.9\n"


@pytest.fixture
def killed(filed):
    """A trial of two NICs, a bridge and a route, that was killed beside the daemon."""
    filed.veth("eth2", 2)
    rules = {path.name: path.read_bytes() for path in (filed.folder / "udev").iterdir()}
    (filed.folder / "later").write_text(NAMED + BRIDGE)
    trial = Trial(filed, 3600)
    assert filed.addresses("renamed") == {"10.9.0.1/24"}
    assert filed.addresses("br0") == {"10.8.0.1/24"}
    os.kill(trial.pid, signal.SIGKILL)
    trial.end()
    return filed, rules


def is_back(lab):
    return has(lab, "10.1.0.1/24")() and lab.link("br0") is None and not lab.routes("10.30.0.0/16")


def test_a_trial_that_was_killed_is_rolled_back_by_the_daemon(killed):
    lab, rules = killed
    lab.wait("it is rolled back", lambda: is_back(lab))
    assert lab.link("eth1")["mtu"] == 1500
    assert lab.status("--wait")[0] == 0
    record = json.loads((lab.folder / "state/record.json").read_text())
    assert record["nics"][mac(1)]["name"] == "eth1"
    left = {path.name: path.read_bytes() for path in (lab.folder / "udev").iterdir()}
    assert left.items() >= rules.items()
    assert not (lab.folder / "state/trial.json").exists()
    assert lab.command("neucad", "--names", "--config", lab.config_file).code == 0
    assert lab.link("eth1")


def test_names_restores_the_name_from_before_a_killed_trial(filed):
    assert filed.daemon.stop() == 0
    (filed.folder / "later").write_text(NAMED)
    trial = Trial(filed, 3600)
    os.kill(trial.pid, signal.SIGKILL)
    trial.end()
    filed.ip("link set renamed down")
    filed.ip("address flush dev renamed")
    assert filed.command("neucad", "--names", "--config", filed.config_file).code == 0
    assert filed.link("eth1")
    assert filed.neuca("apply").code == 0
    assert is_back(filed)


def test_a_nic_that_was_away_during_a_trial_is_configured_afterwards(filed):
    """It comes back with its index, so nothing but the message of its removal tells."""
    both = f"[interface {mac(2)}]\naddresses = 10.2.0.1/24\n"
    filed.veth("eth2", 2)
    filed.document(A + both)
    filed.wait("both are applied", lambda: filed.addresses("eth2") == {"10.2.0.1/24"})
    away = filed.host()
    (filed.folder / "later").write_text(B + both)
    trial, index = Trial(filed, 3600), filed.index("eth2")
    filed.ip(f"link set eth2 netns {away.pid}")
    filed.run("ip", "link", "set", "eth2", "netns", str(filed.guest.pid), where=away)
    assert filed.index("eth2") == index
    with pytest.raises(AssertionError, match="not within"):  # several attempts of the daemon
        filed.wait("it is configured", lambda: filed.addresses("eth2"), 4)
    assert filed.neuca("confirm").code == 0
    assert trial.end()[0] == 0
    filed.wait("it is configured", lambda: filed.addresses("eth2") == {"10.2.0.1/24"}, 20)
    filed.document(B + both)
    source = f"file:{filed.document_file}"
    filed.wait("a poll", lambda: filed.status()[1]["document"]["source"] == source)
