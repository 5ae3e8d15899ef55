"""What each of the platforms' documents asks, its bad items, and what is kept of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import json
from base64 import b64encode

import pytest
from platforms import SAMPLES, faults, hints, links, made, read, routes, virtual

from neuca_tools.documents.platform import combined, drafts
from neuca_tools.errors import DocumentError
from neuca_tools.model import LinkKey, Virtual

DHCP, DEFAULT = (
    "the platform's document has DHCP on it",
    "the platform's document gives it the default route",
)
MAC, DP = "fa:16:3e:00:00:01", "52:54:00:12:34:56"


# --- network_data.json ----------------------------------------------------------------------------------------------


def network_data(links=(), networks=()):
    return made(
        "network_data.json", json.dumps({"links": links, "networks": networks, "services": []})
    )


def link(**more):
    return {"id": "a", "type": "phy", "ethernet_mac_address": MAC, **more}


def static(**more):
    return {
        "id": "n",
        "link": "a",
        "type": "ipv4",
        "ip_address": "10.0.0.1",
        "netmask": "255.255.255.0",
        **more,
    }


def test_openstack_links_networks_and_routes_are_read_in_full():
    document = read("openstack.network_data.json")
    assert links(document) == {
        "fa:16:3e:00:00:00": ("up", None, None, []),
        MAC: ("up", None, 9000, ["10.1.0.5/24", "fd00:1::5/64"]),
        "fa:16:3e:00:00:02": ("up", None, 1450, []),
        f"{MAC}.5": ("up", None, 1496, ["10.5.0.5/24"]),
    }
    assert routes(document) == [("10.9.0.0/16", "10.1.0.1", MAC), ("fd00:9::/32", "fe80::1", MAC)]
    assert hints(document) == {"fa:16:3e:00:00:00": DHCP}
    assert faults(document) == []


def test_every_setting_says_where_it_came_from():
    request = read("openstack.network_data.json").links[1]
    assert [(origin.setting, origin.value, origin.where) for origin in request.origins] == [
        ("state", "up", "network_data.json, links[1]"),
        ("mtu", "9000", "network_data.json, links[1]"),
        ("addresses", "10.1.0.5/24, fd00:1::5/64", "network_data.json, networks[1]"),
    ]


def test_a_bond_with_its_members_and_a_vlan_on_it():
    document = read("bare-metal.network_data.json")
    one, two = "00:25:90:00:00:0a", "00:25:90:00:00:0b"
    assert links(document) == {
        one: ("up", None, 1500, []),
        two: ("up", None, 1500, []),
        "00:25:90:00:00:0c": ("up", None, 9000, ["172.16.0.5/16"]),
        "bond bond0": ("up", None, 1500, []),
        "bond bond0.100": ("up", None, None, ["192.0.2.5/24"]),
    }
    assert virtual(document, "bond bond0") == Virtual(
        (LinkKey(one), LinkKey(two)), None, (("mac", one), ("mode", "802.3ad"), ("miimon", "100"))
    )
    assert hints(document) == {"bond bond0": DEFAULT, one: DEFAULT, two: DEFAULT}
    assert faults(document) == []


def test_a_bond_of_links_that_are_not_described_is_named():
    document = network_data(
        [
            link(),
            link(id="b", type="bond", bond_mode="1", bond_links=["a", "x"]),
            link(id="c", type="bond", bond_mode="1", bond_links=["a"], bond_lacp_rate="soon"),
        ]
    )
    assert list(links(document)) == [MAC]
    assert faults(document) == [
        'error: network_data.json bond bond1 "links[2].bond_lacp_rate" = "soon": "soon" is not "slow" or "fast"',
        'error: network_data.json bond bond0 "links[1].bond_links" = "x": no usable link has this name',
    ]


def test_bonds_are_counted_but_for_those_that_have_a_name():
    document = network_data(
        [
            link(),
            link(id="b", type="bond", bond_mode="1", bond_links=["a"]),
            link(id="c", type="bond", name="uplink", bond_links=[]),
        ]
    )
    assert [key for key in links(document) if " " in key] == ["bond bond0", "bond uplink"]


@pytest.mark.parametrize("mtu", [None, ""])
def test_no_mtu_is_not_asked_for(mtu):
    assert links(network_data([link(mtu=mtu)])) == {MAC: ("up", None, None, [])}


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "bridge",
        "dvs",
        "hw_veb",
        "hyperv",
        "ovs",
        "tap",
        "vhostuser",
        "vif",
        "phy",
        "ethernet",
        "bgpovs",
        "cascading",
    ],
)
def test_every_known_kind_of_link_is_a_nic(kind):
    document = network_data([link(type=kind)])
    assert (list(links(document)), faults(document)) == ([MAC], [])


def test_an_unknown_kind_of_link_is_named_and_taken_for_a_nic():
    document = network_data([link(type="quantum"), {"id": "b", "type": "quantum"}], [static()])
    assert links(document) == {MAC: ("up", None, None, ["10.0.0.1/24"])}
    assert faults(document) == [
        'warning: network_data.json "links[0].type" = "quantum": an unknown kind of link, treated as a NIC',
        'warning: network_data.json "links[1].type" = "quantum": an unknown kind of link, treated as a NIC',
        'warning: network_data.json "links[1].ethernet_mac_address": a link without a MAC address or a name, ignoring it',
    ]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("ipv4_dhcp", DHCP),
        ("ipv6_dhcp", DHCP),
        ("ipv6_dhcpv6-stateful", DHCP),
        ("ipv6_slaac", None),
        ("ipv6_dhcpv6-stateless", None),
    ],
)
def test_dhcp_and_slaac_are_information(kind, reason):
    document = network_data(
        [link()], [{"id": "n", "link": "a", "type": kind, "ip_address": "fd00::1"}]
    )
    assert (links(document), hints(document).get(MAC), faults(document)) == (
        {MAC: ("up", None, None, [])},
        reason,
        [],
    )


@pytest.mark.parametrize(
    ("route", "reason"),
    [
        ({"network": "0.0.0.0", "netmask": "0.0.0.0"}, DEFAULT),
        ({"network": "::", "netmask": "::"}, DEFAULT),
        ({"network": "0.0.0.0"}, DEFAULT),
        ({"network": "0.0.0.0/0.0.0.0"}, DEFAULT),
        ({"network": "0::0/0"}, DEFAULT),
        (
            {"network": "169.254.169.254", "netmask": "255.255.255.255"},
            "the platform's document gives it the route to the metadata service",
        ),
    ],
)
def test_the_default_and_the_metadata_route_make_a_nic_management_and_are_not_asked_for(
    route, reason
):
    gateway = "fd00::fe" if ":" in route["network"] else "10.0.0.254"
    document = network_data([link()], [static(routes=[{**route, "gateway": gateway}])])
    assert (hints(document), routes(document), faults(document)) == ({MAC: reason}, [], [])


OF_IPV6 = {
    "network_data.json": json.dumps(
        {
            "links": [link()],
            "networks": [
                static(routes=[{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "fd00::1"}])
            ],
        }
    ),
    "version 1": f"""version: 1
