"""The documents of Azure, Oracle Cloud and Hetzner on real links: each NIC answers from its own address."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import cloudmocks
import pytest
from lab import MANAGEMENT_MAC, mac

FAR = "198.51.100.1"
NICS = [(MANAGEMENT_MAC, 0), (mac(1), 1), (mac(2), 2)]


@pytest.fixture
def cloud(lab):
    """Configures the agent for the service of this kind, at its well-known address."""
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)

    def start(kind):
        lab.service().strict = getattr(cloudmocks, kind)(NICS)
        lab.configure(sources=kind)
        return lab

    return start


def way(lab, source):
    """The device and the next hop of what this address of the guest sends off its subnet."""
    found = lab.look(f"route get {FAR} from {source}")[0]
    return found["dev"], found["gateway"]


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        ("azure", 24),
        ("oracle", 24),
        ("ec2", 24),
        ("openstack", 24),
        ("gce", 32),
        ("digitalocean", 24),
    ],
)
def test_each_secondary_nic_answers_from_its_own_address(cloud, kind, length):
    lab = cloud(kind)
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
        assert lab.addresses(f"dp{number}") == {f"10.1.{number}.4/{length}"}
        assert way(lab, f"10.1.{number}.4") == (f"dp{number}", f"10.1.{number}.1")
    assert [one[1] for one in lab.routes("default")] == ["mgmt0"]


@pytest.mark.parametrize("lists", ["no NIC", "other NICs"])
@pytest.mark.parametrize("kind", ["azure", "oracle", "ec2", "openstack", "gce"])
def test_a_list_without_the_nic_through_which_it_came_removes_nothing(cloud, kind, lists):
    """Such a list is that of another guest, or of a service that does not know the NICs now."""
    lab = cloud(kind)
    assert lab.once().code == 0
    before = {name: lab.addresses(name) for name in ("dp1", "dp2")}
    rules = lab.look("rule show")
    service = lab.metadata.strict
    service.times = None  # several queries follow each other, where a guest polls every ten seconds
    if lists == "no NIC":
        service.paths = {path: without_nics(path, tree) for path, tree in service.paths.items()}
    else:
        service.paths = getattr(cloudmocks, kind)([("02:00:00:00:77:77", 0), NICS[2]]).paths
    for _ in range(3):
        done = lab.once()
        assert done.code != 0, done
    assert {name: lab.addresses(name) for name in ("dp1", "dp2")} == before
    assert lab.look("rule show") == rules
    code, status = lab.status()
    assert (code != 0, status["document"]["stale"]) == (True, True), status


def without_nics(path, tree):
    if path.endswith("/macs/"):
        return b""
    if isinstance(tree, list):
        return []
    names = {"network": {}, "networkInterfaces": [], "links": [], "networks": []}
    return (
        {**tree, **{name: names[name] for name in names.keys() & tree.keys()}}
        if isinstance(tree, dict)
        else tree
    )


def test_a_private_network_of_hetzner_is_reached_through_its_gateway(cloud):
    lab = cloud("hetzner")
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    assert lab.addresses("dp1") == {"10.1.1.4/32", "10.1.1.5/32"}
    assert [one[:2] for one in lab.routes("10.1.1.0/24")] == [("10.1.1.1", "dp1")]
    assert lab.sysctl("net/ipv6/conf/dp1/mtu") == "1450"


def test_the_rules_of_a_netplan_document_lead_each_address_through_its_own_nic(cloud, tmp_path):
    lab = cloud("openstack")
    texts = {"meta-data": "instance-id: i\n", "user-data": "#cloud-config\n"}
    texts["network-config"] = json.dumps(cloudmocks.netplan(NICS))
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    lab.configure(sources=f"nocloud={tmp_path}")
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    for number in (1, 2):
        assert way(lab, f"10.1.{number}.4") == (f"dp{number}", f"10.1.{number}.1")
    assert lab.plan() == []
    plain = {"version": 2, "ethernets": {"dp1": {"addresses": ["10.1.1.4/24"]}}}
    (tmp_path / "network-config").write_text(json.dumps(plain))
    assert lab.once().code == 0
    assert [one for one in lab.look("rule show") if one["src"] != "all"] == []
    assert lab.plan() == []
