"""First boots from metadata, and boots without it: the dataplane is as asked, and nobody else has a hand in it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import MANAGEMENT
from steps import (
    ADDRESSES,
    DOCUMENT,
    STATUS,
    addresses,
    assert_left_alone,
    assert_nothing_odd,
    dataplane,
    in_force,
    names,
)


def long(value):
    return pytest.param(value, marks=pytest.mark.long)


@pytest.mark.parametrize("image", ["A", long("B"), "C", "D", long("S"), long("N")])
def test_a_first_boot_configures_the_dataplane_alone(guests, image):
    first_boot(guests(image))


def first_boot(guest):
    """Boot it with DOCUMENT: the dataplane is as asked, and nobody else has a hand in it."""
    guest.serve(DOCUMENT)
    guest.boot()
    status = in_force(guest, DOCUMENT)
    assert dataplane(guest) == ADDRESSES
    assert addresses(guest)[names(guest)[MANAGEMENT]] == {"169.254.169.16/24"}
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    assert roles == {MANAGEMENT: "management"} | dict.fromkeys(ADDRESSES, "dataplane")
    assert_left_alone(guest)
    assert guest.reachable()
    assert_nothing_odd(guest)


@pytest.mark.parametrize("image", ["A", *map(long, "BCDSN")])
def test_a_reboot_without_metadata_brings_the_last_good_document(guests, prepared, image):
    before = prepared(image)
    guest = guests(image, after=before)
    boot_without_metadata(guest, before.names)
    first = guest.boot_id
    guest.serve(DOCUMENT)
    guest.reboot()
    assert guest.boot_id != first
    assert in_force(guest, DOCUMENT)["document"]["stale"] is False
    assert names(guest) == before.names
    assert dataplane(guest) == ADDRESSES
    assert guest.reachable()


def boot_without_metadata(guest, known):
    """Boot a guest that has met DOCUMENT: that is in force, with the names of then."""
    guest.boot()
    status = in_force(guest, DOCUMENT, "degraded")
    assert status["document"]["stale"] is True
    assert names(guest) == known
    assert dataplane(guest) == ADDRESSES
    assert_left_alone(guest)


@pytest.mark.long
def test_a_service_that_hangs_or_answers_rubbish_holds_up_nothing(guests, prepared):
    guest = guests("A", after=prepared("A"))
    guest.serve(DOCUMENT)
    guest.cloud.mode = "hang"
    guest.boot()
    guest.check("systemctl is-system-running --wait || true", 180)
    guest.check("systemctl start network-online.target", 180)  # nothing in this image waits for it
    units = ("network-online.target", "multi-user.target", "neuca-guest-tools.service")
    assert guest.check(f"systemctl is-active {' '.join(units)}").split() == ["active"] * len(units)
    for mode in ("hang", "off", "404", "500", "garbage", "cut"):
        guest.cloud.mode = mode
        if mode not in ("hang", "off"):
            guest.cloud.wait_for(1)
        status = guest.run(STATUS).json
        assert (status["state"], status["document"]["stale"]) == ("degraded", True), mode
        assert dataplane(guest) == ADDRESSES, mode
    later = DOCUMENT.replace("172.16.0.1", "172.16.0.2")
    guest.serve(later)
    assert in_force(guest, later)["document"]["stale"] is False
    assert dataplane(guest) == ADDRESSES | {guest.nics[1].mac: {"172.16.0.2/24"}}
