"""Our package over version 1.7 in a guest: its names, its options and what it left; then boots in other orders of the slots."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import images
import pytest
from qemu import Nic
from steps import addresses, in_force, names
from version17 import FIRST, MANAGEMENT, NAMES, SECOND, VERSION_17

CARDS = [Nic(mac, 0x10 + n, management=mac == MANAGEMENT) for n, mac in enumerate(NAMES)]
# As 1.7 reads it: MAC addresses without colons, NICs alone.
DOCUMENT = "\n".join(
    [
        "[global]",
        "host_name = Node0",
        "[interfaces]",
        f"{FIRST.replace(':', '')} = up:ipv4:172.16.0.1/24",
        f"{SECOND.replace(':', '')} = up:ipv4:172.16.1.1/24",
        "[scripts]",
        "bootscript = #!/bin/sh",
        "    echo ran >> /tmp/ran",
        "",
    ]
)
UPGRADE = "DEBIAN_FRONTEND=noninteractive dpkg --force-confold --install /root/new.deb 2>&1"
RULES = "cat /etc/udev/rules.d/*-neuca-*"


@pytest.mark.long
def test_an_upgrade_from_1_7_renames_nothing_and_its_guest_boots_in_any_order(guests):
    guest = guests("A", CARDS, packaged=False)
    guest.boot()
    guest.check(VERSION_17)
    guest.reboot()
    assert names(guest) == NAMES  # the rules of 1.7 at work
    guest.serve(DOCUMENT)
    guest.put("/root/new.deb", images.package().read_bytes())
    guest.check("nohup ip monitor link > /root/monitor 2>&1 & sleep 1")
    said = guest.check(UPGRADE, 1800)
    assert "neuca-guest-tools: found what version 1.7 has left" in said
    assert '[runtime] "pidfile-timeout" = "5": obsolete' in said
    as_asked(guest)
    assert "Deleted" not in guest.check("cat /root/monitor")
    assert "generated udev persistent" not in guest.check(RULES)
    assert "loopback-address = 127.255.255.7" in guest.check("cat /etc/neuca/config")
    assert "127.255.255.7\tNode0" in guest.check("cat /etc/hosts")
    assert guest.run("ls /tmp/ran").code != 0  # 1.7 has run this script
    for slots in ((0x12, 0x10, 0x11), (0x11, 0x12, 0x10)):
        guest.shut_down()
        guest.permute(slots)
        guest.boot()
        as_asked(guest)


def as_asked(guest):
    """Names as under 1.7, addresses as in the document, nothing left to do, and the guest is reachable."""
    status = in_force(guest, DOCUMENT)
    assert {one["mac"]: one["role"] for one in status["interfaces"]} == {
        MANAGEMENT: "management",
        FIRST: "dataplane",
        SECOND: "dataplane",
    }
    assert names(guest) == NAMES
    found = addresses(guest)
    assert (found["dp1"], found["dp2"]) == ({"172.16.0.1/24"}, {"172.16.1.1/24"})
    assert json.loads(guest.run("neuca plan --json").output)["operations"] == []
    assert guest.reachable()
