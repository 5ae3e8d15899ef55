"""A trial that fails before its first change is rolled back to what was there, not to nothing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import Agent, mac, machine, nic

from neuca_tools.agent.pass_report import Pass
from neuca_tools.apply.transaction import Transaction
from neuca_tools.errors import ObserveError

MANAGED = {"networkmanager": {"eth3": "managed"}}


class Blind(Agent):
    """A host with NetworkManager on eth3, of which nothing can be observed after `looks` looks."""

    looks = None

    def look(self, wanted):
        if self.looks is not None:
            self.looks -= 1
            if self.looks < 0:
                self.looks = None
                raise ObserveError("ask the kernel: Cannot allocate memory")
        seen = super().look(wanted)
        return seen._replace(world=replace(seen.world, managers=MANAGED))


def test_a_pass_that_fails_after_managers_were_told_is_rolled_back_to_what_was_there():
    a = f"[interface {mac(2)}]\naddresses = 10.0.2.1/24\nmtu = 1400\n[vlan {mac(2)}.7]\naddresses = 10.0.7.1/24\n"
    agent = Blind(machine(nic(1), nic(2), nic(3), mgmt=1), a)
    agent.run()
    before = agent.kernel.snapshot()
    agent.ask(f"[interface {mac(3)}]\naddresses = 10.0.3.1/24\n")
    agent.looks = 1
    decision = agent.survey()
    transaction = Transaction(agent, Pass(None), decision)
    with pytest.raises(ObserveError):
        transaction.run()
    transaction.roll_back(decision.have)
    assert agent.kernel.unmanaged == [("networkmanager", "eth3")]
    assert agent.kernel.snapshot() == before
