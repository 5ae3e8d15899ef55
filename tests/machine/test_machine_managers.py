"""NetworkManager and networkd keep off the dataplane, though each of its NICs has a DHCP server to tempt them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from guest import MANAGEMENT, mac, nics
from steps import ADDRESSES, DOCUMENT, addresses, assert_left_alone, dataplane, in_force, names

SERVICE = {"A": "NetworkManager.service", "C": "systemd-networkd.service"}
WITH_VLAN = f"{DOCUMENT}\n[vlan {mac(1)}.100]\naddresses = 10.100.0.1/24\n"
VLAN = {"10.100.0.1/24"}
LINE = re.compile(r"\[[^]]+\] (?P<gone>Deleted )?\d+: (?P<name>[^ ]+) +inet6? (?P<address>[^ ]+)")
NETWORKMANAGER = "(nmcli --terse --fields STATE device | grep -qx connected)"
NETWORKD = "(networkctl list --no-legend --no-pager | grep -qw configured)"
FORGET = (
    "rm -f /var/lib/neuca/* /etc/udev/rules.d/*neuca* /etc/NetworkManager/conf.d/neuca.conf"
    " /etc/systemd/network/05-neuca*"
)
BOOTS = 10  # after the first one, of each image


def long(value):
    return pytest.param(value, marks=pytest.mark.long)


def tempted():
    return [replace(nic, dhcp=not nic.management) for nic in nics(3)]


def foreign(guest):
    """The addresses that `ip monitor` saw on dataplane links, from before the network of this boot on, and nobody asked for."""
    said, called = guest.check("cat /run/lab-monitor"), names(guest)
    found = filter(None, map(LINE.match, said.splitlines()))
    seen = [(one["name"], one["address"]) for one in found if not one["gone"]]
    assert (called[MANAGEMENT], "169.254.169.16/24") in seen, (
        "the monitor has missed the management NIC's own address"
    )
    ours = {(called[nic], address) for nic, some in ADDRESSES.items() for address in some}
    ours |= {(f"{called[mac(1)]}.100", address) for address in VLAN}
    others = [one for one in seen if one[0] not in (called[MANAGEMENT], "lo") and one not in ours]
    return [one for one in others if not one[1].startswith("fe80:")]


def settled(guest, document=WITH_VLAN, state="ok"):
    """The document is in force, and the manager has done what it means to do; that is as it should be."""
    status = in_force(guest, document, state)
    guest.check("systemctl is-system-running --wait || true", 300)
    guest.eventually(f"{NETWORKMANAGER} || {NETWORKD}", lambda done: done.code == 0)
    assert_left_alone(guest)
    assert dataplane(guest) == ADDRESSES
    assert addresses(guest)[f"{names(guest)[mac(1)]}.100"] == VLAN
    routes = guest.check("ip route show default; ip -6 route show default").splitlines()
    assert [f" dev {names(guest)[MANAGEMENT]} " in f"{route} " for route in routes] == [True]
    return status


def first_boot(guest):
    """The manager takes every NIC, since nobody knows yet what they are for; then comes the document."""
    guest.boot()
    leases = "ip -br -4 address | grep -c 10[.]99[.]"
    guest.eventually(leases, lambda done: done.output.strip() == "3", 300)
    assert len(guest.check("ip route show default").splitlines()) == 4
    guest.serve(WITH_VLAN)
    status = settled(guest)
    assert {f"10.99.{number}.16/24" for number in (1, 2, 3)} <= {
        address for _, address in foreign(guest)
    }
    return status


@pytest.mark.parametrize("image", [long("A"), long("C")])
def test_what_a_manager_put_there_on_a_first_boot_goes_and_is_reported(guests, image):
    guest = guests(image, tempted())
    notes = first_boot(guest)["notes"]
    title = {"A": "NetworkManager", "C": "systemd-networkd"}[image]
    for number in (1, 2, 3):
        where = f"to {names(guest)[mac(number)]} before a document named it: removed"
        assert f"{title} had added the address 10.99.{number}.16/24 {where}" in notes
        assert f"{title} had added the route to 0.0.0.0/0 via 10.99.{number}.2 {where}" in notes
    for word in ("restart", "stop", "start"):
        guest.check(f"systemctl {word} {SERVICE[image]}")
    settled(guest)
    guest.reboot()
    assert settled(guest)["notes"] == []
    assert foreign(guest) == []
    assert guest.reachable()


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "C"])
def test_where_the_host_itself_names_the_nics_nobody_else_takes_them_even_at_first(guests, image):
    guest = guests(image, tempted())
    guest.boot()
    guest.check(
        f"systemctl stop neuca-guest-tools; {FORGET}; cat > /etc/neuca/document",
        120,
        WITH_VLAN.encode(),
    )
    guest.check(
        "printf '[metadata]\\nsources = file:/etc/neuca/document\\n' > /etc/neuca/config.d/lab.conf; sync"
    )
    guest.reboot()
    settled(guest)
    assert foreign(guest) == []


@pytest.mark.long
def test_a_manager_that_comes_later_keeps_off_as_well(guests):
    """networkd where NetworkManager was alone: its files have been there from the first document on."""
    guest = guests("A", tempted())
    first_boot(guest)
    guest.check(
        "printf '[Match]\\nType=ether\\n\\n[Network]\\nDHCP=yes\\n' > /etc/systemd/network/80-dhcp.network"
    )
    guest.check(
        "systemctl disable --now NetworkManager && systemctl enable --now systemd-networkd", 120
    )
    guest.reboot()
    settled(guest)
    assert foreign(guest) == []
    guest.check(
        "systemctl disable --now systemd-networkd && systemctl enable --now NetworkManager", 120
    )
    guest.reboot()
    settled(guest)
    assert foreign(guest) == []


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "C"])
def test_no_manager_puts_an_address_on_the_dataplane_in_many_boots(guests, image):
    guest = guests(image, tempted())
    first_boot(guest)
    found = {}
    for boot in range(2, BOOTS + 2):
        guest.reboot()
        settled(guest)
        found[boot] = foreign(guest)
        print(
            f"{image}: boot {boot}: {guest.booted_in:.0f} s, {len(found[boot])} foreign addresses",
            flush=True,
        )
    assert {boot: some for boot, some in found.items() if some} == {}