config:
- type: physical
  name: eth1
  mac_address: {MAC}
  subnets:
  - {{type: static, address: 10.0.0.1/24, routes: [{{network: 0.0.0.0/0, gateway: "fd00::1"}}]}}
""",
    "a route": f"""version: 2
ethernets:
  eth1:
    match: {{macaddress: {MAC}}}
    addresses: [10.0.0.1/24]
    routes: [{{to: 0.0.0.0/0, via: "fd00::1"}}]
""",
    "gateway4": f"""version: 2
ethernets:
  eth1: {{match: {{macaddress: {MAC}}}, addresses: [10.0.0.1/24], gateway4: "fd00::1"}}
""",
}


@pytest.mark.parametrize("what", OF_IPV6)
def test_the_next_hop_of_a_default_route_is_of_its_family(what):
    """It would become the gateway of the other family, as which nobody has given it."""
    kind = what if what == "network_data.json" else "network-config"
    document = made(kind, OF_IPV6[what])
    (fault,) = faults(document)
    assert '= "fd00::1": it is not an address of IPv4' in fault
    assert [one.routing.gateways for one in document.links] == [()]
    right = OF_IPV6[what].replace("fd00::1", "10.0.0.254")
    assert [list(map(str, one.routing.gateways)) for one in made(kind, right).links] == [
        ["10.0.0.254"]
    ]


@pytest.mark.parametrize(("to", "via"), [("default", "fd00::1"), ("::", "fd00::1"), ("::0", "fd00::1")])  # fmt: skip
def test_a_default_route_without_a_prefix_length_is_of_the_family_of_its_destination(to, via):
    document = network_data([link()], [static(routes=[{"network": to, "gateway": via}])])
    assert faults(document) == []
    assert [list(map(str, one.routing.gateways)) for one in document.links] == [[via]]


@pytest.mark.parametrize(
    ("to", "via"), [("fd00::/8", "fd00:1::fe"), ("169.254.0.0/16", "10.0.0.254")]
)
def test_a_route_that_only_covers_the_metadata_service_is_a_request_like_any_other(to, via):
    """What it may lead to is decided later: it is refused where it would take over the service."""
    document = network_data([link()], [static(routes=[{"network": to, "gateway": via}])])
    assert (hints(document), faults(document)) == ({}, [])
    assert [(str(route.to), str(route.via)) for route in document.routes] == [(to, via)]


BAD_LINKS = {
    'error: network_data.json "links[0].ethernet_mac_address": a link without a MAC address or a name, ignoring it': {
        "ethernet_mac_address": None
    },
    'error: network_data.json "links[0].ethernet_mac_address" = "zz": "zz" is not a MAC address': {
        "ethernet_mac_address": "zz"
    },
    'error: network_data.json fa:16:3e:00:00:01 "links[0].mtu" = "67": the MTU "67" is not a number from 68 to 65535': {
        "mtu": 67
    },
    'error: network_data.json fa:16:3e:00:00:01 "links[0].mtu": it is not a single value': {
        "mtu": [1500]
    },
    'warning: network_data.json "networks[0].link" = "a": no link has this id, ignoring the network': {
        "id": 7
    },
}


@pytest.mark.parametrize("text", BAD_LINKS)
def test_a_bad_value_of_a_link_costs_only_itself(text):
    other = {"id": "b", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:02", "mtu": 9000}
    document = network_data([link(**BAD_LINKS[text]), other], [static()])
    assert text in faults(document)
    assert links(document)["fa:16:3e:00:00:02"] == ("up", None, 9000, [])


BAD_NETWORKS = {
    'error: … "networks[0].ip_address" = "10.0.0.256": "10.0.0.256" is not an IP address': {
        "ip_address": "10.0.0.256"
    },
    'error: … "networks[0].ip_address" = "10.0.0.1": "255.0.255.0" is not a netmask': {
        "netmask": "255.0.255.0"
    },
    'error: … "networks[0].ip_address" = "10.0.0.1": the prefix length "33" is not a number from 0 to 32': {
        "netmask": "33"
    },
    'error: … "networks[0].ip_address": a static network without its address': {"ip_address": None},
    'warning: … "networks[0].type" = "carrier-pigeon": an unknown kind of network, ignoring it': {
        "type": "carrier-pigeon"
    },
    'error: … "networks[0].routes": it is not a list': {"routes": {"a": {}}},
    'error: … "networks[0].routes[0].network" = "x": "x" is not an IP address': {
        "routes": [{"network": "x"}]
    },
    'error: … "networks[0].routes[0].gateway" = "y": "y" is not an IP address': {
        "routes": [{"network": "10.9.0.0/16", "gateway": "y"}]
    },
    'warning: … "networks[0].routes[0].network" = "10.9.0.0/16": a route without a next hop, ignoring it': {
        "routes": [{"network": "10.9.0.0/16"}]
    },
    'error: … "networks[0].routes[0].gateway" = "fd00::1": the next hop is not of the family of "10.9.0.0/16"': {
        "routes": [{"network": "10.9.0.0/16", "gateway": "fd00::1"}]
    },
}


@pytest.mark.parametrize("text", BAD_NETWORKS)
def test_a_bad_value_of_a_network_costs_only_itself(text):
    good = {"id": "m", "link": "a", "type": "ipv4", "ip_address": "10.3.0.1", "netmask": "24"}
    document = network_data([link()], [static(**BAD_NETWORKS[text]), good])
    assert faults(document) == [text.replace("…", f"network_data.json {MAC}")]
    assert "10.3.0.1/24" in links(document)[MAC][3]


def test_an_ipv6_address_goes_before_an_mtu_that_cannot_carry_it():
    document = network_data(
        [link(mtu=1000)], [static(type="ipv6", ip_address="fd00::1", netmask="64")]
    )
    assert links(document) == {MAC: ("up", None, None, ["fd00::1/64"])}
    assert faults(document)[0].endswith(
        '"1000": an MTU below 1280 cannot carry the IPv6 addresses of this link'
    )


def test_a_vlan_needs_its_id_and_its_link_and_may_have_a_mac_address_of_its_own():
    vlan = {
        "id": "v",
        "type": "vlan",
        "vlan_link": "a",
        "vlan_id": 5,
        "vlan_mac_address": "fa:16:3e:00:00:05",
    }
    document = network_data(
        [
            link(),
            vlan,
            {**vlan, "vlan_id": 4095},
            {**vlan, "vlan_id": None},
            {**vlan, "vlan_link": "x"},
        ]
    )
    assert list(links(document)) == [MAC, f"{MAC}.5"]
    assert virtual(document, f"{MAC}.5") == Virtual(options=(("mac", "fa:16:3e:00:00:05"),))
    assert faults(document) == [
        'error: network_data.json "links[2].vlan_id" = "4095": the VLAN ID "4095" is not a number from 1 to 4094',
        f'error: network_data.json {MAC} "links[3].vlan_id": a VLAN without its ID, ignoring it',
        'error: network_data.json "links[4].vlan_link" = "x": no link has this id, ignoring the VLAN',
    ]


def test_a_second_link_with_the_same_mac_address_is_ignored():
    document = network_data([link(), link(id="b", mtu=9000)])
    assert links(document) == {MAC: ("up", None, None, [])}
    assert faults(document) == [
        f'error: network_data.json {MAC} "links[1]": there is already a link "{MAC}", ignoring this one'
    ]


# --- network-config -------------------------------------------------------------------------------------------------


def test_nothing_of_a_document_is_lost_beside_another():
    """Each field of both, of which one has the rules of netplan and the other the host's name."""
    nic = {
        "match": {"macaddress": "fa:16:3e:00:00:01"},
        "dhcp4": True,
        "nameservers": {"addresses": ["10.0.0.9"]},
        "addresses": ["10.0.0.1/24", "10.0.0.300/24"],
        "routes": [{"to": "10.9.0.0/16", "via": "10.0.0.9"}],
        "routing-policy": [{"from": "10.0.0.1", "table": 101, "priority": 30001}],
    }
    parts = {
        "network-config": json.dumps({"version": 2, "ethernets": {"a": nic}}).encode(),
        "meta-data": b"local-hostname: node0\n",
    }
    found = combined.parse(combined.reduce_documents(parts))
    assert all(found)
    (rule,) = found.rules
    assert (rule.rule.source, rule.rule.table, rule.rule.priority) == ("10.0.0.1/32", 101, 30001)


