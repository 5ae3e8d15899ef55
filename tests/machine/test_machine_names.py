"""The promise: however its slots are permuted, a guest comes back with every name where it was, and reachable."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from guest import MANAGEMENT, mac, nics
from qemu import GuestError, Nic
from steps import ADDRESSES, DOCUMENT, LEAN, assert_left_alone, dataplane, in_force, names

SLOTS = (
    0x10,
    0x11,
    0x12,
    0x13,
)  # of the management NIC and of the three others, when they were first seen
ALL = list(itertools.permutations(SLOTS))
# A swap with the management NIC, one without it, both 3-cycles' kinds, two swaps at once, a cycle of all four.
CHOSEN = [(0x11, 0x10, 0x12, 0x13), (0x10, 0x11, 0x13, 0x12), (0x12, 0x10, 0x11, 0x13), (0x10, 0x12, 0x13, 0x11),
          (0x13, 0x12, 0x11, 0x10), (0x11, 0x12, 0x13, 0x10)]  # fmt: skip


def long(value):
    return pytest.param(value, marks=pytest.mark.long)


all_images = pytest.mark.parametrize("image", ["A", "B", "C", "S", "N"])


def what_is_wrong(guest, before, slots) -> str:
    """Boot a guest with its NICs in these slots; what is not as it was, or nothing."""
    guest.permute(slots)
    try:
        guest.serve(DOCUMENT)
        guest.boot()
        in_force(guest, DOCUMENT)
        assert names(guest) == before.names
        assert dataplane(guest) == ADDRESSES
        assert guest.reachable(), "the management NIC does not answer"
        assert_left_alone(guest)
    except (AssertionError, GuestError) as error:
        return f"{[hex(slot) for slot in slots]}: {error}"
    finally:
        guest.power_cut()
    print(f"{[hex(slot) for slot in slots]}: right, booted in {guest.booted_in:.0f} s", flush=True)
    return ""


def boots(guests, before, orders):
    """What is wrong in each of so many boots, two at a time."""
    made = [guests(before.image.recipe.name, nics(3), after=before, arguments=LEAN) for _ in orders]
    with ThreadPoolExecutor(2) as pool:
        wrong = list(filter(None, pool.map(what_is_wrong, made, itertools.repeat(before), orders)))
    print(f"{before.image.recipe.name}: {len(orders)} boots, {len(wrong)} with something wrong")
    return wrong


@pytest.mark.parametrize(
    ("image", "orders"), [("A", CHOSEN[0:2]), ("B", CHOSEN[2:4]), ("C", CHOSEN[4:6])], ids="ABC"
)
def test_names_stay_when_slots_are_permuted(guests, prepared, image, orders):
    assert boots(guests, prepared(image), orders) == []


@pytest.mark.long
@all_images
def test_names_stay_in_all_orders_of_the_slots(guests, prepared, image):
    assert boots(guests, prepared(image), ALL) == []


@pytest.mark.parametrize("image", [*map(long, "ABCSN")])
@pytest.mark.parametrize("gone", [mac(1), long(mac(2)), long(mac(3))])
def test_a_nic_that_is_gone_takes_no_name_with_it(guests, prepared, image, gone):
    before = prepared(image)
    guest = guests(image, [nic for nic in nics(3) if nic.mac != gone], after=before)
    guest.serve(DOCUMENT)
    guest.boot()
    status = in_force(guest, DOCUMENT, "degraded")
    assert names(guest) == {nic: name for nic, name in before.names.items() if nic != gone}
    (absent,) = [one for one in status["interfaces"] if one["mac"] == gone]
    assert absent["problems"] == [{"code": "absent", "text": f'no NIC has the MAC "{gone}"'}]
    assert guest.reachable()


@pytest.mark.parametrize("image", [*map(long, "ABCSN")])
def test_a_nic_that_is_added_before_all_others_moves_none(guests, prepared, image):
    before = prepared(image)
    guest = guests(image, [Nic(mac(4), 0x0F), *nics(3)], after=before)
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    found = dict(names(guest))
    new = found.pop(mac(4))
    assert found == before.names
    assert new not in before.names.values()
    assert guest.reachable()


@pytest.mark.long
def test_a_stranger_in_the_place_of_an_absent_nic_does_not_take_its_name(guests, prepared):
    before = prepared("A")
    cards = [replace(nic, mac=mac(4)) if nic.mac == mac(1) else nic for nic in nics(3)]
    guest = guests("A", cards, after=before)
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT, "degraded")
    found = dict(names(guest))
    assert found.pop(mac(4)) not in before.names.values()
    assert found == {nic: name for nic, name in before.names.items() if nic != mac(1)}
    assert MANAGEMENT in found
