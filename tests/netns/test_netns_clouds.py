"""The documents of Azure, Oracle Cloud and Hetzner on real links: each NIC answers from its own address."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from lab import MANAGEMENT_MAC, mac

FAR = "198.51.100.1"


def azure(address, number):
    return {
        "macAddress": address.replace(":", "").upper(),
        "ipv4": {
            "ipAddress": [{"privateIpAddress": f"10.1.{number}.4", "publicIpAddress": ""}],
            "subnet": [{"address": f"10.1.{number}.0", "prefix": "24"}],
        },
        "ipv6": {"ipAddress": []},
    }


def vnic(address, number):
    return {
        "privateIp": f"10.1.{number}.4",
        "vlanTag": number,
        "macAddr": address.upper(),
        "virtualRouterIp": f"10.1.{number}.1",
        "subnetCidrBlock": f"10.1.{number}.0/24",
    }


NICS = [(MANAGEMENT_MAC, 0), (mac(1), 1), (mac(2), 2)]
AZURE = {
    "/metadata/instance?api-version=2021-08-01": {
        "compute": {"vmId": "v-1"},
        "network": {"interface": [azure(*one) for one in NICS]},
    }
}
ORACLE = {
    "/opc/v2/instance/": {"id": "ocid1.instance.a"},
    "/opc/v2/vnics/": [vnic(*one) for one in NICS],
}
PRIVATE = f"""
- {{ip: 10.1.1.4, alias_ips: [10.1.1.5], mac_address: "{mac(1)}", network: 10.0.0.0/8, gateway: 10.0.0.1}}
"""
HETZNER = {
    "/hetzner/v1/metadata/instance-id": "4711",
    "/hetzner/v1/metadata/private-networks": PRIVATE,
    "/hetzner/v1/userdata": "",
}


@pytest.fixture
def cloud(lab):
    """Configures the agent for a service with these paths, at its well-known address."""
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)

    def start(kind, paths):
        service = lab.service()
        service.tokens = False
        service.tree = {
            path: body if isinstance(body, str) else json.dumps(body)
            for path, body in paths.items()
        }
        lab.configure(sources=kind)
        return lab

    return start


def way(lab, source):
    """The device and the next hop of what this address of the guest sends off its subnet."""
    found = lab.look(f"route get {FAR} from {source}")[0]
    return found["dev"], found["gateway"]


@pytest.mark.parametrize(("kind", "paths"), [("azure", AZURE), ("oracle", ORACLE)])
def test_each_secondary_nic_answers_from_its_own_address(cloud, kind, paths):
    lab = cloud(kind, paths)
    before = lab.addresses("mgmt0")
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    assert (lab.role(MANAGEMENT_MAC), lab.role(mac(1)), lab.role(mac(2))) == (
        "management",
        "dataplane",
        "dataplane",
    )
    assert lab.addresses("mgmt0") == before
    for number in (1, 2):
        assert lab.addresses(f"dp{number}") == {f"10.1.{number}.4/24"}
        assert way(lab, f"10.1.{number}.4") == (f"dp{number}", f"10.1.{number}.1")
    assert [one[1] for one in lab.routes("default")] == ["mgmt0"]


def test_a_private_network_of_hetzner_is_reached_through_its_gateway(cloud):
    lab = cloud("hetzner", HETZNER)
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    assert lab.addresses("dp1") == {"10.1.1.4/32", "10.1.1.5/32"}
    assert [one[:2] for one in lab.routes("10.0.0.0/8")] == [("10.0.0.1", "dp1")]
    assert lab.sysctl("net/ipv6/conf/dp1/mtu") == "1450"