def test_netplan_is_read():
    document = read("netplan.network-config")
    assert links(document) == {
        "name enp1s0": ("up", None, None, []),
        DP: ("up", "dp1", 9000, ["172.16.0.1/24", "fd00:16::1/64"]),
        "52:54:00:12:34:57": ("up", None, None, ["192.0.2.5/24"]),
        f"{DP}.7": ("up", "vlan7", 1496, ["10.7.0.1/24"]),
        "name member": ("up", None, None, []),
        "bond bond0": ("up", None, None, []),
        "bond bond0.8": ("up", "vlan8", None, ["10.8.0.1/24"]),
    }
    assert virtual(document, "bond bond0") == Virtual(
        (LinkKey("name member"),), None, (("mode", "active-backup"),)
    )
    assert routes(document) == [
        ("10.20.0.0/16", "172.16.0.254", DP),
        ("10.21.0.0/16", "172.16.0.254", DP),
    ]
    assert hints(document) == {"name enp1s0": DHCP, "52:54:00:12:34:57": DEFAULT}
    begin = "warning: network-config"
    assert faults(document) == [
        f'{begin} "network.wifis.wlan0": wifis are left to other programs, with everything on top of them',
        f'{begin} "network.ethernets.virtual.match": it matches NICs by more than their MAC address or their name, ignoring it',
        (
            f'{begin} {DP} "network.ethernets.dp": these keys have no effect: addresses[1].fd00:16::1/64.label,'
            " addresses[1].fd00:16::1/64.lifetime"
        ),
    ]


