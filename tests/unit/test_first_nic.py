"""Which NIC is believed on a first boot: by the order of the bus, a carrier and an address, never by a route."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface
from itertools import permutations

import pytest
from test_accelerated import message
from worlds import mac, nic, route, world

from neuca_tools.backends import kernel_state
from neuca_tools.desired.first_nic import (
    CARRIER_SECONDS,
    LEASE_SECONDS,
    Belief,
    believed_nic,
    bus_order,
)
from neuca_tools.desired.policy import Policy
from neuca_tools.desired.roles import assign_roles
from neuca_tools.model import Device, Record

SLOTS = {1: (0, 0, 3, 0), 2: (0, 0, 16, 0), 3: (0, 1, 0, 0)}  # of PCI, as numbers: 10 comes after 3
ALL = {mac(number) for number in SLOTS}
KERNEL, ROUTER_ADVERTISEMENT, DHCP = 2, 9, 16  # RTPROT_*


def guest(addresses=(), order=(1, 2, 3), without_carrier=(), age=float("inf"), **more):
    """Three NICs, whose interface indexes are in this order; `addresses` are the numbers of those with one."""
    indexes = {number: 10 + place for place, number in enumerate(order)}
    nics = [
        nic(indexes[number], mac=mac(number), permanent_mac=mac(number), slot=SLOTS[number], up=True,
            carrier=number not in without_carrier)
        for number in order
    ]  # fmt: skip
    texts = {indexes[number]: f"10.0.{number}.9/24" for number in addresses}
    return world(*nics, addresses=texts, age=age, **more)


@pytest.mark.parametrize("order", list(permutations(SLOTS)))
def test_the_pci_slot_decides_and_not_the_order_of_probing(order):
    assert believed_nic(guest(addresses=SLOTS, order=order), ALL) == Belief(mac(1))


def test_a_device_on_no_pci_bus_goes_before_its_virtual_function():
    paravirtual, function = nic(5, up=True, carrier=True), nic(2, slot=(0, 0, 2, 0), up=True)
    seen = world(paravirtual, function, addresses={5: "10.0.0.9/24", 2: "10.0.0.8/24"})
    assert believed_nic(seen, {mac(5), mac(2)}).mac == mac(5)


def test_a_usb_nic_goes_after_those_on_the_pci_bus(tmp_path, monkeypatch):
    """A baseboard management controller is a USB NIC, below a controller with a low PCI address."""
    monkeypatch.setattr(kernel_state, "SYSFS", str(tmp_path))
    paths = {
        "enxd0946681": "pci0000:00/0000:00:14.0/usb1/1-14/1-14.3/1-14.3:1.0/net/enxd0946681",
        "usb0": "pci0000:16/0000:16:02.0/0000:17:00.0/net/usb0",  # as an administrator has named it
    }
    devices = []
    for index, (name, path) in enumerate(paths.items(), 2):
        (tmp_path / name).symlink_to(f"../../devices/{path}")
        devices.append(kernel_state.parse_device(message(index, name, mac(index), "bus")))
    seen = world(*devices, addresses={2: "169.254.1.2/24"})
    assert believed_nic(seen, {mac(2), mac(3)}).mac == mac(3)


def test_vmware_numbers_its_nics_in_another_order_than_the_bus(tmp_path, monkeypatch):
    """As ESXi has four vmxnet3; sysfs is a stand-in, because only VMware's firmware has such labels."""
    monkeypatch.setattr(kernel_state, "SYSFS", str(tmp_path / "class"))
    (tmp_path / "class").mkdir()
    buses = {
        "ens192": "16.0/0000:0b",
        "ens224": "17.0/0000:13",
        "ens256": "18.0/0000:1b",
        "ens161": "15.1/0000:04",
    }
    devices = []
    for number, (name, bus) in enumerate(buses.items()):
        path = tmp_path / f"devices/pci0000:00/0000:00:{bus}:00.0"
        path.joinpath("net", name).mkdir(parents=True)
        path.joinpath("label").write_text(f"Ethernet{number}\n")
        path.joinpath("net", name, "device").symlink_to("../..")
        (tmp_path / "class" / name).symlink_to(path / "net" / name)
        devices.append(kernel_state.parse_device(message(9 - number, name, mac(number), "bus")))
    assert [device.name for device in sorted(devices, key=bus_order)] == list(buses)


@pytest.mark.parametrize("kind", ["veth", "tun"])
def test_the_interface_of_a_container_goes_after_hardware_with_an_address(kind):
    """An agent may be installed on a host on which containers or guests run already."""
    bridge = Device(8, "docker0", "bridge", mac=mac(8), up=True)
    port = Device(9, "vethc0ffee", kind, mac=mac(9), master=8, up=True, carrier=True)
    seen = world(bridge, port, nic(12, mac=mac(1), permanent_mac=mac(1), slot=SLOTS[1], up=True, carrier=True),
                 addresses={8: "172.17.0.1/16", 12: "10.0.1.9/24"},
                 routes=[route("0.0.0.0/0", 12, "10.0.1.254", 100, DHCP)])  # fmt: skip
    roles = assign_roles(seen, {mac(2)}, Policy(), Record())
    assert (roles.choice.belief.mac, roles.role(mac(1))) == (mac(1), "management")
    # In a container to which a NIC is passed through, a veth is the first NIC.
    seen = replace(seen, addresses={8: seen.addresses[8]}, is_container=True)
    assert believed_nic(seen, {mac(1), mac(9)}).mac == mac(9)


