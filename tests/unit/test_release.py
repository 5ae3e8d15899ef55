"""What the record keeps when a NIC is released, and that nothing is done that it could not keep."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
from ipaddress import ip_interface

import pytest
from worlds import PLACES, Agent, key, mac, machine, nic, texts

from neuca_tools.agent.change import Release, Restore, undo_release
from neuca_tools.apply.transaction import Transaction
from neuca_tools.commands.change import _record_as_management
from neuca_tools.config import Config
from neuca_tools.desired.marks import SYSCTL_FILE
from neuca_tools.errors import ApplyError
from neuca_tools.model import NicRecord, Record
from neuca_tools.state.records import load_record, save_record


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


class AgentWithoutRoom(Agent):
    def unsaved_reason(self):
        return 'write "record.json": No space left on device'


@pytest.mark.parametrize("purpose", [Release(frozenset({mac(2)}), frozenset({mac(2)})), "revert"])
def test_nothing_is_released_or_reverted_that_the_record_cannot_keep(tmp_path, purpose):
    """The disk may become full after `demand_room`: addresses would stay, and be forgotten as ours."""
    kernel = machine(nic(1), nic(2), mgmt=1)
    agent = AgentWithoutRoom(kernel, f"[interface {mac(2)}]\naddresses = 10.2.0.1/24\nmtu = 1400\n")
    agent.run()
    agent.ask("[interfaces]\n")
    purpose = Restore(tmp_path / "sysctl") if purpose == "revert" else purpose
    before = kernel.world()
    with pytest.raises(ApplyError) as caught:
        Transaction(agent, purpose, purpose.adapt(agent.survey())).run()
    assert (caught.value.text, caught.value.errno) == (agent.unsaved_reason(), errno.ENOSPC)
    assert kernel.world() == before


def revert(agent):
    purpose = Restore(PLACES.sysctl / SYSCTL_FILE)
    outcome = Transaction(agent, purpose, purpose.adapt(agent.survey())).run()
    agent.record = outcome.decision.record
    return texts(outcome.result.done)


def test_a_member_of_a_bond_has_its_mtu_from_the_bond_after_a_revert_and_its_original_one_later():
    bond = f"[bond bond0]\nmode = active-backup\nmembers = {mac(2)}\nmtu = 1400\n"
    agent = Agent(machine(nic(1), nic(2), mgmt=1), bond)
    agent.run()
    assert not [text for text in revert(agent) if "MTU" in text]
    assert agent.kernel.devices[2].mtu == 1400
    for text, mtu in ((f"[interface {mac(2)}]\nmtu = 1300\n", 1300), ("[interfaces]\n", 1500)):
        agent.ask(text)
        agent.run()
        assert agent.kernel.devices[2].mtu == mtu


@pytest.mark.parametrize("kind", ["bridge br0", "bond bond0"])
def test_a_virtual_link_has_its_default_mtu_after_a_revert_if_none_is_requested_any_more(kind):
    link = f"[{kind}]\nmembers = {mac(2)}\n"
    link += "mode = active-backup\n" if kind.startswith("bond") else ""
    agent = Agent(machine(nic(1), nic(2), mgmt=1), f"{link}mtu = 1400\ntxqueuelen = 70\n")
    agent.run()
    revert(agent)
    agent.ask(link)
    agent.run()
    device = agent.kernel.named(kind.split()[1])
    assert (device.mtu, device.txqueuelen) == (1500, 1000)


@pytest.mark.parametrize("change", [undo_release, _record_as_management])
def test_what_a_reboot_would_undo_is_an_error(tmp_path, monkeypatch, change):
    config = Config(state_directory=tmp_path / "state", run_directory=tmp_path / "run")
    save_record(config.state, Record(nics={mac(2): NicRecord(released=True)}))
    before, replace = load_record(config.state), os.replace

    def refuse(new, path):
        if path == config.state_directory / "record.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(new, path)

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(ApplyError, match="No space left on device"):
        change(config, mac(2))
    assert load_record(config.state) == before
