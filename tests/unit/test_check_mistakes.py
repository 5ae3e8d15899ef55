"""Realistic mistakes, one in each document: `neuca check` has to find each, on its line, and to say what is wrong."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.commands.check import check_content

A, B, C = "fe:16:3e:00:6d:a1", "fe:16:3e:00:6d:a2", "fe:16:3e:00:6d:a3"
GOOD_INI = f"""\
[global]
host_name = node0
router = false
[interfaces]
{A} = up:ipv4:10.1.0.4/24
{B} = up:ipv4:10.2.0.4/24
[interface {A}]
mtu = 9000
gateway = 10.1.0.1
[interface {C}]
state = up
[vlan {B}.100]
addresses = 10.3.0.4/24, fd00:3::4/64
mtu = 1500
[bond bond0]
mode = active-backup
members = fe:16:3e:00:6d:b1, fe:16:3e:00:6d:b2
addresses = 10.4.0.4/24
[routes]
10.20.0.0/16 = 10.1.0.254
[rule replies]
from = 10.2.0.0/24
table = 200
[users]
ann = yes
[scripts]
bootscript = #!/bin/sh
  true
"""
INI = [  # what is replaced, by what, the line, a part of what is said
    ("[interfaces]", "[interface]", 4, "interfaces"),
    ("[interfaces]", "[interfces]", 4, "interfaces"),
    ("[interfaces]", "[Interfaces]", 4, "lower case"),
    ("[routes]", "[route]", 19, "routes"),
    ("[users]", "[user]", 24, "users"),
    (f"[vlan {B}.100]", f"[vlna {B}.100]", 12, "vlan"),
    (f"[vlan {B}.100]", f"[vlan {B}]", 12, "VLAN ID"),
    (f"[vlan {B}.100]", f"[vlan {B}.5000]", 12, "from 1 to 4094"),
    ("state = up", "name = bond0", 15, f"of {C} too"),
    (f"[vlan {B}.100]", "[vlan fe:16:3e:00:6d:c2.100]", 12, B),
    (f"[interface {A}]", "[interface fe:16:3e:00:6d:zz]", 7, "is not a MAC address"),
    (f"{B} = up", "fe:16:3e:00:6d = up", 6, "is not a MAC address"),
    ("up:ipv4:10.2.0.4/24", "upp:ipv4:10.2.0.4/24", 6, "up"),
    ("up:ipv4:10.2.0.4/24", "up:ipv6:10.2.0.4/24", 6, "family"),
    ("up:ipv4:10.2.0.4/24", "up:10.2.0.4/24", 6, "ipv4"),
    ("up:ipv4:10.2.0.4/24", "up:ipv4:10.2.0.4", 6, "prefix length"),
    ("up:ipv4:10.2.0.4/24", "up:ipv4:10.2.0.256/24", 6, "is not an IP address"),
    ("up:ipv4:10.2.0.4/24", "up:ipv4:10.2.0.4/33", 6, "prefix length"),
    ("up:ipv4:10.2.0.4/24", "up:ipv4:10.2.0.0/24", 6, "the address of its network"),
    ("up:ipv4:10.2.0.4/24", "up:ipv4:10.1.0.4/24", 6, "is requested on"),
    (f"{B} = up", f"{A} = up", 6, "specified before on line 5"),
    ("host_name", "hostname", 2, "host_name"),
    ("router = false", "router = yes", 3, "true"),
    ("mtu = 9000", "mut = 9000", 8, "mtu"),
    ("mtu = 9000", "mtu = 9000 # jumbo", 8, '"#" begins a comment only'),
    ("mtu = 9000", "mtu = 90000", 8, "65535"),
    ("mtu = 9000", "mtu 9000", 8, "key = value"),
    ("gateway = 10.1.0.1", "gateway = 10.11.0.1", 9, "in no network of the link"),
    (
        f"[interface {A}]\nmtu = 9000\ngateway = 10.1.0.1",
        "[interface FE163E006DA1]\ngateway = 10.9.0.1",
        8,
        "in no",
    ),
    ("gateway = 10.1.0.1", "gateway = 10.1.0.4", 9, "the address of the link itself"),
    ("mode = active-backup", "mode = active_backpu", 16, "active-backup"),
    ("mode = active-backup\n", "", 15, "it requires mode"),
    ("fd00:3::4/64", "fd00:3::4/64, fd00:3::4/128", 13, "several prefix lengths"),
    (
        "mtu = 1500\n[bond",
        f"mtu = 9999\n[vlan {A}.7]\nmtu = 9500\n[bond",
        16,
        "above that of its lower",
    ),
    ("members = fe:16:3e:00:6d:b1", "membres = fe:16:3e:00:6d:b1", 17, "members"),
    ("members = fe:16:3e:00:6d:b1", f"members = {A}", 5, "cannot have addresses"),
    ("fe:16:3e:00:6d:b2", f"{B}.100", 15, "the VLAN on the bond"),
    ("10.20.0.0/16 =", "10.20.0.1/16 =", 20, "host bits"),
    ("= 10.1.0.254", "= 10.9.0.254", 20, "in no network of the document"),
    ("= 10.1.0.254", "= fd00::1", 20, "family"),
    ("= 10.1.0.254", "= 10.1.0.4", 20, "is an address of this host"),
    ("= 10.1.0.254", "= blackhol", 20, "blackhole"),
    (
        "[bond bond0]",
        "[bridge br0]\nmembers = fe:16:3e:00:6d:b2\n[bond bond0]",
        19,
        "in bridge br0",
    ),
    ("[users]", "[storage]\nd = iscsi:10.1.0.9:3260:1:u:s:yes:ext5::yes:/d\n[users]", 25, "ext5"),
    ("[users]", "[storage]\nd = iscsi:10.1.0.9:3260:1:u:s:yes\n[users]", 25, "iscsi_initiator_iqn"),
    ("= 10.1.0.254", "= 10.1.0.254 metrc 5", 20, "metric"),
    ("10.20.0.0/16", "0.0.0.0/0", 20, "allow-default-route"),
    ("table = 200", "tabel = 200", 23, "table"),
    ("from = 10.2.0.0/24", "from = 10.2.0.4/24", 22, "host bits"),
    ("from = 10.2.0.0/24", "from = 0.0.0.0/0", 22, "neither from nor mark"),
    ("from = 10.2.0.0/24\n", "", 22, "neither from nor mark"),
    ("ann = yes", "ann = ja", 25, "yes"),
    ("  true", "true", 28, "key = value"),
]
GOOD_2 = f"""\
network:
  version: 2
  ethernets:
    nic1:
      match: {{macaddress: "{A}"}}
      set-name: eth1
      mtu: 9000
      addresses:
        - 10.1.0.4/24
      routes:
        - to: 10.20.0.0/16
          via: 10.1.0.254
      nameservers:
        addresses: [10.1.0.2]
    nic2:
      match: {{macaddress: "{B}"}}
      addresses: [10.2.0.4/24]
      routing-policy:
        - {{from: 10.2.0.0/24, table: 200}}
    eth3: {{}}
    eth4: {{}}
  vlans:
    v100:
      id: 100
      link: nic1
      mtu: 1500
      addresses: [10.3.0.4/24]
  bonds:
    bond0:
      interfaces: [eth3, eth4]
      parameters: {{mode: 802.3ad}}
