"""VLANs in real guests: MTU and queue length of parent and child, IPv6, removal, and 9000 bytes from guest to guest."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import MANAGEMENT, mac
from qemu import Nic, link
from steps import (
    ADDRESSES,
    DOCUMENT,
    addresses,
    assert_left_alone,
    dataplane,
    in_force,
    links,
    names,
    serve,
)


def asking(parent, child, queue=10000, host=1):
    """A document with a VLAN, whose MTUs are these."""
    return f"""[interfaces]
{mac(1)} = up:ipv4:172.16.0.{host}/24

[interface {mac(1)}]
mtu = {parent}
txqueuelen = {queue}

[vlan {mac(1)}.1445]
addresses = 10.14.45.{host}/24, fd00:1445::{host}/64
mtu = {child}
txqueuelen = {queue}
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
"""


def settings(guest, name):
    one = links(guest)[name]
    return one["mtu"], one["txqlen"], one["operstate"]


@pytest.mark.parametrize(
    "image", ["A", *(pytest.param(image, marks=pytest.mark.long) for image in "CSN")]
)
def test_a_vlan_and_its_parent_change_in_both_orders(guests, prepared, image):
    before = prepared(image)
    guest = guests(image, after=before)
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    change_both(guest, before.names[mac(1)], (9000, 4000, 9000))


def change_both(guest, nic, sizes):
    """Give this NIC and a VLAN on it each MTU in turn, then the VLAN a smaller one, then DOCUMENT again."""
    vlan, untouched = f"{nic}.1445", settings(guest, nic)
    for size in sizes:
        serve(guest, asking(size, size))
        assert settings(guest, nic) == (size, 10000, "UP")
        assert settings(guest, vlan) == (size, 10000, "UP")
        assert addresses(guest)[vlan] == {"10.14.45.1/24", "fd00:1445::1/64"}
        assert guest.check(f"cat /proc/sys/net/ipv4/conf/{vlan}/rp_filter").strip() == "2"
        assert_left_alone(guest)
    serve(guest, asking(9000, 1500))
    assert (settings(guest, nic)[0], settings(guest, vlan)[0]) == (9000, 1500)
    serve(guest, DOCUMENT)
    assert vlan not in links(guest)
    assert settings(guest, nic) == untouched
    assert dataplane(guest) == ADDRESSES


@pytest.mark.long
def test_two_guests_pass_9000_bytes_over_a_vlan(guests):
    made = []
    for host, (image, end) in enumerate(zip("AC", link()), 1):
        cards = [Nic(MANAGEMENT, 0x10, management=True), Nic(mac(1), 0x11, link=end, host_mtu=9000)]
        guest = guests(image, cards)
        guest.serve(asking(9000, 9000, host=host))
        guest.power_on()
        made.append(guest)
    for host, guest in enumerate(made, 1):
        guest.wait_for_boot()
        in_force(guest, asking(9000, 9000, host=host))
        assert names(guest)[mac(1)] == "eth1"
    made[0].eventually("ping -c 1 -W 2 10.14.45.2", lambda done: done.code == 0)
    # 28 bytes of headers of IPv4 and ICMP, 48 of IPv6's
    assert "3 received" in made[0].check("ping -M do -s 8972 -c 3 -i 0.2 -W 5 10.14.45.2")
    assert "3 received" in made[1].check("ping -6 -M do -s 8952 -c 3 -i 0.2 -W 5 fd00:1445::1")
    assert made[0].run("ping -M do -s 8973 -c 1 -W 2 10.14.45.2").code != 0
