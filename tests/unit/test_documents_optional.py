"""An optional item that cannot be used costs only itself: the document stays complete, so that the agent still removes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from platforms import faults, links, made, routes

MAC = "fa:16:3e:00:00:01"
LONG = "k8s-prod-cluster-worker-nodegroup-a-0123456789-server-abcdefghi.novalocal"


def hostname(text, kind="meta_data.json", key="hostname"):
    document = made(kind, json.dumps({key: text}))
    return document.hostname, faults(document)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LONG, LONG.partition(".")[0]),
        ("node.example.org.", "node.example.org"),
        ("node_a", "node_a"),
        (f"{'x' * 64}.org", None),
        ("two words", None),
        ("-a.org", None),
        ("ü", None),
    ],
)
@pytest.mark.parametrize(
    ("kind", "key"), [("meta_data.json", "hostname"), ("meta-data", "local-hostname")]
)
def test_a_host_name_of_the_platform_is_shortened_or_dropped(text, expected, kind, key):
    found, reasons = hostname(text, kind, key)
    assert found == expected
    assert [reason.partition(":")[0] for reason in reasons] == ["warning"] * (expected is None)


@pytest.mark.parametrize("mtu", [0, "0", "null", None, 0.0])
@pytest.mark.parametrize("kind", ["phy", "bond", "vlan"])
def test_an_mtu_of_nothing_requests_none(mtu, kind):
    found = [{"id": "p", "type": "phy", "ethernet_mac_address": MAC}]
    if kind == "vlan":
        found.append({"id": "v", "type": "vlan", "vlan_link": "p", "vlan_id": 4.0})
    if kind == "bond":
        found.append({"id": "b", "type": "bond", "bond_mode": "802.3ad", "bond_links": ["p"]})
    found[-1]["mtu"] = mtu
    document = made("network_data.json", json.dumps({"links": found, "networks": []}))
    assert faults(document) == []
    assert {mtu for _, _, mtu, _ in links(document).values()} == {None}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "network-config",
            f"version: 1\nconfig: [{{type: physical, name: a, mac_address: '{MAC}', mtu: 0}}]",
        ),
        (
            "network-config",
            f"version: 2\nethernets: {{a: {{match: {{macaddress: '{MAC}'}}, mtu: 0}}}}",
        ),
        (
            "GCE instance",
            json.dumps(
                {"networkInterfaces": [{"mac": "fa:16:3e:00:00:09"}, {"mac": MAC, "mtu": 0}]}
            ),
        ),
    ],
)
def test_an_mtu_of_zero_requests_none_in_every_format(kind, text):
    document = made(kind, text)
    assert (faults(document), links(document)[MAC][2]) == ([], None)


def test_an_integer_of_json_may_have_a_point_or_an_exponent():
    link = {"id": "p", "type": "phy", "ethernet_mac_address": MAC, "mtu": 1450.0}
    text = json.dumps({"links": [link], "networks": []})
    assert links(made("network_data.json", text))[MAC][2] == 1450
    assert links(made("network_data.json", text.replace("1450.0", "1.45e3")))[MAC][2] == 1450
    assert faults(made("network_data.json", text.replace("1450.0", "1450.5")))


@pytest.mark.parametrize("form", ["network: {config: disabled}", "config: disabled"])
def test_a_disabled_network_is_an_empty_document(form):
    document = made("network-config", form)
    assert (document.links, document.faults) == ((), ())


RULES = """\
version: 2
ethernets:
  ens3:
    addresses: [10.2.0.5/24]
    routes: [{to: default, via: 10.2.0.1, table: 101}]
    routing-policy:
      - {from: 10.2.0.5/24, table: 101, priority: 100}
      - {to: 10.9.0.7/16, table: 101}
      - {from: 'fd00::5/64', table: 101}
      - {from: 10.2.0.5}
"""


def test_the_prefix_of_a_rule_may_have_host_bits_and_a_rule_without_a_table_costs_only_itself():
    document = made("network-config", RULES)
    assert [text.rpartition(": ")[2] for text in faults(document)] == [
        "a rule without a table, ignoring it"
    ]
    assert faults(document)[0].startswith("warning: ")
    assert [(one.rule.source, one.rule.to, one.rule.table) for one in document.rules] == [
        ("10.2.0.0/24", "", 101),
        ("", "10.9.0.0/16", 101),
        ("fd00::/64", "", 101),
    ]
    assert routes(document) == [("0.0.0.0/0", "10.2.0.1", "name ens3")]


FOR_OTHERS = """\
version: 2
ethernets:
  ens3: {addresses: [10.2.0.5/24], macaddress: "01:00:00:00:00:01"}
  ens4: {match: {macaddress: "11:22:33:44:55:66"}, addresses: [10.4.0.5/24]}
  ens5:
    addresses: [10.5.0.5/24]
    routes:
      - {to: 10.6.0.0/16, type: local}
      - {to: 10.7.0.0/16, via: 10.5.0.1, table: 255}
      - {to: 10.8.0.0/16, via: 10.5.0.1, table: 31000}
      - {to: 10.9.0.0/16, via: 10.5.0.1}
    routing-policy: [{from: 10.5.0.5, table: 253}]
vlans:
  NM-1: {id: 5, link: ens3, networkmanager: {uuid: x}}
  v6: {id: 6, link: 53125f52-f9a7-4d2a-a853-5f3b9e02299f}
bonds:
  bond0: {interfaces: [ens4], parameters: {mode: active-backup, arp-interval: 15m, arp-ip-targets: [10.2.0.1]}}
"""


def test_what_only_other_programs_make_or_no_nic_has_is_left_to_them_and_no_error():
    document = made("network-config", FOR_OTHERS)
    assert {fault.severity for fault in document.faults} == {"warning"}
    assert len(document.faults) == 9
    assert routes(document) == [("10.9.0.0/16", "10.5.0.1", "name ens5")]
    assert document.rules == ()
    assert [str(link.key) for link in document.links] == ["name ens3", "name ens5"]


WORDS = """\
version: 2
ethernets: {ens3: {macaddress: permanent}, ens4: {}}
bonds: {bond0: {interfaces: [ens4], macaddress: Stable}}
bridges: {br0: {interfaces: [vx], macaddress: preserve}}
tunnels: {vx: {mode: vxlan, id: 1, link: ens3, macaddress: random}}
vlans: {v5: {id: 5, link: ens3, macaddress: stable-ssid}}
"""


def test_a_word_for_a_mac_address_costs_no_link():
    document = made("network-config", WORDS)
    reason = "only a MAC address can be set"
    assert [fault.reason.partition(",")[0] for fault in document.faults] == [reason] * 5
    assert {fault.severity for fault in document.faults} == {"warning"}
    assert {str(link.key) for link in document.links} == {
        "name ens3", "name ens4", "bond bond0", "bridge br0", "vxlan vx", "name ens3.5"
    }  # fmt: skip


def test_a_link_that_can_be_made_by_no_program_is_an_error():
    bond = 'bonds: {bond0: {macaddress: "01:00:00:00:00:01", interfaces: [ens4]}}'
    document = made("network-config", f"version: 2\nethernets: {{ens4: {{}}}}\n{bond}")
    assert [text.partition(":")[0] for text in faults(document)] == ["error"]
    assert [str(link.key) for link in document.links] == ["name ens4"]
