"""What another machine left on this disk: set aside whole, once, wherever it is interrupted; and never for a doubt."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from ipaddress import ip_interface

import pytest
from sources_volumes import DRIVE, fill
from worlds import key, mac

from neuca_tools.agent import first_boot
from neuca_tools.agent.drives import read_volume
from neuca_tools.backends import hostid, kernel_state
from neuca_tools.commands import trial
from neuca_tools.config import Config
from neuca_tools.errors import NeucaError
from neuca_tools.guest import version1
from neuca_tools.model import NicRecord, OriginalValues, OwnedObjects, Record, machine
from neuca_tools.model.rows import Script, StoredDocument
from neuca_tools.state.active_document import Intake
from neuca_tools.state.records import (
    MACHINE,
    load_machine,
    load_record,
    save_document,
    save_machine,
    save_record,
)

OWNED = OwnedObjects(frozenset({(key(1), ip_interface("10.0.0.1/24"))}), frozenset({key(1, 7)}))
RULE = f"10-neuca-persistent-{mac(1).replace(':', '')}.rules"
WHY = 'the id of the instance changed from "i-1" to "i-2"'
NEW = Intake(instance="ec2:i-2", other_machine=WHY)
SOMEBODY = machine.known_machine("f" * 32, "5c4c4544-0042-3510-8056-b4c04f4e3232")


@pytest.fixture
def config(tmp_path):
    """A host with the state, the rules and the script marks of instance i-1."""
    config = Config(
        state_directory=tmp_path / "state",
        run_directory=tmp_path / "run",
        udev_directory=tmp_path / "udev",
    )
    for directory in (config.state_directory, config.run_directory, config.udev_directory):
        directory.mkdir()
    save_machine(config.state_directory, SOMEBODY._replace(instances={"ec2": "i-1"}))
    save_record(
        config.state_directory,
        Record(
            hostid.boot_id(),
            {mac(1): NicRecord("eth1", "dataplane")},
            OWNED,
            {key(1): OriginalValues(mtu=1500)},
            {"net/core/rmem_max": "7"},
            "d",
        ),
    )
    save_document(
        config.state_directory, StoredDocument("ec2", "00", "", "[global]\nhost_name = a\n")
    )
    (config.state_directory / "scripts").mkdir()
    (config.state_directory / "scripts" / "first-0.json").write_text("{}")
    (config.run_directory / "document.json").write_text("{}")
    (config.udev_directory / RULE).write_text("NAME=eth1")
    (config.udev_directory / "70-mine.rules").write_text("mine")
    return config


def aside(config):
    return sorted(path.name for path in (config.state_directory / "set-aside").glob("*"))


ALL = sorted([RULE, "document.json", "machine.json", "record.json", "first-0.json"])


def test_a_new_instance_sets_the_state_of_the_other_one_aside_and_says_so(config):
    before = {
        path.name: path.read_bytes() for path in config.state_directory.rglob("*") if path.is_file()
    }
    assert first_boot.status_notes(config) == []
    first_boot.record_machine(config, NEW)
    place = config.state_directory / "set-aside"
    assert aside(config) == ALL
    assert {name: (place / name).read_bytes() for name in before} == before
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    assert {path.name for path in config.state_directory.iterdir()} == {
        "machine.json",
        "record.json",
        "scripts",
        "set-aside",
    }
    assert sorted(path.name for path in config.udev_directory.iterdir()) == ["70-mine.rules"]
    assert not [*(config.state_directory / "scripts").iterdir(), *config.run_directory.iterdir()]
    assert first_boot.status_notes(config) == [
        f'what another machine left here is in "{place}", and is not applied: {WHY}'
    ]
    now = load_machine(config.state_directory)
    assert now == hostid.read_machine()._replace(instances={"ec2": "i-2"}, set_aside=WHY)


def test_a_script_that_version_1_7_ran_for_the_other_instance_has_not_run_here(config):
    script = config.state_directory / "setup"
    script.write_text("#!/bin/sh\ntrue\n")
    script.chmod(0o100)
    first_boot.record_machine(config, NEW)
    assert not version1.has_run(config.state_directory, Script("setup", "#!/bin/sh\ntrue\n"))
    assert aside(config) == sorted([*ALL, "setup"])


def test_what_the_agent_has_done_in_this_boot_is_its_own_to_take_back(config):
    first_boot.record_machine(config, NEW)
    assert load_record(config.state_directory) == Record(
        hostid.boot_id(), {}, OWNED, {key(1): OriginalValues(mtu=1500)}, {"net/core/rmem_max": "7"}
    )


def test_of_another_boot_nothing_stays(config):
    save_record(
        config.state_directory, load_record(config.state_directory)._replace(boot_id="another")
    )
    first_boot.record_machine(config, NEW)
    assert load_record(config.state_directory) == Record()


def test_the_note_goes_with_what_it_tells_of(config):
    first_boot.record_machine(config, NEW)
    for path in (config.state_directory / "set-aside").iterdir():
        path.unlink()
    (config.state_directory / "set-aside").rmdir()
    assert first_boot.status_notes(config) == []


def test_the_same_instance_sets_nothing_aside_and_writes_once(config):
    for _ in range(2):
        first_boot.record_machine(config, Intake(instance="ec2:i-1"))
    kept = (config.state_directory / "machine.json").stat().st_ino
    for instance in ("ec2:i-1", ""):  # a service that leaves out the id
        first_boot.record_machine(config, Intake(instance=instance))
    assert (config.state_directory / "machine.json").stat().st_ino == kept
    assert (aside(config), load_machine(config.state_directory).instances) == ([], {"ec2": "i-1"})


@pytest.mark.parametrize("copied", range(6))
@pytest.mark.parametrize("removed", range(5))
def test_wherever_it_was_interrupted_the_next_time_does_the_rest(config, copied, removed):
    """Copies first, that of machine.json before all others; then the originals go, and the record becomes that of this boot."""
    state, place = config.state_directory, config.state_directory / "set-aside"
    files = [
        state / "machine.json",
        state / "record.json",
        state / "document.json",
        state / "scripts" / "first-0.json",
        config.udev_directory / RULE,
    ]
    before = {path.name: path.read_bytes() for path in files}
    place.mkdir()
    for path in files[:copied]:
        (place / path.name).write_bytes(before[path.name])
    if copied == len(files):
        for path in files[:1:-1][:removed]:
            path.unlink()
        if removed == 4:
            save_record(state, Record(hostid.boot_id(), {}, OWNED))
    first_boot.record_machine(config, NEW)
    assert {name: (place / name).read_bytes() for name in aside(config)} == before
    assert load_machine(state).instances == {"ec2": "i-2"}
    assert (
        load_record(state).nics,
        load_record(state).owned,
        len(list(config.udev_directory.iterdir())),
    ) == ({}, OWNED, 1)


def test_a_machine_that_cannot_be_read_is_a_note_without_an_empty_hint(config):
    path = config.state_directory / MACHINE
    path.unlink()
    path.mkdir()
    assert first_boot.status_notes(config) == [f'read "{path}": Is a directory']


def test_a_second_move_replaces_what_was_set_aside_before(config):
    first_boot.record_machine(config, NEW)
    first_boot.record_machine(config, Intake(instance="ec2:i-3", other_machine="another"))
    assert aside(config) == ["machine.json", "record.json"]
    assert json.loads((config.state_directory / "set-aside" / "machine.json").read_text())[
        "instances"
    ] == {"ec2": "i-2"}


def test_before_any_document_hardware_and_nics_decide(config):
    """This host has none of the recorded NICs, and other ids than those of the record."""
    ours = hostid.read_machine()
    here = bool(kernel_state.present_macs()) and bool(ours.uuid or ours.machine_id)
    assert first_boot.set_aside_foreign_state(config) is here
    assert (load_record(config.state_directory).nics == {}) is here
    assert first_boot.set_aside_foreign_state(config) is False


def test_a_trial_too_is_made_without_the_state_of_another_machine(config, tmp_path):
    here = bool(kernel_state.present_macs()) and bool(hostid.read_machine().machine_id)
    with pytest.raises(NeucaError, match="no user-data from any source"):
        trial.apply_on_trial(config, f"file:{tmp_path}/none", 60, color=False)
    assert (load_record(config.state_directory).nics == {}) is here


def test_a_machine_with_one_of_its_nics_or_its_own_ids_is_the_same(config):
    some = min(kernel_state.present_macs(), default=mac(9))
    record = load_record(config.state_directory)
    save_record(
        config.state_directory, record._replace(nics={**record.nics, some: NicRecord("eth0")})
    )
    assert not first_boot.set_aside_foreign_state(config)
    save_record(config.state_directory, record)
    save_machine(config.state_directory, hostid.read_machine())
    assert not first_boot.set_aside_foreign_state(config)
    assert aside(config) == []


def test_a_damaged_record_is_for_the_pass_to_complain_of(config):
    (config.state_directory / "record.json").write_text("{")
    assert not first_boot.set_aside_foreign_state(config)


def test_a_damaged_record_of_the_machine_is_kept_and_reported(config):
    place = config.state_directory / "machine.json"
    place.write_text("{")
    assert not first_boot.set_aside_foreign_state(config)
    first_boot.record_machine(config, Intake(instance="ec2:i-2"))
    assert place.read_text() == "{"
    assert [f'read "{place}": ' in note for note in first_boot.status_notes(config)] == [True]


def test_the_macs_are_those_of_ethernet_interfaces():
    assert all(
        re.fullmatch(machine.INSTANCE, one) and len(one) == 17
        for one in kernel_state.present_macs()
    )
    assert "00:00:00:00:00:00" not in kernel_state.present_macs()


def test_the_volume_that_the_document_came_from_is_remembered(config):
    place = config.run_directory / "drives" / "config-2"
    fill(place, DRIVE)
    digest = read_volume(place).digest
    stored = StoredDocument("configdrive", "00", "", "[global]\n")
    for intake in (Intake(stored=stored._replace(source="ec2")), Intake(stored=stored, stale=True)):
        first_boot.record_machine(config, intake)
        assert load_machine(config.state_directory).volume == ""
    first_boot.record_machine(config, Intake(stored=stored))
    assert load_machine(config.state_directory).volume == digest
    first_boot.record_machine(config, Intake())
    assert load_machine(config.state_directory).volume == digest
