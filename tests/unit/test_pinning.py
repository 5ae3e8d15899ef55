"""Names before the network: who gets which, and when there is nothing to do."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import permutations

import pytest
from kernel import Kernel
from worlds import document, mac, nic, world

from neuca_tools.agent.boot_names import devices_in_use, rename_devices
from neuca_tools.desired.names import boot_names, rename_steps
from neuca_tools.desired.roles import Policy, assign_roles
from neuca_tools.documents.stacking import merge_layers
from neuca_tools.errors import ApplyError
from neuca_tools.model import NicRecord, Record

THREE = {1: "eth0", 2: "eth1", 3: "eth2"}


def remembers(names, **more):
    return Record(
        nics={mac(number): NicRecord(name=name, **more) for number, name in names.items()}
    )


def boot(seen, record, text="", ignored=(), in_use=()):
    """Name by number of NIC, which is its index here."""
    requests = merge_layers(document(text).links if text else (), ())
    policy = Policy(ignored=frozenset(mac(number) for number in ignored))
    roles = assign_roles(seen, {one.mac for one in requests}, policy, record)
    return boot_names(seen, roles, requests, record, in_use)


@pytest.mark.parametrize("order", list(permutations(THREE.values())))
def test_whatever_the_probe_order_every_nic_gets_its_own_name_back(order):
    seen = world(*(nic(number, name) for number, name in zip(THREE, order)))
    wanted = boot(seen, remembers(THREE))
    assert wanted == THREE
    now = dict(zip(THREE, order))
    for step in rename_steps(now, wanted):
        assert step.new not in now.values()
        now[step.key] = step.new
    assert now == THREE


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
    assert boot(world(nic(1, "eth0"), nic(2, "eth1")), remembers({1: "eth0", 2: "data"}), asks) == {
        1: "eth0",
        2: "data",
    }


def test_a_nic_refused_anothers_name_keeps_its_own_though_it_is_requested():
    asks = f"[interface {mac(2)}]\nname = eth2\n[interface {mac(1)}]\nname = eth1\n"
    seen = world(nic(1, "eth0"), nic(2, "eth1"), nic(3, "eth2"))
    assert boot(seen, remembers(THREE), asks) == THREE
    assert boot(
        world(nic(2, "eth1"), nic(3, "eth2"), nic(9, "eth0")),
        remembers({2: "eth1", 3: "eth2"}),
        asks.replace(mac(1), mac(9)),
    ) == {2: "eth1", 3: "eth2", 9: "eth0"}


def twin(index, of, name, **more):
    """Another NIC with the permanent MAC of that one."""
    return nic(index, name, mac=mac(of), permanent_mac=mac(of), **more)


@pytest.mark.parametrize("recorded", ["eth5", "eth0", "eth7"])
def test_two_devices_with_one_mac_keep_the_names_they_have(recorded):
    seen = world(nic(1, "eth0"), twin(7, 1, "eth5"), nic(2, "eth9"))
    assert boot(seen, remembers({1: recorded, 2: "eth1"})) == {1: "eth0", 7: "eth5", 2: "eth1"}


def test_twins_make_room_for_a_nic_that_has_its_name_from_before():
    seen = world(nic(1, "eth1"), twin(7, 1, "eth2"), nic(2, "eth0"))
    assert boot(seen, remembers({1: "eth0", 2: "eth1", 3: "eth2"})) == {
        2: "eth1",
        1: "eth3",
        7: "eth4",
    }


@pytest.mark.parametrize(
    ("master", "standby", "primary"), list(permutations(["eth1", "eth2", "eth3"]))
)
def test_the_master_of_a_failover_trio_gets_the_name_and_no_other_name_is_blocked(
    master, standby, primary
):
    """virtio's failover: three devices with one permanent MAC, of which the master alone has no master."""
    seen = world(
        nic(5, master, mac=mac(1), permanent_mac=mac(1)),
        twin(6, 1, standby, master=5),
        twin(7, 1, primary, master=5),
        nic(2, "eth9"),
    )
    names = boot(seen, remembers({1: "eth1", 2: "eth2"}))
    assert (names[5], names[2]) == ("eth1", "eth2")
    assert not {names[6], names[7]} & {"eth1", "eth2"}
    assert len(set(names.values())) == 4


