"""Bonds, VLANs, bridges, VXLANs and macvlans beside network managers that would take whatever appears."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from guest import mac, nics
from steps import (
    DOCUMENT,
    addresses,
    assert_left_alone,
    assert_nothing_odd,
    in_force,
    links,
    names,
    serve,
)

STACK = f"""[interface {mac(3)}]
addresses = 172.18.0.1/24
mtu = 2000

[bond bond0]
mode = active-backup
members = {mac(1)}, {mac(2)}
addresses = 10.1.0.1/24
mtu = 4000

[vlan bond bond0.100]
addresses = 10.100.0.1/24

[vlan bond bond0.200]
state = up

[vxlan vx7]
id = 7
local = 172.18.0.1
remote = 172.18.0.2

[bridge br0]
members = bond bond0.200, vxlan vx7
addresses = 10.2.0.1/24

[macvlan mv0]
parent = {mac(3)}
addresses = 10.8.0.1/24
"""
# Name to kind, MTU and addresses. A VXLAN over IPv4 takes 50 bytes, a bridge has the least MTU of its ports.
MADE = {
    "bond0": ("bond", 4000, {"10.1.0.1/24"}),
    "bond0.100": ("vlan", 4000, {"10.100.0.1/24"}),
    "bond0.200": ("vlan", 4000, set()),
    "vx7": ("vxlan", 1950, set()),
    "br0": ("bridge", 1950, {"10.2.0.1/24"}),
    "mv0": ("macvlan", 2000, {"10.8.0.1/24"}),
}
MACS = dict.fromkeys(
    ("bond0", "bond0.100", "bond0.200", "br0"), mac(1)
)  # that of the first member, whatever udev makes up
MASTERS = {"eth1": "bond0", "eth2": "bond0", "bond0.200": "br0", "vx7": "br0"}
# For networkd: as an image may have it that is to come up wherever it is.
ANY = "[Match]\nName=eth* bond* br* vx* mv*\n\n[Network]\nDHCP=yes\n"
FOREIGN = "ip -o -4 address | grep -F 10.99. || true"


def as_asked(guest):
    found = links(guest)
    made = {name: one for name, one in found.items() if "info_kind" in one.get("linkinfo", {})}
    assert {
        name: (one["linkinfo"]["info_kind"], one["mtu"], addresses(guest)[name])
        for name, one in made.items()
    } == MADE
    assert {name: one["master"] for name, one in found.items() if "master" in one} == MASTERS
    assert all("UP" in one["flags"] for one in made.values())
    assert {name: found[name]["address"] for name in MACS} == MACS
    assert addresses(guest)["eth3"] == {"172.18.0.1/24"}
    assert guest.check(FOREIGN) == ""
    assert_left_alone(guest)
    assert guest.reachable()


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "C", "D"])
def test_what_is_made_of_nics_is_left_alone_and_survives_a_reboot_and_goes_in_order(guests, image):
    guest = guests(image, [replace(nic, dhcp=not nic.management) for nic in nics(3)])
    guest.serve(STACK)
    guest.boot()
    guest.put("/etc/systemd/network/90-any.network", ANY)
    in_force(guest, STACK)
    as_asked(guest)
    called = names(guest)
    guest.reboot()
    in_force(guest, STACK)
    guest.check("! test -d /run/systemd/system || systemctl is-system-running --wait || true", 300)
    as_asked(guest)
    assert names(guest) == called
    assert_nothing_odd(guest)
    guest.put("/root/next", DOCUMENT)
    planned = guest.run("neuca plan --source file:/root/next", 120).output.splitlines()
    assert [line.split()[-1] for line in planned if line.startswith("delete the")] == [
        "br0",
        "vx7",
        "mv0",
        "bond0.200",
        "bond0.100",
        "bond0",
    ]
    serve(guest, DOCUMENT)
    assert not MADE.keys() & links(guest).keys()
    assert {name: addresses(guest)[name] for name in ("eth1", "eth2", "eth3")} == {
        "eth1": {"172.16.0.1/24"},
        "eth2": {"fd00:16::1/64"},
        "eth3": {"172.18.0.1/24"},
    }
    assert {links(guest)[name]["mtu"] for name in ("eth1", "eth2", "eth3")} == {1500}
    assert {links(guest)[name]["address"] for name in ("eth1", "eth2", "eth3")} == {
        mac(1),
        mac(2),
        mac(3),
    }
    assert names(guest) == called
    assert_left_alone(guest)
    assert guest.reachable()
