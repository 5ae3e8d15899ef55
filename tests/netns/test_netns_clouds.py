"""The documents of Azure, Oracle Cloud and Hetzner on real links: each NIC answers from its own address."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import cloudmocks
import pytest
from lab import MANAGEMENT_MAC, SERVICE, mac

from neuca_tools.sources import _KINDS, Surroundings

FAR = "198.51.100.1"
SERVICE6 = "fd00:ec2::254"
NICS = [(MANAGEMENT_MAC, 0), (mac(1), 1), (mac(2), 2)]


@pytest.fixture
def cloud(lab):
    """Starts the service of this kind at its well-known address, and configures the agent for it."""
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)

    def start(kind):
        address = _KINDS[kind].make("", Surroundings()).url.address
        lab.service(address=address).strict = getattr(cloudmocks, kind)(NICS)
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
        ("alibaba", 24),
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


@pytest.mark.parametrize("kind", ["azure", "oracle", "gce", "hetzner"])
def test_the_hosts_of_a_subnet_are_reached_through_its_nic(cloud, kind):
    """Without a source address too; and no packet has that of another NIC."""
    lab = cloud(kind)
    assert lab.once().code == 0
    for number, other in ((1, 2), (2, 1)):
        assert lab.look(f"route get 10.1.{number}.77")[0]["dev"] == f"dp{number}"
        if kind != "hetzner":  # which has no gateway to answer through
            found = lab.look(f"route get 10.1.{number}.77 from 10.1.{other}.4")[0]
            assert (found["dev"], found["gateway"]) == (f"dp{other}", f"10.1.{other}.1")


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)])
def test_the_nic_that_reaches_the_service_of_azure_is_management_wherever_it_is_listed(
    cloud, order
):
    lab = cloud("azure")
    lab.metadata.strict.times = None  # several queries follow each other
    lab.metadata.strict.paths = cloudmocks.azure([NICS[number] for number in order]).paths
    assert "mgmt0" not in " ".join(lab.plan())
    assert lab.once().code == 0
    roles = ("management", "dataplane", "dataplane")
    assert tuple(map(lab.role, (MANAGEMENT_MAC, mac(1), mac(2)))) == roles
    rules = lab.look("rule show")
    lab.metadata.strict.paths = cloudmocks.azure(NICS).paths
    assert (lab.once().code, lab.plan(), lab.look("rule show")) == (0, [], rules)


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


# What systemd-imdsd adds in its locked mode (systemd 261 and later, systemd.imds.network=locked).
LOCKED = (
    "-{family} route add prohibit {host}",
    "-{family} rule add fwmark 0x7fff0815 lookup 2147420181",
    "-{family} route add {host} dev mgmt0 table 2147420181",
)


def lock(lab, host):
    for words in LOCKED:
        lab.ip(words.format(family=6 if ":" in host else 4, host=host))


@pytest.mark.parametrize(
    "kind", ["azure", "oracle", "ec2", "openstack", "gce", "hetzner", "digitalocean"]
)
def test_a_service_that_systemd_imdsd_has_locked_is_read_and_its_lock_stays(cloud, kind):
    """A socket that is bound to its device passes the prohibit route."""
    lab = cloud(kind)
    lock(lab, SERVICE)
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    assert lab.role(MANAGEMENT_MAC) == "management"
    assert lab.role(mac(1)) == "dataplane"


def test_the_service_of_ec2_is_read_by_ipv6_where_it_is_locked(cloud):
    lab = cloud("ec2")
    strict = lab.metadata.strict
    lab.service(address=SERVICE6).strict = strict
    lab.configure(sources=f"ec2=http://[{SERVICE6}]")
    lock(lab, SERVICE6)
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    assert lab.addresses("dp1") == {"10.1.1.4/24"}


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


# --- Routers that no document names, and gateways outside of every network ---------------------------


ADVERTISE = """
import socket, struct, sys
index = socket.if_nametoindex(sys.argv[1])
out = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)
for option, value in ((18, 255), (17, index), (16, 255)):
    out.setsockopt(41, option, value)
head = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
out.sendto(head + struct.pack("!BB", 1, 1) + bytes.fromhex("02aabbccddee"), ("ff02::1", 0, 0, index))
"""


def advertise(lab, device):
    """Let the router fe80::1 of the NIC advertise itself."""
    address = ("address", "add", "fe80::1/64", "dev", device, "nodad")
    lab.run("ip", *address, where=lab.outside, check=False)
    lab.run("/usr/bin/python3", "-c", ADVERTISE, device, where=lab.outside)


def six(lab):
    found = lab.run("ip", "route", "get", "2001:db8:99::1", "from", "2001:db8:1::4", check=False)
    return found.out.split("\n")[0]


def test_the_ipv6_router_of_ec2_is_learned_from_the_neighbours_and_kept(cloud):
    lab = cloud("ec2")
    tree = lab.metadata.strict.paths
    nic = next(path for path in tree if path.endswith(f"{mac(1)}/"))
    leaves = {"ipv6s": "2001:db8:1::4", "subnet-ipv6-cidr-blocks": "2001:db8:1::/64"}
    tree[nic] = tree[nic] + "".join(f"\n{name}" for name in leaves)
    tree.update({f"{nic}{name}": text for name, text in leaves.items()})
    assert lab.once().code == 0
    assert lab.sysctl("net/ipv6/conf/dp1/accept_ra") == "0"
    _, status = lab.status()
    (dp1,) = [one for one in status["interfaces"] if one["name"] == "dp1"]
    assert ["IPv6 gateway is not known" in note["reason"] for note in dp1["notes"]] == [True]
    advertise(lab, "dp1")
    lab.wait("the neighbour", lambda: "fe80::1" in lab.run("ip", "-6", "neigh").out)
    for _ in range(2):
        assert (lab.once().code, lab.plan()) == (0, [])
        assert "via fe80::1 dev dp1" in six(lab)
        lab.run("ip", "-6", "neigh", "flush", "dev", "dp1")
    assert [one[1] for one in lab.routes("default", 6) if one[1] == "dp1"] == []


def test_a_nic_with_a_single_address_answers_through_a_link_local_gateway(cloud, tmp_path):
    lab = cloud("openstack")
    ways = [{"to": "default", "via": "169.254.0.1", "on-link": True}]
    routed = [
        {"to": "203.0.113.1/32", "scope": "link"},
        {"to": "10.60.0.0/16", "via": "203.0.113.1"},
    ]
    ethernets = {
        "mgmt0": {"dhcp4": True},
        "dp1": {"match": {"macaddress": mac(1)}, "addresses": ["10.7.0.9/32"], "routes": ways},
        "dp2": {"match": {"macaddress": mac(2)}, "addresses": ["203.0.113.9/32"], "routes": routed},
    }
    texts = {"meta-data": "instance-id: i\n", "user-data": "#cloud-config\n"}
    texts["network-config"] = json.dumps({"version": 2, "ethernets": ethernets})
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    lab.configure(sources=f"nocloud={tmp_path}")
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    assert way(lab, "10.7.0.9") == ("dp1", "169.254.0.1")
    assert [one[:2] for one in lab.routes("10.60.0.0/16")] == [("203.0.113.1", "dp2")]
    assert lab.plan() == []
