"""DNS servers and search domains of links: what a document may ask for, and what of a platform counts only on request."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from platforms import made
from worlds import Agent, mac, machine, nic

from neuca_tools.documents import parse
from neuca_tools.documents.platform import netplan, openstack
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.tree import from_json, from_yaml
from neuca_tools.model import Document

ONE = mac(2)


def settings(text):
    document = parse(f"[interface {ONE}]\n{text}")
    return dict(document.links[0].device), [fault.reason for fault in document.faults]


def test_servers_and_domains_are_kept_in_order():
    text = "nameservers = 10.0.0.53, fd00::53\nsearch = One.Example.org., two.example.net\n"
    assert settings(text) == (
        {"nameservers": "10.0.0.53 fd00::53", "search": "one.example.org two.example.net"},
        [],
    )


@pytest.mark.parametrize(
    "domain",
    [
        "com",
        ".",
        "~.",
        "~example.org",
        "google.internal",
        "internal",
        "-x.org",
        "x" * 300,
    ],
)
def test_a_domain_that_would_take_more_than_its_own_names_is_a_fault(domain):
    found, faults = settings(f"search = {domain}\n")
    assert (found, len(faults)) == ({}, 1)


@pytest.mark.parametrize("server", ["127.0.0.53", "0.0.0.0", "ff02::1", "dns.example.org", ""])
def test_a_server_that_is_no_host_is_no_server(server):
    found, _ = settings(f"nameservers = {server}\n")
    assert found == {}


NETPLAN = """network:
  version: 2
  ethernets:
    one:
      match: {macaddress: "%s"}
      addresses: [10.0.0.1/24]
      nameservers: {addresses: [10.0.0.53, nonsense], search: [dp.example.net, com]}
"""
OPENSTACK = {
    "links": [{"id": "a", "type": "phy", "ethernet_mac_address": ONE}],
    "networks": [
        {
            "link": "a",
            "type": "ipv4",
            "ip_address": "10.0.0.1",
            "netmask": "255.255.255.0",
            "services": [
                {"type": "dns", "address": "10.0.0.53"},
                {"type": "ntp", "address": "10.0.0.1"},
            ],
        }
    ],
}


def read_netplan():
    return netplan.read(
        Part(from_yaml((NETPLAN % ONE).encode(), "network-config"), "network-config")
    )


def read_version_1(*entries):
    return made("network-config", f"version: 1\nconfig: [{', '.join(entries)}]\n")


def test_what_netplan_says_is_offered_and_the_unusable_is_named():
    found = read_netplan()
    assert found.links[0].offers == (("nameservers", "10.0.0.53"), ("search", "dp.example.net"))
    assert found.links[0].device == ()
    assert [(fault.severity, fault.value) for fault in found.faults] == [
        ("warning", "nonsense"),
        ("warning", "com"),
    ]


def test_what_version_1_says_of_a_subnet_or_an_interface_is_offered():
    subnet = "{type: %s, dns_nameservers: %s, dns_search: [dp.example.net]}"
    for kind in ("static, address: 10.0.0.1/24", "dhcp4", "manual"):
        for servers in ("[10.0.0.53, 10.0.0.54]", "10.0.0.53 10.0.0.54"):
            own = subnet % (kind, servers)
            found = read_version_1(f"{{type: physical, name: dp1, subnets: [{own}]}}")
            offers = (("nameservers", "10.0.0.53 10.0.0.54"), ("search", "dp.example.net"))
            assert found.links[0].offers == offers
            assert found.faults == ()
    entry = "{type: nameserver, interface: dp1, address: 10.0.0.53, search: dp.example.net}"
    found = read_version_1("{type: physical, name: dp1}", entry, "{type: physical, name: dp2}")
    assert [link.offers for link in found.links] == [
        (("nameservers", "10.0.0.53"), ("search", "dp.example.net")),
        (),
    ]
    found = read_version_1("{type: physical, name: dp1}", entry.replace("interface: dp1, ", ""))
    assert found.links[0].offers == ()


def test_what_openstack_says_is_offered():
    tree = from_json(json.dumps(OPENSTACK).encode(), "network_data.json")
    found = openstack.read(Part(tree, "network_data.json"))
    assert found.links[0].offers == (("nameservers", "10.0.0.53"),)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("dns = no\n", {}),
        ("dns = per-link\n", {"nameservers": "10.0.0.53", "search": "dp.example.net"}),
        (
            "dns = per-link\nsearch = own.example.net\n",
            {"nameservers": "10.0.0.53", "search": "own.example.net"},
        ),
    ],
)
def test_the_offer_of_a_platform_counts_only_on_request(text, wanted):
    one = Agent(machine(nic(1, "mgmt0"), nic(2), mgmt=1))
    own = parse(f"[interface {ONE}]\n{text}").links if text else ()
    one.document = Document(links=own, platform=read_netplan())
    requests = one.survey().resolution.requests
    assert dict(next(one for key, one in requests.items() if key.mac == ONE).device) == wanted
