"""Every cloud's document gives the same roles, names and rules in whatever order it lists the NICs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from itertools import permutations

import pytest
from platforms import faults, made
from worlds import mac, nic, route, world

from neuca_tools.desired.policy import Policy
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.model import Document, Record

SECONDARY = (2, 3, 4)
NICS = (1, *SECONDARY)
DHCP = 16  # RTPROT_DHCP (linux/rtnetlink.h)


def ec2(order):
    nics = {
        mac(n): {"local-ipv4s": f"10.0.{n}.9", "subnet-ipv4-cidr-block": f"10.0.{n}.0/24"}
        for n in order
    }
    return "EC2 network", {"mac": mac(1), "macs": nics}


def alibaba(order):
    nics = {
        mac(n): {
            "private-ipv4s": f'["10.0.{n}.9"]',
            "vswitch-cidr-block": f"10.0.{n}.0/24",
            "gateway": f"10.0.{n}.253",
        }
        for n in order
    }
    return "EC2 network", {"mac": mac(1), "macs": nics}


def azure(order):
    nics = [
        {
            "macAddress": mac(n).replace(":", "").upper(),
            "ipv4": {
                "ipAddress": [{"privateIpAddress": f"10.0.{n}.9"}],
                "subnet": [{"address": f"10.0.{n}.0", "prefix": "24"}],
            },
        }
        for n in order
    ]
    return "Azure instance", {"network": {"interface": nics}}


def gce(order):
    nics = [{"mac": mac(n), "ip": f"10.0.{n}.9", "gateway": f"10.0.{n}.1"} for n in order]
    at = str(order.index(2))
    tagged = {"5": {"mac": mac(50), "ip": "10.0.50.9", "gateway": "10.0.50.1"}}
    return "GCE instance", {"networkInterfaces": nics, "vlanNetworkInterfaces": {at: tagged}}


def oracle(order):
    nics = [
        {
            "macAddr": mac(n),
            "privateIp": f"10.0.{n}.9",
            "virtualRouterIp": f"10.0.{n}.1",
            "subnetCidrBlock": f"10.0.{n}.0/24",
        }
        for n in order
    ]
    return "OCI VNICs", {"vnics": nics}


def oracle_metal(order):
    """NIC 3 is the second physical one, 2 and 4 are VLANs on it."""
    kind, tree = oracle(order)
    for number, vnic in zip(order, tree["vnics"]):
        vnic.update(nicIndex=int(number != 1), vlanTag=number if number in (2, 4) else 0)
    return kind, tree


def hetzner(order):
    nics = [
        {
            "mac_address": mac(n),
            "ip": f"10.0.{n}.9",
            "network": f"10.0.{n}.0/24",
            "gateway": f"10.0.{n}.1",
        }
        for n in order
        if n != 1
    ]
    return "Hetzner private networks", nics


def openstack(order):
    links = [{"id": f"l{n}", "type": "phy", "ethernet_mac_address": mac(n)} for n in order]
    networks = [
        {
            "id": f"n{n}",
            "link": f"l{n}",
            "type": "ipv4",
            "ip_address": f"10.0.{n}.9",
            "netmask": "24",
            **({"gateway": "10.0.1.254"} if n == 1 else {}),
        }
        for n in order
    ]
    return "network_data.json", {"links": links, "networks": networks}


def version_1(order):
    config = [
        {
            "type": "physical",
            "name": f"n{n}",
            "mac_address": mac(n),
            "subnets": [
                {"type": "dhcp4"} if n == 1 else {"type": "static", "address": f"10.0.{n}.9/24"}
            ],
        }
        for n in order
    ]
    return "network-config", {"version": 1, "config": config}


def version_2(order):
    ethernets = {
        f"n{n}": {
            "match": {"macaddress": mac(n)},
            "set-name": f"n{n}",
            **({"dhcp4": True} if n == 1 else {"addresses": [f"10.0.{n}.9/24"]}),
        }
        for n in order
    }
    return "network-config", {"version": 2, "ethernets": ethernets}


CLOUDS = (ec2, alibaba, azure, gce, oracle, oracle_metal, hetzner, openstack, version_1, version_2)


def outcome(cloud, order):
    """Roles, links and rules of a guest with these NICs, of which NIC 1 has the default route."""
    devices = [
        nic(10 + n, f"eth{n}", mac=mac(n), permanent_mac=mac(n), up=True, carrier=True)
        for n in (1, *SECONDARY)
    ]
    seen = world(
        *devices,
        addresses={11: "10.0.1.9/24"},
        routes=[route("0.0.0.0/0", 11, "10.0.1.254", 100, DHCP)],
        metadata=11,
        age=9999.0,
    )
    kind, tree = cloud(order)
    document = Document(platform=made(kind, json.dumps(tree)))
    assert faults(document.platform) == []
    found = resolve_state(document, Settings(Policy(), ()), seen, Record())
    links = {
        str(link.key): (link.role, link.name, tuple(map(str, link.addresses)))
        for link in found.desired.links.values()
    }
    hops = {str(hop) for hop in found.desired.hops}
    rules = {(str(rule), str(key)) for rule, key in found.desired.rules.items()}
    return dict(found.roles.by_mac), links, hops, rules


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_order_of_the_secondary_nics_changes_nothing(cloud):
    first = outcome(cloud, (1, *SECONDARY))
    roles = first[0]
    assert roles[mac(1)] == "management"
    assert "dataplane" in roles.values()
    for order in permutations(SECONDARY):
        assert outcome(cloud, (1, *order)) == first


def test_the_order_of_all_nics_of_azure_changes_nothing():
    first = outcome(azure, (1, *SECONDARY))
    for order in permutations((1, *SECONDARY)):
        assert outcome(azure, order) == first


@pytest.mark.parametrize("leased", [1, 2, None])
@pytest.mark.parametrize("answered", [1, 2, 3])
def test_whatever_the_order_of_azure_the_nic_that_the_answer_came_through_is_the_primary_one(
    answered, leased
):
    """Also if it is not the first NIC of the bus; another one with the default route keeps that."""
    devices = [nic(10 + n, mac=mac(n), permanent_mac=mac(n), up=True, carrier=True) for n in NICS]
    seen = world(
        *devices,
        addresses={10 + n: f"10.0.{n}.9/24" for n in {answered, leased} if n},
        routes=[route("0.0.0.0/0", 10 + leased, "10.0.1.1", 100, DHCP)] if leased else (),
        age=9999.0,
    )
    for order in permutations(NICS):
        kind, tree = azure(order)
        document = Document(platform=made(kind, json.dumps(tree)))
        found = resolve_state(document, Settings(Policy(origin=mac(answered)), ()), seen, Record())
        management = {n for n in NICS if found.roles.role(mac(n)) == "management"}
        assert management == {answered, leased} - {None}


@pytest.mark.parametrize(("cloud", "key"), [(gce, "networkInterfaces"), (oracle, "vnics")])
def test_an_unusable_first_item_does_not_make_the_second_nic_the_primary_one(cloud, key):
    kind, tree = cloud((1, *SECONDARY))
    tree[key][0] = None
    assert made(kind, json.dumps(tree)).management == ()
    if cloud is gce:
        assert f"{mac(2)}.5" in [str(link.key) for link in made(kind, json.dumps(tree)).links]
