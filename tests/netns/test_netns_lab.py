"""The laboratory itself: what must not happen would be seen."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac


@pytest.mark.parametrize("change", [
    "ip link set mgmt0 mtu 1400", "ip link set mgmt0 txqueuelen 5", "ip link set mgmt0 down",
    "ip link add name new type bridge", "ip address add 192.0.2.77/24 dev mgmt0", "ip route add 10.0.0.0/8 via 192.0.2.1",
    "ip -6 route add 2001:db8:7::/48 via 2001:db8:ffff::1", "ip rule add from 10.0.0.0/8 table 77",
    "tee /proc/sys/net/ipv4/conf/mgmt0/rp_filter", "tee /proc/sys/net/ipv4/ip_forward", "tee /proc/sys/net/core/somaxconn",
])  # fmt: skip
def test_a_change_of_something_foreign_is_a_failure(lab, change):
    lab.management()
    lab.veth("dp1", 1)
    lab.foreign.remember()
    lab.foreign.check()
    lab.run(*change.split(), text="1" if "tee" in change else None)
    with pytest.raises(AssertionError):
        lab.foreign.check()


def test_a_change_of_a_dataplane_nic_or_by_hand_is_none(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.foreign.remember()
    lab.run("ip", "address", "add", "172.16.0.1/24", "dev", "dp1")
    lab.run("ip", "link", "set", "dp1", "up", "mtu", "9000")
    lab.ip("link set mgmt0 mtu 1400")
    lab.foreign.check()


@pytest.mark.parametrize("change", [
    "link set dp1 mtu 1400", "link set dp1 txqueuelen 5", "address add 172.16.0.1/24 dev dp1",
    "route replace 10.20.0.0/16 dev dp1 metric 20",
])  # fmt: skip
def test_the_monitor_reports_every_write(lab, change):
    lab.veth("dp1", 1, up=True)
    with lab.monitored() as monitor:
        assert monitor.lines() == []
        lab.run("ip", *change.split())
        assert any("dp1" in line for line in monitor.lines())


def test_a_second_pass_that_writes_is_a_failure(lab):
    lab.veth("dp1", 1)
    lab.once(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n")
    lab.run("ip", "link", "set", "dp1", "down")
    with pytest.raises(AssertionError):
        lab.finish()
    lab.applied = False


def test_the_guest_cannot_write_to_the_files_of_its_host(lab):
    for place in ("/etc/neuca-test", "/var/lib/neuca-test", "/run/neuca-test"):
        assert lab.run("touch", place, check=False).code == 1


def test_a_file_that_is_being_written_or_has_gone_is_none_of_the_files_of_the_agent(lab):
    run = lab.folder / "run"
    run.mkdir()
    (run / "document.json").touch()
    (run / "last-pass.json.neuca-new").touch()
    (run / "gone.json").symlink_to("journal.json")
    names = {path.rpartition("/")[2] for path in lab.files()}
    assert "document.json" in names
    assert names.isdisjoint({"last-pass.json.neuca-new", "gone.json"})