@pytest.mark.parametrize("kind", ["bond", "bridge"])
def test_a_nic_in_a_bond_or_bridge_of_the_initramfs_gets_its_name(kind):
    above = nic(9, "top", mac=mac(1), permanent_mac="", hardware=False, kind=kind)
    ports = [nic(1, "eth1", master=9), nic(2, "eth0", mac=mac(1), master=9)]
    assert boot(world(above, *ports, nic(3, "eth2")), remembers(THREE)) == THREE


@pytest.mark.parametrize("names", [("eth1", "eth5"), ("eth1", "eth0"), ("eth0", "eth1")])
def test_the_name_of_the_management_nic_is_not_for_its_virtual_function(names):
    function = twin(7, 1, names[1], slot=(0, 0, 3, 0))
    seen = world(nic(1, names[0]), function, nic(2, "eth9"))
    record = remembers({1: "eth0"}, role="management")
    assert boot(seen, record)[1] == "eth0"
    assert boot(seen, record)[7] != "eth0"


def manages(names):
    """A record of the management NIC 5 with the name eth0, and of others."""
    return Record(nics={**remembers({5: "eth0"}, role="management").nics, **remembers(names).nics})


@pytest.mark.parametrize("number", [4, 9])
def test_a_nic_in_the_place_of_the_management_nic_keeps_its_name(number):
    others = {2: "eth1"}
    wanted = {number: "eth0", 2: "eth1"}
    assert boot(world(nic(number, "eth0"), nic(2, "eth1")), manages(others)) == wanted
    assert boot(world(nic(number, "eth1"), nic(2, "eth0")), manages(wanted)) == wanted


@pytest.mark.parametrize("number", [4, 9])
def test_a_management_nic_that_is_back_has_its_name_again(number):
    seen = world(nic(5, "eth1"), nic(number, "eth0"))
    assert boot(seen, manages({number: "eth0"}))[5] == "eth0"
    assert boot(seen, manages({}))[5] == "eth0"


def test_no_nic_of_a_document_takes_the_place_of_the_management_nic():
    asks = f"[interface {mac(4)}]\n"
    assert boot(world(nic(4, "eth0")), manages({}), asks)[4] != "eth0"


def test_hardware_without_a_mac_makes_room():
    """A virtual function may get its MAC later."""
    nobody = nic(9, "eth0", mac="00:00:00:00:00:00", permanent_mac="")
    assert boot(world(nobody, nic(1, "eth1")), remembers({1: "eth0"})) == {1: "eth0", 9: "eth2"}


def test_an_ignored_twin_is_never_renamed():
    seen = world(nic(1, "eth1"), twin(7, 1, "eth2"), nic(2, "eth0"))
    assert boot(seen, remembers({2: "eth1", 3: "eth2"}), ignored=[1]) == {2: "eth0"}


def test_an_alternative_name_of_what_stays_is_given_to_nobody():
    seen = world(nic(1, "eth1"), nic(2, "eth0", altnames=("eth5",)))
    assert boot(seen, remembers({1: "eth5", 2: "eth0"}), ignored=[2]) == {1: "eth1"}


def test_a_free_name_is_no_alternative_name_of_anybody():
    seen = world(nic(9, "eth0"), nic(2, "eth1", altnames=("eth2",)))
    assert boot(seen, remembers({1: "eth0", 2: "eth1"})) == {2: "eth1", 9: "eth3"}


def test_no_document_names_the_management_nic():
    record = Record(nics={mac(1): NicRecord(name="eth0", role="management")})
    asks = f"[interface {mac(1)}]\nname = data\n"
    assert boot(world(nic(1, "eth0"), nic(2, "eth1")), record, asks) == {1: "eth0", 2: "eth1"}


