"""What a document describes twice is reported: one name, one NIC, one key; and nothing without a name is taken for another."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from platforms import faults, links, made
from worlds import nic, world

from neuca_tools.desired.bindings import bind_names
from neuca_tools.documents.check import check
from neuca_tools.model import NicRecord, Record

A, B = "fa:16:3e:00:00:01", "fa:16:3e:00:00:02"


def v1(*entries):
    return made("network-config", json.dumps({"version": 1, "config": entries}))


def physical(name, address, **more):
    subnets = [{"type": "static", "address": address}]
    return {"type": "physical", "name": name, "subnets": subnets, **more}


def test_the_second_link_of_one_name_in_version_1_is_reported():
    document = v1(physical("a", "10.1.0.1/24"), physical("a", "10.2.0.1/24", mac_address=A))
    assert links(document) == {"name a": ("up", None, None, ["10.1.0.1/24"])}
    assert faults(document) == [
        f'error: network-config {A} "config[1]": there is already a link "a", ignoring this one'
    ]


def test_the_second_vlan_of_one_name_in_version_1_is_reported():
    vlans = [
        {"type": "vlan", "name": "v", "vlan_link": "a", "vlan_id": number} for number in (5, 6)
    ]
    document = v1(physical("a", "10.1.0.1/24"), *vlans)
    assert [str(one.key) for one in document.links] == ["name a", "name a.5"]
    assert ["there is already a link" in text for text in faults(document)] == [True]


@pytest.mark.parametrize("kind", ["bonds", "bridges", "vlans"])
def test_the_second_link_of_one_name_in_version_2_is_reported(kind):
    other = {"id": 5, "link": "b"} if kind == "vlans" else {"interfaces": ["b"]}
    tree = {"version": 2, "ethernets": {"a": {"mtu": 1400}, "b": {}}, kind: {"a": other}}
    document = made("network-config", json.dumps(tree))
    assert links(document)["name a"][2] == 1400
    assert len(document.links) == 2
    assert ['there is already a link "a"' in text for text in faults(document)] == [True]


KEYS = """\
network:
  version: 2
  ethernets:
    ens3: {addresses: [10.2.0.5/24]}
    ens3: {addresses: [10.3.0.5/24]}
    ens4:
      mtu: 1400
      mtu: 1500
      addresses: [10.4.0.5/24, {10.5.0.5/24: {label: a, label: b}}]