"""
VERSION_2 = [
    ("      set-name", "     set-name", 6, ""),
    ("  ethernets:", "  ethernet:", 3, "ethernets"),
    ("  version: 2", "  version: 22", 2, "neither 1 nor 2"),
    ("macaddress", "macadress", 5, "macaddress"),
    ("      addresses:\n", "      adresses:\n", 8, "addresses"),
    ("      addresses:\n", "      address:\n", 8, "addresses"),
    ("- 10.1.0.4/24", "- 10.1.0.400/24", 9, "is not an IP address"),
    ("- 10.1.0.4/24", "- 10.1.0.4", 9, "prefix length"),
    ("via:", "gateway:", 12, "via"),
    ("via: 10.1.0.254", "via: 10.1.0.4", 12, "is an address of this host"),
    ("set-name: eth1", "set-name: eth/1\n      wakeonlan: maybe", 6, "is not an interface name"),
    ("  bonds:", "  bridges: {br0: {interfaces: [eth3]}}\n  bonds:", 28, "is in"),
    ("interfaces: [eth3, eth4]", "interface: [eth3, eth4]", 30, "interfaces"),
    ("via:", "vai:", 12, "via"),
    ("via: 10.1.0.254", "via: 10.7.0.254", 12, "in no network of the link"),
    ("to: 10.20.0.0/16", "to: 10.20.0.0/61", 11, "prefix length"),
    ("      mtu: 9000", "      mtu: 900000", 7, "65535"),
    ("mtu: 1500", "mtu: 9500", 26, "above that of its lower device"),
    ("link: nic1", "link: nic11", 25, "describes no such link"),
    ("      addresses: [10.2", "      set-name: eth1\n      addresses: [10.2", 17, f"of {A} too"),
    ("      addresses: [10.2", "      set-name: v100\n      addresses: [10.2", 24, f"of {B} too"),
    ("      addresses: [10.2", "      set-name: bond0\n      addresses: [10.2", 30, f"of {B} too"),
    ("link: nic1", "lnik: nic1", 25, "link"),
    ("id: 100", "id: 4095", 24, "4094"),
    ("[10.2.0.4/24]", "[10.1.0.4/24]", 17, "is requested on"),
    ("    nic2:", "    nic1:", 15, "twice"),
    ("table: 200", "tabel: 200", 19, "table"),
    ("from: 10.2.0.0/24, ", "", 19, "neither from nor mark"),
    ("from: 10.2", "to: 10.2", 19, "neither from nor mark"),
    ("mode: 802.3ad", "mode: 802.3da", 31, "802.3ad"),
    ("[eth3, eth4]", "[v100, eth4]", 29, "the VLAN on the bond"),
    ("[eth3, eth4]", "[eth3, eht4]", 30, "eth4"),
    ("mtu: 9000\n", "mtu: 9000\n      mtu: 1500\n", 8, "twice"),
    ("set-name: eth1", "set-name eth1", 6, ""),
    ("addresses: [10.3.0.4/24]", "addresses: [10.3.0.4/24", 27, ""),
]
GOOD_1 = f"""\
version: 1
config:
  - type: physical
    name: eth1
    mac_address: "{A}"
    subnets:
      - type: static
        address: 10.1.0.4/24
        gateway: 10.1.0.1
  - type: vlan
    name: v5
    vlan_link: eth1
    vlan_id: 5
