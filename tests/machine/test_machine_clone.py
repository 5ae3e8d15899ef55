"""A disk that was copied without `neuca clean` comes up on other hardware: what the other machine left is set aside, unasked."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from qemu import Nic
from steps import DOCUMENT, STATUS, Prepared, in_force, names

HOST = "52:54:00:00:00:77"
DATA = [f"fe:16:3e:00:01:0{number}" for number in (1, 2, 3)]
CARDS = [
    Nic(HOST, 0x10, management=True),
    *(Nic(address, 0x11 + number) for number, address in enumerate(DATA)),
]
ONE, OTHER = "6a1e3a1c-4a3b-4f2e-9d55-1f0c6b1f2a77", "7b1e3a1c-4a3b-4f2e-9d55-1f0c6b1f2a77"
ASIDE = "ls /var/lib/neuca/set-aside 2> /dev/null || true"


def on_hardware(guest, uuid):
    """The same guest, with this UUID in its firmware from the next boot on."""
    guest.image = replace(guest.image, recipe=replace(guest.image.recipe, machine=("-uuid", uuid)))
    return guest


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "D"])
def test_a_copied_disk_is_a_first_boot_before_any_metadata_has_answered(guests, image):
    original = on_hardware(guests(image), ONE)
    original.serve(DOCUMENT)
    original.boot()
    in_force(original, DOCUMENT)
    named = names(original)
    original.serve(None)
    original.shut_down()
    original.permute(
        (0x11, 0x10, 0x12, 0x13)
    )  # a boot without metadata, in another order of the slots
    original.boot()
    in_force(original, DOCUMENT, "degraded")  # stale
    assert (names(original), original.check(ASIDE)) == (named, "")
    original.shut_down()

    clone = on_hardware(
        guests(image, CARDS, after=Prepared(original.image, original.disk, {})), OTHER
    )
    clone.boot()
    assert clone.reachable()
    assert names(clone) == {
        HOST: "eth0",
        **{address: f"eth{number}" for number, address in enumerate(DATA, 1)},
    }
    status = clone.eventually(STATUS, lambda done: done.code == 3).json
    assert (status["state"], status["document"]["source"]) == ("pending", None)
    assert any(
        note.endswith("none of its NICs is present, and the hardware has a different UUID")
        for note in status["notes"]
    )
    assert {"record.json", "document.json", "10-neuca-persistent-fe163e000001.rules"} <= set(
        clone.check(ASIDE).split()
    )
    document = DOCUMENT.replace("fe:16:3e:00:00", "fe:16:3e:00:01")
    clone.serve(document)
    in_force(clone, document)
