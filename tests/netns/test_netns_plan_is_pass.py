"""A pass does what `neuca plan` shows, and no more: the plan knows what its earlier steps make of each link."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac
from test_netns_convergence import BRIDGE, NICS, host_with

COST = f"[interface {mac(2)}]\npath-cost = 36\nport-priority = 5\n"
BOND = f"[bond bond0]\nmode = active-backup\nmembers = {mac(2)}, {mac(3)}\n"
VLAN = f"[vlan {mac(2)}.7]\n"
MACVLAN = f"[macvlan mv0]\nparent = {mac(2)}\n"
LARGE = f"[interface {mac(2)}]\nmtu = 9000\n"
PASSES = {
    "settings of a port that joins": ("bridge", NICS, NICS + BRIDGE + COST),
    "settings of a port that moves": (
        "bridge",
        NICS + BRIDGE + COST,
        NICS + BRIDGE.replace("br0", "br1") + COST,
    ),
    "settings of a port of a bridge that is created again": (
        "bridge",
        NICS + BRIDGE,
        NICS + BRIDGE + "forward-delay = 16\n" + COST,
    ),
    "settings of a new VLAN that joins": (
        "vlan",
        NICS,
        NICS + VLAN + f"path-cost = 57\n[bridge br0]\nmembers = {mac(2)}.7, {mac(3)}\n",
    ),
    "the primary member of a new bond": (
        "bond",
        NICS,
        NICS + BOND + f"[interface {mac(2)}]\nbond-primary = yes\n",
    ),
    "a NIC that leaves a bond": ("bond", NICS + BOND + "mtu = 2000\n", NICS + LARGE),
    "a NIC that leaves a bond, with a VLAN of a larger MTU": (
        "bond",
        NICS + BOND,
        NICS + LARGE + VLAN + "mtu = 9000\n",
    ),
    "a NIC that leaves a bond, with a VLAN that is down": (
        "bond",
        NICS + BOND + "mtu = 1400\n",
        NICS + LARGE + VLAN + "state = down\naddresses = fd00:9::1/64\n",
    ),
    "a NIC that leaves a bond with a large MTU, with a macvlan": (
        "bond",
        NICS + BOND + "mtu = 9000\n",
        NICS + MACVLAN,
    ),
    "a NIC that leaves a bond with a small MTU, with a VXLAN": (
        "bond",
        NICS + BOND + "mtu = 1400\n",
        NICS + f"[vxlan vx0]\nid = 5\nparent = {mac(2)}\n",
    ),
    "a VLAN that gets the name of another one": (
        "vlan",
        NICS + VLAN + f"name = data7\n[vlan {mac(3)}.7]\n",
        NICS + f"[vlan {mac(3)}.7]\nname = data7\n",
    ),
    "the MTU of a bridge is that of a new VLAN": (
        "vlan",
        NICS + BRIDGE + "mtu = 1400\nforward-delay = 4\n",
        NICS
        + f"[interface {mac(1)}]\nmtu = 1300\n[vlan {mac(1)}.7]\n"
        + BRIDGE.replace(mac(2), f"{mac(1)}.7"),
    ),
    "a VRF with the table of another one": (
        "vrf",
        NICS + f"[vrf blue]\nmembers = {mac(2)}\ntable = 101\n",
        NICS + f"[vrf red]\nmembers = {mac(2)}\ntable = 101\n",
    ),
    "a link with the name of another kind": (
        "macvlan",
        NICS + BRIDGE,
        NICS + MACVLAN.replace("mv0", "br0"),
    ),
    "a VLAN with the name of another one": (
        "vlan",
        NICS + VLAN + "name = data7\n",
        NICS + f"[vlan {mac(3)}.7]\nname = data7\n",
    ),
}


@pytest.mark.parametrize("case", PASSES)
def test_a_pass_does_what_the_plan_shows(lab, case):
    kind, before, after = PASSES[case]
    host = host_with(lab, kind)
    host.management()
    host.foreign.may_make(
        "br0", "br1", "bond0", "dp1.7", "dp2.7", "dp3.7", "data7", "mv0", "vx0", "blue", "red"
    )
    assert host.once(before).code == 0
    host.document(after)
    planned = host.plan()
    done = host.neuca("apply", "--json")
    assert (done.code, sorted(done.json["changed"])) == (0, sorted(planned))
    assert host.plan() == []
    if kind == "vlan":  # in a slow guest: the kernel reports each port after its forward delay
        host.wait("the ports are forwarding", lambda: not is_delayed(host), seconds=60)


def is_delayed(host):
    ports = [
        link["linkinfo"].get("info_slave_data", {})
        for link in host.look("link")
        if "linkinfo" in link
    ]
    return any(port.get("forward_delay_timer") for port in ports)


def test_a_next_hop_in_the_network_of_an_address_that_leaves_is_refused_at_once(lab):
    host = host_with(lab, "bridge")
    host.management()
    assert host.once(NICS).code == 0
    host.document(NICS.replace("172.16.1.1", "172.16.9.1") + "[routes]\n10.9.0.0/16 = 172.16.1.9\n")
    planned = host.neuca("plan", "--json")
    done = host.neuca("apply", "--json")
    assert (planned.code, done.code) == (4, 4)
    assert [one["text"] for one in planned.json["operations"]] == done.json["changed"]


def test_the_cost_of_a_port_that_joined_with_it_is_the_kernels_again(lab):
    host = host_with(lab, "bridge")
    host.management()
    assert host.once(NICS + BRIDGE).code == 0
    usual = port(host)
    host.ip("link del br0")
    assert host.once(NICS + BRIDGE.replace("10.5", "10.15") + COST).code == 0
    assert port(host) == (36, 5)
    assert host.once(NICS + BRIDGE).code == 0
    assert (port(host), host.plan()) == (usual, [])


def test_a_port_of_a_bridge_that_is_created_again_has_its_settings(lab):
    host = host_with(lab, "bridge")
    host.management()
    assert host.once(NICS + BRIDGE).code == 0
    assert host.once(NICS + BRIDGE + "forward-delay = 16\n" + COST).code == 0
    assert (port(host), host.plan()) == ((36, 5), [])


def port(host):
    data = host.link("dp2")["linkinfo"]["info_slave_data"]
    return data["cost"], data["priority"]
