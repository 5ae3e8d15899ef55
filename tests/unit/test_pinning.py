"""Names before the network: who gets which, and when there is nothing to do."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from itertools import permutations

import pytest
from worlds import document, key, mac, nic, world

from neuca_tools.model import NicRecord, Record
from neuca_tools.names import boot_names, rename_steps
from neuca_tools.pinning import in_place
from neuca_tools.requests import merge
from neuca_tools.roles import Policy, assign

THREE = {1: "eth0", 2: "eth1", 3: "eth2"}


def remembers(names, **more):
    return Record(nics={mac(number): NicRecord(name=name, **more) for number, name in names.items()})


def boot(seen, record, text="", ignored=()):
    """Name by number of NIC."""
    requests = merge(document(text).links if text else (), ())
    policy = Policy(ignored=frozenset(mac(number) for number in ignored))
    roles = assign(seen, {one.mac for one in requests}, policy, record)
    return {int(one.mac[-2:], 16): name for one, name in boot_names(seen, roles, requests, record).items()}


@pytest.mark.parametrize("order", list(permutations(THREE.values())))
def test_whatever_the_probe_order_every_nic_gets_its_own_name_back(order):
    seen = world(*(nic(number, name) for number, name in zip(THREE, order)))
    wanted = boot(seen, remembers(THREE))
    assert wanted == THREE
    now = {key(number): name for number, name in zip(THREE, order)}
    for step in rename_steps(now, {key(number): name for number, name in wanted.items()}):
        assert step.new not in now.values()
        now[step.key] = step.new
    assert now == {key(number): name for number, name in THREE.items()}


def test_a_stranger_leaves_the_name_of_an_absent_nic():
    assert boot(world(nic(2, "eth1"), nic(9, "eth0")), remembers(THREE)) == {2: "eth1", 9: "eth3"}


def test_a_stranger_whose_name_nobody_wants_keeps_it():
    assert boot(world(nic(1, "eth0"), nic(9, "ens9")), remembers(THREE)) == {1: "eth0", 9: "ens9"}


def test_an_ignored_nic_is_never_renamed_and_its_name_is_nobodys():
    assert boot(world(nic(1, "eth1"), nic(2, "eth0")), remembers(THREE), ignored=[2]) == {1: "eth1"}


def test_the_name_of_what_is_no_nic_is_nobodys():
    seen = world(nic(1, "eth1"), nic(9, "eth0", kind="bridge", hardware=False))
    assert boot(seen, remembers({1: "eth0"})) == {1: "eth1"}


def test_the_name_that_is_asked_for_is_given_unless_another_nic_has_it_from_before():
    asks = f"[interface {mac(1)}]\nname = data\n"
    assert boot(world(nic(1, "eth0"), nic(2, "eth1")), remembers(THREE), asks)[1] == "data"
    assert boot(world(nic(1, "eth0"), nic(2, "eth1")), remembers({1: "eth0", 2: "data"}), asks) == {1: "eth0", 2: "data"}


def test_two_devices_with_one_mac_are_left_alone():
    seen = world(nic(1, "eth0"), nic(7, "eth5", mac=mac(1), permanent_mac=mac(1)), nic(2, "eth9"))
    assert boot(seen, remembers({1: "eth5", 2: "eth1"})) == {2: "eth1"}


def test_a_name_of_fifteen_bytes_makes_room_for_a_number():
    long = "abcdefghijklmno"
    free = boot(world(nic(9, long)), remembers({1: long}))[9]
    assert free != long
    assert len(free) <= 15


@pytest.mark.parametrize(("present", "asked", "so"), [
    ([("eth0", mac(1)), ("eth1", mac(2)), ("eth2", mac(3))], {}, True),
    ([("eth0", mac(1)), ("eth2", mac(2)), ("eth1", mac(3))], {}, False),
    ([("eth0", mac(1))], {}, True),
    ([("eth0", mac(9))], {}, False),
    ([("eth7", mac(9))], {}, True),
    ([("eth0", mac(1)), ("eth1", mac(1))], {}, False),
    ([("eth0", mac(1))], {mac(1): "data"}, False),
    ([("data", mac(1))], {mac(1): "data"}, True),
    ([("eth0", mac(1))], {mac(1): None}, True),
])  # fmt: skip
def test_nothing_to_do_is_known_from_names_and_macs_alone(present, asked, so):
    assert in_place(present, asked, remembers(THREE)) is so