"""
VERSION_1 = [
    ("mac_address", "macaddress", 5, "mac_address"),
    ("type: static", "type: statik", 7, "static"),
    ("        address: 10", "        adress: 10", 8, "address"),
    ("vlan_link: eth1", "vlan_link: eth2", 12, "describes no such link"),
    ("name: v5", "name: eth1", 10, "already a link"),
    ("type: vlan", "type: vlna", 10, "vlan"),
    ("        gateway: 10", "        via: 10", 9, "gateway"),
    ("gateway: 10.1.0.1", "gateway: 10.9.0.1", 9, "in no network of the link"),
]
GOOD_JSON = f"""\
{{"links": [
  {{"id": "a", "type": "phy", "mtu": 1500,
    "ethernet_mac_address": "{A}"}},
  {{"id": "b", "type": "vlan", "vlan_link": "a", "vlan_id": 5}}
 ],
 "networks": [
  {{"id": "n", "link": "a", "type": "ipv4",
    "ip_address": "10.1.0.4", "netmask": "255.255.255.0",
    "routes": [{{"network": "10.9.0.0", "netmask": "255.255.0.0", "gateway": "10.1.0.1"}}]}}
 ]}}
"""
JSON = [
    ('"link": "a"', '"link": "aa"', 7, "no link has this id"),
    ('"link": "a", ', "", 7, "without its link"),
    ("ethernet_mac_address", "mac_address", 2, "a link without a MAC address"),
    ("255.255.255.0", "255.255.0.255", 8, "is not a netmask"),
    ('"10.1.0.4", "netmask": "255.255.255.0"', '"10.1.0.4",\n"netmask": "255.x"', 9, "255.x"),
    ('{"id": "b", "type": "vlan"', '{"id": "a", "type": "vlan"', 4, "an earlier link has this id"),
    ('"gateway": "10.1.0.1"', '"gateway": "10.2.0.1"', 9, "in no network of the link"),
    ('"vlan_link": "a"', '"vlan_link": "c"', 4, "no link has this id"),
    ('"type": "ipv4"', '"type": "ipv4_dhpc"', 7, "ipv4_dhcp"),
    (' "networks"', ' "netwroks"', 6, "networks"),
]
GOOD_CONFIG = f"""\
[runtime]
dataplane-macs-to-ignore = {A}
[metadata]
platform = any
sources = auto
poll-interval = 10
[network]
drift = report
[interface {B}]
mtu = 9000
"""
CONFIG = [
    ("platform = any", "platfrom = any", 4, "platform"),
    ("platform = any", "platform = all", 4, "dmi"),
    ("[metadata]", "[metdata]", 3, "metadata"),
    (A, "fe:16:3e:00:6d:zz", 2, "is not a MAC address"),
    ("drift = report", "drift = enforced", 8, "enforce"),
    ("poll-interval = 10", "poll-interval = 10 # s", 6, '"#" begins a comment only'),
    ("mtu = 9000", "mut = 9000", 10, "mtu"),
    (f"[interface {B}]", "[interface eth0]", 9, "is not a MAC address"),
    ("sources = auto", "sources = openstak", 5, "openstack"),
]
GOOD = {"ini": GOOD_INI, "v2": GOOD_2, "v1": GOOD_1, "json": GOOD_JSON, "config": GOOD_CONFIG}
MISTAKES = [
    (kind, *row)
    for kind, rows in zip(GOOD, (INI, VERSION_2, VERSION_1, JSON, CONFIG))
    for row in rows
]


@pytest.mark.parametrize("kind", GOOD)
def test_the_documents_without_the_mistakes_have_no_faults(kind):
    assert [one.text for one in check_content(GOOD[kind].encode()).findings] == []


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "line", "says"),
    MISTAKES,
    ids=[f"{row[0]}-{number}" for number, row in enumerate(MISTAKES, 1)],
)
def test_a_mistake_is_found_on_its_line_with_its_cause(kind, right, wrong, line, says):
    assert GOOD[kind].count(right) >= 1
    text = GOOD[kind].replace(right, wrong, 1)
    found = [(one.line, one.text) for one in check_content(text.encode()).findings]
    assert any(number == line and says in text for number, text in found), found


@pytest.mark.parametrize("kind", GOOD)
def test_a_byte_order_mark_does_not_change_what_a_file_is_taken_for(kind):
    data = GOOD[kind].encode()
    assert check_content(b"\xef\xbb\xbf" + data) == check_content(data)


def test_a_configuration_of_one_section_may_begin_with_a_byte_order_mark():
    assert check_content(b"\xef\xbb\xbf[tuning]\r\nprofile = none\r\n").kind == "configuration"


def test_only_a_newline_ends_a_line_of_a_document():
    text = "[interface 02:00:00:00:00:01]\n; a\u2028b\x0cc\naddresses = 10.0.0.0/24\n"
    assert [finding.line for finding in check_content(text.encode()).findings] == [3]


def test_the_options_of_the_self_test_are_checked_as_its_command_line_is():
    text = "[selftest]\npeers = wan\nplan = slow\nprot = 5\nport =\ncolour = x\nTime = 1h\n"
    assert [finding[:3] for finding in check_content(text.encode()).findings] == [
        (3, "error", '[selftest] plan: "slow" is not a plan: quick, standard or full'),
        (4, "error", '[selftest] "prot": unknown option, ignoring it; did you mean "port"?'),
        (6, "warning", '[selftest] "colour": unknown option, ignoring it'),
        (7, "error", '[selftest] time: "1h" is not a number of seconds from 1 to 3600'),
    ]
