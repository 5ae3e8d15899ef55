"""Absent and unusable are different: an item with an unusable part is not made without that part."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from platforms import faults, links, made, routes

from neuca_tools.documents import parse
from neuca_tools.documents.neuca import link_kinds, routing
from neuca_tools.documents.platform import netplan, nocloud_v1, openstack
from neuca_tools.model.routing import NicRouting

MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"
UNUSABLE = ["!!", ["a", ["b"]], {"x": "y"}]
NIC = {"match": {"macaddress": MAC}, "addresses": ["10.0.0.5/24"]}


def version_2(**more):
    other = {"match": {"macaddress": OTHER}}
    return "network-config", {"version": 2, "ethernets": {"a": NIC, "b": other}, **more}


def version_1(*config):
    nics = [
        {"type": "physical", "name": name, "mac_address": mac}
        for name, mac in (("a", MAC), ("b", OTHER))
    ]
    return "network-config", {"version": 1, "config": [*nics, *config]}


def network_data(links=(), networks=()):
    nics = [
        {"id": name, "type": "phy", "ethernet_mac_address": mac}
        for name, mac in (("a", MAC), ("b", OTHER))
    ]
    return "network_data.json", {"links": [*nics, *links], "networks": list(networks)}


def netplan_route(**more):
    route = {"to": "10.9.0.0/16", "via": "10.0.0.1", **more}
    return version_2(ethernets={"a": {**NIC, "routes": [route]}})


def netplan_rule(**more):
    rule = {"from": "10.0.0.5", "table": 100, **more}
    return version_2(ethernets={"a": {**NIC, "routing-policy": [rule]}})


def netplan_link(kind, holder=None):
    def link(**more):
        asked = {"bonds": {"interfaces": ["a", "b"]}, "bridges": {"interfaces": ["a"]}}.get(
            kind, {}
        )
        asked = deepcopy({**asked, **({"mode": "vxlan", "id": 5} if kind == "tunnels" else {})})
        (asked.setdefault(holder, {}) if holder else asked).update(more)
        return version_2(**{kind: {"x0": asked}})

    return link


def netplan_vlan(**more):
    return version_2(vlans={"x0": {"id": 5, "link": "a", **more}})


def v1_route(**more):
    route = {"network": "10.9.0.0", "netmask": "255.255.0.0", "gateway": "10.0.0.1", **more}
    subnet = {"type": "static", "address": "10.0.0.5/24", "routes": [route]}
    nic = {"type": "physical", "name": "a", "mac_address": MAC, "subnets": [subnet]}
    return "network-config", {"version": 1, "config": [nic]}


def v1_address(**more):
    subnet = {"type": "static", "address": "10.0.0.5", "netmask": "255.255.255.0", **more}
    nic = {"type": "physical", "name": "a", "mac_address": MAC, "subnets": [subnet]}
    return "network-config", {"version": 1, "config": [nic]}


def v1_link(kind):
    def link(**more):
        members = {f"{kind}_interfaces": ["a", "b"]}
        return version_1({"type": kind, "name": "x0", **members, "params": more})

    return link


def v1_vlan(**more):
    return version_1({"type": "vlan", "name": "x0", "vlan_link": "a", "vlan_id": 5, **more})


def openstack_bond(**more):
    bond = {"id": "x", "type": "bond", "bond_links": ["a", "b"], "bond_mode": "4", **more}
    return network_data([bond])


def openstack_vlan(**more):
    return network_data([{"id": "x", "type": "vlan", "vlan_link": "a", "vlan_id": 5, **more}])


def openstack_network(**more):
    network = {"link": "a", "type": "ipv4", "ip_address": "10.0.0.5", "netmask": "24", **more}
    return network_data(networks=[network])


def openstack_route(**more):
    route = {"network": "10.9.0.0", "netmask": "255.255.0.0", "gateway": "10.0.0.1", **more}
    return openstack_network(routes=[route])


def ec2(**more):
    nic = {"local-ipv4s": "10.0.0.5", "subnet-ipv4-cidr-block": "10.0.0.0/24", **more}
    return "EC2 network", {"mac": OTHER, "macs": {MAC: nic}}


def azure(**more):
    ipv4 = {
        "ipAddress": [{"privateIpAddress": "10.0.0.5"}],
        "subnet": [{"address": "10.0.0.0", "prefix": "24", **more}],
    }
    return "Azure instance", {"network": {"interface": [{"macAddress": MAC, "ipv4": ipv4}]}}


ORACLE = {
    "macAddr": MAC,
    "privateIp": "10.0.0.5",
    "subnetCidrBlock": "10.0.0.0/24",
    "virtualRouterIp": "10.0.0.1",
}


def oracle(**more):
    six = {"ipv6Addresses": ["2001:db8::5"], "ipv6SubnetCidrBlock": "2001:db8::/80", **more}
    return "OCI VNICs", {"vnics": [{"macAddr": OTHER}, {**ORACLE, **six}]}


def oracle_vlan(**more):
    nic = {"macAddr": OTHER, "nicIndex": 0, "vlanTag": 0}
    vlan = {**ORACLE, "nicIndex": 0, "vlanTag": 5, **more}
    return "OCI VNICs", {"vnics": [nic, vlan]}


def gce_vlan(**more):
    nics = [{"mac": OTHER}, {"mac": MAC}]
    vlan = {"mac": "52:54:00:00:00:03", "ip": "10.0.0.5", **more}
    return "GCE instance", {"networkInterfaces": nics, "vlanNetworkInterfaces": {"1": {"5": vlan}}}


def hetzner(**more):
    network = {
        "mac_address": MAC,
        "ip": "10.0.0.5",
        "network": "10.0.0.0/16",
        "gateway": "10.0.0.1",
    }
    return "Hetzner private networks", [{**network, **more}]


def test_a_route_from_an_address_of_the_other_family_is_not_made():
    name, tree = netplan_route(**{"from": "fd00::5"})
    document = made(name, json.dumps(tree))
    assert routes(document) == []
    reason = 'the source is not of the family of "10.9.0.0/16"'
    key = f'network-config {MAC} "ethernets.a.routes[0].from" = "fd00::5"'
    assert faults(document) == [f"error: {key}: {reason}"]


# The item, its keys, and what of the document must be absent: a route, a rule, an address or a link.
ITEMS = {
    "netplan route": (
        netplan_route,
        tuple("to via table type scope metric mtu advertised-mss on-link from".split()),
        "route",
    ),
    "netplan rule": (netplan_rule, netplan.netplan_routing._RULE_READERS, "rule"),
    "netplan bond": (
        netplan_link("bonds", "parameters"),
        (*netplan._OPTIONS["bond"], "primary"),
        "link",
    ),
    "netplan bridge": (
        netplan_link("bridges", "parameters"),
        (*netplan._OPTIONS["bridge"], "path-cost", "port-priority"),
        "link",
    ),
    "netplan vxlan": (netplan_link("tunnels"), netplan._OPTIONS["vxlan"], "link"),
    "netplan VLAN": (netplan_vlan, ("id", "macaddress"), "link"),
    "v1 route": (v1_route, ("network", "netmask", "prefix", "gateway", "metric"), "route"),
    "v1 address": (v1_address, ("address", "netmask", "prefix"), "address"),
    "v1 bond": (v1_link("bond"), (*nocloud_v1._BOND, *nocloud_v1._PRIMARY), "link"),
    "v1 bridge": (
        v1_link("bridge"),
        (*nocloud_v1._BRIDGE, "bridge_pathcost", "bridge_portprio"),
        "link",
    ),
    "v1 VLAN": (v1_vlan, ("vlan_id", "mac_address"), "link"),
    "OpenStack bond": (
        openstack_bond,
        (*openstack._BOND, "bond_primary", "ethernet_mac_address"),
        "link",
    ),
    "OpenStack VLAN": (openstack_vlan, ("vlan_id", "vlan_mac_address"), "link"),
    "OpenStack address": (openstack_network, ("ip_address", "netmask"), "address"),
    "OpenStack route": (
        openstack_route,
        ("network", "netmask", "prefix", "gateway", "metric"),
        "route",
    ),
    "EC2 address": (ec2, ("local-ipv4s", "subnet-ipv4-cidr-block"), "address"),
    "Azure address": (azure, ("address", "prefix"), "address"),
    "Oracle address": (oracle, ("ipv6SubnetCidrBlock", "ipv6Addresses"), "IPv6 address"),
    "Oracle VLAN": (oracle_vlan, ("vlanTag", "macAddr"), "link"),
    "GCE VLAN": (gce_vlan, ("mac",), "link"),
    "GCE VLAN address": (gce_vlan, ("ip",), "address"),
    "Hetzner route": (hetzner, ("network", "gateway"), "route"),
}
CASES = [
    (name, key, value) for name, (_, keys, _) in ITEMS.items() for key in keys for value in UNUSABLE
]


def present(document, kind):
    """Whether a document has anything of this kind beyond its NICs."""
    addresses = [text for link in links(document).values() for text in link[3]]
    return {
        "route": routes(document),
        "rule": document.rules,
        "link": [name for name in links(document) if name not in (MAC, OTHER)],
        "address": addresses,
        "IPv6 address": [text for text in addresses if ":" in text],
    }[kind]


def read(pair):
    kind, tree = pair
    return made(kind, json.dumps(tree))


@pytest.mark.parametrize("name", ITEMS)
def test_each_item_is_made_if_all_of_it_is_usable(name):
    item, _, kind = ITEMS[name]
    document = read(item())
    assert present(document, kind)
    assert [text for text in faults(document) if text.startswith("error")] == []


@pytest.mark.parametrize(("name", "key", "value"), CASES)
def test_an_item_with_an_unusable_part_is_dropped_whole_with_an_error(name, key, value):
    item, _, kind = ITEMS[name]
    document = read(item(**{key: value}))
    assert not present(document, kind)
    assert [text for text in faults(document) if text.startswith("error")]


@pytest.mark.parametrize("value", UNUSABLE)
@pytest.mark.parametrize("key", ["accept-ra", "receive-checksum-offload", "dhcp4", "wakeonlan"])
def test_an_unusable_switch_of_netplan_sets_nothing(key, value):
    document = read(version_2(ethernets={"a": {**NIC, key: value}}))
    (link,) = document.links
    assert (link.device, link.sysctls, link.automatic) == ((), (), None)
    assert [text for text in faults(document) if text.startswith("error")]


# --- What is on a link that is left to others -----------------------------------------------------

LEFT = "which is not configured: it is left to other programs too"
ORIGINS = {
    "tunnel": {"tunnels": {"o": {"mode": "gretap"}}},
    "Wi-Fi": {"wifis": {"o": {}}},
    "modem": {"modems": {"o": {}}},
    "dummy": {"dummy-devices": {"o": {}}},
    "veth": {"virtual-ethernets": {"o": {"peer": "p"}}},
    "bond of Open vSwitch": {"bonds": {"o": {"interfaces": ["c"], "openvswitch": {}}}},
    "patch port": {"openvswitch": {"ports": [["o", "p"]]}},
    "driver": {"ethernets": {"b": {}, "o": {"match": {"driver": "virtio*"}}}},
    "every NIC": {"ethernets": {"b": {}, "o": {"match": {}}}},
    "VLAN filter": {
        "ethernets": {"b": {}, "nic": {}},
        "vlans": {"o": {"id": 5, "link": "nic", "renderer": "sriov"}},
    },
}
UPPERS = {
    "bond": {"bonds": {"x0": {"interfaces": ["o", "b"]}}},
    "bridge": {"bridges": {"x0": {"interfaces": ["b", "o"], "addresses": ["10.1.0.1/24"]}}},
    "VRF": {"vrfs": {"x0": {"table": 100, "interfaces": ["o", "b"]}}},
    "VLAN": {"vlans": {"x0": {"id": 7, "link": "o"}}},
    "VXLAN": {"tunnels": {"x0": {"mode": "vxlan", "id": 7, "link": "o"}}},
}


@pytest.mark.parametrize("upper", UPPERS)
@pytest.mark.parametrize("origin", ORIGINS)
def test_what_is_on_a_link_that_is_left_to_others_is_left_to_them_too(origin, upper):
    tree = {"version": 2, "ethernets": {"b": {}}, **deepcopy(ORIGINS[origin])}
    for kind, group in deepcopy(UPPERS[upper]).items():
        tree.setdefault(kind, {}).update(group)
    tree.setdefault("bridges", {})["top"] = {"interfaces": ["x0", "d"]}
    tree.setdefault("vlans", {})["tagged"] = {"id": 9, "link": "top"}
    document = read(("network-config", tree))
    if upper in ("VRF", "VXLAN"):  # no bridge can be on a VRF
        assert {"bridge x0", "vrf x0", "vxlan x0"}.isdisjoint(links(document))
    else:
        assert set(links(document)) <= {"name nic", "name b"}
    assert ("name b" in links(document)) == (upper in ("VLAN", "VXLAN"))
    texts = faults(document)
    assert [text for text in texts if not text.startswith("warning")] == []
    assert [text for text in texts if LEFT in text or "as is its NIC" in text]


def test_each_link_on_top_is_named_with_the_link_that_it_is_left_for():
    bridges = {"br0": {"interfaces": ["gt0", "b"]}}
    tree = {
        "version": 2,
        "ethernets": {"b": {}},
        "tunnels": {"gt0": {"mode": "gretap"}},
        "bridges": bridges,
        "vrfs": {"red": {"table": 100, "interfaces": ["br0"]}},
    }
    texts = faults(read(("network-config", tree)))
    begin = 'warning: network-config "'
    assert texts[1:] == [
        f'{begin}bridges.br0.interfaces" = "gt0": it is on "gt0", {LEFT}',
        f'{begin}vrfs.red.interfaces" = "br0": it is on "gt0", {LEFT}',
    ]


def test_version_1_and_openstack_leave_what_is_on_an_unusable_link():
    other = {"type": "zebra", "name": "o"}
    bridge = {"type": "bridge", "name": "x0", "bridge_interfaces": ["o", "b"]}
    document = read(version_1(other, bridge))
    assert list(links(document)) == [MAC]
    assert [LEFT in text for text in faults(document)] == [False, True]
    bond = {"id": "x", "type": "bond", "bond_links": ["a", "c"], "bond_mode": "4"}
    unusable = {"id": "c", "type": "phy", "ethernet_mac_address": "no"}
    document = read(network_data([unusable, bond]))
    assert list(links(document)) == [OTHER]
    assert [LEFT in text for text in faults(document)] == [False, True]


@pytest.mark.parametrize("mode", ["balance-rr", "802.3ad"])
def test_version_1_and_openstack_have_no_bond_option_that_its_mode_excludes(mode):
    params = {"bond-mode": mode, "bond-packets_per_slave": 4}
    bond = {"type": "bond", "name": "x0", "bond_interfaces": ["a"], "params": params}
    options = {"bond_mode": mode, "bond_packets_per_slave": 4}
    same = {"id": "x", "type": "bond", "name": "x0", "bond_links": ["a"], **options}
    for document in (read(version_1(bond)), read(network_data([same]))):
        (made,) = (link for link in document.links if link.key.kind == "bond")
        options = dict(made.virtual.options)
        assert options.pop("packets-per-slave", "") == ("4" if mode == "balance-rr" else "")
        assert options == {"mode": mode}
        assert [text.partition(":")[0] for text in faults(document)] == [
            "warning" for _ in range(mode != "balance-rr")
        ]


def test_the_name_of_a_nic_is_no_pattern_outside_of_netplan():
    for document in (
        read(version_1({"type": "physical", "name": "eth*"})),
        read(network_data([{"id": "x", "type": "phy", "name": "eth*"}])),
    ):
        assert list(links(document)) == [MAC, OTHER]
        (text,) = faults(document)
        assert text.startswith("error: ")
        assert '"eth*" is not an interface name' in text


def test_a_vrf_of_version_1_is_a_kind_that_others_make():
    vrf = {"type": "vrf", "name": "x0", "vrf_interfaces": ["b"]}
    document = read(version_1(vrf))
    assert list(links(document)) == [MAC, OTHER]
    (text,) = faults(document)
    assert text == (
        'warning: network-config "config[2].type" = "vrf": this kind of link is left to other'
        " programs, with everything on top of it"
    )


# --- NEuca's own format ---------------------------------------------------------------------------

MADE = {
    "bond bond0": {"mode": "active-backup", "members": MAC},
    "bridge br0": {"members": MAC},
    "vxlan vx0": {"id": "5"},
    "macvlan mv0": {"parent": MAC},
    "vrf red": {"table": "100"},
    "ipoib ib0": {"parent": "0002:c903:00a1:b2c3", "pkey": "0x8001"},
    f"vlan {MAC}.5": {},
}


def neuca(section, more="", **keys):
    lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return parse(f"[{section}]\n{lines}{more}")


def requested(document):
    return [str(link.key) for link in document.links if link.state]


def errors(document):
    return [fault for fault in document.faults if fault.severity == "error"]


@pytest.mark.parametrize("section", MADE)
def test_a_section_of_a_link_is_read_whole(section):
    document = neuca(section, **MADE[section])
    assert len(requested(document)) == 1
    assert not document.faults


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (section, key)
        for section in MADE
        for key in (*link_kinds.own_keys(section.partition(" ")[0]), "no-such-key", "state")
    ],
)
def test_a_link_is_not_made_without_an_option_of_its_section(section, key):
    document = neuca(section, **{**MADE[section], key: "!!"})
    assert requested(document) == []
    assert len(errors(document)) == 1


@pytest.mark.parametrize("section", [*MADE, f"interface {MAC}"])
@pytest.mark.parametrize(
    "key", ["addresses", "mtu", "txqueuelen", "qdisc", "nameservers", "sysctl.net.ipv4.x y", "dns"]
)
def test_a_setting_that_changes_nothing_of_the_rest_is_only_missing(section, key):
    document = neuca(section, **{**MADE.get(section, {}), key: "!!"})
    (link,) = [link for link in document.links if link.state]
    assert (link.addresses, link.mtu, link.txqueuelen, link.device) == ((), None, None, ())
    assert len(errors(document)) == 1


@pytest.mark.parametrize("key", routing.LINK_READERS)
def test_policy_routing_is_done_with_all_of_its_keys_or_not_at_all(key):
    usable = {"gateway": "10.0.0.1", "policy-routing": "yes", "table": "100"}
    document = neuca(f"interface {MAC}", **{**usable, key: "!!"}, addresses="10.0.0.5/24")
    (link,) = document.links
    assert link.routing == NicRouting(choice="no")
    assert (link.state, [str(address) for address in link.addresses]) == ("up", ["10.0.0.5/24"])


def test_a_nic_whose_vrf_cannot_be_read_is_not_configured_outside_it():
    document = neuca(f"interface {MAC}", vrf="!!", addresses="10.0.0.5/24")
    assert requested(document) == []
    assert len(errors(document)) == 1


@pytest.mark.parametrize(
    ("vrf", "member"), [("table = x\n", ""), ("table = 100\n", "state = upp\n")]
)
def test_the_members_of_an_unusable_vrf_are_not_configured_outside_it(vrf, member):
    document = parse(
        f"[vrf blue]\n{vrf}members = {OTHER}, {MAC}\n[interface {OTHER}]\n{member}"
        f"[interface {MAC}]\naddresses = 10.0.0.5/24\n"
    )
    assert requested(document) == []
    (said,) = (fault.reason for fault in document.faults if fault.section == f"interface {MAC}")
    assert said.endswith("which is ignored, so it is ignored too")


STANDING = f"""
[bridge br0]
stp = flase
members = {OTHER}
[vlan bridge br0.5]
[vlan bridge br0.6]
mtu = 1400
[vrf blue]
table = 200
members = bridge br0.5
[vrf red]
table = 1000000000000
[interface {MAC}]
vrf = red
addresses = 10.0.0.5/24
[vlan {MAC}.7]
addresses = 10.0.7.5/24
[interface {OTHER}]
mtu = 9000
[routes]
10.9.0.0/16 = 10.0.0.1 interface bridge br0
"""


def test_what_is_on_a_link_that_is_ignored_is_ignored_too_and_said():
    document = parse(STANDING)
    assert requested(document) == [OTHER]
    assert document.routes == ()
    said = [(fault.line, fault.reason) for fault in document.faults if "it is on" in fault.reason]
    assert said == [
        (0, "it is on bridge br0, which is ignored, so it is ignored too"),
        (7, "it is on bridge br0, which is ignored, so it is ignored too"),
        (10, "it is on bridge br0, which is ignored, so it is ignored too"),
        (14, "it is on vrf red, which is ignored, so it is ignored too"),
        (17, "it is on vrf red, which is ignored, so it is ignored too"),
        (21, "it is on bridge br0, which is ignored, so it is ignored too"),
    ]


@pytest.mark.parametrize(
    "name", ["netplan route", "netplan rule", "netplan bond", "netplan bridge"]
)
def test_an_item_of_netplan_with_an_unknown_key_is_dropped_whole(name):
    item, _, kind = ITEMS[name]
    document = read(item(form="10.0.0.5"))
    assert not present(document, kind)
    assert [text.rpartition(": ")[2] for text in faults(document)] == [
        "unknown key, ignoring what it is part of"
    ]


@pytest.mark.parametrize(
    "unusable", [{"table": "x"}, {"interfaces": ["a", "x" * 16]}, {"interfaces": ["a", ["b"]]}]
)
def test_what_is_to_be_in_an_unusable_vrf_is_not_configured_outside_it(unusable):
    vrf = {"red": {"table": 100, "interfaces": ["a"], **unusable}}
    vlan = {"v5": {"id": 5, "link": "a", "addresses": ["10.5.0.5/24"]}}
    document = read(version_2(vrfs=vrf, vlans=vlan))
    assert list(links(document)) == [OTHER]
    assert [text.partition(": ")[0] for text in faults(document)] == ["error", "warning", "warning"]