"""


def test_a_key_of_yaml_that_occurs_twice_is_reported_with_its_path():
    document = made("network-config", KEYS)
    assert links(document)["name ens3"][3] == ["10.3.0.5/24"]
    twice = "this key occurs twice, ignoring the first"
    assert [text for text in faults(document) if twice in text] == [
        f'error: network-config "network.ethernets.ens3": {twice}',
        f'warning: network-config "network.ethernets.ens4.addresses[1].10.5.0.5/24.label": {twice}',
        f'warning: network-config "network.ethernets.ens4.mtu": {twice}',
    ]
    lines = {one.line: one.severity for one in check(KEYS.encode()).findings if twice in one.text}
    assert lines == {5: "error", 8: "warning", 9: "warning"}


def test_a_key_of_json_that_occurs_twice_is_reported():
    text = '{"links": [{"id": "a", "mtu": 9000, "mtu": 1500}], "links": [], "networks": []}'
    reasons = [text for text in faults(made("network_data.json", text)) if "twice" in text]
    assert [reason.partition(": this")[0] for reason in reasons] == [
        'error: network_data.json "links"'
    ]
    text = '{"links": [{"id": "a", "mtu": 1500,\n "mtu": 1500}],\n"networks": []}'
    (finding,) = [one for one in check(text.encode()).findings if "twice" in one.text]
    assert (finding.line, finding.severity) == (2, "warning")
    assert finding.text.startswith('"links[0].mtu": this key')
    same = '{"links": [], "networks": [], "version": 1, "version": 1}'
    assert any('"version": this key' in text for text in faults(made("network_data.json", same)))


def test_a_merge_key_is_no_repetition():
    text = "version: 2\nethernets:\n  a: &a {mtu: 1400}\n  b: {<<: *a, <<: *a, mtu: 1500}\n"
    assert faults(made("network-config", text)) == []


OPTIONS = [
    ("bond", {"bond-mode": "802.3ad", "bond_mode": "active-backup"}, "bond_mode"),
    ("bond", {"bond-mode": "802.3ad", "bond_mode": "4"}, ""),
    ("bond", {"bond-mode": "802.3ad", "bond_mode": ""}, ""),
    ("bonds", {"mode": "active-backup", "gratuitous-arp": 1, "gratuitious-arp": 2}, "itious"),
    ("bonds", {"all-slaves-active": True, "all-members-active": False}, "all-members-active"),
    ("bridges", {"ageing-time": 10, "aging-time": 20}, "aging-time"),
    ("bridges", {"ageing-time": 10, "aging-time": "10"}, ""),
]


@pytest.mark.parametrize(("kind", "options", "key"), OPTIONS)
def test_two_spellings_of_an_option_have_one_value(kind, options, key):
    if kind == "bond":
        document = v1({"type": kind, "name": "l", "bond_interfaces": ["a"], "params": options})
    else:
        link = {"interfaces": ["a"], "parameters": options}
        document = made("network-config", json.dumps({"version": 2, kind: {"l": link}}))
    errors = [fault for fault in document.faults if fault.severity == "error"]
    assert [key in fault.key for fault in errors] == [True] * bool(key)
    assert any(one.virtual for one in document.links) == (not key)


GATEWAYS = [
    {"gateway4": "10.1.0.1", "routes": [{"to": "default", "via": "10.1.0.2"}]},
    {"routes": [{"to": "default", "via": "10.1.0.1"}, {"to": "0.0.0.0/0", "via": "10.1.0.2"}]},
    {"gateway4": "10.1.0.1", "routes": [{"to": "default", "via": "10.1.0.1"}]},
]


@pytest.mark.parametrize("keys", GATEWAYS)
def test_another_gateway_of_a_family_has_no_effect_and_is_named(keys):
    nics = {"m": {"dhcp4": True}, "a": {"addresses": ["10.1.0.5/24"], **keys}}
    document = made("network-config", json.dumps({"version": 2, "ethernets": nics}))
    (link,) = [one for one in document.links if str(one.key) == "name a"]
    assert [*map(str, link.routing.gateways)] == ["10.1.0.1"]
    number = len(keys["routes"]) - 1
    assert faults(document) == [
        f'warning: network-config "ethernets.a": these keys have no effect: routes[{number}].via'
    ] * ("10.1.0.2" in str(keys))


def test_the_gateways_of_two_subnets_or_networks_are_one_and_the_other_is_named():
    subnets = [
        {"type": "static", "address": f"10.{number}.0.5/24", "gateway": f"10.{number}.0.1"}
        for number in (1, 2)
    ]
    document = v1(
        {**physical("m", "10.0.0.1/24"), "subnets": [{"type": "dhcp"}]},
        {**physical("a", ""), "subnets": subnets},
    )
    assert [text.rpartition(": ")[2] for text in faults(document)] == ["subnets[1].gateway"]
    networks = [
        {"link": "a", "type": "ipv4", "ip_address": one["address"], "gateway": one["gateway"]}
        for one in subnets
    ]
    networks.append({"link": "m", "type": "ipv4_dhcp"})
    links_ = [{"id": "a", "ethernet_mac_address": A}, {"id": "m", "ethernet_mac_address": B}]
    document = made("network_data.json", json.dumps({"links": links_, "networks": networks}))
    assert [text.rpartition(": ")[2] for text in faults(document)] == ["networks[1].gateway"]


def test_a_network_without_a_link_is_put_on_none():
    document = made(
        "network_data.json",
        json.dumps(
            {
                "links": [
                    {"id": "p0", "ethernet_mac_address": A},
                    {"type": "phy", "ethernet_mac_address": B},
                    {
                        "type": "bond",
                        "bond_mode": "802.3ad",
                        "bond_links": ["p0"],
                        "bond_primary": "",
                    },
                ],
                "networks": [
                    {"id": "z", "type": "ipv4", "ip_address": "10.1.1.6", "netmask": "24"}
                ],
            }
        ),
    )
    assert links(document)[B] == ("up", None, None, [])
    assert links(document)["bond bond0"] == ("up", None, None, [])
    assert faults(document) == [
        'error: network_data.json "networks[0].link": a network without its link, ignoring it'
    ]


SAME_NIC = """\
version: 2
ethernets:
  a: {match: {macaddress: "fa:16:3e:00:00:01"}, addresses: [10.2.0.5/24]}
  eth1: {addresses: [10.3.0.5/24]}