GUESTS = {
    "cilium": Device(9, "cilium_host", "veth", mac=mac(9), up=True, carrier=True),
    "vpn": Device(9, "tap0", "tun", mac=mac(9), up=True, carrier=True),
}


@pytest.mark.parametrize("guest_nic", GUESTS.values(), ids=GUESTS)
@pytest.mark.parametrize("addresses", [(9, 10), (10,), (9,), ()])
def test_a_veth_or_tap_beside_hardware_with_an_address_is_believed_in_containers_only(
    guest_nic, addresses
):
    """The agent may be installed on a host on which Kubernetes, guests or a VPN run already."""
    hardware = nic(10, mac=mac(1), permanent_mac=mac(1), slot=SLOTS[1], up=True, carrier=True)
    seen = world(guest_nic, hardware, routes=[route("0.0.0.0/0", 9, "10.0.9.1", 3, DHCP)],
                 addresses={index: f"10.0.{index}.9/24" for index in addresses})  # fmt: skip
    for is_container in (False, True):
        inside = replace(seen, is_container=is_container)
        roles = assign_roles(inside, {mac(2)}, Policy(), Record())
        is_believed = is_container or 10 not in addresses
        assert roles.choice.belief.mac == (mac(9) if is_believed else mac(1))
        assert (roles.role(mac(9)) == "management") is is_believed


@pytest.mark.parametrize(("kind", "believed"), [("vrf", 9), ("bond", 9), ("bridge", 1)])
def test_the_veth_of_a_container_may_be_in_a_vrf_or_bond(kind, believed):
    """Hardware that is passed through may have an address from a stranger."""
    master = Device(8, "upper", kind, mac=mac(8), up=True)
    own = Device(9, "eth0", "veth", mac=mac(9), master=8, up=True, carrier=True)
    hardware = nic(10, mac=mac(1), permanent_mac=mac(1), slot=SLOTS[1], up=True, carrier=True)
    seen = world(master, own, hardware, addresses={9: "10.0.9.9/24", 10: "10.0.1.9/24"},
                 is_container=True)  # fmt: skip
    assert believed_nic(seen, {mac(1), mac(9)}).mac == mac(believed)


@pytest.mark.parametrize(
    ("age", "first"), [(0.0, 1), (CARRIER_SECONDS - 1, 1), (CARRIER_SECONDS, 2)]
)
def test_a_nic_without_a_carrier_is_passed_over_once_links_have_had_their_time(age, first):
    assert believed_nic(guest([2, 3], without_carrier=[1], age=age), ALL) == Belief(mac(first))


@pytest.mark.parametrize(
    ("age", "unvouched"), [(0.0, ()), (LEASE_SECONDS - 1, ()), (LEASE_SECONDS, (mac(2), mac(3)))]
)
def test_while_the_first_nic_has_no_address_no_other_takes_its_place(age, unvouched):
    assert believed_nic(guest([2, 3], age=age), ALL) == Belief(mac(1), unvouched)


@pytest.mark.parametrize("more", [{"without_carrier": [1]}, {}], ids=["no carrier", "no lease"])
def test_the_daemon_makes_a_pass_at_each_age_at_which_the_belief_changes(more):
    beliefs = [believed_nic(guest([2, 3], age=age, **more), ALL) for age in range(400)]
    ages = {age for age in range(1, 400) if beliefs[age] != beliefs[age - 1]}
    assert ages
    passes, seen = set(), guest([2, 3], age=0, **more)
    while believed_nic(seen, ALL) and seen.later_ages:
        passes.add(min(seen.later_ages))
        seen = guest([2, 3], age=min(seen.later_ages), **more)
    assert passes == ages


def test_a_nic_that_the_configuration_ignores_is_not_believed():
    seen = guest(SLOTS)
    roles = assign_roles(seen, set(), Policy(ignored=frozenset({mac(1)})), Record())
    assert roles.choice.belief == Belief(mac(2))


@pytest.mark.parametrize(
    "protocol", [KERNEL, ROUTER_ADVERTISEMENT, DHCP], ids=["kernel", "ra", "dhcp"]
)
def test_what_a_stranger_has_caused_makes_no_other_nic_a_management_nic(protocol):
    to, via = ("::/0", None) if protocol != DHCP else ("0.0.0.0/0", "10.0.3.1")
    ways = [route(to, 12, via, 1, protocol)]
    for addresses in ([1, 2, 3], [3], []):
        roles = assign_roles(guest(addresses, routes=ways), {mac(2)}, Policy(), Record())
        assert roles.role(mac(3)) == "unlisted"


@pytest.mark.parametrize("own_route", [True, False], ids=["with a default route", "without"])
def test_a_tunnel_with_the_default_route_does_not_hide_the_nic_below_it(own_route):
    """A document that names the NIC must not cut the guest off."""
    tunnel = Device(9, "wg0", "wireguard", up=True)
    ways = [route("0.0.0.0/0", 9, metric=50)]
    if own_route:
        ways.append(route("0.0.0.0/0", 10, "10.0.1.254", 100))
    seen = guest([1], routes=ways)
    seen = replace(seen, devices={**seen.devices, 9: tunnel})
    assert assign_roles(seen, {mac(1), mac(2)}, Policy(), Record()).role(mac(1)) == "management"


def test_a_link_local_address_of_ipv4_is_an_address_and_one_of_ipv6_is_none():
    """The management network may be that of the metadata service."""
    for text, unvouched in (("169.254.169.16/24", ()), ("fe80::1/64", (mac(2),))):
        seen = guest([2])
        seen = replace(seen, addresses={**seen.addresses, 10: (ip_interface(text),)})
        assert believed_nic(seen, ALL) == Belief(mac(1), unvouched)
