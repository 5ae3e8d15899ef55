"""Which operations wait until the state can be saved: what takes something away, and what counts on that."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from worlds import Agent, mac, machine, nic

from neuca_tools.apply.result import postponed_operations

A = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24\n"
B = f"[interface {mac(3)}]\naddresses = 10.0.1.1/24\n"
ROUTE = "[routes]\n10.9.0.0/16 = 10.0.0.9\n"
VLAN = f"[vlan {mac(2)}.7]\naddresses = 10.0.7.1/24\n"
CASES = {
    "nothing in force": ("", A + B + VLAN + ROUTE, []),
    "another address": (
        A,
        A.replace("0.1/", "0.2/") + B,
        ["delete the address 10.0.0.1/24 from eth2"],
    ),
    "no route any more": (A + ROUTE, A, ["delete the route to 10.9.0.0/16 via 10.0.0.9 on eth2"]),
    "no VLAN any more": (
        A + VLAN,
        A.replace("0.1/", "0.1/24, 10.0.0.2/") + B,
        ["delete the VLAN eth2.7", "add the address 10.0.0.2/24 to eth2"],
    ),
    "an address moves": (
        A + B,
        f"[interface {mac(2)}]\nmtu = 4000\n[interface {mac(3)}]\naddresses = 10.0.1.1/24, 10.0.0.1/24\n",
        ["add the address 10.0.0.1/24 to eth3", "delete the address 10.0.0.1/24 from eth2"],
    ),
}


@pytest.mark.parametrize(("before", "now", "held"), CASES.values(), ids=CASES)
def test_what_waits(before, now, held):
    agent = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), before)
    agent.run()
    agent.ask(now)
    texts = [one.text for one in postponed_operations(agent.plan())]
    assert texts == held