@pytest.mark.parametrize(
    ("own", "asked"), [("fa:16:3e:00:00:05", "fa:16:3e:00:00:05"), (MAC, None)]
)
def test_a_vlan_has_a_mac_of_its_own_only_where_it_is_another_one(own, asked):
    one = {"type": "physical", "name": "a", "mac_address": MAC}
    two = {"type": "vlan", "name": "v", "vlan_link": "a", "vlan_id": 5, "mac_address": own}
    ethernets, vlans = (
        {"a": {"match": {"macaddress": MAC}}},
        {"v": {"id": 5, "link": "a", "macaddress": own}},
    )
    for config in (
        {"version": 1, "config": [one, two]},
        {"version": 2, "ethernets": ethernets, "vlans": vlans},
    ):
        made_of = virtual(made("network-config", json.dumps(config)), f"{MAC}.5")
        assert (made_of.option("mac") if made_of else None) == asked
    wrong = made(
        "network-config", json.dumps({"version": 1, "config": [one, {**two, "mac_address": "zz"}]})
    )
    assert faults(wrong) == [
        f'error: network-config {MAC} "config[1].mac_address" = "zz": "zz" is not a MAC address'
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openstack.network_data.json", {"nameservers": "10.1.0.53"}),
        ("netplan.network-config", {"nameservers": "8.8.8.8", "search": "example.net"}),
        ("version-1.network-config", {"nameservers": "8.8.8.8", "search": "example.net"}),
        ("aws.EC2 network", {}),
    ],
)
def test_dns_is_information(name, expected):
    assert {item.key: item.value for item in read(name).items if item.section == "dns"} == expected


def test_dns_of_any_shape_is_no_more_than_words():
    services = [
        {"type": "dns", "address": "9.9.9.9"},
        {"type": "ntp", "address": "9.9.9.8"},
        {"type": "dns", "address": [7, {}]},
    ]
    network = {
        "services": services,
        "dns_nameservers": "1.1.1.1 1.0.0.1",
        "dns_search": ["a", ["b"]],
    }
    document = {
        "links": [],
        "networks": [network],
        "services": [services[0], {"type": "dns", "address": None}],
    }
    items = {item.key: item.value for item in made("network_data.json", json.dumps(document)).items}
    assert items == {"nameservers": "1.1.1.1 1.0.0.1 9.9.9.9 7", "search": "a"}


def test_a_nic_that_is_matched_by_its_driver_too_is_not_guessed():
    document = made(
        "network-config",
        json.dumps({"version": 2, "ethernets": {"a": {"match": {"name": "en*", "driver": "x"}}}}),
    )
    assert links(document) == {}
    reason = "it matches NICs by more than their MAC address or their name, ignoring it"
    assert faults(document) == [f'warning: network-config "ethernets.a.match": {reason}']


def test_bridges_and_vxlans_of_netplan():
    text = """version: 2
ethernets: {a: {match: {macaddress: "fa:16:3e:00:00:01"}, addresses: [10.0.0.1/24]}}
vlans: {v: {id: 5, link: a}}
bridges:
  br0: {interfaces: [v, vx0], parameters: {stp: false, forward-delay: 4}, mtu: 1400}
  br1: {interfaces: []}
tunnels:
  vx0: {mode: vxlan, id: 9, local: 10.0.0.1, remote: 10.0.0.2, link: a, port: 4790}
  g: {mode: gre, local: 10.0.0.1, remote: 10.0.0.3}
"""
    document = made("network-config", text)
    assert virtual(document, "bridge br0") == Virtual(
        (LinkKey(MAC, 5), LinkKey("vxlan vx0")), None, (("stp", "no"), ("forward-delay", "4"))
    )
    assert virtual(document, "bridge br1") == Virtual()
    assert virtual(document, "vxlan vx0") == Virtual(
        (),
        LinkKey(MAC),
        (("id", "9"), ("local", "10.0.0.1"), ("remote", "10.0.0.2"), ("port", "4790")),
    )
    assert faults(document) == [
        (
            'warning: network-config "tunnels.g.mode" = "gre": tunnels of this mode are left to other programs,'
            " with everything on top of them"
        )
    ]


