"""Settings of ports and members, wake-on-LAN and the MAC of a NIC, on this kernel; the guests have bonds and permanent MACs too."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac
from test_netns_stacks import has

BRIDGE = f"[bridge br7]\nmembers = {mac(1)}, {mac(2)}\n"
BOND = f"[bond bond7]\nmode = active-backup\nmembers = {mac(1)}, {mac(2)}\n"
OWN = "02:00:00:00:f1:01"


@pytest.fixture
def two(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.foreign.may_make("br7", "bond7")
    return lab


def nic(number, *lines):
    return "\n".join([f"[interface {mac(number)}]", *lines, ""])


def port(lab, name):
    data = lab.link(name)["linkinfo"]["info_slave_data"]
    return data["cost"], data["priority"]


def test_a_port_has_its_cost_and_priority_and_the_kernels_again(two):
    assert two.once(BRIDGE).code == 0
    before = port(two, "dp1")
    assert two.once(BRIDGE + nic(1, "path-cost = 50", "port-priority = 5")).code == 0
    assert (port(two, "dp1"), port(two, "dp2")) == ((50, 5), before)
    assert two.plan() == []
    assert two.once(BRIDGE + nic(1)).code == 0
    assert (port(two, "dp1"), two.plan()) == (before, [])


def test_a_new_bridge_has_the_settings_of_its_ports_after_one_pass(two):
    assert two.once(BRIDGE + nic(1, "path-cost = 50")).code == 0
    assert (port(two, "dp1")[0], two.plan(), two.notes("dp1")) == (50, [], [])


def test_tune_plans_no_setting_of_a_bridge_that_a_nic_has_not_joined(two):
    two.document(BRIDGE + nic(1, "path-cost = 50", "txqueuelen = 500"))
    words = ("tune", "apply", "--profile", "none")
    planned = two.neuca(*words, "--dry-run")
    assert "transmit queue length" in planned.out
    assert "path-cost" not in planned.out
    assert two.neuca(*words).code == 0
    assert two.once().code == 0
    assert port(two, "dp1")[0] == 50


def test_revert_restores_no_setting_of_a_bridge_that_a_nic_has_left(two):
    cost = nic(1, "path-cost = 50", "txqueuelen = 500")
    two.once(BRIDGE + cost)
    two.once(cost)
    shown, done = two.neuca("revert", "--dry-run", "--json"), two.neuca("revert", "--json")
    assert shown.json["operations"] == done.json["operations"]
    assert "set-txqueuelen" in {each["operation"] for each in done.json["operations"]}
    assert done.err.count("path-cost") == 0
    assert two.once().code == 0


def test_tune_leaves_a_link_alone_that_a_pass_creates_again(two):
    two.once(BRIDGE)
    two.document(BRIDGE + "stp = yes\nmtu = 1300\n" + nic(1, "txqueuelen = 500"))
    shown, done = two.neuca("tune", "plan", "--json"), two.neuca("tune", "apply", "--json")
    assert [each["target"] for each in done.json["operations"]] == ["dp1"]
    assert (done.code, shown.json["operations"]) == (0, done.json["operations"])
    assert two.once().code == 0
    assert two.link("br7")["mtu"] == 1300


def test_a_nic_without_a_permanent_mac_keeps_its_own_and_one_without_wake_on_lan_does_without(two):
    assert two.once(nic(1, f"mac = {OWN}", "wake-on-lan = magic")).code == 0
    assert two.link("dp1")["address"] == mac(1)
    assert two.notes("dp1") == [
        (
            "mac",
            "not applicable",
            "its driver reports no permanent MAC address, by which the NIC is known",
        ),
        ("wake-on-lan", "not applicable", "the driver has no wake-on-lan"),
    ]
    assert two.plan() == []


def test_the_primary_member_of_a_bond_is_set_moved_and_cleared(two):
    has(two, "bond")
    assert two.once(BOND + nic(1, "bond-primary = yes")).code == 0
    data = two.link("bond7")["linkinfo"]["info_data"]
    assert (data["primary"], two.plan()) == ("dp1", [])
    assert two.once(BOND + nic(2, "bond-primary = yes")).code == 0
    assert two.link("bond7")["linkinfo"]["info_data"]["primary"] == "dp2"
    assert two.once(BOND).code == 0
    assert "primary" not in two.link("bond7")["linkinfo"]["info_data"]
    assert two.plan() == []
