"""A virtual link never has the MAC of a NIC that it is not made of; such leftovers are deleted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_interface

import pytest
from worlds import Agent, bare, key, mac, machine, nic, texts

from neuca_tools.desired.roles import Policy
from neuca_tools.model import LinkKey

MINE = "02:00:00:00:aa:01"
KINDS = {
    "bond": f"[bond bond0]\nmode = active-backup\nmembers = {mac(2)}\n",
    "bridge": f"[bridge br0]\nmembers = {mac(2)}\n",
    "macvlan": f"[macvlan mv0]\nparent = {mac(2)}\n",
    "vxlan": f"[vxlan vx0]\nparent = {mac(2)}\nid = 5\nlocal = 10.0.0.1\nremote = 10.0.0.2\n",
    "vlan": f"[vlan {bare(2)}.7]\n",
}
NAMES = {"bond": "bond0", "bridge": "br0", "macvlan": "mv0", "vxlan": "vx0", "vlan": "eth2.7"}
NIC2 = f"[interface {mac(2)}]\n"


def agent(text="", policy=Policy(), **more):  # noqa: B008 - frozen
    """Management NIC 1, and NICs 2 to 4."""
    return Agent(machine(nic(1), nic(2), nic(3), nic(4), mgmt=1), text, policy, **more)


def refusals(one):
    return [problem.text for problem in one.survey().resolution.problems]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("owner", "whose"), [
    (mac(1), 'the management NIC "eth1"'),
    (mac(4), 'an ignored NIC "eth4"'),
    (mac(3), '"eth3", which is not one of its lower devices'),
    (mac(9), "an ignored NIC"),
    (mac(8), "a management NIC"),
])  # fmt: skip
def test_the_mac_address_of_another_nic_is_refused(kind, owner, whose):
    policy = Policy(frozenset({mac(4), mac(9)}), frozenset({mac(1), mac(8)}))
    asked = agent(f"{KINDS[kind]}mac = {owner}\naddresses = 10.66.0.1/24\n", policy)
    asked.run()
    assert refusals(asked) == [f"the MAC address {owner} is that of {whose}"]
    assert asked.kernel.named(NAMES[kind]) is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_present_mac_address_of_another_nic_is_refused_too(kind):
    asked = agent(f"{KINDS[kind]}mac = {MINE}\n")
    asked.kernel.devices[3] = asked.kernel.devices[3]._replace(mac=MINE)
    asked.run()
    whose = '"eth3", which is not one of its lower devices'
    assert refusals(asked) == [f"the MAC address {MINE} is that of {whose}"]
    assert asked.kernel.named(NAMES[kind]) is None


def test_the_mac_address_of_a_former_bond_is_free_in_the_same_pass():
    asked = agent(f"{KINDS['bond']}mac = {MINE}\n")
    asked.run()
    asked.ask(f"{NIC2}[bridge br0]\nmembers = {mac(3)}\nmac = {MINE}\n")
    asked.run()
    assert refusals(asked) == []
    assert (asked.kernel.named("br0").mac, asked.kernel.devices[2].mac) == (MINE, mac(2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [MINE, mac(2)])
def test_a_mac_address_of_its_own_or_of_a_lower_device_is_usable(kind, own):
    asked = agent(f"{KINDS[kind]}mac = {own}\n")
    asked.run()
    assert (refusals(asked), asked.kernel.named(NAMES[kind]).mac) == ([], own)


@pytest.mark.parametrize("other", ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mac_address_that_names_no_nic_is_refused(kind, other):
    asked = agent(f"{KINDS[kind]}mac = {other}\n")
    assert [one.severity for one in asked.document.faults] == ["error"]
    assert "MAC address names no NIC" in asked.document.faults[0].reason


def test_a_vlan_on_a_bond_may_share_the_mac_address_of_a_member():
    text = f"{KINDS['bond']}[vlan bond bond0.5]\nmac = {mac(2)}\n"
    assert refusals(agent(text)) == []


# --- leftovers of versions that allowed it --------------------------------------------------------


def leftover(kind, document=NIC2, **record):
    """An agent that finds a link of its own with the management NIC's MAC."""
    found = agent(f"{KINDS[kind]}mac = {MINE}\naddresses = 10.66.0.1/24\n")
    found.run()
    device = found.kernel.named(NAMES[kind])
    options = tuple((name, mac(1) if name == "mac" else value) for name, value in device.options)
    kernel = found.kernel
    kernel.devices[device.index] = device._replace(mac=mac(1), options=options)
    for member in kernel.members(device.index) if kind == "bond" else ():
        kernel.devices[member.index] = member._replace(mac=mac(1))
    found.record = found.record._replace(**{"management_networks": ("192.0.2.0/24",), **record})
    found.ask(document)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_such_a_link_is_no_management_device(kind):
    found = leftover(kind)
    index = found.kernel.named(NAMES[kind]).index
    roles = found.survey().resolution.roles
    assert index not in roles.guard.devices
    assert roles.guard.devices == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_such_a_link_is_deleted_and_its_network_is_free_again(kind):
    found = leftover(kind)
    operations, result, _ = found.run()
    assert (result.failures, found.kernel.named(NAMES[kind])) == ((), None)
    assert [text for text in texts(operations) if text.startswith("delete the")]
    assert found.record.management_networks == ("192.0.2.0/24", "192.0.2.1/32")
    found.ask(f"{NIC2}addresses = 10.66.0.1/24\n")
    found.run()
    assert (refusals(found), texts(found.plan())) == ([], [])
    assert ip_interface("10.66.0.1/24") in found.kernel.addresses[2]


@pytest.mark.parametrize("fault", ["", "[routes]\nnonsense = 1\n"])
@pytest.mark.parametrize("kind", KINDS)
def test_such_a_link_is_deleted_while_a_document_still_asks_for_it(kind, fault):
    found = leftover(kind, f"{KINDS[kind]}mac = {mac(1)}\naddresses = 10.66.0.1/24\n{fault}")
    found.run()
    assert found.kernel.named(NAMES[kind]) is None
    assert refusals(found) == [f'the MAC address {mac(1)} is that of the management NIC "eth1"']
    assert found.record.management_networks == ("192.0.2.0/24", "192.0.2.1/32")


def test_a_foreign_macvlan_with_the_management_nics_mac_is_never_touched():
    host = machine(nic(1), nic(2), mgmt=1)
    host.add_link("macvlan", "theirs", 2, {"mac": mac(1), "mode": "bridge"}, None)
    theirs = host.named("theirs")
    found = Agent(host, f"[macvlan theirs]\nparent = {mac(2)}\nmac = {mac(1)}\n")
    found.run()
    assert host.named("theirs") == theirs
    assert theirs.index in found.survey().resolution.roles.guard.devices


def test_a_vlan_of_ours_on_the_management_nic_stays_protected():
    """What is stacked on a management NIC is not touched, whoever made it."""
    found = agent(KINDS["vlan"])
    found.run()
    found.settings = found.settings._replace(policy=Policy(management=frozenset({mac(1), mac(2)})))
    index = found.kernel.named("eth2.7").index
    assert key(2, 7) in found.record.owned.vlans
    assert index in found.survey().resolution.roles.guard.devices
    assert LinkKey(mac(2), 7) not in found.survey().observed.links
