"""Whose state this is: what counts as another machine before any document, and what an instance id says afterwards."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.model.machine import (
    Machine,
    MetadataService,
    foreign_reason,
    instance_text,
    known_machine,
    renewed_reason,
    updated_machine,
)
from neuca_tools.state.records import load_machine, save_machine

A, B = (
    frozenset({"02:00:00:00:00:01", "02:00:00:00:00:02"}),
    frozenset({"02:00:00:00:00:11", "02:00:00:00:00:12"}),
)
ID, OTHER_ID = "0123456789abcdef0123456789abcdef\n", "f123456789abcdef0123456789abcdef\n"
UUID, OTHER_UUID = (
    "4C4C4544-0042-3510-8056-B4C04F4E3232\n",
    "5c4c4544-0042-3510-8056-b4c04f4e3232\n",
)
FULL = known_machine(ID, UUID)
HARDWARE = "none of its NICs is present, and the hardware has a different UUID"
SYSTEM = "none of its NICs is present, and the machine id is different"


@pytest.mark.parametrize(("before", "now", "recorded", "present", "why"), [
    (FULL, known_machine(ID, OTHER_UUID), A, B, HARDWARE),  # a disk that was copied as it was
    (FULL, known_machine(OTHER_ID, OTHER_UUID), A, B, HARDWARE),
    (known_machine(ID, ""), known_machine(OTHER_ID, ""), A, B, SYSTEM),  # hardware without a UUID
    (FULL, known_machine(OTHER_ID, ""), A, B, SYSTEM),
    (FULL, FULL, A, B, ""),  # all of its NICs were replaced
    (FULL, known_machine(OTHER_ID, UUID), A, B, ""),  # and it has no machine id of its own, but a new one at each boot
    (FULL, known_machine(ID, ""), A, B, ""),
    (FULL, known_machine(OTHER_ID, OTHER_UUID), A, A, ""),  # moved to other hardware, with its NICs
    (FULL, known_machine(OTHER_ID, OTHER_UUID), A, B | {max(A)}, ""),
    (FULL, known_machine(OTHER_ID, OTHER_UUID), A, (), ""),  # no NIC has come yet
    (FULL, known_machine(OTHER_ID, OTHER_UUID), (), B, ""),  # nothing of it would be applied
    (Machine(), known_machine(ID, UUID), A, B, ""),  # written by a version that did not know
    (FULL, Machine(), A, B, ""),
])  # fmt: skip
def test_before_any_document_only_what_is_certain_makes_another_machine(
    before, now, recorded, present, why
):
    assert foreign_reason(before, now, recorded, present) == why


@pytest.mark.parametrize("text", ["00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "Not Settable",
                                  "", UUID[:-3]])  # fmt: skip
def test_firmware_without_a_uuid_says_nothing(text):
    assert known_machine(ID, text).uuid == ""


@pytest.mark.parametrize("text", ["", "uninitialized\n", "0123", "\ufffd" * 32])
def test_a_host_without_a_machine_id_says_nothing(text):
    assert known_machine(text, UUID).machine_id == ""


def test_ids_are_kept_as_digests_and_in_any_case_of_letters():
    assert known_machine(ID.upper(), UUID.lower()) == FULL
    assert not {ID.strip(), UUID.strip().lower()} & {FULL.machine_id, FULL.uuid}


def test_an_instance_id_is_compared_with_one_of_the_same_platform():
    before = Machine(instances={"ec2": "i-1", "openstack": "u-1"})
    assert renewed_reason(before, "ec2:i-2") == 'the id of the instance changed from "i-1" to "i-2"'
    assert renewed_reason(before, "ec2:i-1") == renewed_reason(before, "openstack:u-1") == ""
    assert (
        renewed_reason(before, "nocloud:i-2")
        == renewed_reason(before, "")
        == renewed_reason(Machine(), "ec2:i-2")
        == ""
    )


def test_an_id_may_have_a_colon():
    before = updated_machine(Machine(), Machine(), instance_text("nocloud", "iid:local:1"))
    assert before.instances == {"nocloud": "iid:local:1"}
    assert renewed_reason(before, "nocloud:iid:local:1") == ""


@pytest.mark.parametrize(
    "text", ["", "two words", "two\nlines", "-option", "x" * 129, "<html>", "ü"]
)
def test_what_is_no_id_is_none(text):
    assert instance_text("ec2", text) == ""


def test_what_is_not_known_now_stays_as_it_was():
    before = updated_machine(FULL, Machine(), "ec2:i-1")
    assert updated_machine(before, Machine(), "") == before
    after = updated_machine(before, known_machine(OTHER_ID, ""), "openstack:u")
    assert (after.machine_id, after.uuid) == (known_machine(OTHER_ID, "").machine_id, FULL.uuid)
    assert after.instances == {"ec2": "i-1", "openstack": "u"}


def test_the_metadata_service_that_answered_is_kept_across_boots(tmp_path):
    save_machine(tmp_path, FULL)
    assert load_machine(tmp_path).origin is None
    pinned = Machine(
        origin=MetadataService("openstack", "http://[fe80::a9fe:a9fe]", "02:00:00:00:00:01")
    )
    save_machine(tmp_path, pinned)
    assert load_machine(tmp_path) == pinned
