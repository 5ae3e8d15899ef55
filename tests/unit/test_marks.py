"""The mark files as whole texts, and what must never come out of them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.desired import marks

MAC = "fe:16:3e:00:6d:af"
OTHER = "fe:16:3e:00:6d:b0"


def test_the_rule_of_a_dataplane_nic():
    assert (
        marks.udev_rule(MAC, "eth1", True).decode()
        == """\
# Written by neucad, which overwrites it. For the NIC fe:16:3e:00:6d:af.
SUBSYSTEM=="net", ACTION=="add|change|move", DRIVERS=="?*", ATTR{type}=="1", ATTR{address}=="fe:16:3e:00:6d:af", \
ENV{DEVTYPE}!="?*", TEST!="master", ENV{NM_UNMANAGED}="1", ENV{ID_NET_MANAGED_BY}="neucad"
SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{type}=="1", ATTR{address}=="fe:16:3e:00:6d:af", \
ENV{DEVTYPE}!="?*", TEST!="master", NAME:="eth1"
"""
    )


def test_the_rule_of_any_other_nic_pins_its_name_and_nothing_more():
    assert (
        marks.udev_rule(MAC, "eth0", False).decode()
        == """\
# Written by neucad, which overwrites it. For the NIC fe:16:3e:00:6d:af.
SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{type}=="1", ATTR{address}=="fe:16:3e:00:6d:af", \
ENV{DEVTYPE}!="?*", TEST!="master", NAME:="eth0"
"""
    )


@pytest.mark.parametrize("name", ["", 'a"b', "a$b", "a%db", "a b", "-a", "a\\b", "a*"])
def test_a_name_that_udev_would_take_for_syntax_is_not_pinned(name):
    text = marks.udev_rule(MAC, name, True).decode()
    assert "NAME:=" not in text
    assert "NM_UNMANAGED" in text


@pytest.mark.parametrize(
    "mac", ["", "fe163e006daf", "FE:16:3E:00:6D:AF", "*", 'fe:16:3e:00:6d:af"', MAC + "\n"]
)
def test_only_a_canonical_mac_is_ever_written(mac):
    with pytest.raises(ValueError, match="is not a MAC address in canonical form"):
        marks.udev_rule(mac, "eth1", True)
    with pytest.raises(ValueError, match="is not a MAC address in canonical form"):
        marks.networkmanager_conf([mac], [])
    with pytest.raises(ValueError, match="is not a MAC address in canonical form"):
        marks.networkd_files([mac], [])


def test_rule_files_are_named_by_priority_and_bare_mac():
    assert (
        marks.udev_rule_name(MAC, True, "neuca-persistent", 10, 15)
        == "10-neuca-persistent-fe163e006daf.rules"
    )
    assert (
        marks.udev_rule_name(MAC, False, "neuca-persistent", 10, 15)
        == "15-neuca-persistent-fe163e006daf.rules"
    )
    assert marks.udev_rule_name(MAC, True, "x", 5, 15) == "05-x-fe163e006daf.rules"


@pytest.mark.parametrize("dataplane", [True, False])
def test_a_rule_file_is_found_again_by_its_name(dataplane):
    assert marks.rule_mac(marks.udev_rule_name(MAC, dataplane, "a.b", 7, 99), "a.b") == MAC


@pytest.mark.parametrize(
    "filename",
    [
        "70-persistent-net.rules",
        "10-neuca-persistent-fe163e006daf.rules.bak",
        "10-neuca-persistent-fe163e006da.rules",
        "neuca-persistent-fe163e006daf.rules",
        "10-neucaXpersistent-fe163e006daf.rules",
        "10-neuca-persistent-fe163e006daf.rules\n",
    ],
)
def test_a_file_of_somebody_else_is_not_ours(filename):
    assert marks.rule_mac(filename, "neuca.persistent") is None
    assert marks.rule_mac(filename, "neuca-persistent") is None


def test_networkmanager_is_told_of_nics_and_vlans_in_two_lists():
    assert (
        marks.networkmanager_conf([OTHER, MAC, MAC], ["eth1.*", "data"]).decode()
        == """\
# Written by neucad, which overwrites it. See NetworkManager.conf(5), unmanaged-devices.
[keyfile]
unmanaged-devices+=mac:fe:16:3e:00:6d:af;mac:fe:16:3e:00:6d:b0;interface-name:data;interface-name:eth1.*

