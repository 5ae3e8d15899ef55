"""An answer through a NIC for which nothing vouches is used only if the firmware states its instance."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest

from neuca_tools.errors import SourceError
from neuca_tools.model.machine import Outlet
from neuca_tools.sources import Answer, Surroundings
from neuca_tools.sources.vouching import vouched

UUID = "7c2a0c1e-54d1-4f5b-9d39-3a0a0a6f2b11"
SWAPPED = "1e0c2a7c-d154-5b4f-9d39-3a0a0a6f2b11"  # the same, as Azure's service has it (cloud-init does so too)
PLACEHOLDER = "03000200-0400-0500-0006-000700080009"  # of boards whose vendor has set none
EC2 = "i-0123456789abcdef0"
OPENSTACK = {"meta_data.json": json.dumps({"uuid": UUID}).encode()}


class Through:
    """A source that answered through an outlet."""

    def __init__(self, is_vouched):
        self.outlet = Outlet("eth3", "02:00:00:00:00:03", vouched=is_vouched)


def around(folder, **fields):
    for name, text in fields.items():
        (folder / name).write_text(text + "\n")
    return Surroundings(dmi=folder)


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        (Answer("openstack", b"", parts=OPENSTACK), {"product_uuid": UUID}),
        (Answer("openstack", b"", parts=OPENSTACK), {"product_uuid": UUID.upper()}),
        (Answer("azure", b"", instance=f"azure:{SWAPPED}"), {"product_uuid": UUID}),
        (Answer("ec2", b"", instance=f"ec2:{EC2}"), {"board_asset_tag": EC2}),
    ],
    ids=["openstack", "upper case", "azure", "ec2"],
)
def test_an_answer_with_the_identity_that_the_firmware_states_is_used(tmp_path, answer, fields):
    assert vouched(answer, Through(False), around(tmp_path, **fields)) is answer


@pytest.mark.parametrize(
    ("instance", "fields"),
    [
        (f"openstack:{UUID}", {}),
        (f"openstack:{UUID}", {"product_uuid": ""}),
        (f"openstack:{UUID}", {"product_uuid": UUID.replace("7", "8")}),
        ("ec2:i-0abc", {"board_asset_tag": "i-0abc"}),  # could be guessed
        ("hetzner:123456", {"product_uuid": "123456", "product_serial": "123456"}),
        (f"openstack:{PLACEHOLDER}", {"product_uuid": PLACEHOLDER}),
        ("", {"product_uuid": ""}),
    ],
    ids=["no firmware", "empty", "another", "short", "a number", "a placeholder", "no identity"],
)
def test_any_other_answer_is_refused_with_the_command_that_vouches(tmp_path, instance, fields):
    answer = Answer("any", b"#!/bin/sh\n", instance=instance)
    with pytest.raises(SourceError, match="run: neuca trust eth3"):
        vouched(answer, Through(False), around(tmp_path, **fields))


def test_a_nic_that_is_vouched_for_needs_no_identity_and_no_document_none_either(tmp_path):
    answer, nothing = Answer("ec2", b"text"), Answer("ec2", None)
    assert vouched(answer, Through(True), around(tmp_path)) is answer
    assert vouched(nothing, Through(False), around(tmp_path)) is nothing
