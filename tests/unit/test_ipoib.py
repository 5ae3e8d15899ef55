"""IP over InfiniBand: ports by GUID, their names, modes and MTUs, children for further P_Keys, and what stays untouched.

No InfiniBand hardware is here. The links are RTM_NEWLINK messages as the kernel composes them (rtnl_fill_ifinfo() and
ipoib_fill_info() of Linux 5.10 to 6.12; one address and the document are those of cloud-init's own tests), read by the
product's decoder; what changes them is the model kernel, by ipoib_main.c, ipoib_vlan.c and ipoib_netlink.c.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
import struct
from ipaddress import ip_address, ip_interface

import pytest
from kernel import Kernel, default_route, refuse
from platforms import made
from worlds import ANYONE, Agent, document, mac, nic, texts, world

from neuca_tools.backends import kernel_state, wire
from neuca_tools.desired.management import Policy
from neuca_tools.model import ACCEPT_RA, Document, LinkKey
from neuca_tools.model.topology import identity, is_nic
from neuca_tools.state.records import load_record, save_record

PREFIX = "80:00:02:08:fe:80:00:00:00:00:00:00"
GUID, SECOND = "ec:0d:9a:03:00:15:e2:c1", "ec:0d:9a:03:00:15:e2:c2"
SHORT = "ec:0d:9a:15:e2:c1"
# A further port, which differs from the first in the two bytes that the short form leaves out.
TWIN = "ec:0d:9a:04:01:15:e2:c1"
ETHERNET, INFINIBAND, WPAN = 1, 32, 804  # linux/if_arp.h
DATAGRAM, CONNECTED = 0, 1


def octets(text):
    return bytes.fromhex(text.replace(":", ""))


def body(index, name, address, *more, kind=INFINIBAND, up=True, mtu=2044):
    """An RTM_NEWLINK without its struct nlmsghdr."""
    flags = 0x11043 if up else 0x1002
    parts = [
        wire.encode_text(3, name),
        wire.encode_number(13, 256),
        wire.encode_number(4, mtu),
        wire.encode_number(50, 0),
        wire.encode_number(51, 65520),
        wire.encode_attribute(1, address),
        wire.encode_attribute(
            2, b"\x00\xff\xff\xff\xff\x12\x40\x1b\xff\xff" + bytes(6) + b"\xff" * 4
        ),
        *more,
    ]
    return struct.pack("=BxHiII", 0, kind, index, flags, 0) + b"".join(parts)


def ipoib(pkey=0xFFFF, mode=DATAGRAM):
    values = [struct.pack("=H", number) for number in (pkey, mode, 0)]
    data = [wire.encode_attribute(number, value) for number, value in enumerate(values, 1)]
    return wire.encode_nest(18, wire.encode_text(1, "ipoib"), wire.encode_nest(2, *data))


PCI = (wire.encode_text(55, "0000:3b:00.0"), wire.encode_text(56, "pci"))


def port(index, guid=GUID, name="", mode=DATAGRAM, **more):
    address = octets(f"{PREFIX}:{guid}")
    parts = (ipoib(mode=mode), wire.encode_attribute(54, address), *PCI)
    return kernel_state.parse_device(body(index, name or f"ib{index}", address, *parts, **more))


def child(index, lower, guid=GUID, pkey=0x8001, name="", **more):
    address = octets(f"80:00:02:09{PREFIX[11:]}:{guid}")
    parts = (wire.encode_number(5, lower), ipoib(pkey), wire.encode_attribute(54, address))
    return kernel_state.parse_device(
        body(index, name or f"ib{lower}.{pkey:04x}", address, *parts, **more)
    )


# --- Decoding -------------------------------------------------------------------------------------


def test_a_port_is_a_nic_that_its_guid_identifies():
    found = port(2)
    assert (is_nic(found), identity(found), found.kind, found.mode) == (True, GUID, "", "datagram")


def test_what_the_driver_and_the_subnet_manager_change_is_not_part_of_the_identity():
    moved = f"a0:00:1f:20:fe:c0:00:00:00:00:00:07:{GUID}"
    again = kernel_state.parse_device(body(9, "ib7", octets(moved), ipoib(), *PCI))
    assert identity(again) == identity(port(2)) == GUID


def test_a_port_of_a_kernel_that_sends_no_kind_is_a_nic_too():
    found = kernel_state.parse_device(body(2, "ib0", octets(f"{PREFIX}:{GUID}"), *PCI))
    assert (is_nic(found), identity(found), found.mode) == (True, GUID, "")


def test_a_child_has_the_guid_of_its_port_and_is_no_nic():
    found = child(3, 2)
    assert (found.mac, found.kind, found.lower) == (GUID, "ipoib", 2)
    assert dict(found.options) == {"mac": GUID, "pkey": "0x8001", "mode": "datagram"}
    assert not is_nic(found)


def test_a_child_of_a_kernel_that_sends_no_kind_is_no_nic_even_with_a_parent_device():
    found = kernel_state.parse_device(
        body(3, "ib0.8001", octets(f"{PREFIX}:{GUID}"), wire.encode_number(5, 2), *PCI)
    )
    assert not is_nic(found)


@pytest.mark.parametrize("address", [
    b"",
    octets(GUID),  # eight bytes
    octets(f"{PREFIX}:{GUID}")[:19],
    octets(f"{PREFIX}:{GUID}") + b"\0",
    octets(mac(2)),
    octets(PREFIX) + bytes(8),  # before the driver has read the GUID
])  # fmt: skip
def test_a_port_with_a_malformed_address_is_no_nic(address):
    found = kernel_state.parse_device(body(2, "ib0", address, ipoib(), *PCI))
    assert (is_nic(found), identity(found)) == (False, "")


def test_eight_bytes_of_another_kind_of_hardware_are_no_guid():
    found = kernel_state.parse_device(body(2, "wpan0", octets(GUID), *PCI, kind=WPAN))
    assert not is_nic(found)


# --- Agents ---------------------------------------------------------------------------------------


def agent(text, *devices, policy=ANYONE):
    """Over an Ethernet management NIC with the default route, and these devices."""
    kernel = Kernel(world(nic(1, "mgmt0", up=True), *devices))
    kernel.add_address(1, ip_interface("192.0.2.10/24"))
    default_route(kernel, 1, ip_address("192.0.2.1"))
    return Agent(kernel, text, policy)


def done(one, text=None):
    """The texts of a pass on links, which nothing follows in the next pass."""
    if text is not None:
        one.ask(text)
    operations, result, undone = one.run()
    assert (result.failures, undone) == ((), None)
    assert [found.text for found in one.run()[0]] == []
    return [line for line in texts(operations) if not line.startswith(("write ", "remove "))]


def reasons(one):
    return [problem.text for problem in one.survey().resolution.problems]


ASKED = "addresses = 10.4.0.7/24\nname = fabric0\n"


@pytest.mark.parametrize("named", [
    GUID,
    GUID.upper().replace(":", "-"),
    GUID.replace(":", ""),
    "0xec0d9a030015e2c1",  # ibstat
    "ec0d:9a03:0015:e2c1",  # /sys/class/infiniband
    f"{PREFIX}:{GUID}",
    f"{PREFIX}:{GUID}".replace(":", ""),
    f"a0:00:02:20:fe:80:00:00:00:00:00:00:{GUID}",
    f"ff:00:00:00:00:00:02:00:00:02:c9:00:{GUID}",  # the client-id of Ironic
    SHORT,
    SHORT.replace(":", ""),
])  # fmt: skip
def test_a_port_is_configured_by_any_form_of_its_address(named):
    one = agent(f"[interface {named}]\n{ASKED}", port(2))
    assert done(one) == ["rename ib2 to fabric0", "add the address 10.4.0.7/24 to fabric0"]
    assert one.record.nics[GUID].name == "fabric0"


@pytest.mark.parametrize("named", [GUID.replace(":", ""), SHORT.replace(":", "")])
def test_a_line_of_interfaces_names_a_port(named):
    one = agent(f"[interfaces]\n{named} = up:ipv4:10.4.0.7/24\n", port(2))
    assert done(one) == ["add the address 10.4.0.7/24 to ib2"]


def test_a_route_names_a_port_by_six_bytes_beside_a_rule():
    text = (
        f"[interface {GUID}]\naddresses = 10.4.0.7/24\n"
        f"[routes]\n10.40.0.0/16 = 10.4.0.1 interface {SHORT}\n"
        f"[rule one]\nfrom = 10.4.0.7\ntable = 500\n"
    )
    one = agent(text, port(2))
    lines = done(one)
    assert [fault.text for fault in one.document.faults] == []
    assert any("10.40.0.0/16" in line for line in lines)
    assert one.kernel.rules


@pytest.mark.parametrize("bad", [
    f"{PREFIX}:{GUID}:00",
    f"{PREFIX}:{GUID}"[:-3],
    f"{PREFIX}:{GUID}".replace("fe:80", "fe-80"),
    f"{PREFIX}:{'00:' * 7}00",
    "ff:" * 19 + "ff",
    "00:" * 7 + "00",
    "ec0d:9a03:0015:e2",
    "ec0d:9a03:0015:e2g1",
    "0x" + "1" * 15,
    GUID.replace(":", "."),
])  # fmt: skip
def test_a_malformed_address_is_a_fault_and_names_no_nic(bad):
    one = agent(f"[interface {bad}]\n{ASKED}", port(2))
    assert [fault.severity for fault in one.document.faults] == ["error"]
    assert done(one) == []


def test_what_is_no_longer_asked_for_is_removed():
    one = agent(f"[interface {GUID}]\n{ASKED}mtu = 2000\n", port(2))
    before = one.kernel.devices[2].mtu
    assert "set the MTU of fabric0 from 2044 to 2000" in done(one)
    done(one, f"[interface {SECOND}]\naddresses = 10.9.0.1/24\n")
    assert one.kernel.addresses[2] == [
        *filter(lambda found: found.version == 6, one.kernel.addresses[2])
    ]
    assert (one.kernel.devices[2].mtu, one.kernel.devices[2].name) == (before, "fabric0")


def test_the_six_bytes_still_mean_the_port_while_it_is_away():
    one = agent(f"[interface {SHORT}]\n{ASKED}", port(2))
    done(one)
    gone = one.kernel.devices.pop(2)
    one.kernel.addresses.pop(2)
    one.run()
    assert set(one.survey().resolution.requests) == {LinkKey(GUID)}
    assert any(
        path.endswith("10-neuca-persistent-ec0d9a030015e2c1.rules") for path in one.kernel.files
    )
    one.kernel.devices[7] = kernel_state.parse_device(
        body(7, "ib0", octets(f"{PREFIX}:{GUID}"), ipoib(), *PCI, up=False)
    )
    assert gone.name == "fabric0"
    assert "rename ib0 to fabric0" in done(one)


@pytest.mark.parametrize("named", [GUID, SHORT])
def test_the_configuration_permits_a_port_advertisements_by_either_form_of_its_guid(named):
    one, sysctl = agent("[interfaces]\n", port(2, up=True)), ACCEPT_RA.replace("/", ".")
    links = document(f"[interface {named}]\nsysctl.{sysctl} = 1\n").links
    one.settings = one.settings._replace(links=links)
    assert one.survey().resolution.desired.links[LinkKey(GUID)].sysctls == {ACCEPT_RA: "1"}


def test_an_ethernet_nic_with_these_six_bytes_as_its_mac_is_meant_by_them():
    ethernet = nic(3, "eth3", mac=SHORT, permanent_mac=SHORT)
    one = agent(f"[interface {SHORT}]\naddresses = 10.4.0.7/24\n", port(2), ethernet)
    assert done(one) == ["bring eth3 up", "add the address 10.4.0.7/24 to eth3"]


def test_six_bytes_that_two_ports_share_mean_neither():
    one = agent(f"[interface {SHORT}]\n{ASKED}", port(2), port(3, TWIN))
    assert done(one) == []
    assert reasons(one) == [
        f'"{SHORT}" may be any of 2 InfiniBand ports (ib2, ib3): they are left alone; their GUIDs tell them apart'
    ]
    assert done(one, f"[interface {TWIN}]\n{ASKED}")[0] == "rename ib3 to fabric0"


def test_a_port_that_appears_with_the_same_six_bytes_takes_nothing_from_the_configured_one():
    one = agent(f"[interface {SHORT}]\n{ASKED}", port(2))
    done(one)
    one.kernel.devices[3] = port(3, TWIN)
    assert done(one) == []
    assert ip_interface("10.4.0.7/24") in one.kernel.addresses[2]
    assert reasons(one) == []


def test_of_two_ports_with_one_guid_none_is_touched():
    one = agent(f"[interface {GUID}]\n{ASKED}", port(2), port(3))
    assert done(one) == []
    assert reasons(one) == [f'2 devices have the MAC "{GUID}" (ib2, ib3): they are left alone']


def test_a_foreign_child_with_the_guid_of_its_port_does_not_make_it_ambiguous():
    one = agent(f"[interface {GUID}]\n{ASKED}", port(2), child(3, 2, name="theirs"))
    done(one)
    assert (one.kernel.devices[2].name, one.kernel.devices[3].name) == ("fabric0", "theirs")
    assert 3 not in one.kernel.addresses


# --- Protection -----------------------------------------------------------------------------------


def ib_managed(text, **more):
    """The management NIC is an InfiniBand port; a second port is free."""
    kernel = Kernel(world(port(2), port(4, SECOND, up=False), child(5, 2)))
    kernel.add_address(2, ip_interface("192.0.2.10/24"))
    default_route(kernel, 2, ip_address("192.0.2.1"))
    return Agent(kernel, text, **more)


CHILD = "[ipoib part1]\nparent = {}\npkey = 0x8002\naddresses = 10.7.0.1/24\n"


@pytest.mark.parametrize("text", [
    f"[interface {GUID}]\n{ASKED}mtu = 1500\ninfiniband-mode = connected\n",
    f"[interface {SHORT}]\n{ASKED}",
    f"[interface {PREFIX}:{GUID}]\nstate = down\n",
    CHILD.format(GUID),
    CHILD.format(SHORT),
    f"[vrf evil]\ntable = 100\nmembers = {GUID}\n",
    "[ipoib ib2.8001]\nparent = " + GUID + "\npkey = 0x8001\nstate = down\n",
    f"[bridge br0]\nmembers = {SHORT}\n",
])  # fmt: skip
def test_no_document_touches_a_management_nic_that_is_a_port(text):
    one = ib_managed(text + f"[interface {SECOND}]\naddresses = 10.8.0.1/24\n")
    before = one.kernel.snapshot()[0]
    assert done(one) == ["bring ib4 up", "add the address 10.8.0.1/24 to ib4"]
    assert one.survey().resolution.roles.role(GUID) == "management"
    after = one.kernel.snapshot()[0]
    assert {index: after[index] for index in (2, 5)} == {index: before[index] for index in (2, 5)}
    assert reasons(one) or one.document.faults


@pytest.mark.parametrize("listed", [GUID, SHORT])
@pytest.mark.parametrize("text", [
    f"[interface {GUID}]\n{ASKED}", f"[interface {SHORT}]\n{ASKED}", CHILD.format(GUID)
])  # fmt: skip
def test_an_ignored_port_is_left_alone_by_whatever_form_it_is_listed(text, listed):
    one = agent(text, port(2), child(3, 2), policy=Policy(frozenset({listed})))
    assert done(one) == []
    assert one.survey().resolution.roles.role(GUID) == "ignored"
    assert not [path for path in one.kernel.files if "ec0d9a" in path]


@pytest.mark.parametrize("listed", [GUID, SHORT])
def test_a_port_can_be_named_as_the_management_nic_in_either_form(listed):
    policy = Policy(management=frozenset({listed}))
    one = Agent(Kernel(world(port(2), port(4, SECOND))), f"[interface {GUID}]\n{ASKED}", policy)
    assert done(one) == []
    assert one.survey().resolution.roles.role(GUID) == "management"


def test_an_address_in_the_network_of_a_management_port_is_refused():
    one = ib_managed(f"[interface {SECOND}]\naddresses = 192.0.2.77/24\n")
    assert done(one) == ["bring ib4 up"]
    assert reasons(one) == [
        "address 192.0.2.77/24: it is inside the management network 192.0.2.0/24"
    ]


# --- Mode and MTU ---------------------------------------------------------------------------------


def test_connected_mode_is_set_before_the_mtu_and_both_are_restored():
    text = f"[interface {GUID}]\naddresses = 10.4.0.7/24\ninfiniband-mode = connected\nmtu = {{}}\n"
    one = agent(text.format(65520), port(2))
    assert done(one) == [
        'set infiniband-mode of ib2 from "datagram" to "connected"',
        "set the MTU of ib2 from 2044 to 65520",
        "add the address 10.4.0.7/24 to ib2",
    ]
    assert done(one, text.format(9000)) == ["set the MTU of ib2 from 65520 to 9000"]
    done(one, f"[interface {SECOND}]\naddresses = 10.9.0.1/24\n")
    assert (one.kernel.devices[2].mode, one.kernel.devices[2].mtu) == ("datagram", 2044)


@pytest.mark.parametrize("mtu", [1500, 2044, 2045, 65520])
def test_connected_mode_has_the_mtu_that_is_asked_for(mtu):
    text = f"[interface {GUID}]\ninfiniband-mode = connected\nmtu = {mtu}\n"
    one = agent(text, port(2))
    done(one)
    assert (one.kernel.devices[2].mode, one.kernel.devices[2].mtu) == ("connected", mtu)


def test_connected_mode_alone_has_the_mtu_that_the_kernel_gives_it():
    one = agent(f"[interface {GUID}]\ninfiniband-mode = connected\n", port(2))
    assert done(one) == ['set infiniband-mode of ib2 from "datagram" to "connected"']
    assert one.kernel.devices[2].mtu == 65520


class Refusing(Kernel):
    """A kernel that adds no address to a port, as if the driver had failed in between."""

    def add_address(self, index, address, *more):
        if self.devices[index].infiniband:
            refuse(errno.EIO, "Input/output error")
        super().add_address(index, address, *more)


def test_a_pass_that_fails_in_the_middle_leaves_the_port_as_it_was():
    text = f"[interface {GUID}]\naddresses = 10.4.0.7/24\ninfiniband-mode = connected\nmtu = 9000\n"
    one = agent(text + CHILD.format(GUID), port(2))
    before = one.kernel.devices[2]
    one.kernel.__class__ = Refusing
    _, result, _ = one.run()
    assert [failure.reason for failure in result.failures] == ["Input/output error"]
    assert one.kernel.devices[2] == before
    assert not [found for found in one.kernel.devices.values() if found.kind == "ipoib"]


def test_a_driver_without_connected_mode_declines_it_once():
    one = agent(
        f"[interface {GUID}]\naddresses = 10.4.0.7/24\ninfiniband-mode = connected\n", port(2)
    )
    one.kernel.modes = ("datagram",)
    assert "add the address 10.4.0.7/24 to ib2" in texts(one.run()[0])
    (note,) = one.survey().resolution.notes
    assert (note.setting, note.reason) == (
        "infiniband-mode",
        '"connected" was tried: Invalid argument',
    )
    assert done(one) == []


def test_a_driver_without_connected_mode_costs_the_mtu_that_needs_it_and_nothing_more():
    text = (
        f"[interface {GUID}]\naddresses = 10.4.0.7/24\ninfiniband-mode = connected\nmtu = 65520\n"
    )
    one = agent(text, port(2))
    one.kernel.modes = ("datagram",)
    one.run()
    one.run()
    assert texts(one.plan()) == []
    assert ip_interface("10.4.0.7/24") in one.kernel.addresses[2]
    assert reasons(one) == ['MTU 65520 requested, but "ib2" supports at most 4092 in datagram mode']


def test_datagram_mode_takes_the_mtu_of_a_fabric_with_4096_bytes():
    one = agent(f"[interface {GUID}]\nmtu = 4092\n", port(2))
    one.kernel.group_mtu = 4092
    assert done(one) == ["set the MTU of ib2 from 2044 to 4092"]


@pytest.mark.parametrize(("asked", "reason"), [
    ("mtu = 4093", 'MTU 4093 requested, but "ib2" supports at most 4092 in datagram mode'),
    ("mtu = 65520", 'MTU 65520 requested, but "ib2" supports at most 4092 in datagram mode'),
    ("mtu = 71", 'MTU 71 requested, but "ib2" requires at least 72 in datagram mode'),
    ("infiniband-mode = connected\nmtu = 65521", 'MTU 65521 requested, but "ib2" supports at most 65520 in connected mode'),
])  # fmt: skip
def test_an_mtu_that_the_mode_does_not_take_is_refused_alone(asked, reason):
    one = agent(f"[interface {GUID}]\naddresses = 10.4.0.7/24\n{asked}\n", port(2))
    assert "add the address 10.4.0.7/24 to ib2" in done(one)
    assert reasons(one) == [reason]


def test_a_port_of_omni_path_keeps_its_larger_datagram():
    one = agent(f"[interface {GUID}]\nmtu = 8000\n", port(2, mtu=10236))
    one.kernel.group_mtu = 10236
    assert reasons(one) == []


def test_the_broadcast_group_may_have_less_than_is_asked_for_and_the_port_is_rolled_back():
    one = agent(f"[interface {GUID}]\naddresses = 10.4.0.7/24\nmtu = 4092\n", port(2))
    _, result, _ = one.run()
    assert [failure.text for failure in result.failures] == [
        "set the MTU of ib2 from 2044 to 4092: done, but not in effect: another program or the driver has undone it"
    ]
    assert one.kernel.devices[2].mtu == 2044


def test_the_mode_is_for_ports_only():
    one = agent(f"[interface {mac(3)}]\ninfiniband-mode = connected\n", nic(3))
    assert done(one) == ["bring eth3 up"]
    (note,) = one.survey().resolution.notes
    assert (note.setting, note.reason) == ("infiniband-mode", "it is not an InfiniBand port")


def test_a_port_gets_no_mac_address():
    one = agent(f"[interface {GUID}]\nmac = {mac(9)}\n", port(2))
    assert done(one) == []
    (note,) = one.survey().resolution.notes
    assert note.reason == "it is an InfiniBand port, which has a GUID and no MAC address"


def test_a_child_of_somebody_else_with_a_larger_mtu_does_not_hold_its_port_back():
    one = agent(f"[interface {GUID}]\nmtu = 1500\n", port(2), child(3, 2, mtu=65520))
    assert done(one) == ["set the MTU of ib2 from 2044 to 1500"]


# --- Children -------------------------------------------------------------------------------------


def test_a_child_for_a_partition_is_made_configured_and_deleted():
    text = f"[ipoib part1]\nparent = {SHORT}\npkey = 0x0001\naddresses = 10.7.0.1/24\n"
    one = agent(text, port(2))
    assert done(one) == [
        "create the IPoIB child part1 (mode datagram, pkey 0x8001) on ib2",
        "bring part1 up",
        "add the address 10.7.0.1/24 to part1",
    ]
    assert done(one, f"[interface {GUID}]\nstate = up\n") == ["delete the IPoIB child part1"]


def test_a_child_has_a_mode_and_an_mtu_of_its_own():
    text = CHILD.format(GUID) + "mode = connected\nmtu = 9000\n"
    one = agent(text, port(2))
    assert done(one)[:2] == [
        "create the IPoIB child part1 (mode connected, pkey 0x8002) on ib2",
        "set the MTU of part1 to 9000",
    ]
    assert (one.kernel.devices[2].mode, one.kernel.devices[2].mtu) == ("datagram", 2044)


def test_a_child_in_datagram_mode_takes_no_more_than_a_port():
    one = agent(CHILD.format(GUID) + "mtu = 65520\n", port(2))
    assert "add the address 10.7.0.1/24 to part1" in done(one)
    assert reasons(one) == [
        "MTU 65520 requested, but an IPoIB child supports at most 4092 in datagram mode"
    ]


def test_a_child_with_another_p_key_is_made_anew():
    one = agent(CHILD.format(GUID), port(2))
    done(one)
    assert done(one, CHILD.format(GUID).replace("0x8002", "0x8003"))[:2] == [
        "delete the IPoIB child part1",
        "create the IPoIB child part1 (mode datagram, pkey 0x8003) on ib2",
    ]


def test_a_child_that_is_to_be_down_stays_down_when_its_port_comes_up():
    text = CHILD.format(GUID).replace("addresses = 10.7.0.1/24", "state = down")
    one = agent(text + f"[interface {GUID}]\nstate = up\n", port(2, up=False))
    done(one)
    (made_one,) = [found for found in one.kernel.devices.values() if found.kind == "ipoib"]
    assert (one.kernel.devices[2].up, made_one.up) == (True, False)


@pytest.mark.parametrize(
    "pkey", ["0x0000", "0x8000", "0x10000", "8001", "-1", "0x", "x", "0x80 01"]
)
def test_what_is_no_p_key_is_a_fault(pkey):
    one = agent(CHILD.format(GUID).replace("0x8002", pkey), port(2))
    assert [fault.reason for fault in one.document.faults] == [
        f'"{pkey}" is not a P_Key from 0x0001 to 0xffff, ignoring the link'
    ]
    assert done(one) == []


REFUSED = {
    "a VLAN": (
        f"[vlan {GUID}.5]\naddresses = 10.5.0.1/24\n",
        f"{GUID} is an InfiniBand link, which carries no Ethernet frames: VLAN 5 requires them",
    ),
    "a bridge": (
        f"[bridge br0]\nmembers = {SHORT}\n",
        f"{GUID} is an InfiniBand link, which carries no Ethernet frames: a bridge requires them",
    ),
    "a macvlan": (
        f"[macvlan mv0]\nparent = {GUID}\n",
        f"{GUID} is an InfiniBand link, which carries no Ethernet frames: a macvlan requires them",
    ),
    "a bond": (
        f"[bond bond0]\nmode = active-backup\nmembers = {GUID}\n",
        f"{GUID} is an InfiniBand link, which carries no Ethernet frames: a bond requires them",
    ),
    "a macvlan on a child": (
        CHILD.format(GUID) + "[macvlan mv0]\nparent = ipoib part1\n",
        "ipoib part1 is an InfiniBand link, which carries no Ethernet frames: a macvlan requires them",
    ),
    "a child on Ethernet": (CHILD.format(mac(3)), f"{mac(3)} is not an InfiniBand port"),
    "a child on a child": (
        CHILD.format(GUID) + "[ipoib part2]\nparent = ipoib part1\npkey = 0x8003\n",
        "a ipoib cannot use ipoib part1",
    ),
    "a child without a P_Key": (f"[ipoib part1]\nparent = {GUID}\n", "it requires pkey"),
    "a child without a parent": ("[ipoib part1]\npkey = 0x8001\n", "it requires parent"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=[*REFUSED])
def test_what_cannot_be_stacked_is_refused_with_the_reason(text, reason):
    one = agent(text, port(2), nic(3))
    lines = done(one)
    assert reason in reasons(one)
    assert not [line for line in lines if "create" in line and "IPoIB child part1" not in line]


def test_a_vlan_on_a_child_is_a_fault_of_the_document():
    one = agent("[vlan ipoib part1.5]\naddresses = 10.5.0.1/24\n", port(2))
    assert [fault.reason for fault in one.document.faults] == [
        'there can be no VLAN on "ipoib part1", ignoring the section'
    ]


def test_a_port_and_a_child_can_be_in_a_vrf():
    text = CHILD.format(GUID) + f"[vrf blue]\ntable = 100\nmembers = {SHORT}, ipoib part1\n"
    one = agent(text, port(2))
    lines = done(one)
    assert {"add ib2 to blue", "add part1 to blue"} <= {*lines}


def test_the_record_has_ports_and_children_like_other_links(tmp_path):
    text = CHILD.format(SHORT) + f"[interface {GUID}]\ninfiniband-mode = connected\n"
    one = agent(text, port(2))
    done(one)
    save_record(tmp_path, one.record)
    one.record = load_record(tmp_path)
    assert one.record.originals[LinkKey(GUID)].device == {"infiniband-mode": "datagram"}
    assert LinkKey("ipoib part1") in one.record.owned.vlans
    assert done(one) == []


# --- Platforms ------------------------------------------------------------------------------------


def openstack(address, kind="phy"):
    """As Nova writes it for a bare-metal node; the id is not a name."""
    tree = {
        "links": [{"id": "tap1", "type": kind, "ethernet_mac_address": address, "mtu": 2044}],
        "networks": [
            {"id": "n1", "link": "tap1", "network_id": "x", "type": "ipv4", "ip_address": "10.4.0.7",
             "netmask": "255.255.255.0", "routes": []}
        ],
        "services": [],
    }  # fmt: skip
    return made("network_data.json", json.dumps(tree))


@pytest.mark.parametrize("kind", ["phy", "ib_hostdev", "infiniband"])
@pytest.mark.parametrize("address", [SHORT, SHORT.upper(), f"{PREFIX}:{GUID}", GUID])
def test_a_port_in_network_data_is_configured(address, kind):
    one = agent("", port(2))
    platform = openstack(address, kind)
    one.document = Document(platform=platform, faults=platform.faults)
    assert platform.faults == ()
    assert done(one) == ["add the address 10.4.0.7/24 to ib2"]


NETPLAN = f"""
network:
  version: 2
  ethernets:
    fabric:
      match: {{macaddress: "{PREFIX}:{GUID}"}}
      set-name: fabric0
      infiniband-mode: connected
      mtu: 65520
      addresses: [10.4.0.7/24]
"""
VERSION_1 = f"""
version: 1
config:
  - type: infiniband
    name: fabric0
    mac_address: >-
      {PREFIX}:{GUID}
    subnets:
      - {{type: static, address: 10.4.0.7/24, mtu: 2000}}
"""


def test_netplan_sets_the_mode_of_a_port():
    one = agent("", port(2))
    platform = made("network-config", NETPLAN)
    one.document = Document(platform=platform, faults=platform.faults)
    assert platform.faults == ()
    assert done(one) == [
        "rename ib2 to fabric0",
        'set infiniband-mode of fabric0 from "datagram" to "connected"',
        "set the MTU of fabric0 from 2044 to 65520",
        "add the address 10.4.0.7/24 to fabric0",
    ]


def test_version_1_has_a_type_of_its_own_for_ports():
    one = agent("", port(2))
    platform = made("network-config", VERSION_1)
    one.document = Document(platform=platform, faults=platform.faults)
    assert platform.faults == ()
    assert done(one) == [
        "rename ib2 to fabric0",
        "set the MTU of fabric0 from 2044 to 2000",
        "add the address 10.4.0.7/24 to fabric0",
    ]