def test_version_1_is_read():
    document = read("version-1.network-config")
    assert links(document) == {
        DP: ("up", "dp1", 9000, ["172.16.0.1/24", "fd00:16::1/64"]),
        "name eth0": ("up", None, None, []),
        f"{DP}.7": ("up", "dp1.7", 1496, ["10.7.0.1/24"]),
        "52:54:00:12:34:58": ("up", "m0", None, []),
        "bond bond0": ("up", None, None, []),
        "name m1": ("up", None, None, []),
    }
    assert virtual(document, "bond bond0") == Virtual(
        (LinkKey("52:54:00:12:34:58"), LinkKey("name m1")), None, (("mode", "active-backup"),)
    )
    assert routes(document) == [
        ("fd00:20::/32", "fd00:16::fe", DP),
        ("10.20.0.0/16", "172.16.0.254", DP),
    ]
    assert hints(document) == {"name eth0": DHCP}
    assert [route.metric for route in document.routes] == [None, 3]
    assert faults(document) == []


def test_a_bridge_of_version_1_with_a_vlan_in_it_and_one_on_it():
    text = """version: 1
config:
  - {type: bridge, name: br0, bridge_interfaces: [dp1.7], params: {bridge_stp: 'off', bridge_fd: 2}, mtu: 1400}
  - {type: physical, name: dp1, mac_address: "52:54:00:12:34:56"}
  - {type: vlan, name: dp1.7, vlan_link: dp1, vlan_id: 7}
  - {type: vlan, name: over, vlan_link: br0, vlan_id: 8}
"""
    document = made("network-config", text)
    assert virtual(document, "bridge br0") == Virtual(
        (LinkKey(DP, 7),), None, (("stp", "no"), ("forward-delay", "2"))
    )
    assert links(document)["bridge br0.8"] == ("up", "over", None, [])
    assert (links(document)["bridge br0"], faults(document)) == (("up", None, 1400, []), [])


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_wrapper_may_be_missing(wrapped):
    body = {"version": 2, "ethernets": {"a": {"match": {"macaddress": MAC}}}}
    assert list(
        links(made("network-config", json.dumps({"network": body} if wrapped else body)))
    ) == [MAC]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "version: 3\n",
            'error: network-config "version" = "3": it is neither 1 nor 2, ignoring the document',
        ),
        (
            "ethernets: {a: {}}\n",
            'error: network-config "version": it is neither 1 nor 2, ignoring the document',
        ),
        (
            "version: 2\nethernets: {a: {addresses: x}}\n",
            'error: network-config "ethernets.a.addresses": it is not a list',
        ),
        (
            "version: 2\nethernets: {a: {addresses: [[1]]}}\n",
            'error: network-config "ethernets.a.addresses[0]": it is not an address',
        ),
        (
            "version: 2\nvlans: {v: {id: 5}}\n",
            'error: network-config "vlans.v.link": a VLAN without its link, ignoring it',
        ),
        ("version: 1\nconfig: {a: b}\n", 'error: network-config "config": it is not a list'),
        (
            "version: 1\nconfig: [{type: vlan, name: v, vlan_id: 5}]\n",
            'error: network-config "config[0].vlan_link": a VLAN without its link, ignoring it',
        ),
        (
            "version: 1\nconfig: [{type: physical}]\n",
            'error: network-config "config[0].name": a link without a name, ignoring it',
        ),
        (
            "version: 1\nconfig: [{type: zebra}]\n",
            (
                'warning: network-config "config[0].type" = "zebra": this kind of link is left to'
                " other programs, with everything on top of it"
            ),
        ),
    ],
)
def test_a_bad_item_of_a_network_config_is_named(text, fault):
    assert faults(made("network-config", text)) == [fault]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("routes: []", 'table": a VRF without its table, ignoring it'),
        ("table: 9, routes: [{to: 10.9.0.0/16, via: 'fd00::1'}]",
         'routes[0].via" = "fd00::1": the next hop is not of the family of "10.9.0.0/16"'),
        ("table: 9, routes: [{to: 10.9.0.0/16, via: 10.0.0.1, table: 8}]",
         'routes[0].table" = "8": the table of this VRF is 9, ignoring the route'),
        ("table: 9, routing-policy: [{from: 10.9.0.0/16, table: 8}]",
         'routing-policy[0].table" = "8": the table of this VRF is 9, ignoring it'),
        ("table: 9, routing-policy: [{from: 10.9.0.0/16, to: 'fd00::/64'}]",
         'routing-policy[0]": from and to are not of the same family, ignoring it'),
    ],
)  # fmt: skip
def test_a_bad_item_of_a_vrf_is_named(keys, fault):
    document = made("network-config", f"version: 2\nvrfs: {{v: {{interfaces: [], {keys}}}}}\n")
    assert faults(document)[0].partition("vrfs.v.")[2] == fault
    assert (document.routes, document.rules) == ((), ())


# --- EC2, and the guest itself --------------------------------------------------------------------------------------


