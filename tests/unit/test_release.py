"""What the record keeps when a NIC is released."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_interface

from worlds import Agent, key, mac, machine, nic

from neuca_tools.agent.change import Release
from neuca_tools.apply.transaction import Transaction


def test_a_release_keeps_what_is_ours_on_another_nic_that_is_in_a_bridge_of_others():
    """Before Linux 5.18, nothing but the record says that an address is ours."""
    asked = {n: f"[interface {mac(n)}]\naddresses = 10.{n}.0.1/24\n" for n in (2, 3)}
    kernel = machine(nic(1), nic(2), nic(3), mgmt=1)
    agent = Agent(kernel, asked[2] + asked[3])
    agent.run()
    kernel.add_link("bridge", "theirs", 0, {}, None)
    kernel.set_master(2, kernel.named("theirs").index)
    agent.ask(asked[2])
    released = frozenset({mac(3)})
    done = Transaction(agent, Release(released, released), agent.survey()).run()
    assert done.decision.record.owned.addresses == {(key(2), ip_interface("10.2.0.1/24"))}
