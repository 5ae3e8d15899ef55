"""What a platform's document asks on top of the management NIC: VLANs are made, the rest is reported."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from ipaddress import ip_address, ip_interface

from kernel import default_route
from platforms import made
from worlds import Agent, key, mac, machine, nic

from neuca_tools.model import Document
from neuca_tools.model.links import LinkKey

OWN = "02:00:17:aa:00:12"
BOND = LinkKey("bond bond0")


def agent(kernel, kind, tree):
    found = Agent(kernel)
    found.document = Document(platform=made(kind, json.dumps(tree)))
    return found


def texts(operations):
    return [operation.text for operation in operations]


def oracle(*vnics):
    nic_of_instance = {"nicIndex": 0, "vlanTag": 0, "macAddr": mac(1), "privateIp": "192.0.2.10"}
    return {"vnics": [{**nic_of_instance, "subnetCidrBlock": "192.0.2.0/24"}, *vnics]}


VLAN_NIC = {
    "nicIndex": 0,
    "vlanTag": 12,
    "macAddr": OWN,
    "privateIp": "10.6.1.2",
    "virtualRouterIp": "10.6.1.1",
    "subnetCidrBlock": "10.6.1.0/24",
}


def test_a_vlan_nic_on_the_primary_nic_is_made_without_a_write_to_that_nic_and_goes_again():
    one = agent(machine(nic(1, up=True), mgmt=1), "OCI VNICs", oracle(VLAN_NIC))
    kernel, before = one.kernel, one.kernel.devices[1]
    kernel.written.clear()
    operations, result, _ = one.run()
    assert f"create VLAN 12 on eth1 as eth1.12 (mac {OWN})" in texts(operations)
    vlan = kernel.named("eth1.12").index
    assert (result.failures, texts(one.plan()), set(kernel.written)) == ((), [], {vlan})
    assert ip_interface("10.6.1.2/24") in kernel.world().addresses[vlan]
    assert [rule.source for rule in one.survey().resolution.desired.rules] == ["10.6.1.2/32"] * 3
    assert one.survey().resolution.roles.role_of(key(1)) == "management"
    one.document = Document(platform=made("OCI VNICs", json.dumps(oracle())))
    one.run()
    assert kernel.named("eth1.12") is None
    assert (kernel.devices[1], texts(one.plan())) == (before, [])


def test_a_vlan_on_the_management_nic_that_another_program_made_is_left_alone():
    kernel = machine(nic(1, up=True), mgmt=1)
    kernel.add_link("vlan", "theirs", 1, {"id": "12"}, None)
    one = agent(kernel, "OCI VNICs", oracle(VLAN_NIC))
    resolution = one.survey().resolution
    assert [text for text in texts(one.plan()) if "theirs" in text or "VLAN" in text] == []
    assert (resolution.desired.links, resolution.problems) == ({}, ())


def test_a_vlan_on_a_management_nic_that_is_down_is_refused_for_that():
    """The document gives the management NIC to a VLAN with the default route."""
    vlan = {"id": 5, "link": "a", "addresses": ["10.5.0.5/24"], "gateway4": "10.5.0.1"}
    tree = {
        "version": 2,
        "ethernets": {"a": {"match": {"macaddress": mac(2)}}},
        "vlans": {"v": vlan},
    }
    one = agent(machine(nic(1), nic(2), mgmt=1), "network-config", tree)
    problems = [problem.text for problem in one.survey().resolution.problems]
    assert problems == ["VLAN 5 cannot be up: its NIC is down"]


def test_a_vlan_nic_of_compute_engine_may_be_on_the_primary_nic():
    tree = {
        "networkInterfaces": [{"mac": mac(1), "ip": "192.0.2.10"}],
        "vlanNetworkInterfaces": {"0": {"5": {"mac": OWN, "ip": "10.4.0.3"}}},
    }
    one = agent(machine(nic(1, up=True), mgmt=1), "GCE instance", tree)
    one.run()
    assert one.kernel.named("eth1.5").mac == OWN


# --- A bond for management, which another program has made ----------------------------------------


def bare_metal(*vlans):
    """Ironic's document: the NICs 1 and 2 in a bond, everything else is a VLAN on it."""
    links = [{"id": f"p{n}", "type": "phy", "ethernet_mac_address": mac(n)} for n in (1, 2)]
    links.append({"id": "b", "type": "bond", "bond_links": ["p1", "p2"], "bond_mode": "1"})
    networks = []
    for number in vlans:
        links.append({"id": f"v{number}", "type": "vlan", "vlan_link": "b", "vlan_id": number})
        networks.append(
            {
                "link": f"v{number}",
                "type": "ipv4",
                "ip_address": f"10.0.{number}.4",
                "netmask": "24",
                **({"gateway": "10.0.2.1"} if number == 2 else {}),
            }
        )
    return {"links": links, "networks": networks}