def test_a_nic_that_is_in_use_keeps_its_name_and_costs_the_others_none():
    seen = world(nic(1, "eth1"), nic(2, "eth2"), nic(3, "eth0"))
    assert boot(seen, remembers(THREE), in_use=[1]) == {2: "eth3", 3: "eth2"}


def test_a_nic_that_is_up_with_an_address_is_in_use_if_the_kernel_cannot_rename_it():
    devices = [nic(1, up=True), nic(2, up=True), nic(3), nic(4, up=True)]
    addresses = {1: "192.0.2.10/24 fe80::1/64", 2: "fe80::2/64", 3: "192.0.2.11/24"}
    assert devices_in_use(world(*devices, addresses=addresses, rename_while_up=False)) == {1}
    assert devices_in_use(world(*devices, addresses=addresses)) == set()


@pytest.mark.parametrize("kind", ["bond", "bridge"])
def test_a_port_of_a_device_in_use_is_in_use(kind):
    """To rename it, it would be set down, perhaps under the root file system."""
    above = nic(9, "top", up=True, permanent_mac="", hardware=False, kind=kind)
    seen = world(above, nic(1, up=True, master=9), nic(2, up=True), addresses={9: "192.0.2.10/24"})
    assert devices_in_use(replace(seen, rename_while_up=False)) == {1, 9}


def test_a_name_of_fifteen_bytes_makes_room_for_a_number():
    long = "abcdefghijklmno"
    free = boot(world(nic(9, long)), remembers({1: long}))[9]
    assert free != long
    assert len(free) <= 15


@pytest.mark.parametrize(("present", "asked", "so"), [
    ([("eth0", 1), ("eth1", 2), ("eth2", 3)], "", True),
    ([("eth0", 1), ("eth2", 2), ("eth1", 3)], "", False),
    ([("eth0", 1)], "", True),
    ([("eth0", 9)], "", False),
    ([("eth7", 9)], "", True),
    ([("eth0", 1)], "name = data", False),
    ([("data", 1)], "name = data", True),
    ([("eth0", 1)], "state = up", True),
])  # fmt: skip
def test_a_boot_with_nothing_to_rename_is_known(present, asked, so):
    seen = world(*(nic(number, name) for name, number in present))
    text = f"[interface {mac(1)}]\n{asked}\n" if asked else ""
    names = {number: name for name, number in present}
    assert (boot(seen, remembers(THREE), text) == names) is so


def test_of_two_nics_with_one_mac_the_second_gets_another_name():
    seen = world(nic(1, "eth0"), nic(2, "eth1", mac=mac(1), permanent_mac=mac(1)))
    assert boot(seen, remembers(THREE)) != {1: "eth0", 2: "eth1"}


class Stubborn(Kernel):
    """A kernel whose driver renames one device never."""

    stuck = 0

    def look(self, _):
        return self.world()

    def rename(self, index, name):
        if index == self.stuck:
            raise ApplyError("Device or resource busy", errno.EBUSY)
        super().rename(index, name)

    def drop_altname(self, index, name):
        """None has one."""


class Impatient:
    """Of the watch on the kernel's messages: what is waited for has come."""

    def wait(self, seconds):
        """At once."""


@pytest.mark.parametrize("stuck", [1, 2, 3])
def test_after_a_rename_that_failed_no_nic_is_left_with_a_temporary_name(stuck):
    kernel = Stubborn(world(nic(1, "eth1"), nic(2, "eth2"), nic(3, "eth0")))
    kernel.stuck = stuck
    moved = rename_devices(THREE, kernel.world(), kernel, Impatient())
    names = {index: device.name for index, device in kernel.devices.items()}
    assert names[stuck] == ("eth1", "eth2", "eth0")[stuck - 1]
    assert moved == {
        index: name for index, name in names.items() if name != ("eth1", "eth2", "eth0")[index - 1]
    }
    assert all(name.startswith("eth") for name in names.values())
