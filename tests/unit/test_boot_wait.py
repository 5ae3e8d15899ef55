"""When the restoration of names at boot waits for udev."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from worlds import mac, nic, world

from neuca_tools.agent.boot_names import needs_no_wait
from neuca_tools.config import load_config
from neuca_tools.desired.marks import udev_rule
from neuca_tools.errors import RecordError
from neuca_tools.model import NicRecord, Record
from neuca_tools.model.rows import StoredDocument
from neuca_tools.state.records import RECORD as RECORD_FILE
from neuca_tools.state.records import save_document, save_record

NICS = {"eth0": mac(9), "eth1": mac(1), "eth2": mac(2)}
RECORD = Record(
    nics={
        mac(9): NicRecord(name="eth0", role="management"),
        mac(1): NicRecord(name="eth1", role="dataplane"),
        mac(2): NicRecord(name="eth2", role="dataplane"),
    }
)
DOCUMENT = f"[interface {mac(1)}]\nname = eth1\nmtu = 1400\n"


class Host:
    """A configuration with directories of its own; each NIC has its rule, but those without."""

    def __init__(self, root):
        self.state, self.rules, self.config = root / "state", root / "rules", root / "config"
        self.state.mkdir()
        self.rules.mkdir()
        for address in NICS.values():
            self.rule(address).touch()

    def rule(self, address):
        return self.rules / f"10-neuca-persistent-{address.replace(':', '')}.rules"

    def goes_on(self, nics=None, text="", record=RECORD, document=DOCUMENT):
        self.config.write_text(
            f"[runtime]\nstate-directory = {self.state}\n{text}\n"
            f"[linux]\nudev-directory = {self.rules}\n"
        )
        if record is not None:
            save_record(self.state, record)
        save_document(self.state, StoredDocument("ec2", "0", "now", document, ""))
        numbers = {mac(number): number for number in (1, 2, 7, 9)}
        devices = [nic(numbers[address], name) for name, address in (nics or NICS).items()]
        return needs_no_wait(load_config(self.config), world(*devices))


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_boot_does_not_wait_for_udev_if_every_nic_has_its_name(host):
    assert host.goes_on()


def test_a_name_that_udev_is_still_to_give_is_waited_for(host):
    assert not host.goes_on({"eth0": mac(9), "eth1": mac(2), "eth2": mac(1)})


def test_a_name_that_is_requested_and_not_there_is_waited_for(host):
    assert not host.goes_on(document=DOCUMENT.replace("eth1", "data1"))
    assert not host.goes_on(text=f"[interface {mac(2)}]\nname = data2\n")


@pytest.mark.parametrize("address", [mac(1), mac(9)])
def test_a_nic_whose_name_no_rule_keeps_is_waited_for(host, address):
    """udev could rename it after the look at it."""
    host.rule(address).unlink()
    assert not host.goes_on()


def test_a_nic_that_is_still_missing_is_waited_for(host):
    """A stranger that appears after the look could have its name."""
    assert not host.goes_on({name: own for name, own in NICS.items() if own != mac(2)})


def test_a_nic_that_is_still_missing_is_waited_for_if_the_record_was_lost(host):
    """Only the rules of NICs that are present say what was recorded."""
    for name, address in NICS.items():
        host.rule(address).write_bytes(udev_rule(address, name, address != mac(9)))
    assert host.goes_on(record=None)
    assert not host.goes_on({name: NICS[name] for name in ("eth0", "eth1")}, record=None)
    assert not host.goes_on({"eth0": mac(9), "eth1": mac(2), "eth2": mac(1)}, record=None)


def test_a_nic_that_is_ignored_or_released_needs_no_rule(host):
    host.rule(mac(2)).unlink()
    assert host.goes_on(text=f"dataplane-macs-to-ignore = {mac(2)}\n")
    released = {**RECORD.nics, mac(2): NicRecord(name="eth2", role="dataplane", released=True)}
    assert host.goes_on(record=Record(nics=released))


def test_a_first_boot_and_a_foreign_machine_are_waited_for(host):
    assert not host.goes_on(record=Record(), document="")
    assert not host.goes_on({"eth7": mac(7)})


def test_a_damaged_record_is_an_error(host):
    (host.state / RECORD_FILE).write_text("{")
    with pytest.raises(RecordError):
        host.goes_on(record=None)
