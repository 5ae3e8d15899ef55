"""Accelerated networking: the master of a virtual function is configured, the function is left alone.

Azure's netvsc has the MAC of its function and becomes its master (Linux, drivers/net/hyperv/
netvsc_drv.c); virtio's failover adds a third device above both (net/core/failover.c). The messages
are as the kernel composes them for these drivers (rtnl_fill_ifinfo() of Linux 6.1).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import struct
from ipaddress import ip_address, ip_interface

import cloudmocks
import pytest
from kernel import Kernel, default_route
from platforms import made
from worlds import Agent, texts, world

from neuca_tools.backends import kernel_state
from neuca_tools.model import Document, LinkKey

MANAGEMENT, DATA = "00:0d:3a:0a:0b:0c", "00:0d:3a:0a:0b:0d"
UP, SLAVE = 0x11043, 0x11843  # IFF_UP, BROADCAST, RUNNING, MULTICAST, LOWER_UP; and SLAVE
VMBUS, PCI, VIRTIO = "vmbus", "pci", "virtio"


def attribute(kind, value):
    data = value if isinstance(value, bytes) else struct.pack("=I", value)
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def message(index, name, mac, bus, master=0, permanent=True):
    """The body of an RTM_NEWLINK of an Ethernet device that is up."""
    address = bytes.fromhex(mac.replace(":", ""))
    fields = {3: name.encode() + b"\0", 13: 1000, 4: 1500, 50: 68, 51: 65521, 1: address}
    fields.update({10: master} if master else {})
    fields.update({54: address} if permanent else {})
    body = b"".join(attribute(kind, value) for kind, value in fields.items())
    parent = attribute(55, b"f8b3781b-1e82-4818-a1c3-63d806ec15bb\0") + attribute(
        56, bus.encode() + b"\0"
    )
    return struct.pack("=BxHiII", 0, 1, index, SLAVE if master else UP, 0) + body + parent


AZURE = {
    "management": message(2, "eth0", MANAGEMENT, VMBUS),
    "its function": message(4, "enP5s1", MANAGEMENT, PCI, master=2),
    "master": message(3, "eth1", DATA, VMBUS),
    "function": message(5, "enP6s1", DATA, PCI, master=3),
}
VIRTIO_TRIO = {
    "management": message(2, "eth0", MANAGEMENT, VIRTIO),
    "master": message(3, "eth1", DATA, VIRTIO, permanent=False),
    "standby": message(6, "eth1nsby", DATA, VIRTIO, master=3),
    "function": message(5, "ens30", DATA, PCI, master=3),
}


def document():
    (body,) = cloudmocks.azure([(MANAGEMENT, 0), (DATA, 1)]).paths.values()
    found = made("Azure instance", cloudmocks.encoded(body))
    return Document(platform=found, faults=found.faults)


def agent(messages):
    """Over these devices; the management NIC has the default route."""
    kernel = Kernel(world(*map(kernel_state.parse_device, messages)))
    kernel.add_address(2, ip_interface("10.1.0.4/24"))
    default_route(kernel, 2, ip_address("10.1.0.1"))
    found = Agent(kernel)
    found.document = document()
    return found


def held(one):
    """Name, MTU and addresses of each device."""
    return {
        index: (device.name, device.mtu, sorted(map(str, one.kernel.addresses.get(index, ()))))
        for index, device in one.kernel.devices.items()
    }


@pytest.mark.parametrize("messages", [AZURE, VIRTIO_TRIO], ids=["netvsc", "virtio"])
def test_the_master_gets_the_address_and_the_function_is_not_touched(messages):
    one = agent(messages.values())
    before = held(one)
    one.run()
    after = held(one)
    assert after.pop(3) == ("eth1", 1500, ["10.1.1.4/24"])
    assert after == {index: observed for index, observed in before.items() if index != 3}
    roles = one.survey().resolution.roles
    assert (roles.role(MANAGEMENT), roles.role(DATA)) == ("management", "dataplane")
    assert roles.nics[DATA].index == 3
    assert [one_.text for one_ in one.survey().resolution.problems] == []
    assert texts(one.plan()) == []


@pytest.mark.parametrize("messages", [AZURE, VIRTIO_TRIO], ids=["netvsc", "virtio"])
def test_no_name_is_given_to_a_function(messages):
    one = agent(messages.values())
    one.run()
    names = [record.name for record in one.record.nics.values()]
    assert sorted(names) == ["eth0", "eth1"]
    rules = [text for path, text in one.kernel.files.items() if "udev" in str(path)]
    assert [name for name in ("enP5s1", "enP6s1", "eth1nsby", "ens30") if name in str(rules)] == []


def test_a_function_that_comes_and_goes_changes_nothing():
    """The host takes it away for maintenance; when it is back, its master takes it a moment later."""
    one = agent(AZURE[name] for name in ("management", "its function", "master"))
    one.run()
    before = held(one)
    function = kernel_state.parse_device(AZURE["function"])
    alone = function._replace(master=0, slave=False)
    for device in (alone, function, None, alone, function):
        one.kernel.devices.pop(5, None)
        if device:
            one.kernel.devices[5] = device
        one.run(start=False)
        found = held(one)
        found.pop(5, None)
        assert found == before
    assert one.survey().observed.links[LinkKey(DATA)].addresses


def test_two_devices_with_one_mac_and_no_master_are_not_touched():
    """What a kernel without the netvsc driver's help would show: nothing tells which one to take."""
    messages = [AZURE["management"], AZURE["master"], message(5, "enP6s1", DATA, PCI)]
    one = agent(messages)
    before = held(one)
    one.run()
    assert held(one) == before
    assert [problem.code for problem in one.survey().resolution.problems] == ["contested"]
