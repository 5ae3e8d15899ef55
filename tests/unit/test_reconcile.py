"""When the daemon has to make the next pass although nothing happens on the host."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import Agent, bare, machine, nic

from neuca_tools.agent.reconcile import _apply_document
from neuca_tools.config import Config
from neuca_tools.model.provenance import ROUTER_SECONDS
from neuca_tools.state.active_document import Intake

IPV6_FORWARDING = "net/ipv6/conf/all/forwarding"


class AgingAgent(Agent):
    """The management NIC of this router accepts advertisements until the host has a certain age."""

    def __init__(self, directory):
        super().__init__(machine(nic(1), nic(2), mgmt=1))
        self.config = Config()._replace(
            state_directory=directory / "state", run_directory=directory / "run"
        )
        self.config.run_directory.mkdir()

    def look(self, wanted):
        age = self.ages.pop(0) if self.ages[1:] else self.ages[0]
        observation = super().look(wanted)
        world = replace(observation.world, age=age, boot_id="", later_ages=set())
        advertised = frozenset() if world.is_aged(ROUTER_SECONDS) else frozenset({1})
        return observation._replace(world=replace(world, advertised=advertised))

    def next_age_after(self, text, ages, whole):
        """That of a pass whose looks are made at these ages; the last one is that of all others."""
        self.ask(text)
        self.intake, self.ages = Intake(self.document), [*ages]
        report, decision = _apply_document(self, whole=whole, left_out={})
        self.record = decision.record
        return report.next_age


@pytest.mark.parametrize(
    ("ages", "next_age", "value"),
    [
        ((50.0,), ROUTER_SECONDS, "0"),
        ((59.0, 61.0), ROUTER_SECONDS, "0"),
        ((61.0,), None, "1"),
    ],
)
def test_a_decision_that_changes_during_a_pass_is_carried_out_by_the_next(
    tmp_path, ages, next_age, value
):
    """The pass is only for what was not applied when it began."""
    host, text = AgingAgent(tmp_path), f"[global]\nrouter = true\n[interface {bare(2)}]\n"
    assert host.next_age_after(text + "mtu = 1400\n", [40.0], whole=True) == ROUTER_SECONDS
    assert host.next_age_after(text + "mtu = 1300\n", ages, whole=False) == next_age
    assert host.kernel.devices[2].mtu == 1300
    assert host.kernel.read_sysctl(IPV6_FORWARDING) == value
