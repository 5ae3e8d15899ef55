"""What it costs to read a document grows with its length, whatever construct it is long of: lines are counted, no clock.

Only what Python itself does is counted. What C functions copy shows in the processor time of a fuzz campaign.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys

import pytest
from worlds import Agent, machine, nic

from neuca_tools.documents import find_document, parse, redact_text
from neuca_tools.documents.platform import combined
from neuca_tools.model import Document

SHORT, FACTOR = 40, 4
LINEAR = 1.5  # times FACTOR: a quadratic reader has FACTOR squared


def steps(action, *arguments):
    """The number of lines of Python that were run."""
    count = 0

    def trace(_, event, __):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action(*arguments)
    finally:
        sys.settrace(before)
    return count


def assert_linear(action, make):
    # What is imported or compiled at first use is not counted, nor is a text that was just read.
    action(make(SHORT + 1))
    short, long = (steps(action, make(size)) for size in (SHORT, SHORT * FACTOR))
    assert long < short * FACTOR * LINEAR


def joined(line):
    """A text of as many lines as asked, each made of its number."""
    return lambda size: "".join(line(number) for number in range(size))


def mac(number):
    return f"02{number:010x}"


def with_colons(number):
    return ":".join(mac(number)[at : at + 2] for at in range(0, 12, 2))


def address(number):
    return f"10.{number >> 8}.{number & 255}.1/24"


# --- NEuca's own format -------------------------------------------------------------------------------------

OWN = {
    "[interfaces]": joined(lambda n: f"[interfaces]\n{mac(n)} = up:ipv4:{address(n)}\n"),
    "the same link": joined(lambda _: f"[interfaces]\n{mac(1)} = up\n"),
    "sections": joined(lambda n: f"[interface {mac(n)}]\nmtu = 9000\nname = data\n"),
    "settings": joined(lambda n: f"[interface {mac(1)}]\nsysctl.net.a{n} = 1\n"),
    "unknown settings": joined(lambda n: f"[interface {mac(1)}]\nk{n} = 1\n"),
    "VLANs": joined(lambda n: f"[vlan {mac(1)}.{n + 1}]\naddresses = {address(n)}\n"),
    "bonds": joined(lambda n: f"[bond b{n}]\nmode = 1\nmembers = {mac(n)}\n"),
    "bridges on bridges": joined(lambda n: f"[bridge b{n}]\nmembers = bridge b{n + 1}\n"),
    "routes": joined(lambda n: f"[routes]\n{address(n)[:-4]}0/24 = 10.0.0.1\n"),
    "users": joined(lambda n: f"[users]\nu{n} = yes:ssh-rsa AAAA\n"),
    "keys of one user": lambda size: f"[users]\na = yes{':ssh-rsa AAAA' * size}\n",
    "scripts": joined(lambda n: f"[scripts]\ns{n} = #!/bin/sh\n  true\n"),
    "empty lines of a script": lambda size: "[scripts]\na =\n" + "\n" * size,
    "storage": joined(lambda n: f"[storage]\nd{n} = iscsi:10.0.0.1:3260:{n}:u:s:yes\n"),
    "what is no line": joined(lambda n: f"[global]\nnonsense {n}\n"),
    "unknown sections": joined(lambda n: f"[s{n}]\n"),
    "addresses": lambda size: (
        f"[interface {mac(1)}]\naddresses = {', '.join(map(address, range(size)))}\n"
    ),
    "ranges of CPUs": lambda size: f"[interface {mac(1)}]\nrps = {','.join(['0-8191'] * size)}\n",
    "queues": lambda size: f"[interface {mac(1)}]\nxps = {' / '.join(['0-8191'] * size)}\n",
    "MIME headers": lambda size: "A: b\n" * size + "MIME-Version: 1.0\n\n",
}


def own(text):
    found = find_document(text.encode())
    if found is not None:
        parse(found)
        redact_text(found)


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_reading_a_long_document_costs_in_proportion(make):
    assert_linear(own, make)


def test_a_range_of_cpus_costs_the_same_whatever_its_length():
    first, short, long = (f"[interface {mac(1)}]\nrps = 0-{last}\n" for last in (4, 3, 8191))
    own(first)
    assert steps(own, short) == steps(own, long)


# --- the platforms' formats ---------------------------------------------------------------------------------


def objects(name, one, **more):
    return lambda size: {**more, name: [one(number) for number in range(size)]}


def named(name, one, **more):
    return lambda size: {**more, name: dict(one(number) for number in range(size))}


V2 = {"version": 2, "ethernets": {"e0": {"match": {"macaddress": with_colons(1)}}}}
NIC = {"id": "l", "type": "phy", "ethernet_mac_address": with_colons(1)}
PLATFORM = {
    "links": (
        "network_data.json",
        objects("links", lambda n: {**NIC, "id": f"l{n}", "ethernet_mac_address": with_colons(n)}),
    ),
    "links that are one": ("network_data.json", objects("links", lambda _: NIC)),
    "networks": (
        "network_data.json",
        objects(
            "networks",
            lambda n: {"link": "l", "type": "ipv4", "ip_address": address(n)},
            links=[NIC],
        ),
    ),
    "networks of links that are missing": (
        "network_data.json",
        lambda size: {
            "links": [{**NIC, "id": f"l{n}"} for n in range(size)],
            "networks": [{"link": f"n{n}", "type": "ipv4"} for n in range(size)],
        },
    ),
    "servers": (
        "network_data.json",
        objects("services", lambda n: {"type": "dns", "address": f"10.0.{n}.1"}),
    ),
    "ethernets": ("network-config", named("ethernets", lambda n: (f"e{n}", {}), version=2)),
    "bridges that DHCP is on, one on the other": (
        "network-config",
        named("bridges", lambda n: (f"b{n}", {"dhcp4": True, "interfaces": [f"b{n + 1}"]}), **V2),
    ),
    "bridges that DHCP is on, all on one NIC": (
        "network-config",
        named("bridges", lambda n: (f"b{n}", {"dhcp4": True, "interfaces": ["e0"]}), **V2),
    ),
    "VLANs": (
        "network-config",
        named("vlans", lambda n: (f"v{n}", {"id": n + 1, "link": "e0"}), **V2),
    ),
    "links with an unknown key": (
        "network-config",
        named("ethernets", lambda n: (f"e{n}", {"zebra": 1, "mtu": "x"}), version=2),
    ),
    "unknown keys of one link": (
        "network-config",
        lambda size: {"version": 2, "ethernets": {"e0": {f"k{n}": n for n in range(size)}}},
    ),
    "VLANs, one on the other": (
        "network-config",
        named("vlans", lambda n: (f"v{n}", {"id": n + 1, "link": f"v{n + 1}"}), **V2),
    ),
    "members that are only named": (
        "network-config",
        lambda size: {
            "version": 1,
            "config": [
                {"type": "bond", "name": "b", "bond_interfaces": [f"e{n}" for n in range(size)]}
            ],
        },
    ),
    "NICs of version 1": (
        "network-config",
        objects("config", lambda n: {"type": "physical", "name": f"e{n}"}, version=1),
    ),
    "addresses in as many blocks": (
        "EC2 network",
        lambda size: {
            "macs": {
                with_colons(1): {
                    "device-number": "1",
                    "ipv6s": " ".join(f"fd00:1::{n:x}" for n in range(size)),
                    "subnet-ipv6-cidr-blocks": " ".join(f"fd01:{n:x}::/64" for n in range(size)),
                }
            }
        },
    ),
    "tags": (
        "meta_data.json",
        objects("devices", lambda n: {"type": "nic", "mac": with_colons(n), "tags": ["mgmt"]}),
    ),
}


def of_platform(kind):
    def read(tree):
        text = combined.reduce_documents({kind: json.dumps(tree).encode()})
        combined.parse(text)
        combined.redacted_text(text)

    return read


@pytest.mark.parametrize(("kind", "make"), PLATFORM.values(), ids=PLATFORM)
def test_reading_a_long_document_of_a_platform_costs_in_proportion(kind, make):
    assert_linear(of_platform(kind), make)


def test_finding_what_bridges_are_made_of_costs_in_proportion():
    """A pass asks for the role of each: here, one is on the other."""

    def look(tree):
        agent = Agent(machine(*map(nic, range(1, 3)), mgmt=1))
        text = combined.reduce_documents({"network-config": json.dumps(tree).encode()})
        agent.document = Document(platform=combined.parse(text))
        agent.survey()

    assert_linear(look, PLATFORM["bridges that DHCP is on, one on the other"][1])


@pytest.mark.parametrize(
    "make",
    [
        lambda size: "a:\n" + "".join(f"  <<: {{k{n}: 1}}\n" for n in range(size)),
        lambda size: "a:\n  <<:\n" + "".join(f"  - {{k{n}: 1}}\n" for n in range(size)),
    ],
)
def test_merging_mappings_in_yaml_costs_in_proportion(make):
    assert_linear(lambda text: combined.reduce_documents({"network-config": text.encode()}), make)