def test_the_primary_nic_of_ec2_is_management_and_the_others_get_all_their_addresses():
    document = read("aws.EC2 network")
    assert faults(document) == []
    assert links(document) == {
        "02:00:00:00:00:01": ("up", None, None, []),
        "02:00:00:00:00:02": (
            "up",
            None,
            None,
            ["10.0.1.5/24", "10.0.1.6/24", "2001:db8:1::5/64", "2001:db8:2::5/128"],
        ),
    }
    assert hints(document) == {"02:00:00:00:00:01": "it is the primary NIC of the instance"}
    assert [(item.section, item.key, item.value) for item in document.items] == [
        ("public-keys", "0", "ssh-rsa AAAA XcanaryX"),
        ("ec2", "02:00:00:00:00:02 ipv4-prefix", "10.0.1.16/28"),
    ]


def test_without_its_mac_the_primary_nic_of_ec2_is_number_0():
    tree = {
        "macs": {
            "02:00:00:00:00:01": {"device-number": "0"},
            "02:00:00:00:00:02": {"device-number": "1"},
        }
    }
    assert list(hints(made("EC2 network", json.dumps(tree)))) == ["02:00:00:00:00:01"]
    tree["macs"]["02:00:00:00:00:02"] = {
        "device-number": "0",
        "network-card": "1",
        "local-ipv4s": "10.0.1.5",
    }
    assert list(hints(made("EC2 network", json.dumps(tree)))) == ["02:00:00:00:00:01"]


A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
PRIMARY_NICS = [
    ("EC2 network", {"mac": A, "macs": {A: {}, B: {}}}),
    ("EC2 network", {"macs": {A: {"device-number": "0"}, B: {"device-number": "1"}}}),
    ("GCE instance", {"networkInterfaces": [{"mac": A}, {"mac": B}]}),
    ("OCI VNICs", {"vnics": [{"macAddr": A}, {"macAddr": B}]}),
]


@pytest.mark.parametrize(("kind", "tree"), PRIMARY_NICS)
def test_which_nic_is_the_primary_one_is_stated_and_not_suggested(kind, tree):
    """A NIC with the default route would be preferred to one that is only suggested."""
    document = made(kind, json.dumps(tree))
    assert [(hint.mac, hint.firm) for hint in document.management] == [(A, True)]


def test_where_two_nics_of_ec2_have_number_0_neither_is_touched():
    """As for a moment after one was attached, where nothing says which is the primary one."""
    tree = {
        "macs": {
            f"02:00:00:00:00:0{number}": {"device-number": "0", "local-ipv4s": f"10.0.{number}.5"}
            for number in (1, 2)
        }
    }
    document = made("EC2 network", json.dumps(tree))
    assert hints(document) == dict.fromkeys(tree["macs"], "it is the primary NIC of the instance")
    assert [link[3] for link in links(document).values()] == [[], []]


def test_an_ec2_nic_with_ipv6_alone_and_rubbish_beside_it():
    nic = {
        "ipv6s": "2001:db8:1::5 x",
        "subnet-ipv6-cidr-block": "2001:db8:1::/64 y",
        "ipv6-prefix": "2001:db8:1:0:8000::/80",
    }
    document = made(
        "EC2 network", json.dumps({"mac": MAC, "macs": {"02:00:00:00:00:02": nic, "nonsense": {}}})
    )
    assert links(document) == {"02:00:00:00:00:02": ("up", None, None, ["2001:db8:1::5/64"])}
    assert [item.value for item in document.items] == ["2001:db8:1:0:8000::/80"]
    assert [fault.split('": "')[0] for fault in faults(document)] == [
        'error: EC2 network 02:00:00:00:00:02 "macs.02:00:00:00:00:02.subnet-ipv6-cidr-block" = "y',
        'error: EC2 network 02:00:00:00:00:02 "macs.02:00:00:00:00:02.ipv6s" = "x',
        'error: EC2 network "macs.nonsense" = "nonsense',
    ]


def test_device_tags_name_nics_that_no_network_has():
    document = read("openstack.meta_data.json")
    assert links(document) == {"fa:16:3e:00:00:0c": ("up", None, None, [])}
    assert document.management == (("fa:16:3e:00:00:02", 'its device tag is "mgmt"', True),)
    assert document.hostname == "node0.novalocal"
    assert {(item.section, item.key): item.value for item in document.items} == {
        ("meta", "role"): "worker",
        ("meta", "count"): "3",
        ("meta", "token"): "XcanaryX",
        ("public-keys", "mine"): "ssh-rsa AAAA XcanaryX",
        ("instance", "uuid"): "d8e02d56-2648-49a3-bf97-6be8f1204f38",
    }


def test_the_meta_data_of_a_seed_is_read():
    document = read("seed.meta-data")
    assert (document.hostname, [item.value for item in document.items]) == (
        "node1",
        ["ssh-rsa AAAA XcanaryX", "i-1"],
    )


# --- What is kept ---------------------------------------------------------------------------------------------------


