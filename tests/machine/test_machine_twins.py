"""Devices that share a MAC: bonds, virtio's failover, VLANs and macvlans, plain twins; and drivers that come late."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import MANAGEMENT, mac, nics
from qemu import Nic
from steps import (
    ADDRESSES,
    DOCUMENT,
    LEAN,
    STATUS,
    addresses,
    dataplane,
    in_force,
    is_nic,
    links,
    names,
    serve,
)

TRIO, TWIN = mac(4), mac(5)
ASKED = f"{DOCUMENT}{TRIO} = up:ipv4:172.20.4.1/24\n{TWIN} = up:ipv4:172.20.5.1/24\n"
# In slots before all others, so that the kernel gives them the names of the NICs that were there before them.
STRANGERS = [
    Nic(TRIO, 0x08, failover=True),
    Nic(TRIO, 0x09, driver="vmxnet3"),
    Nic(TWIN, 0x0A),
    Nic(TWIN, 0x0B),
]


def long(value):
    return pytest.param(value, marks=pytest.mark.long)


def shown(guest, mac):
    """(the name it has, the name it should have, its problems) in the status."""
    (one,) = [one for one in guest.run(STATUS).json["interfaces"] if one["mac"] == mac]
    return (
        one["name"],
        one["desired_name"],
        [(problem["code"], problem["text"]) for problem in one["problems"]],
    )


def devices(guest, mac):
    """The NICs with this permanent MAC, by name: the name of what each belongs to."""
    return {
        name: one.get("master")
        for name, one in links(guest).items()
        if is_nic(one) and one.get("permaddr", one["address"]) == mac
    }


def again(guest, *names):
    """udev applies its rules to these interfaces once more, as if they had just come."""
    paths = " ".join(f"/sys/class/net/{name}" for name in names)
    guest.check(f"udevadm trigger --action=add {paths} && udevadm settle --timeout=150", 200)


def boot_with_strangers(guests, before):
    """A guest that the image's NICs are known of, with the strangers in the slots before them."""
    guest = guests(before.image.recipe.name, [*STRANGERS, *nics(3)], after=before)
    guest.serve(ASKED)
    guest.boot()
    in_force(guest, ASKED, "degraded", 300)
    return guest


@pytest.mark.parametrize("image", [long("A"), long("C")])
def test_whatever_shares_a_mac_takes_no_name_and_is_not_touched(guests, prepared, image):
    before = prepared(image)
    guest = boot_with_strangers(guests, before)
    _strangers_make_room(guest, before, devices(guest, TRIO), devices(guest, TWIN))
    assert guest.reachable()


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "C"])
def test_what_a_user_builds_of_nics_is_no_twin_and_moves_no_name(guests, prepared, image):
    before = prepared(image)
    guest = boot_with_strangers(guests, before)
    trio, twins = devices(guest, TRIO), devices(guest, TWIN)
    _a_bond_keeps_its_members(guest, before)
    _children_are_no_twins(guest, before)
    _a_nic_that_is_up_is_renamed(guest, before)
    assert (devices(guest, TRIO), devices(guest, TWIN)) == (trio, twins)
    assert guest.reachable()


def _ours(guest):
    """Name by MAC, of the NICs that the image knew before."""
    return {nic: name for nic, name in names(guest).items() if nic not in (TRIO, TWIN)}


def _strangers_make_room(guest, before, trio, twins):
    assert _ours(guest) == before.names
    assert not {*trio, *twins} & {*before.names.values()}
    (master,) = [name for name, of in trio.items() if of is None]
    assert sorted(of or "" for of in trio.values()) == ["", master, master]
    found = addresses(guest)
    assert (shown(guest, TRIO), found[master]) == ((master, master, []), {"172.20.4.1/24"})
    text = f'2 devices have the MAC "{TWIN}" ({", ".join(sorted(twins))}): they are left alone'
    assert shown(guest, TWIN) == (min(twins), min(twins), [("contested", text)])
    assert [found[name] for name in (*twins, *(name for name in trio if name != master))] == [
        set()
    ] * 4
    assert dataplane_of(guest) == ADDRESSES


def dataplane_of(guest):
    found = addresses(guest)
    return {nic: found[name] for nic, name in _ours(guest).items() if nic != MANAGEMENT}