[device-neuca]
match-device=mac:fe:16:3e:00:6d:af;mac:fe:16:3e:00:6d:b0;interface-name:data;interface-name:eth1.*
managed=0
"""
    )


def test_virtual_links_are_known_by_their_kinds():
    text = marks.networkd_files([], ["mv0", "br0"], ["macvlan", "bridge"])[
        "05-neuca-vlans.network"
    ].decode()
    assert text.splitlines()[2:5] == ["Kind=bridge macvlan vlan", "Name=br0", "Name=mv0"]


def test_networkd_is_told_of_nics_and_vlans_in_two_files():
    files = marks.networkd_files([OTHER, MAC], ["eth1.*", "data"])
    assert {name: text.decode() for name, text in files.items()} == {
        "05-neuca-nics.network": """\
# Written by neucad, which overwrites it. See systemd.network(5), Unmanaged=.
[Match]
PermanentMACAddress=fe:16:3e:00:6d:af
PermanentMACAddress=fe:16:3e:00:6d:b0

[Link]
Unmanaged=yes
""",
        "05-neuca-vlans.network": """\
# Written by neucad, which overwrites it. See systemd.network(5), Unmanaged=.
[Match]
Kind=vlan
Name=data
Name=eth1.*

[Link]
Unmanaged=yes
""",
    }


def test_with_nothing_to_mark_there_is_no_file_that_could_match_everything():
    assert marks.networkmanager_conf([], []) == b""
    assert marks.networkd_files([], []) == {}
    assert set(marks.networkd_files([MAC], [])) == {"05-neuca-nics.network"}
    assert set(marks.networkd_files([], ["eth1.*"])) == {"05-neuca-vlans.network"}
    assert marks.sysctl_conf({}) == b""


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "*",
        "!eth1",
        "=eth1",
        "~e",
        "a b",
        "a;b",
        "a,b",
        "a\\b",
        "e*h.*",
        "a?",
        "[ab].*",
        "**",
        'a"',
        "a%b",
    ],
)
def test_a_pattern_that_would_mean_more_than_it_says_is_left_out(pattern):
    assert marks.networkmanager_conf([], [pattern]) == b""
    assert marks.networkd_files([], [pattern]) == {}


def test_sysctls_are_sorted_in_slash_form_and_may_fail():
    assert (
        marks.sysctl_conf(
            {
                "net/ipv6/conf/eth1/accept_ra": "0",
                "net/ipv4/conf/eth1.1445/rp_filter": "2",
                "net/ipv4/neigh/eth1/x": " 1\t2\n3 ",
            }
        ).decode()
        == """\
# Written by neucad, which overwrites it. See sysctl.d(5).
-net/ipv4/conf/eth1.1445/rp_filter = 2
-net/ipv4/neigh/eth1/x = 1 2 3
-net/ipv6/conf/eth1/accept_ra = 0
"""
    )


@pytest.mark.parametrize("name", ["e*", "e?", "[e]", "e=1", "e 1", "e\n1"])
def test_a_sysctl_whose_interface_reads_as_a_glob_is_left_out(name):
    assert marks.sysctl_conf({f"net/ipv4/conf/{name}/rp_filter": "2"}) == b""


def test_our_files_sort_behind_those_that_would_undo_them():
    assert (
        max("99-sysctl.conf", "99-unmanaged-devices.conf", marks.SYSCTL_FILE) == marks.SYSCTL_FILE
    )
    assert marks.NETWORKMANAGER_FILE > "99-unmanaged-devices.conf"
    assert max(marks.NETWORKD_NICS_FILE, marks.NETWORKD_VLANS_FILE) < "10-netplan-eth0.network"


def test_the_names_that_others_rules_give_are_read():
    rules = """\
# SUBSYSTEM=="net", ATTR{address}=="fe:16:3e:00:6d:aa", NAME="comment"
SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{address}=="fe:16:3e:00:6d:af", NAME="ens17"
SUBSYSTEM=="net", ACTION=="add", ATTR{address}=="fe:16:3e:00:6d:b0", NAME=="ens18", ENV{ID}="x"
SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", NAME="all"
"""
    assert marks.name_by_mac(rules) == {MAC: "ens17"}
    assert marks.name_by_mac(marks.udev_rule(OTHER, "eth1", True).decode()) == {OTHER: "eth1"}
