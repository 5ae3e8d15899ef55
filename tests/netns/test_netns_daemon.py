"""The daemon as a process: what it reacts to, what it leaves alone, and what an unchanged world costs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import shutil
import signal
import time

import pytest
from lab import MANAGEMENT_MAC, mac, refused_route
from metadata import USER_DATA

from neuca_tools.state import records

SOON = 60.0  # seconds on a busy machine; what is waited for otherwise takes five times as long


def asked(*numbers, mtu=9000, last=1):
    return "".join(
        f"[interface {mac(number)}]\naddresses = 172.16.{number}.{last}/24\nmtu = {mtu}\n"
        for number in numbers
    )


@pytest.fixture
def host(lab):
    """A management NIC with the metadata service behind it, and two dataplane NICs that it asks for."""
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.service(asked(1, 2))
    lab.configure(sources="ec2")
    return lab


def has(lab, name, address, mtu=9000):
    return lambda: lab.addresses(name) == {address} and lab.link(name)["mtu"] == mtu


def run(lab):
    """Start the daemon, and wait until it has done what the document asks."""
    daemon = lab.start()
    lab.wait("the first document is applied", lambda: lab.status()[1]["state"] == "ok")
    return daemon


# --- what it reacts to ---


def test_it_reloads_as_soon_as_its_pid_file_is_there(lab):
    lab.veth("dp1", 1)
    lab.document(asked(1))
    daemon, place = lab.start(), lab.folder / "pid"
    while not (place.is_dir() and any(place.glob("*.pid"))):
        assert daemon.running
    daemon.signal(signal.SIGHUP)
    lab.wait("it reloads", lambda: "configuration reloaded" in daemon.log(), SOON)
    lab.wait("it is configured", has(lab, "dp1", "172.16.1.1/24"))


def test_it_applies_the_first_document_and_every_new_one(host):
    host.metadata.mode = "404"
    host.start()
    host.metadata.wait_for(1)
    host.metadata.mode = "ok"
    host.wait("the document arrives", has(host, "dp1", "172.16.1.1/24"), SOON)
    host.document(asked(1, last=7))
    host.wait("the change arrives", has(host, "dp1", "172.16.1.7/24"), SOON)
    host.wait(
        "what is gone goes",
        lambda: host.addresses("dp2") == set() and host.link("dp2")["mtu"] == 1500,
        SOON,
    )
    assert "UP" in host.link("dp2")["flags"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_status_says_that_the_daemon_has_ended(host, number):
    def notes():
        return [note for note in host.status()[1]["notes"] if "neucad is not running" in note]

    host.once(asked(1, 2))
    assert notes() == []  # nobody has started it
    daemon = host.start()
    host.wait("it has made its first pass", lambda: "pass:" in daemon.log(), SOON)
    assert notes() == []
    daemon.signal(number)
    host.wait("status says so", notes, SOON)


def test_a_nic_that_appears_is_configured_at_once(host):
    host.configure(sources="ec2", poll=600)
    host.document(asked(1, 2, 3))
    host.start()
    host.wait("the others are there", has(host, "dp2", "172.16.2.1/24"))
    assert host.status("--wait")[0] == 4
    host.veth("dp3", 3)
    host.wait("it is configured", has(host, "dp3", "172.16.3.1/24"), SOON)
    host.wait("status agrees", lambda: host.status()[0] == 0)


def test_a_nic_that_is_plugged_out_and_in_is_configured_again(host):
    host.configure(sources="ec2", poll=600)
    run(host)
    host.ip("link del dp1")
    host.veth("dp1", 1)
    host.wait("it is configured", has(host, "dp1", "172.16.1.1/24"), SOON)


def test_a_nic_that_comes_back_from_another_namespace_is_configured_again(host):
    """It has the interface index that it had."""
    host.configure(sources="ec2", poll=600)
    run(host)
    away, index = host.host(), host.link("dp1")["ifindex"]
    host.ip(f"link set dp1 netns {away.pid}")
    host.wait("the pass", lambda: "absent" in [code for code, _ in host.problems(mac(1))])
    host.run("ip", "link", "set", "dp1", "netns", str(host.guest.pid), where=away)
    assert host.link("dp1")["ifindex"] == index
    host.wait("it is configured", has(host, "dp1", "172.16.1.1/24"), SOON)


def test_a_nic_that_gets_back_its_mac_is_configured_again(host):
    """It has the interface index that it had, and the pass in between has removed what is ours."""
    host.configure(sources="ec2", poll=600)
    run(host)
    host.ip(f"link set dp1 address {mac(7)}")
    host.wait("the pass", lambda: not host.addresses("dp1"))
    host.status("--wait")
    host.ip(f"link set dp1 address {mac(1)}")
    host.wait("it is configured", has(host, "dp1", "172.16.1.1/24"), SOON)


def test_a_nic_that_becomes_free_is_configured(host):
    host.configure(sources="ec2", poll=600)
    host.ip("link add name br0 type bridge")
    host.ip("link set dp1 master br0")
    host.start()
    host.wait("the other one is there", has(host, "dp2", "172.16.2.1/24"))
    assert host.status("--wait")[0] == 4
    host.ip("link set dp1 nomaster")
    host.wait("it is configured", has(host, "dp1", "172.16.1.1/24"), SOON)


def test_an_ignored_nic_that_appears_sees_no_write(host):
    host.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(3)}", sources="ec2")
    host.document(asked(1, 2, 3))
    host.start()
    host.wait("the others are there", has(host, "dp2", "172.16.2.1/24"))
    host.veth("dp3", 3, foreign=True)
    host.metadata.wait_for(2)
    assert (host.addresses("dp3"), host.link("dp3")["mtu"], "UP" in host.link("dp3")["flags"]) == (
        set(),
        1500,
        False,
    )


def test_a_metadata_service_that_comes_late_is_found(lab):
    lab.veth("dp1", 1)
    lab.configure(sources="ec2", timeout=1)
    lab.start()
    lab.management()
    lab.service(asked(1))
    lab.wait("the document arrives", has(lab, "dp1", "172.16.1.1/24"))
    assert lab.role(MANAGEMENT_MAC) == "management"


POLL = 3  # seconds, more than a pass takes on a busy machine


def test_a_changed_document_waits_for_a_poll_interval_and_no_longer(host):
    """Changed just after a look, so that it waits for a whole interval."""
    host.configure(sources="ec2", poll=POLL)
    run(host)
    took, looks = [], []
    for last in (11, 12, 13):
        host.metadata.wait_for(1)
        began, before = time.monotonic(), host.metadata.seen()
        host.document(asked(1, 2, last=last))
        host.wait("the change arrives", has(host, "dp2", f"172.16.2.{last}/24"))
        looks.append(host.metadata.seen() - before)
        took.append(time.monotonic() - began)
    print(
        f"a poll each {POLL} s, a changed document in force after {', '.join(f'{seconds:.2f}' for seconds in took)} s"
    )
    assert min(looks) <= 2, (looks, took)  # what has changed is read twice


def test_while_nobody_answers_the_pauses_grow_and_an_answer_ends_them(host):
    run(host)
    host.metadata.mode = "500"
    times = []
    for _ in range(5):  # the first one is usual, and so is the second; then they double
        host.metadata.wait_for(1)
        times.append(time.monotonic())
    pauses = [later - earlier for earlier, later in zip(times, times[1:])]
    assert pauses[-1] >= 2.0, (
        pauses
    )  # 4 s, less a quarter, and what was noticed late; at first 1.25 s
    host.metadata.recover()
    host.wait("it is confirmed again", lambda: not host.status()[1]["document"]["stale"])
    times = []
    for _ in range(4):
        host.metadata.wait_for(1)
        times.append(time.monotonic())
    # The next one would have been 8 s, less a quarter.
    assert min(later - earlier for earlier, later in zip(times, times[1:])) < 6.0, times


# --- what it leaves alone ---


def test_an_unchanged_poll_costs_one_request_and_no_write(host):
    run(host)
    host.metadata.wait_for(1)
    files = host.files()
    with host.monitored() as monitor:
        host.metadata.requests.clear()
        host.metadata.wait_for(2)
        assert host.metadata.requests == [f"GET {USER_DATA}"] * 2
        assert monitor.lines() == []
    assert host.files() == files


def test_drift_stays_until_the_request_for_that_nic_changes_or_a_start(host):
    run(host)
    host.ip("link set dp1 mtu 1400")
    host.ip("address del 172.16.1.1/24 dev dp1")
    host.metadata.wait_for(2)
    host.document(asked(1) + asked(2, mtu=8000))
    host.wait("the other NIC changes", has(host, "dp2", "172.16.2.1/24", 8000), SOON)
    host.metadata.wait_for(1)
    assert (host.addresses("dp1"), host.link("dp1")["mtu"]) == (set(), 1400)
    code, data = host.status()
    assert (code, data["state"]) == (4, "degraded")
    assert host.problems("dp1") == [
        ("drift", "changed; neuca apply would set the MTU of dp1 from 1400 to 9000"),
        ("drift", "changed; neuca apply would add the address 172.16.1.1/24 to dp1"),
    ]
    host.document(asked(1, last=9) + asked(2, mtu=8000))
    host.wait("a new request sets all of it", has(host, "dp1", "172.16.1.9/24"), SOON)


@pytest.mark.parametrize("way", ["apply", "restart"])
def test_drift_is_set_right_by_a_start(host, way):
    run(host)
    host.ip("link set dp1 mtu 1400")
    host.ip("address del 172.16.1.1/24 dev dp1")
    host.metadata.wait_for(1)
    if way == "apply":
        assert host.neuca("apply").code == 0
    else:
        assert host.daemon.stop() == 0
        host.start()
        host.wait("it is set right", has(host, "dp1", "172.16.1.1/24"), SOON)
    assert has(host, "dp1", "172.16.1.1/24")()
    assert host.status("--wait")[0] == 0


def test_an_ipv6_mtu_is_set_again_when_the_carrier_comes_after_the_pass(host):
    """The kernel resets it to the MTU of the NIC then."""
    setting = "net/ipv6/conf/dp1/mtu"
    host.run("ip", "link", "set", "dp1", "down", where=host.outside)
    host.document(asked(1) + "sysctl.net.ipv6.conf.{interface}.mtu = 1400\n")
    run(host)
    host.run("ip", "link", "set", "dp1", "up", where=host.outside)
    for _ in range(2):
        host.wait("there is a carrier", lambda: host.link("dp1")["operstate"] == "UP")
        host.wait("it is set again", lambda: host.sysctl(setting) == "1400", SOON)
        host.ip("link set dp1 down")
        host.ip("link set dp1 up")
    host.wait("it is set again", lambda: host.sysctl(setting) == "1400", SOON)
    host.sysctl(setting, 1300)
    assert [code for code, _ in host.problems("dp1")] == ["drift"]
    assert host.neuca("apply").code == 0


def test_with_enforce_drift_is_set_right_by_itself(host):
    host.configure("[network]\ndrift = enforce", sources="ec2")
    host.document(
        asked(1, 2) + "[routes]\n10.20.0.0/16 = 172.16.2.254\n[interface " + mac(2) + "]\n"
        "sysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
    )
    run(host)
    host.ip("address del 172.16.1.1/24 dev dp1")
    host.wait("the address is back", has(host, "dp1", "172.16.1.1/24"), SOON)
    host.ip("link set dp1 mtu 1400")
    host.wait("the MTU is back", has(host, "dp1", "172.16.1.1/24"), SOON)
    host.ip("link set dp1 down")
    host.wait("it is up again", lambda: "UP" in host.link("dp1")["flags"], SOON)
    host.ip("route del 10.20.0.0/16")
    host.wait("the route is back", lambda: len(host.routes("10.20.0.0/16")) == 1, SOON)
    host.sysctl("net/ipv4/conf/dp2/rp_filter", 1)
    host.wait("the sysctl is back", lambda: host.sysctl("net/ipv4/conf/dp2/rp_filter") == "2", SOON)
    host.ip("address add 172.16.9.1/24 dev dp1")
    host.metadata.wait_for(2)
    assert host.addresses("dp1") == {"172.16.1.1/24", "172.16.9.1/24"}


def test_a_changed_request_changes_only_its_nic(host):
    run(host)
    with host.monitored() as monitor:
        host.document(asked(1, last=5) + asked(2))
        host.wait("the change arrives", has(host, "dp1", "172.16.1.5/24"), SOON)
        host.metadata.wait_for(1)
        assert [line for line in monitor.lines() if "dp2" in line or "mgmt0" in line] == []


def test_the_default_route_of_a_user_on_a_dataplane_nic_turns_nothing_round(host):
    run(host)
    host.ip("route add 169.254.169.254 via 192.0.2.1 dev mgmt0")
    host.ip("route add default via 172.16.1.254 dev dp1 metric 1")
    host.ip("route del default via 192.0.2.1 dev mgmt0")
    assert host.daemon.stop() == 0
    host.document(asked(1, 2, mtu=8000))
    host.start()
    host.wait("it is dataplane still", has(host, "dp1", "172.16.1.1/24", 8000), SOON)
    assert (host.role(mac(1)), host.role(MANAGEMENT_MAC)) == ("dataplane", "management")


@pytest.mark.parametrize("mode", ["404", "500", "garbage", "hang"])
def test_a_service_that_fails_changes_nothing(host, mode):
    host.configure(sources="ec2", timeout=1)
    run(host)
    with host.monitored() as monitor:
        host.metadata.mode = mode
        host.wait(
            "status says that the document is stale", lambda: host.status()[1]["document"]["stale"]
        )
        assert host.status()[0] == (78 if mode == "garbage" else 4)
        assert monitor.lines() == []
    host.metadata.recover()
    host.wait("it is confirmed again", lambda: host.status()[0] == 0)


def test_at_boot_the_last_good_document_is_used_at_once(host):
    host.once()
    for name in ("dp1", "dp2"):
        host.ip(f"address flush dev {name}")
    shutil.rmtree(host.folder / "run")  # as a boot leaves it
    host.metadata.mode = "hang"
    host.configure(sources="ec2", timeout=300)
    began = time.monotonic()
    host.start()
    host.wait("it is configured", has(host, "dp2", "172.16.2.1/24"), SOON)
    assert time.monotonic() - began < SOON
    assert host.status()[0] == 4
    assert host.status()[1]["document"]["stale"] is True
    host.metadata.recover()
    host.wait("it is confirmed", lambda: host.status()[0] == 0)


def test_a_nic_that_fails_is_tried_again_until_the_cause_is_gone(host):
    host.document(f"{asked(1, 2)}[routes]\n{refused_route('172.16.1.254')}")
    host.start()
    host.wait("the other one is there", has(host, "dp2", "172.16.2.1/24"))
    host.wait("it has failed", lambda: host.status()[0] == 1)
    host.wait(
        "it is taken back", lambda: host.addresses("dp1") == set()
    )  # each further try has some of it for a moment
    host.permit()
    host.wait("it is tried again", lambda: host.routes("198.51.100.0/25"), 60)
    assert host.addresses("dp1") == {"172.16.1.1/24"}
    host.wait("status agrees", lambda: host.status()[0] == 0)


def test_a_route_waits_for_its_source_address_and_costs_nothing_else(host):
    host.document(f"{asked(1)}[routes]\n198.51.100.0/25 = 172.16.1.254 src 203.0.113.77\n")
    host.start()
    host.wait("the rest is there", has(host, "dp1", "172.16.1.1/24"))
    host.wait("it is pending", lambda: host.status()[0] == 3)
    assert host.routes("198.51.100.0/25") == []
    host.ip("address add 203.0.113.77/32 dev lo")
    host.wait("it is set", lambda: host.routes("198.51.100.0/25"), 60)
    host.wait("status agrees", lambda: host.status()[0] == 0)


# --- signals, and one of it ---


def test_sighup_reads_the_configuration_again(host):
    run(host)
    host.configure(f"[interface {mac(1)}]\nmtu = 4000", sources="ec2", poll=600)
    host.daemon.signal(signal.SIGHUP)
    host.wait("the local word counts", has(host, "dp1", "172.16.1.1/24", 4000), SOON)
    host.configure("[logging]\nlog-level = perhaps", sources="ec2", poll=600)
    host.daemon.signal(signal.SIGHUP)
    host.wait(
        "a bad value is named", lambda: '[logging] "log-level" = "perhaps"' in host.daemon.log()
    )
    host.wait("the local word is gone", has(host, "dp1", "172.16.1.1/24"), SOON)
    assert host.daemon.stop() == 0
    host.configure(sources="ec2")


@pytest.mark.parametrize("mode", ["ok", "hang"])
def test_sigterm_ends_it_cleanly_whatever_it_does(host, mode):
    host.once()
    host.metadata.mode = mode
    host.configure(sources="ec2", timeout=300)
    host.start()
    host.metadata.wait_for(1, USER_DATA if mode == "ok" else "/latest/api/token")
    assert (host.folder / "pid" / "neucad.pid").read_text() == f"{host.daemon.pid}\n"
    began = time.monotonic()
    assert host.daemon.stop() == 0
    assert time.monotonic() - began < SOON
    assert not (host.folder / "pid" / "neucad.pid").exists()
    host.metadata.recover()
    assert host.once().code == 0


def test_a_second_daemon_says_that_there_is_one(host):
    run(host)
    done = host.command("neucad", "--config", host.config_file)
    assert (done.code, done.err) == (
        1,
        f'neuca: start neucad: it already runs with the run directory "{host.folder}/run"\n',
    )


def test_without_its_run_directory_there_is_still_one_daemon_and_it_goes_on(host):
    host.configure(sources="ec2", poll=2)
    run(host)
    # The daemon may write into it meanwhile.
    directory = host.folder / "run"
    host.wait("it is gone", lambda: not host.run("rm", "-r", directory, check=False).code)
    done = host.command("neucad", "--config", host.config_file)
    assert (done.code, "it already runs" in done.err) == (1, True)
    host.ip("link del dp1")
    host.veth("dp1", 1)
    host.wait("the next pass is made", has(host, "dp1", "172.16.1.1/24"), SOON)
    host.wait("status agrees", lambda: host.status()[0] == 0)


@pytest.mark.parametrize("kind", ["run", "state"])
def test_a_directory_that_cannot_be_created_again_ends_it_for_a_restart(host, kind):
    """As in the unit, where /run and /var/lib are read-only."""
    host.configure(sources="ec2", poll=600)
    runs = host.folder / "runs"
    text = host.config_file.read_text()
    before, option = f"{host.folder}/{kind}", f"{kind}-directory = "
    host.config_file.write_text(text.replace(f"{option}{before}\n", f"{option}{runs}/neuca\n"))
    runs.mkdir()
    daemon = run(host)
    host.run("mount", "-t", "tmpfs", "-o", "ro", "nothing", runs)
    host.ip("link del dp1")
    host.veth("dp1", 1)
    host.wait("it ends", lambda: not daemon.running, SOON)
    assert daemon.stop() == 1
    assert f'create "{runs}/neuca": Read-only file system' in daemon.log()
    host.run("umount", runs)
    host.run("rm", "-r", runs / "neuca")
    run(host)
    assert has(host, "dp1", "172.16.1.1/24")()
    # Its first pass may be for what the first daemon could not save, which may be before an answer.
    state = runs / "neuca" if kind == "state" else host.folder / "state"
    host.wait("the service is recorded", lambda: records.load_machine(state).origin)


def test_a_daemon_that_was_killed_can_be_started_again_at_once(host):
    host.once()
    host.metadata.mode = "hang"
    host.configure(sources="ec2", timeout=300)
    host.start()
    host.metadata.wait_for(1, "/latest/api/token")
    host.daemon.close()
    host.metadata.mode = "ok"
    host.start()
    host.metadata.wait_for(1)
    host.wait("the document is confirmed", lambda: host.status()[0] == 0)
    host.metadata.recover()


def test_it_lives_on_when_its_pass_is_killed(host):
    host.once()
    host.metadata.mode = "hang"
    host.configure(sources="ec2", timeout=300)
    host.start()
    host.metadata.wait_for(1, "/latest/api/token")
    child = host.run("pgrep", "-P", host.daemon.pid).out.split()
    host.run("kill", "-KILL", *child)
    host.metadata.recover()
    host.document(asked(1, 2, last=4))
    host.wait("the next look brings the document", has(host, "dp1", "172.16.1.4/24"))


def children(host):
    return host.run("pgrep", "-P", host.daemon.pid, check=False).out.split()


def test_the_child_of_a_pass_ends_with_it(host):
    host.configure(sources="ec2", poll=600)
    run(host)
    for _ in range(2):
        host.wait("it is reaped", lambda: not children(host))
        host.ip("link del dp1")
        host.veth("dp1", 1)
        host.wait("another one makes the next pass", has(host, "dp1", "172.16.1.1/24"), SOON)
    host.wait("status agrees", lambda: host.status()[0] == 0)
    assert "without a report" not in host.daemon.log()


# --- the host itself ---


def test_a_guest_run_is_requested_after_a_pass_and_once_for_each_document(host):
    due = host.folder / "run" / "guest-due"
    users = "[users]\nann = no\n"
    run(host)
    assert not due.exists(), "no document has asked for anything but a network"
    host.document(asked(1) + users)
    host.wait("the change arrives", lambda: host.addresses("dp2") == set() and due.exists(), SOON)
    assert host.status()[0] == 3
    host.neuca("plan")
    (host.folder / "run" / "guest-ran").write_text(host.status()[1]["document"]["sha256"])
    # A query that had begun before may still ask for a run.
    host.metadata.wait_for(2)
    due.unlink(missing_ok=True)
    host.metadata.wait_for(2)
    assert not due.exists()
    assert host.status()[0] == 0


def test_a_pass_that_fails_keeps_nobody_out(host):
    (host.folder / "run" / "last-pass.json").mkdir(parents=True)
    host.document(asked(1) + "[users]\nann = no\n")
    host.start()
    host.wait("a run is due", (host.folder / "run" / "guest-due").exists)
    host.applied = False
