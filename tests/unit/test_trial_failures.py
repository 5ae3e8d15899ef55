"""A trial that fails before its first change is rolled back to what was there, not to nothing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import io
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_interface

import pytest
from worlds import Agent, mac, machine, nic

from neuca_tools.agent.pass_report import Pass
from neuca_tools.apply.transaction import Transaction
from neuca_tools.commands import trial
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.model import NetworkState

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
    transaction.roll_back(decision.observed)
    assert agent.kernel.unmanaged == [("networkmanager", "eth3")]
    assert agent.kernel.snapshot() == before


def test_an_address_of_ours_that_a_manager_flushes_is_back_after_a_roll_back(monkeypatch):
    agent = Blind(machine(nic(1), nic(2), nic(3), mgmt=1))
    agent.ask(f"[interface {mac(3)}]\naddresses = 10.0.3.1/24\n")
    agent.run()
    kernel, theirs = agent.kernel, ip_interface("10.0.3.9/24")
    kernel.addresses[3].append(theirs)

    def flush(*_):
        kernel.addresses[3].clear()

    def refuse(*_):
        raise ApplyError("Invalid argument", errno.EINVAL)

    monkeypatch.setattr(kernel, "unmanage", flush)
    monkeypatch.setattr(kernel, "set_attributes", refuse)
    agent.ask(f"[interface {mac(3)}]\naddresses = 10.0.3.2/24\nmtu = 1400\n")
    _, result, undone = agent.run()
    assert [failure.reason for failure in result.failures] == ["Invalid argument"]
    assert undone.failures == ()
    assert list(kernel.addresses[3]) == [ip_interface("10.0.3.1/24")]


class ShortOfDescriptors(Agent):
    """A host on which the journal cannot be opened at first."""

    fails = False

    def load_journal(self, boot_id):
        if self.fails:
            self.fails = False
            raise ObserveError('read "journal.json": Too many open files')
        return super().load_journal(boot_id)


def try_and_roll_back(agent, decision):
    """A trial that is not confirmed, as `agent.trial` makes it."""
    transaction = Transaction(agent, Pass(None), decision)
    try:
        transaction.run()
    finally:
        transaction.roll_back(decision.observed)


def test_a_pass_that_cannot_read_the_journal_removes_nothing():
    text = f"[vlan {mac(2)}.7]\naddresses = 10.0.7.1/24\n"
    agent = ShortOfDescriptors(machine(nic(1), nic(2), mgmt=1), text)
    agent.run()
    before = agent.kernel.snapshot()
    agent.ask(f"[interface {mac(2)}]\nmtu = 1400\n{text}")
    agent.fails = True
    with pytest.raises(ObserveError):
        try_and_roll_back(agent, agent.survey())
    assert agent.kernel.snapshot() == before


class Mortal(Agent):
    """A host with its record and journal; a pass is killed before the write with number `dies_at`."""

    journal, dies_at = None, 0

    def write(self, **files):
        self.dies_at -= 1
        if self.dies_at == 0:
            raise KeyboardInterrupt
        self.__dict__.update(files)

    def save_record(self, record):
        self.write(record=record)

    def load_journal(self, _):
        return self.journal

    def save_journal(self, before, _):
        self.write(journal=NetworkState(before.links))

    def remove_journal(self):
        self.write(journal=None)


@pytest.mark.parametrize("number", range(1, 6))
def test_a_trial_after_a_killed_pass_leaves_what_the_next_pass_restores(number):
    agent = Mortal(machine(nic(1), nic(2), mgmt=1), f"[interface {mac(2)}]\ntxqueuelen = 500\n")
    agent.run()
    agent.ask("[global]\n")
    agent.dies_at = number
    with suppress(KeyboardInterrupt):
        agent.run()
    agent.dies_at, earlier = 0, agent.record
    agent.ask(f"[interface {mac(2)}]\ntxqueuelen = 900\n")
    try_and_roll_back(agent, agent.survey())
    agent.record = earlier
    agent.ask("[global]\n")
    agent.run()
    assert agent.kernel.devices[2].txqueuelen == 1000


class InterruptedTerminal(io.RawIOBase):
    """Ctrl-C is pressed as soon as the first text is there."""

    def __init__(self):
        self.texts = []

    def writable(self):
        return True

    def write(self, data):
        self.texts.append(bytes(data).decode())
        if len(self.texts) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return len(data)


def test_an_interrupt_while_the_outcome_is_printed_prints_it_only_once(monkeypatch):
    """The buffer of standard output keeps what a KeyboardInterrupt keeps from being counted as written."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        theirs.sendall(b"on trial\n")
        signal.sigwait([signal.SIGTERM])
        theirs.sendall(b"rolled back\n")
        os._exit(1)
    theirs.close()
    before, terminal = signal.getsignal(signal.SIGINT), InterruptedTerminal()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(terminal)))
    monkeypatch.setattr(sys, "stdin", None)
    with ours:
        assert trial._watch_child(ours, pid, 0) == 1
    assert terminal.texts == ["on trial\n", "rolled back\n"]
    assert signal.getsignal(signal.SIGINT) is before