def bonded():
    """A kernel with that bond, whose VLAN 2 has the default route."""
    kernel = machine(*(nic(number, permanent_mac=mac(number)) for number in (1, 2)))
    kernel.add_link("bond", "bond0", None, {"mode": "active-backup"}, None)
    bond = kernel.named("bond0").index
    for number in (1, 2):
        kernel.set_master(number, bond)
        kernel.set_up(number, True)
    kernel.set_up(bond, True)
    kernel.add_link("vlan", "bond0.2", bond, {"id": "2"}, None)
    vlan = kernel.named("bond0.2").index
    kernel.set_up(vlan, True)
    kernel.add_address(vlan, ip_interface("10.0.2.4/24"))
    default_route(kernel, vlan, ip_address("10.0.2.1"))
    return kernel


def test_a_vlan_beside_the_management_vlan_of_a_bond_is_made_and_goes_again():
    one = agent(bonded(), "network_data.json", bare_metal(2, 4))
    kernel, before = one.kernel, dict(one.kernel.devices)
    kernel.written.clear()
    operations, result, _ = one.run()
    assert "create VLAN 4 on bond0 as bond0.4" in texts(operations)
    vlan = kernel.named("bond0.4").index
    assert (result.failures, texts(one.plan()), set(kernel.written)) == ((), [], {vlan})
    assert ip_interface("10.0.4.4/24") in kernel.world().addresses[vlan]
    resolution = one.survey().resolution
    assert (resolution.problems, resolution.notes) == ((), ())
    assert [resolution.roles.role(mac(n)) for n in (1, 2)] == ["management", "management"]
    one.document = Document(platform=made("network_data.json", json.dumps(bare_metal(2))))
    one.run()
    assert kernel.named("bond0.4") is None
    assert (dict(kernel.devices), texts(one.plan())) == (before, [])


def test_what_nobody_made_on_the_management_nic_is_refused_with_the_reason():
    kernel = machine(nic(1, up=True), nic(2), mgmt=1)
    one = agent(kernel, "network_data.json", bare_metal(2, 4))
    found = {str(p.link): (p.code, p.text) for p in one.survey().resolution.problems}
    reason = "on the management NIC: it carries the default route"
    assert found == {
        "bond bond0": ("refused", f"it is {reason}"),
        "bond bond0.2": ("refused", f"VLAN 2 is {reason}"),
        "bond bond0.4": ("refused", f"VLAN 4 is {reason}"),
    }
    assert [text for text in texts(one.plan()) if "VLAN" in text or "bond" in text] == []


# --- Addresses of the management NIC --------------------------------------------------------------


def test_a_note_says_that_an_address_of_the_management_nic_is_left_to_others_and_absent():
    nics = {"a": {"match": {"macaddress": mac(1)}, "addresses": ["192.168.57.99/24"]}}
    nics["a"]["routes"] = [{"to": "default", "via": "192.168.57.1"}]
    one = agent(machine(nic(1)), "network-config", {"version": 2, "ethernets": nics})
    (note,) = one.survey().resolution.notes
    assert (note.setting, note.link) == ("addresses", key(1))
    assert note.reason.startswith(
        "192.168.57.99/24, the default route through 192.168.57.1: absent, and neucad never"
    )
    one.kernel.set_up(1, True)
    one.kernel.add_address(1, ip_interface("192.168.57.99/24"))
    assert one.survey().resolution.notes == ()


def test_a_vlan_that_may_be_for_management_is_not_made_before_there_is_a_default_route():
    """VLAN 2 of this document has the gateway: cloud-init or the image makes it."""
    links = [{"id": "p", "type": "phy", "ethernet_mac_address": mac(1)}]
    links += [{"id": f"v{n}", "type": "vlan", "vlan_link": "p", "vlan_id": n} for n in (2, 4)]
    networks = [
        {"link": "v2", "type": "ipv4", "ip_address": "10.0.2.4/24", "gateway": "10.0.2.1"},
        {"link": "v4", "type": "ipv4", "ip_address": "10.0.4.4/24"},
    ]
    one = agent(
        machine(nic(1, up=True)), "network_data.json", {"links": links, "networks": networks}
    )
    one.run()
    assert one.kernel.named("eth1.2") is None
    assert one.survey().resolution.roles.role_of(key(1, 2)) == "management"


def test_a_bridge_of_a_vlan_on_the_management_nic_does_not_get_the_mac_of_that_nic():
    """Nobody requests that MAC address: it would be that of the first port."""
    tree = {
        "version": 2,
        "ethernets": {"m": {"match": {"macaddress": mac(1)}}},
        "vlans": {"v12": {"id": 12, "link": "m"}},
        "bridges": {"br0": {"interfaces": ["v12"], "addresses": ["10.6.1.2/24"]}},
    }
    agent_ = agent(machine(nic(1, up=True), mgmt=1), "network-config", tree)
    resolution = agent_.survey().resolution
    assert [text for text in texts(agent_.plan()) if "create the bridge" in text] == []
    refused = [str(problem.link) for problem in resolution.problems if problem.code == "refused"]
    assert "bridge br0" in refused