"""


def test_two_entries_for_one_nic_by_address_and_by_name_are_reported():
    device = nic(1, mac=A, permanent_mac=A, name="eth1")
    document, problems = bind_names(made("network-config", SAME_NIC), world(device), Record())
    assert links(document) == {A: ("up", None, None, ["10.2.0.5/24"])}
    text = (
        f'the document describes this NIC 2 times, as "{A}" and "eth1":'
        " of each setting, the first counts"
    )
    assert [(one.code, one.text, str(one.link)) for one in problems] == [("refused", text, A)]


def test_two_entries_for_one_vlan_by_address_and_by_name_are_reported():
    text = SAME_NIC.replace("  eth1: {addresses: [10.3.0.5/24]}", "  eth1: {}")
    text += "vlans:\n"
    text += "  v5: {link: a, id: 5, addresses: [10.5.0.1/24]}\n"
    text += "  w5: {link: eth1, id: 5, addresses: [10.5.1.1/24]}\n"
    device = nic(1, mac=A, permanent_mac=A, name="eth1")
    document, problems = bind_names(made("network-config", text), world(device), Record())
    assert links(document)[f"{A}.5"] == ("up", "v5", None, ["10.5.0.1/24"])
    text = (
        f'the document describes this VLAN 2 times, as "{A}.5" and "eth1.5":'
        " of each setting, the first counts"
    )
    assert [(one.code, one.text, str(one.link)) for one in problems] == [
        ("refused", text, f"{A}.5")
    ]


def test_a_nic_that_is_only_named_as_a_port_is_not_described_twice():
    text = SAME_NIC.replace(
        "  eth1: {addresses: [10.3.0.5/24]}\n", "bridges: {br0: {interfaces: [eth1]}}\n"
    )
    device = nic(1, mac=A, permanent_mac=A, name="eth1")
    assert bind_names(made("network-config", text), world(device), Record())[1] == []


def test_an_alternative_name_matches_unless_another_nic_has_it_as_its_own():
    text = "version: 2\nethernets:\n  ens4: {addresses: [10.3.0.5/24]}\n"
    other = nic(1, mac=A, permanent_mac=A, name="eth1", altnames=("ens4", "enp0s4"))
    document, problems = bind_names(made("network-config", text), world(other), Record())
    assert (list(links(document)), problems) == ([A], [])
    own = nic(2, mac=B, permanent_mac=B, name="ens4")
    document, _ = bind_names(made("network-config", text), world(other, own), Record())
    assert list(links(document)) == [B]
    pattern = text.replace("ens4: {", "x: {match: {name: 'en*'}, ")
    document, _ = bind_names(made("network-config", pattern), world(other, own), Record())
    assert list(links(document)) == [A, B]


def test_a_pattern_takes_no_interface_of_a_container_or_guest_of_the_host():
    text = "version: 2\nethernets:\n  x: {match: {name: 'e*'}, addresses: [10.3.0.5/24]}\n"
    virtual = [
        nic(2, mac=B, permanent_mac="", name="eni0a1b2c3d4", kind="veth", hardware=False),
        nic(3, mac=f"{B[:-1]}3", permanent_mac="", name="etap0", kind="tun", hardware=False),
    ]
    own = nic(1, mac=A, permanent_mac=A, name="ens5")
    document, _ = bind_names(made("network-config", text), world(own, *virtual), Record())
    assert list(links(document)) == [A]
    # In a container, there is no hardware but what is passed through to it.
    document, _ = bind_names(made("network-config", text), world(*virtual), Record())
    assert len(links(document)) == 2
    inside = world(own, *virtual, is_container=True)
    document, _ = bind_names(made("network-config", text), inside, Record())
    assert len(links(document)) == 3
    # A NIC that is passed through to it later takes nothing from what is configured.
    configured = Record(nics={B: NicRecord(name="eni0a1b2c3d4", applied="digest")})
    document, _ = bind_names(made("network-config", text), world(own, *virtual), configured)
    assert list(links(document)) == [A, B]


SWAPPED = f"""\
version: 2
ethernets:
  first: {{match: {{macaddress: "{A}"}}, set-name: eth1}}
  second: {{match: {{macaddress: "{B}"}}, set-name: eth0}}
  third: {{match: {{name: ens5}}, set-name: data0}}
bridges: {{br0: {{interfaces: [eth1, data0]}}}}
vlans: {{v5: {{link: eth0, id: 5}}}}
"""


def test_a_port_or_lower_device_with_a_new_name_is_the_nic_that_gets_this_name():
    macs = [A, B, "fa:16:3e:00:00:03"]
    names = [["eth0", "eth1", "ens5"], ["eth1", "eth0", "data0"]]
    for before_or_after in names:
        devices = [
            nic(index, mac=mac, permanent_mac=mac, name=name)
            for index, (mac, name) in enumerate(zip(macs, before_or_after), 1)
        ]
        document, problems = bind_names(made("network-config", SWAPPED), world(*devices), Record())
        (bridge,) = (link for link in document.links if link.key.kind == "bridge")
        assert list(map(str, bridge.virtual.members)) == [macs[0], macs[2]]
        assert f"{macs[1]}.5" in links(document)
        assert problems == []


@pytest.mark.parametrize(
    "entries",
    [
        'all: {match: {name: "eth*"}, set-name: eth1}',
        f'a: {{match: {{macaddress: "{B}"}}, set-name: eth1}}\n  b: {{match: {{macaddress: "{A}"}}, set-name: eth1}}',
    ],
)  # fmt: skip
def test_a_name_that_several_nics_would_get_means_the_one_that_has_it(entries):
    text = f"version: 2\nethernets:\n  {entries}\nbridges: {{br0: {{interfaces: [eth1]}}}}\n"
    devices = [
        nic(index, mac=mac, permanent_mac=mac, name=f"eth{index}")
        for index, mac in enumerate((A, B))
    ]
    document, problems = bind_names(made("network-config", text), world(*devices), Record())
    (bridge,) = (link for link in document.links if link.key.kind == "bridge")
    assert list(map(str, bridge.virtual.members)) == [B]
    assert problems == []