def _a_bond_keeps_its_members(guest, before):
    members = [before.names[mac(number)] for number in (2, 3)]
    join = "ip address flush dev {0}; ip link set {0} down; ip link set {0} master user0"
    guest.check(
        f"ip link add user0 type bond; {'; '.join(map(join.format, members))}; ip link set user0 up"
    )
    again(guest, *members, "user0")
    guest.check("neuca apply || true", 120)
    assert len({links(guest)[name]["address"] for name in members}) == 1
    assert _ours(guest) == before.names
    for number, name in zip((2, 3), members):
        assert shown(guest, mac(number)) == (
            name,
            name,
            [("contested", f'"{name}" belongs to "user0": it is left alone')],
        )
    assert [addresses(guest)[name] for name in (*members, "user0")] == [set()] * 3
    guest.check("ip link delete user0")
    guest.eventually(
        STATUS, lambda _: not any(shown(guest, mac(number))[2] for number in (2, 3)), 120
    )
    assert dataplane_of(guest) == ADDRESSES


def _children_are_no_twins(guest, before):
    parent = before.names[mac(1)]
    guest.check(
        f"ip link add link {parent} name {parent}.77 type vlan id 77; ip link add user1 link {parent} type macvlan"
    )
    again(guest, f"{parent}.77", "user1")
    guest.check("neuca apply || true", 120)
    found = links(guest)
    assert {found[name]["address"] for name in (parent, f"{parent}.77")} == {mac(1)}
    assert {f"{parent}.77", "user1"} <= found.keys()
    assert shown(guest, mac(1)) == (parent, parent, [])
    assert _ours(guest) == before.names
    guest.check(f"ip link delete {parent}.77; ip link delete user1")


def _a_nic_that_is_up_is_renamed(guest, before):
    swapped = {mac(1): before.names[mac(2)], mac(2): before.names[mac(1)]}
    for wanted in (swapped, {nic: before.names[nic] for nic in swapped}):
        serve(
            guest,
            ASKED + "".join(f"[interface {nic}]\nname = {name}\n" for nic, name in wanted.items()),
            "degraded",
        )
        assert {nic: name for nic, name in _ours(guest).items() if nic in wanted} == wanted
        assert dataplane_of(guest) == ADDRESSES


PORT = ("-machine", "q35", "-device", "pcie-root-port,id=root-port,chassis=1,addr=0x1e")


@pytest.mark.long
@pytest.mark.parametrize("image", ["G"])
def test_a_function_that_virtio_s_failover_adds_is_not_touched(guests, image):
    """As with accelerated networking: the host plugs in a function with the MAC of a NIC that stands by."""
    standby = Nic(mac(2), 0x12, failover=True)
    guest = guests(image, [*nics(1), standby], arguments=LEAN)
    guest.equip(*PORT)
    document = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n{mac(2)} = up:ipv4:172.17.0.1/24\n"
    guest.serve(document)
    guest.boot()
    in_force(guest, document)
    (master,) = [name for name, of in devices(guest, mac(2)).items() if of is None]
    before = devices(guest, mac(2))
    guest.plug_pair(standby, "root-port", "vmxnet3")
    guest.eventually("true", lambda _: len(devices(guest, mac(2))) == len(before) + 1)
    for again_ in (False, True):
        if again_:
            guest.reboot()
            guest.eventually("true", lambda _: len(devices(guest, mac(2))) == len(before) + 1)
        guest.check("neuca apply || true", 300)
        in_force(guest, document)
        found = devices(guest, mac(2))
        assert sorted(of or "" for of in found.values()) == ["", master, master]
        assert found[master] is None
        assert shown(guest, mac(2)) == (master, master, [])
        held = addresses(guest)
        assert held.pop(master) == {"172.17.0.1/24"}
        assert [held[name] for name in found if name != master] == [set(), set()]
        rules = guest.check("cat /etc/udev/rules.d/*neuca*")
        assert [name for name in found if name != master and f'"{name}"' in rules] == []


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "C"])
def test_a_driver_that_comes_late_costs_no_name(guests, prepared, image):
    """Not in the initramfs: the NICs appear when udev has the root file system; and then once more, hours after the boot."""
    before = prepared(image)
    guest = guests(image, nics(3), after=before, arguments="blacklist=virtio_net")
    guest.permute((0x10, 0x12, 0x13, 0x11))
    guest.serve(DOCUMENT)
    guest.boot()
    for load in ("true", "modprobe --remove virtio_net && modprobe virtio_net"):
        guest.check(load, 120)
        guest.eventually("ip -br link", lambda _: names(guest) == before.names)
        in_force(guest, DOCUMENT)
        assert dataplane(guest) == ADDRESSES
        assert guest.reachable()
