"""A VLAN that cannot be created costs only what is on it: its NIC and the other links stay configured."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno

import pytest
from kernel import refuse
from worlds import Agent, key, mac, machine, nic, texts, vlan

NIC = f"[interface {mac(2)}]\nmtu = 9000\naddresses = 10.2.0.1/24\n"
VLAN = f"[vlan {mac(2)}.7]\naddresses = 10.7.0.1/24\n"
ROUTES = "[routes]\n10.70.0.0/16 = 10.7.0.9\n10.20.0.0/16 = 10.2.0.9\n"
REASON = "create VLAN 7 on eth2 as eth2.7: Operation not supported"


def without_8021q(text, *devices):
    """An agent on a kernel that cannot create VLANs."""
    agent = Agent(machine(nic(1), nic(2, max_mtu=9000), *devices, mgmt=1), text)

    def create_vlan(*_):
        refuse(errno.EOPNOTSUPP, "Operation not supported")

    agent.kernel._create_vlan = create_vlan
    return agent


def failed(result):
    return [failure.text for failure in result.failures]


def addresses(agent, index):
    """The IPv4 addresses of a device."""
    return [str(one) for one in agent.kernel.addresses.get(index, ()) if one.version == 4]


def test_the_nic_of_a_vlan_that_cannot_be_created_is_configured_all_the_same():
    agent = without_8021q(NIC + VLAN + ROUTES)
    _, result, undone = agent.run()
    assert (failed(result), undone) == ([REASON], None)
    device = agent.kernel.devices[2]
    assert (device.up, device.mtu, addresses(agent, 2)) == (True, 9000, ["10.2.0.1/24"])
    assert [str(route.to) for route in agent.kernel.routes if route.via and route.index == 2] == [
        "10.20.0.0/16"
    ]


def test_a_further_pass_tries_the_vlan_again_and_changes_nothing_else():
    agent = without_8021q(NIC + VLAN + ROUTES)
    agent.run()
    _, result, undone = agent.run(start=False)
    assert (failed(result), result.done, undone) == ([REASON], (), None)


def test_the_vlan_is_there_once_the_kernel_can_create_it():
    agent = without_8021q(NIC + VLAN + ROUTES)
    agent.run()
    del agent.kernel._create_vlan  # the module was loaded
    _, result, _ = agent.run(start=False)
    assert (failed(result), texts(agent.plan())) == ([], [])
    assert any(device.name == "eth2.7" for device in agent.kernel.devices.values())


def test_without_its_request_nothing_is_left_to_do():
    agent = without_8021q(NIC + VLAN)
    agent.run()
    agent.ask(NIC)
    _, result, _ = agent.run(start=False)
    assert (failed(result), texts(agent.plan()), agent.kernel.devices[2].mtu) == ([], [], 9000)


@pytest.mark.parametrize(
    "more",
    [
        f"[bridge br0]\nmembers = {mac(2)}.7, {mac(3)}\naddresses = 10.8.0.1/24\n",
        f"[macvlan mv0]\nparent = {mac(2)}.7\naddresses = 10.8.0.1/24\n",
    ],
)
def test_what_is_made_of_the_vlan_is_left_out_and_costs_no_nic(more):
    agent = without_8021q(NIC + f"[vlan {mac(2)}.7]\n{more}", nic(3))
    _, result, undone = agent.run()
    assert (failed(result), undone) == ([REASON], None)
    assert (agent.kernel.devices[2].up, addresses(agent, 2)) == (True, ["10.2.0.1/24"])


def test_a_vlan_that_was_created_and_fails_later_is_rolled_back_with_its_nic():
    agent = Agent(machine(nic(1), nic(2), mgmt=1), NIC + VLAN)
    original = agent.kernel.add_address

    def add_address(index, address, *more):
        if agent.kernel.devices[index].vlan_id:
            refuse(errno.ENOBUFS, "No buffer space available")
        original(index, address, *more)

    agent.kernel.add_address = add_address
    _, result, _ = agent.run()
    assert result.nics_to_roll_back == {key(2).mac}
    assert (agent.kernel.devices[2].up, addresses(agent, 2)) == (False, [])


def test_a_vlan_that_cannot_be_created_with_other_options_is_as_it_was_before():
    agent = Agent(machine(nic(1), nic(2, max_mtu=9000), mgmt=1), NIC + VLAN)
    agent.run()
    create = agent.kernel._create_vlan

    def create_vlan(kind, name, parent, options, mtu):
        if options.get("mac") == mac(9):
            refuse(errno.EINVAL, "Invalid argument")
        create(kind, name, parent, options, mtu)

    agent.kernel._create_vlan = create_vlan
    agent.ask(f"{NIC}{VLAN}mac = {mac(9)}\n")
    _, result, _ = agent.run()
    assert len(failed(result)) == 1
    link = agent.kernel.named("eth2.7")
    assert (link.mac, addresses(agent, link.index)) == (mac(2), ["10.7.0.1/24"])
    assert addresses(agent, 2) == ["10.2.0.1/24"]


def test_a_vlan_that_somebody_has_created_again_is_configured_and_not_deleted():
    agent = Agent(machine(nic(1), nic(2, max_mtu=9000), mgmt=1), NIC + VLAN)
    agent.run()
    agent.kernel.delete_link(agent.kernel.named("eth2.7").index)
    agent.kernel.devices[60] = vlan(60, 2, 7)
    _, result, _ = agent.run(start=False)
    assert (failed(result), addresses(agent, 60)) == ([], ["10.7.0.1/24"])
    agent.ask(NIC)
    _, result, _ = agent.run()
    assert (failed(result), addresses(agent, 60)) == ([], [])
    assert agent.kernel.named("eth2.7") == agent.kernel.devices[60]