def test_what_changes_at_each_look_or_means_nothing_is_not_kept():
    one = json.dumps({"hostname": "a", "random_seed": "x", "meta": {}})
    other = json.dumps({"meta": {}, "random_seed": "y", "hostname": "a", "admin_pass": "z"})
    assert combined.reduce_documents({"meta_data.json": one.encode()}) == combined.reduce_documents(
        {"meta_data.json": other.encode()}
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_the_open_copy_says_the_same_of_the_network_and_has_no_secret(name):
    kind, data = SAMPLES[name]
    text = combined.reduce_documents({kind: data})
    whole, copy = combined.parse(text), combined.parse(combined.redacted_text(text))
    assert "XcanaryX" not in combined.redacted_text(text)
    assert (copy.links, copy.routes, copy.management) == (
        whole.links,
        whole.routes,
        whole.management,
    )
    assert copy.hostname == whole.hostname
    assert kind.startswith(("meta", "EC2")) or "XcanaryX" not in text


def test_two_documents_about_one_nic_are_laid_over_each_other():
    tagged = {"devices": [{"type": "nic", "mac": MAC, "tags": ["dataplane"]}]}
    kinds = {
        "meta_data.json": json.dumps(tagged).encode(),
        "network_data.json": json.dumps({"links": [link(mtu=9000)], "networks": []}).encode(),
    }
    assert links(combined.parse(combined.reduce_documents(kinds))) == {MAC: ("up", None, 9000, [])}


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        (
            "network_data.json",
            b"{",
            "it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("network_data.json", b"[1]", "it is not an object"),
        ("network_data.json", b"\xff", "it is not UTF-8 text (byte 0)"),
        ("network_data.json", "{}".encode("utf-16"), "it is UTF-16, not UTF-8 text"),
        ("network_data.json", gzip.compress(b"{}", mtime=0), "it is gzip, not UTF-8 text"),
        (
            "network-config",
            b64encode(b"version: 2\nethernets: {}\n"),
            "it is base64, not UTF-8 text",
        ),
        ("meta-data", b64encode(b"instance-id: one\n"), "it is base64, not UTF-8 text"),
        ("network_data.json", b"[" * 100000, "it is nested more than 32 levels deep"),
        ("network_data.json", b"[" + b"0," * 60000 + b"0]", "it has more than 50000 items"),
        ("network_data.json", b" " * 1048577, "it is longer than 1048576 bytes"),
        ("network-config", b"[" * 100000, "it is nested more than 32 levels deep"),
        ("network-config", b"- " * 1000 + b"a", "it is nested more than 32 levels deep"),
        ("network-config", b"- " * 33 + b"a", "it is nested more than 32 levels deep"),
        (
            "network-config",
            b"a0: &a0 [x]\n"
            + b"".join(b"a%d: &a%d [*a%d]\n" % (n, n, n - 1) for n in range(1, 40)),
            "it is nested more than 32 levels deep",
        ),
        (
            "network-config",
            b"a: !!python/object/apply:os.system [id]",
            'the YAML tag "tag:yaml.org,2002:python/object/apply:os.system" is refused',
        ),
        ("network-config", b"a: &a [*a]", "it is nested more than 32 levels deep"),
        (
            "network-config",
            b"a: *b",
            "it is not YAML: found undefined alias 'b' in \"<unicode string>\", line 1, column 4",
        ),
        (
            "network-config",
            b"a: 1\n---\nb: 2\n",
            (
                'it is not YAML: expected a single document in the stream in "<unicode string>",'
                ' line 1, column 1 but found another document in "<unicode string>",'
                " line 2, column 1"
            ),
        ),
        (
            "network-config",
            "a: \u00e9\nb:\n\tc: 1\n".encode(),
            (
                "it is not YAML: while scanning for the next token found character '\\t' that"
                ' cannot start any token in "<unicode string>", line 3, column 1'
            ),
        ),
        ("network-config", b"? [a]\n: b\n", "a key is not text"),
        ("network-config", b"just words", "it is not an object"),
    ],
)
def test_a_document_that_cannot_be_read_at_all_is_refused_whole(kind, data, why):
    with pytest.raises(DocumentError) as caught:
        combined.reduce_documents({kind: data})
    assert caught.value.text == f"cannot read {kind}: {why}"


def test_an_error_that_names_its_character_does_so_once():
    with pytest.raises(DocumentError, match="found a tab character that"):
        combined.reduce_documents({"network-config": b"a:\n  b: 1\n\tc: 2\n"})


def test_an_alias_bomb_is_refused():
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 9)]
    long = b"a: &a " + b"x" * 500000 + b"\nb: [" + b", ".join([b"*a"] * 1000) + b"]\n"
    for data in (b"\n".join(lines), long):
        with pytest.raises(DocumentError) as caught:
            combined.reduce_documents({"network-config": data})
        assert caught.value.text == "cannot read network-config: it has more than 50000 items"


def test_yaml_keeps_the_text_of_scalars_and_knows_aliases_and_merge_keys():
    document = made(
        "network-config",
        "version: 2\nethernets:\n  a: &a {match: {macaddress: 52:54:00:12:34:56}, mtu: 9000}\n"
        "  b: {<<: *a, match: {macaddress: 52:54:00:12:34:57}}\n  c: ~\n  d: {mtu: 'null'}\n",
    )
    assert links(document) == {
        DP: ("up", None, 9000, []),
        "52:54:00:12:34:57": ("up", None, 9000, []),
        "name d": ("up", None, None, []),
    }


def test_of_several_merged_mappings_the_first_one_counts():
    document = made(
        "network-config",
        "version: 2\nethernets:\n  a: &a {mtu: 9000}\n  b: &b {mtu: 1400, set-name: dp}\n"
        "  c: {<<: [*a, *b], match: {macaddress: 52:54:00:12:34:56}}\n",
    )
    assert links(document)[DP] == ("up", "dp", 9000, [])


