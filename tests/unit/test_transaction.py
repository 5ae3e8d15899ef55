"""A transaction: settings that take effect late or never, its journal, and a state that cannot be saved."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from worlds import Agent, key, mac, machine, nic

from neuca_tools.agent.pass_report import Pass
from neuca_tools.apply.transaction import REASON_NOT_IN_EFFECT, Transaction
from neuca_tools.errors import ApplyError

MTU = f"[interface {mac(2)}]\nmtu = 9000\n"


class Late(Agent):
    """A host on which `change` happens once a transaction has waited for so many seconds."""

    def __init__(self, seconds):
        super().__init__(machine(nic(1), nic(2), mgmt=1), MTU)
        self.seconds_left, self.change = seconds, None

    def wait(self, seconds):
        self.seconds_left -= seconds
        if self.change and self.seconds_left <= 0:
            self.change()
            self.change = None


@pytest.mark.parametrize(("seconds", "reasons"), [(0.1, []), (3.69, []), (60, [REASON_NOT_IN_EFFECT])])  # fmt: skip
def test_a_driver_has_some_seconds_to_do_what_it_was_told(seconds, reasons):
    agent = Late(seconds)
    set_mtu, agent.kernel.set_mtu = agent.kernel.set_mtu, lambda *_: None
    agent.change = lambda: set_mtu(2, 9000)
    _, result, rolled_back = agent.run()
    assert [failure.reason for failure in result.failures] == reasons
    assert agent.kernel.devices[2].mtu == (1500 if reasons else 9000)
    assert (rolled_back is not None) is bool(reasons)


def test_a_setting_that_another_program_undoes_is_set_once_more():
    agent = Late(0)
    agent.change = lambda: agent.kernel.set_mtu(2, 1500)
    _, result, _ = agent.run()
    assert agent.change is None
    assert not result.failures
    assert agent.kernel.devices[2].mtu == 9000


@pytest.mark.parametrize(("seconds", "mtu"), [(1.1, 1500), (60, 9000)])
def test_a_roll_back_tries_again_what_the_kernel_refuses_for_a_moment(seconds, mtu):
    agent = Late(seconds)
    agent.ask(f"{MTU}addresses = 10.0.2.1/24\n")
    set_mtu, refusing = agent.kernel.set_mtu, [True]

    def refuse(*_):
        raise ApplyError("Device or resource busy", errno.EBUSY)

    def change_mtu(index, new):
        (refuse if new == 1500 and refusing else set_mtu)(index, new)

    agent.kernel.set_mtu, agent.kernel.add_address = change_mtu, refuse
    agent.change = refusing.clear
    _, _, rolled_back = agent.run()
    assert agent.kernel.devices[2].mtu == mtu
    reasons = [failure.reason for failure in rolled_back.failures]
    assert reasons == ([] if mtu == 1500 else ["Device or resource busy"])


class Journaled(Agent):
    """A host with a journal, on which the state cannot be saved for some `reason`."""

    def __init__(self, reason=""):
        super().__init__(machine(nic(1), nic(2), mgmt=1), MTU)
        self.reason, self.journal, self.saved = reason, None, []

    def save_record(self, record):
        self.saved.append((record, self.kernel.devices[2].mtu))

    def save_journal(self, before, _):
        self.journal = before

    def remove_journal(self):
        self.journal = None

    def unsaved_reason(self):
        return self.reason


def test_the_journal_is_there_for_every_change_and_gone_afterwards():
    agent, seen = Journaled(), []
    set_mtu = agent.kernel.set_mtu

    def watch(index, mtu):
        seen.append(agent.journal.links[key(2)].mtu)
        set_mtu(index, mtu)

    agent.kernel.set_mtu = watch
    agent.run()
    assert (seen, agent.journal) == ([1500], None)
    # The record says what will be ours before the first change, and what is at the end.
    assert [mtu for _, mtu in agent.saved] == [1500, 9000]
    assert agent.saved[-1][0] == agent.record


class Thorough(Pass):
    """A change that is not made unless it can be recorded."""

    requires_saved_state = True


def test_what_has_to_be_recorded_is_not_done_without_room_for_the_record():
    agent = Journaled("write the record: No space left on device")
    before = agent.kernel.snapshot()
    with pytest.raises(ApplyError) as caught:
        Transaction(agent, Thorough(None), agent.survey()).run()
    assert (caught.value.text, caught.value.errno) == (agent.reason, errno.ENOSPC)
    assert (agent.kernel.snapshot(), agent.journal) == (before, None)


def test_without_room_for_the_record_addresses_are_added_and_none_is_removed():
    agent = Journaled()
    for reason, address, expected in (
        ("", "10.0.2.1/24", ["10.0.2.1/24"]),
        ("No space left on device", "10.0.3.1/24", ["10.0.2.1/24", "10.0.3.1/24"]),
        ("", "10.0.3.1/24", ["10.0.3.1/24"]),
    ):
        agent.reason = reason
        agent.ask(f"[interface {mac(2)}]\naddresses = {address}\n")
        agent.run()
        found = [str(address) for address in agent.kernel.addresses[2] if address.version == 4]
        assert sorted(found) == expected


class Managed(Agent):
    """A host whose NetworkManager does not release a NIC, whatever it is told."""

    def look(self, wanted):
        seen = super().look(wanted)
        return seen._replace(
            world=replace(seen.world, managers={"networkmanager": {"eth2": "managed"}})
        )


def test_a_manager_that_keeps_a_nic_is_told_once_in_a_pass():
    agent = Managed(machine(nic(1), nic(2), mgmt=1), MTU)
    agent.run()
    assert agent.kernel.unmanaged == [("networkmanager", "eth2")]
    assert agent.kernel.devices[2].mtu == 9000


def test_what_a_second_round_changes_is_journaled_too():
    """A NIC that appears during a pass is set up by it."""
    agent, journaled = Journaled(), []
    agent.ask(f"{MTU}[interface {mac(3)}]\nmtu = 9000\n")
    set_mtu, plugged = agent.kernel.set_mtu, [nic(3)]

    def watch(index, mtu):
        journaled.append((index, key(index) in agent.journal.links))
        set_mtu(index, mtu)

    def wait(_):
        while plugged:
            agent.kernel.devices[3] = plugged.pop()

    agent.kernel.set_mtu, agent.wait = watch, wait
    agent.run()
    assert journaled == [(2, True), (3, True)]
    assert (agent.kernel.devices[3].mtu, agent.journal) == (9000, None)


def test_a_nic_that_fails_is_rolled_back_alone():
    agent = Agent(machine(nic(1), nic(2), nic(3), mgmt=1))
    agent.ask(f"{MTU}[interface {mac(3)}]\nmtu = 9000\naddresses = 10.0.3.1/24\n")
    add_address = agent.kernel.add_address

    def add(index, *rest):
        if index == 3:
            raise ApplyError("Invalid argument", errno.EINVAL)
        add_address(index, *rest)

    agent.kernel.add_address = add
    _, result, rolled_back = agent.run()
    assert [failure.reason for failure in result.failures] == ["Invalid argument"]
    assert {operation.target for operation in rolled_back.done} == {"eth3"}
    assert [agent.kernel.devices[index].mtu for index in (2, 3)] == [9000, 1500]