def test_a_new_name_by_which_another_nic_is_matched_is_refused():
    """After a rename, it would mean both NICs."""
    document = made(
        "network-config",
        f"version: 2\nethernets:\n  a: {{match: {{macaddress: '{DP}'}}, set-name: eth1}}\n"
        "  eth1: {set-name: eth1}\n  c: {match: {name: eth2}, set-name: eth3}\n"
        "  d: {match: {name: eth3}}\n",
    )
    assert links(document) == {
        DP: ("up", None, None, []),
        "name eth1": ("up", "eth1", None, []),
        "name eth2": ("up", None, None, []),
        "name eth3": ("up", None, None, []),
    }
    refused = "another NIC is matched by this name, ignoring it"
    assert faults(document) == [
        f'error: network-config {DP} "ethernets.a.set-name" = "eth1": {refused}',
        f'error: network-config "ethernets.c.set-name" = "eth3": {refused}',
    ]


@pytest.mark.parametrize("kind", ["blackhole", "unreachable", "prohibit"])
def test_the_next_hop_of_a_netplan_route_that_drops_is_ignored_with_a_warning(kind):
    routes = f"[{{to: 10.9.0.0/16, via: 10.0.0.3, type: {kind}}}]"
    text = f"version: 2\nethernets: {{eth1: {{addresses: [10.0.0.1/24], routes: {routes}}}}}\n"
    document = made("network-config", text)
    assert [(route.via, route.traits.kind) for route in document.routes] == [(None, kind)]
    place = 'network-config "ethernets.eth1.routes[0].via" = "10.0.0.3"'
    assert faults(document) == [
        f"warning: {place}: a route of the type {kind} cannot have a next hop, ignoring it"
    ]


def test_netplan_on_link_without_a_gateway_has_no_meaning():
    """The kernel refuses RTNH_F_ONLINK for a route without a next hop."""
    tree = {
        "version": 2,
        "ethernets": {
            "dp": {
                "match": {"macaddress": "fa:16:3e:00:00:02"},
                "routes": [
                    {"to": "10.8.0.0/16", "scope": "link", "on-link": True},
                    {"to": "10.9.0.0/16", "via": "10.66.0.1", "on-link": True},
                ],
            }
        },
    }
    document = made("network-config", json.dumps(tree))
    assert [(str(route.to), route.traits.onlink) for route in document.routes] == [
        ("10.8.0.0/16", False),
        ("10.9.0.0/16", True),
    ]


@pytest.mark.parametrize(
    ("word", "mac", "reasons"),
    [
        ("FA:16:3E:00:00:99", "fa:16:3e:00:00:99", []),
        (
            "permanent",
            None,
            ["only a MAC address can be set, and the permanent one is the default"],
        ),
    ],
)
def test_the_mac_of_a_nic_of_netplan_is_a_setting_of_it(word, mac, reasons):
    nic = {"match": {"macaddress": MAC}, "macaddress": word}
    document = made("network-config", json.dumps({"version": 2, "ethernets": {"a": nic}}))
    assert dict(document.links[0].device).get("mac") == mac
    assert [fault.rpartition(": ")[2] for fault in faults(document)] == reasons


@pytest.mark.parametrize(
    ("address", "hops", "onlink"),
    [
        ("10.66.0.5/32", ["10.9.9.1", "10.9.9.1"], True),
        ("10.66.0.5/32", ["10.9.9.1", "10.9.9.2"], False),
        ("10.66.0.5/24", ["10.66.0.1", "10.66.0.1"], False),
    ],
)
def test_the_only_next_hop_of_a_single_address_is_its_gateway_on_the_link(address, hops, onlink):
    routes = [{"to": f"10.{place}.0.0/16", "via": via} for place, via in enumerate(hops)]
    nic = {"match": {"macaddress": MAC}, "addresses": [address], "routes": routes}
    document = made("network-config", json.dumps({"version": 2, "ethernets": {"a": nic}}))
    assert [route.traits.onlink for route in document.routes] == [onlink] * 2


# What is limited, and where the fault is.
LIMITED = {"ADDRESSES": "network.ethernets.a", "LINKS": "", "ROUTES": "", "RULES": ""}


@pytest.mark.parametrize("name", LIMITED)
def test_what_is_beyond_a_limit_is_one_fault(monkeypatch, name):
    monkeypatch.setattr(drafts, f"MAX_{name}", 2)
    nic = {
        "match": {"macaddress": MAC},
        "addresses": [f"10.{number}.0.1/24" for number in range(3)],
        "routes": [{"to": f"10.7.{number}.0/24", "via": "10.1.0.9"} for number in range(3)],
        "routing-policy": [
            {"from": f"10.7.{number}.0/24", "table": 101, "priority": 9} for number in range(3)
        ],
    }
    others = {name: {"match": {"macaddress": f"{DP[:-1]}{name}"}} for name in "bc"}
    content = {"version": 2, "ethernets": {"a": nic, **others}}
    document = made("network-config", json.dumps({"network": content}))
    counts = {
        "ADDRESSES": len(document.links[0].addresses),
        "LINKS": len(document.links),
        "ROUTES": len(document.routes),
        "RULES": len(document.rules),
    }
    assert counts == {**dict.fromkeys(LIMITED, 3), name: 2}
    (fault,) = faults(document)
    assert fault.endswith(f"more than 2 {name.lower()}, ignoring the rest")
    assert LIMITED[name] in fault
