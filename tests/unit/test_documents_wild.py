"""What documents found in the wild ask, and that no key of them is dropped without a word."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from platforms import faults, hints, links, made, routes, virtual

from neuca_tools.documents.neuca import link_kinds
from neuca_tools.documents.platform import drafts
from neuca_tools.documents.platform.drafts import IPV6_MTU, MAX_UNUSED
from neuca_tools.documents.platform.parts import MAX_FAULTS
from neuca_tools.model import Automatic, LinkKey
from neuca_tools.model.routing import Traits

MAC, OTHER = "fa:16:3e:00:00:01", "fa:16:3e:00:00:02"


def netplan(**kinds):
    return made("network-config", json.dumps({"version": 2, **kinds}))


def nic(**keys):
    """A document of netplan about one NIC."""
    return netplan(ethernets={"a": {"match": {"macaddress": MAC}, **keys}})


def version_1(*links):
    return made("network-config", json.dumps({"version": 1, "config": links}))


def physical(**keys):
    return {"type": "physical", "name": "dp1", "mac_address": MAC, **keys}


def openstack(links, *networks):
    return made("network_data.json", json.dumps({"links": links, "networks": networks}))


def one_link(**keys):
    return {"id": "a", "type": "phy", "ethernet_mac_address": MAC, **keys}


def request(document, key=MAC):
    return next(one for one in document.links if str(one.key) == key)


# --- Nothing is dropped without a word ------------------------------------------------------------------------------


def test_one_warning_of_a_link_lists_every_key_that_has_no_effect():
    document = nic(
        wakeonlan=True,
        addresses=[{"10.0.0.1/24": {"label": "a:1"}}],
        routes=[{"to": "10.9.0.0/16", "via": "10.0.0.9", "advertised-receive-window": 16}],
        zebra={"stripes": 9},
        **{"dhcp4-overrides": {"use-dns": False}, "link-local": [], "critical": True},
    )
    assert faults(document) == [
        (
            f'warning: network-config {MAC} "ethernets.a": these keys have no effect: addresses[0].10.0.0.1/24.label,'
            " critical, dhcp4-overrides, link-local, routes[0].advertised-receive-window, zebra"
        )
    ]


def test_switches_that_are_off_by_default_are_not_named():
    off = dict.fromkeys(("wakeonlan", "optional", "critical", "ipv6-privacy"), False)
    assert faults(nic(**off, dhcp4=False, dhcp6="no", nameservers={"addresses": ["1.1.1.1"]})) == []


def test_a_warning_names_the_first_unused_keys_and_counts_the_others():
    many = {f"key{number:02}": number for number in range(MAX_UNUSED + 5)}
    (fault,) = faults(nic(**many))
    assert fault.endswith(f"key{MAX_UNUSED - 1} and 5 more")


def test_a_value_of_an_unknown_key_is_not_kept():
    document = nic(auth={"password": "XcanaryX", "keys": ["XcanaryX"]})
    assert "XcanaryX" not in str(document)
    assert faults(document)[0].endswith("these keys have no effect: auth")


def test_unused_keys_of_version_1_and_of_openstack_are_named_with_their_subnets_and_networks():
    subnet = {"type": "static", "address": "10.0.0.1/24", "broadcast": "10.0.0.255", "metric": 5}
    assert faults(version_1(physical(subnets=[subnet], keep_configuration=True))) == [
        (
            f'warning: network-config {MAC} "config[0]": these keys have no effect: keep_configuration,'
            " subnets[0].broadcast, subnets[0].metric"
        )
    ]
    network = {"link": "a", "type": "ipv4", "ip_address": "10.0.0.1/24", "metric": 5}
    assert faults(openstack([one_link(speed=9)], network)) == [
        (
            f'warning: network_data.json {MAC} "links[0]": these keys have no effect: speed,'
            " networks[0].metric"
        )
    ]


def test_the_only_link_that_may_be_for_management_is_left_to_others_with_its_keys():
    document = nic(dhcp4=True, zebra=True)
    assert (list(hints(document)), faults(document)) == ([MAC], [])
    both = {"dhcp4": True, "zebra": True}
    document = netplan(ethernets={"a": {**both}, "b": {**both}})
    assert faults(document) == [
        'warning: network-config "ethernets.a": these keys have no effect: zebra',
        'warning: network-config "ethernets.b": these keys have no effect: zebra',
    ]


def test_keys_beside_dhcp_have_an_effect_where_there_is_dhcp():
    beside = {"dhcp4-overrides": {"use-dns": True}, "link-local": [], "optional": True}
    both = {"dhcp4": True, "critical": True, **beside}
    assert faults(netplan(ethernets={"a": {**both}, "b": {**both}})) == []
    both["link-local"] = ["ipv4", "ipv6"]
    assert faults(netplan(ethernets={"a": {**both}, "b": {"dhcp4": True}})) == [
        'warning: network-config "ethernets.a": these keys have no effect: link-local'
    ]


@pytest.mark.parametrize(
    ("kind", "tree", "key"),
    [
        ("network-config", {"version": 2, "vlans": {}, "zebras": {"z": {}}}, "zebras"),
        ("network-config", {"network": {"version": 2}, "zebras": 1}, "zebras"),
        (
            "network-config",
            {"network": {"version": 2, "vlans": {}, "zebras": [1]}},
            "network.zebras",
        ),
        ("network-config", {"version": 1, "config": [], "zebras": 1}, "zebras"),
        ("network_data.json", {"links": [], "networks": [], "zebras": [1]}, "zebras"),
    ],
)
def test_an_unknown_key_beside_the_links_is_named(kind, tree, key):
    document = made(kind, json.dumps(tree))
    assert faults(document) == [f'warning: {kind} "{key}": this key has no effect']


@pytest.mark.parametrize(
    ("kind", "tree", "key"),
    [
        ("network-config", {"version": 2, "Ethernets": {"eth1": {}}}, "Ethernets"),
        ("network-config", {"network": {"version": 2, "ethernet": {}}}, "network.ethernet"),
        ("network-config", {"version": 1, "ethernets": {"eth1": {}}}, "ethernets"),
        ("network-config", {"version": 1, "Config": []}, "Config"),
        ("network_data.json", {"error": {"code": 503}}, "error"),
        ("network_data.json", {"Links": [1], "services": [{"type": "dns"}]}, "Links"),
    ],
)
def test_a_document_with_unknown_keys_only_is_not_one_without_links(kind, tree, key):
    document = made(kind, json.dumps(tree))
    assert faults(document) == [f'error: {kind} "{key}": this key has no effect']


@pytest.mark.parametrize("empty", [[], [None]])
def test_a_link_that_is_a_list_is_a_fault_even_if_it_is_empty(empty):
    """As PHP writes an empty object."""
    assert faults(netplan(ethernets={"a": {}, "b": empty})) == [
        'error: network-config "ethernets.b": it is not an object'
    ]


def test_warnings_do_not_displace_an_error_and_those_left_out_are_mentioned():
    ethernets = {f"nic{number:03}": {"zebra": 1} for number in range(MAX_FAULTS + 50)}
    ethernets["nic999"] = {"mtu": "x"}
    document = netplan(ethernets=ethernets)
    severities = [fault.severity for fault in document.faults]
    assert (severities.count("warning"), severities.count("error")) == (MAX_FAULTS + 1, 1)
    more = "warning: network-config: there are more warnings than the 200 that are shown"
    assert faults(document)[-1] == more


# --- Links that only other programs can make ------------------------------------------------------------------------


def test_a_link_of_open_vswitch_is_refused_by_name_and_takes_its_ports_with_it():
    document = netplan(
        ethernets={"a": {}, "b": {}},
        bridges={"br0": {"interfaces": ["a"], "openvswitch": {}}},
        vlans={"v": {"id": 5, "link": "br0"}},
        openvswitch={"protocols": ["OpenFlow13"]},
    )
    assert list(links(document)) == ["name b"]
    assert faults(document) == [
        'warning: network-config "bridges.br0": a link of Open vSwitch, which is left to other programs, with everything on top of it',
        'warning: network-config "openvswitch": this key has no effect',
        'warning: network-config "vlans.v.link" = "br0": it is left to other programs, as is its NIC',
    ]


def test_an_sriov_vlan_filter_is_refused_by_name():
    document = netplan(
        ethernets={"vf": {}}, vlans={"v": {"id": 5, "link": "vf", "renderer": "sriov"}}
    )
    assert list(links(document)) == ["name vf"]
    assert faults(document) == [
        (
            'warning: network-config "vlans.v": a VLAN filter of an SR-IOV virtual function, which is left to other programs,'
            " with everything on top of it"
        )
    ]


QINQ = "a VLAN on a VLAN (QinQ) is not supported, ignoring it"


def test_a_vlan_on_a_vlan_is_refused_for_that_reason():
    document = netplan(
        ethernets={"a": {}}, vlans={"v": {"id": 5, "link": "a"}, "w": {"id": 6, "link": "v"}}
    )
    assert faults(document) == [f'warning: network-config "vlans.w.link" = "v": {QINQ}']
    lower = {"type": "vlan", "name": "v", "vlan_link": "dp1", "vlan_id": 5}
    document = version_1(physical(), {**lower, "name": "w", "vlan_link": "v"}, lower)
    assert faults(document) == [f'warning: network-config "config[1].vlan_link" = "v": {QINQ}']
    lower = {"id": "v", "type": "vlan", "vlan_link": "a", "vlan_id": 5}
    document = openstack([one_link(), lower, {**lower, "id": "w", "vlan_link": "v"}])
    assert faults(document) == [f'warning: network_data.json "links[2].vlan_link" = "v": {QINQ}']


def test_addresses_of_the_loopback_interface_are_left_to_others_with_a_warning():
    loopback = {"type": "loopback", "name": "lo"}
    assert faults(version_1(loopback)) == []
    with_address = {**loopback, "subnets": [{"type": "static", "address": "10.255.0.1/32"}]}
    assert faults(version_1(with_address)) == [
        (
            'warning: network-config "config[0].type" = "loopback": this kind of link is left to other programs,'
            " with everything on top of it"
        )
    ]


# --- Identity -------------------------------------------------------------------------------------------------------


def test_the_name_of_a_nic_in_openstack_is_its_name():
    assert links(openstack([one_link(name="dp1")])) == {MAC: ("up", "dp1", None, [])}


def test_the_name_of_a_vlan_in_openstack_has_no_effect_as_with_cloud_init():
    vlan = {"id": "v", "type": "vlan", "name": "v5", "vlan_link": "a", "vlan_id": 5}
    document = openstack([one_link(), vlan])
    assert links(document)[f"{MAC}.5"] == ("up", None, None, [])
    assert faults(document) == [
        f'warning: network_data.json {MAC} "links[1]": these keys have no effect: name'
    ]


def test_a_link_with_a_name_and_no_mac_is_the_nic_of_that_name():
    network = {"link": "a", "type": "ipv4", "ip_address": "10.0.0.1", "netmask": "255.255.255.0"}
    document = openstack(
        [{"id": "a", "type": "phy", "name": "eno1"}, {"id": "b", "type": "phy", "name": "en*"}],
        network,
    )
    assert links(document) == {"name eno1": ("up", None, None, ["10.0.0.1/24"])}
    assert faults(document) == [
        (
            'error: network_data.json "links[1].name" = "en*": "en*" is not an interface name: letters, digits, ".", "_" and'
            ' "-" only'
        )
    ]


def test_a_member_that_is_only_named_is_the_nic_of_that_name():
    bond = {"type": "bond", "name": "bond0", "bond_interfaces": ["a", "b"], "params": {}}
    made_of = virtual(
        version_1(bond, {"type": "physical", "name": "b", "mac_address": MAC}), "bond bond0"
    )
    assert made_of.members == (LinkKey("name a"), LinkKey(MAC))


def test_a_vlan_may_be_on_a_nic_that_is_only_named():
    vlan = {"type": "vlan", "name": "v", "vlan_link": "eth9", "vlan_id": 5}
    for document in (version_1(vlan), netplan(vlans={"v": {"id": 5, "link": "eth9"}})):
        assert list(links(document)) == ["name eth9", "name eth9.5"]
        assert faults(document) == []


def test_a_nic_with_an_unusable_mac_is_not_taken_by_its_name():
    bond = {"type": "bond", "name": "bond0", "bond_interfaces": ["dp1"], "params": {}}
    vlan = {"type": "vlan", "name": "v", "vlan_link": "dp1", "vlan_id": 5}
    document = version_1(physical(mac_address="01:00:00:00:00:01"), bond, vlan)
    assert list(links(document)) == []
    assert faults(document)[1:] == [
        'warning: network-config "config[2].vlan_link" = "dp1": it cannot be used, because its NIC cannot be used',
        (
            'warning: network-config "config[1].bond_interfaces" = "dp1": it is on "dp1", which is not'
            " configured: it is left to other programs too"
        ),
    ]


def test_what_matches_every_nic_is_ignored():
    document = netplan(ethernets={"all": {"match": {}, "dhcp4": True}})
    assert links(document) == {}
    assert faults(document) == [
        'warning: network-config "ethernets.all.match": it matches every NIC, ignoring it'
    ]


def test_a_port_that_netplan_only_names_is_the_nic_of_that_name():
    document = netplan(bridges={"br0": {"interfaces": ["a"]}})
    assert virtual(document, "bridge br0").members == (LinkKey("name a"),)


def test_the_loopback_interface_of_netplan_is_left_to_others():
    document = netplan(ethernets={"lo": {"addresses": ["10.255.0.1/32"]}})
    assert links(document) == {}
    assert faults(document) == [
        'warning: network-config "ethernets.lo": the loopback interface is left to other programs'
    ]


def test_a_renderer_of_all_links_of_a_kind_is_no_link():
    document = netplan(ethernets={"renderer": "networkd", "a": {}})
    assert (list(links(document)), faults(document)) == (["name a"], [])


# --- Addresses and routes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "taken"), [("10.0.0.1", "10.0.0.1/24"), ("fd00::1", "fd00::1/64")]
)
def test_an_address_without_a_prefix_length_gets_the_one_that_cloud_init_assumes(text, taken):
    subnet = {"type": "static", "address": text}
    network = {"link": "a", "type": "ipv4", "ip_address": text}
    for document in (
        nic(addresses=[text]),
        version_1(physical(subnets=[subnet])),
        openstack([one_link()], network),
    ):
        assert links(document)[MAC][3] == [taken]
        (fault,) = faults(document)
        assert fault.endswith(f'"{text}" has no prefix length, treated as "{taken}"')
        assert fault.startswith("warning: ")


@pytest.mark.parametrize(
    ("keys", "taken"),
    [
        ({"address": "10.0.0.1/255.255.0.0"}, "10.0.0.1/16"),
        ({"address": "fd00::1/ffff:ffff::"}, "fd00::1/32"),
        ({"address": "10.0.0.1", "prefix": 20}, "10.0.0.1/20"),
        ({"address": "10.0.0.1/8", "netmask": "255.255.0.0"}, "10.0.0.1/8"),
    ],
)
def test_a_prefix_length_may_be_a_netmask_or_a_key_of_its_own(keys, taken):
    document = version_1(physical(subnets=[{"type": "static", **keys}]))
    assert links(document)[MAC][3] == [taken]


@pytest.mark.parametrize("text", ["10.0.0.1/", "fd00::1/"])
def test_a_slash_without_a_prefix_length_makes_an_address_or_destination_unusable(text):
    subnet = {"type": "static", "address": text, "netmask": "255.255.0.0"}
    network = {"link": "a", "type": "ipv4", "ip_address": text, "netmask": "255.255.0.0"}
    hop = {"network": text, "netmask": "255.0.0.0", "gateway": "10.0.0.9"}
    for document in (
        nic(addresses=[text], routes=[{"to": text, "via": "10.0.0.9"}]),
        nic(addresses=[], **{"routing-policy": [{"from": text, "table": 9}]}),
        version_1(physical(subnets=[{**subnet, "routes": [hop]}])),
        openstack([one_link()], {**network, "routes": [hop]}),
    ):
        assert (links(document)[MAC][3], routes(document), document.rules) == ([], [], ())
        assert all('the prefix length "" is not a number' in fault for fault in faults(document))
        assert faults(document)


@pytest.mark.parametrize(
    ("route", "to", "warned"),
    [
        ({"network": "10.9.1.2", "netmask": "255.255.0.0"}, "10.9.0.0/16", False),
        ({"destination": "10.9.1.2/255.255.0.0"}, "10.9.0.0/16", False),
        ({"destination": "10.9.1.2"}, "10.9.1.0/24", True),
        ({"destination": "fd00:9::1", "prefix": 32}, "fd00:9::/32", False),
    ],
)
def test_host_bits_of_a_destination_are_masked(route, to, warned):
    gateway = "10.0.0.254"
    if ":" in to:
        gateway = "fd00::fe"
    subnet = {"type": "static", "address": "10.0.0.1/24", "routes": [{**route, "gateway": gateway}]}
    document = version_1(physical(subnets=[subnet]))
    assert routes(document) == [(to, gateway, MAC)]
    begin = (
        f'warning: network-config {MAC} "config[0].subnets[0].routes[0].destination" = "10.9.1.2": '
    )
    assert faults(document) == [f'{begin}it has no prefix length, treated as "{to}"'] * warned


def test_a_destination_of_netplan_without_a_prefix_length_is_a_host():
    document = nic(addresses=["10.0.0.1/24"], routes=[{"to": "10.9.1.2", "via": "10.0.0.9"}])
    assert (routes(document), faults(document)) == ([("10.9.1.2/32", "10.0.0.9", MAC)], [])


@pytest.mark.parametrize("more", [{}, {"table": 7}, {"on-link": True}])
@pytest.mark.parametrize("via", ["0.0.0.0", "::"])
def test_an_unspecified_next_hop_is_none(via, more):
    """As for systemd-networkd (networkd-route.c), for which netplan writes it as the gateway."""
    to = "10.9.0.0/16"
    if ":" in via:
        to = "fd00:9::/32"
    document = nic(routes=[{"to": to, "via": via, **more}, {"to": "default", "via": via}])
    assert routes(document) == [(to, "None", MAC)]
    assert document.routes[0].traits == Traits(more.get("table", 254))
    assert faults(document) == []


@pytest.mark.parametrize("gateway", ["0.0.0.0", "::"])
def test_an_unspecified_gateway_is_none(gateway):
    subnet = {"type": "static", "address": "10.0.0.1/24", "gateway": gateway}
    for document in (version_1(physical(subnets=[subnet])), nic(gateway4=gateway)):
        assert (document.links[0].routing.gateways, document.management) == ((), ())
        assert faults(document) == []


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ("addresses", {"addresses": [f"10.0.0.{number}/24" for number in range(1, 5)]}),
        ("routes", {"routes": [{"to": f"10.{number}.0.0/16", "via": "10.0.0.1"} for number in range(4)]}),
        ("rules", {"routing-policy": [{"from": f"10.{number}.0.0/16", "table": 7} for number in range(4)]}),
    ],
)  # fmt: skip
def test_what_is_beyond_a_limit_is_not_ignored_without_a_word(monkeypatch, what, more):
    monkeypatch.setattr(drafts, f"MAX_{what.upper()}", 3)
    document = nic(**more)
    assert len([*document.links[0].addresses, *document.routes, *document.rules]) == 3
    (fault,) = faults(document)
    assert fault.startswith("error: ")
    assert fault.endswith(f"more than 3 {what}, ignoring the rest")


# --- Settings of links ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "taken"),
    [("100", "100"), ("100ms", "100"), ("1s", "1000"), ("1s 500ms", "1500"), ("1min", "60000")],
)
def test_a_time_span_may_have_a_unit(text, taken):
    bonds = {"bond0": {"interfaces": [], "parameters": {"mii-monitor-interval": text}}}
    params = {"bond-miimon": text}
    bond = {"type": "bond", "name": "bond0", "bond_interfaces": [], "params": params}
    for document in (netplan(bonds=bonds), version_1(bond)):
        assert (virtual(document, "bond bond0").option("miimon"), faults(document)) == (taken, [])


def test_a_bridge_counts_in_whole_seconds():
    def bridge(delay):
        parameters = {"forward-delay": delay, "stp": True}
        return netplan(bridges={"br0": {"interfaces": [], "parameters": parameters}})

    assert virtual(bridge("15s"), "bridge br0").option("forward-delay") == "15"
    assert faults(bridge("1500ms")) == [
        (
            'error: network-config bridge br0 "bridges.br0.parameters.forward-delay" = "1500ms": "1500ms" is not a whole number'
            " of seconds"
        )
    ]
    assert faults(bridge("2fortnights")) == [
        (
            'error: network-config bridge br0 "bridges.br0.parameters.forward-delay" = "2fortnights": "2fortnights" has the unknown'
            ' unit of time "fortnights"'
        )
    ]


def test_a_switch_that_is_neither_true_nor_false_is_a_fault():
    document = nic(dhcp4="yesplease")
    assert hints(document) == {}
    assert faults(document) == [
        f'error: network-config {MAC} "ethernets.a.dhcp4" = "yesplease": "yesplease" is neither true nor false'
    ]


def test_activation_mode_says_the_state():
    assert links(nic(**{"activation-mode": "off"})) == {MAC: ("down", None, None, [])}
    document = nic(
        mtu=9000,
        addresses=["10.0.0.1/24"],
        routes=[{"to": "10.9.0.0/16", "via": "10.0.0.9"}],
        **{"activation-mode": "manual"},
    )
    assert (links(document), routes(document)) == ({MAC: ("user", None, None, [])}, [])
    left = "the link is left to the user, with its addresses, routes and other settings"
    assert faults(document) == [f'warning: network-config {MAC} "ethernets.a": {left}']


def test_a_manual_subnet_is_left_to_the_user_and_the_link_if_all_are():
    manual = {"type": "static", "address": "10.0.0.1/24", "control": "manual"}
    automatic = {"type": "static", "address": "10.0.1.1/24", "control": "auto"}
    assert links(version_1(physical(subnets=[manual]))) == {MAC: ("user", "dp1", None, [])}
    document = version_1(physical(subnets=[manual, automatic]))
    assert links(document) == {MAC: ("up", "dp1", None, ["10.0.1.1/24"])}
    assert faults(document) == [
        (
            f'warning: network-config {MAC} "config[0].subnets[0].control" = "manual": a subnet that is left to the user,'
            " ignoring it"
        )
    ]


def test_the_mtu_of_a_subnet_is_that_of_the_link_or_of_its_ipv6():
    four = {"type": "static", "address": "10.0.0.1/24", "mtu": 1492}
    six = {"type": "static6", "address": "fd00::1/64", "mtu": 1400}
    document = version_1(physical(mtu=9000, subnets=[four, six]))
    assert (request(document).mtu, request(document).sysctls) == (1492, ((IPV6_MTU, "1400"),))
    assert request(nic(**{"ipv6-mtu": 1400})).sysctls == ((IPV6_MTU, "1400"),)
    assert faults(nic(**{"ipv6-mtu": 1000})) == [
        f'error: network-config {MAC} "ethernets.a.ipv6-mtu" = "1000": the MTU of IPv6 is at least 1280'
    ]


def test_the_metric_of_a_subnet_is_that_of_its_routes_and_of_dhcp():
    def with_type(kind, **more):
        own = {"network": "10.8.0.0/16", "gateway": "10.0.0.9", "metric": 7}
        other = {"network": "10.9.0.0/16", "gateway": "10.0.0.9"}
        return {"type": kind, "metric": 300, "routes": [own, other], **more}

    static = {"ip_address": "10.0.0.1/24"}
    for document in (
        version_1(physical(subnets=[with_type("static", address="10.0.0.1/24")])),
        openstack([one_link()], with_type("ipv4", link="a", **static)),
    ):
        assert [route.metric for route in document.routes] == [7, 300]
        assert request(document).automatic is None
    for kind, family in (("dhcp4", 4), ("dhcp6", 6), ("ipv6_slaac", 6)):
        for document in (
            version_1(physical(subnets=[with_type(kind)])),
            openstack([one_link()], with_type(kind, link="a")),
        ):
            overrides = {
                4: request(document).automatic.dhcp4_overrides,
                6: request(document).automatic.dhcp6_overrides,
            }
            assert overrides == {4: (), 6: (), family: (("route-metric", "300"),)}
            assert [route.metric for route in document.routes] == [7, 300]


def test_the_mtu_and_the_advertised_mss_of_a_route_are_those_of_netplan():
    route = {"to": "10.9.0.0/16", "via": "10.0.0.9", "mtu": 1400, "advertised-mss": 1300}
    document = nic(addresses=["10.0.0.1/24"], routes=[route])
    assert [route.traits for route in document.routes] == [Traits(mtu=1400, advmss=1300)]
    assert faults(document) == []


def test_a_configuration_that_version_1_keeps_is_critical_with_dhcp():
    def asked(**subnet):
        return version_1(physical(keep_configuration=True, subnets=[subnet]))

    assert request(asked(type="dhcp4")).automatic == Automatic(dhcp4=True, critical=True)
    document = asked(type="static", address="10.0.0.1/24")
    assert request(document).automatic is None
    unused = "these keys have no effect: keep_configuration"
    assert faults(document) == [f'warning: network-config {MAC} "config[0]": {unused}']


def test_offloads_have_the_names_of_ethtool():
    document = nic(**{"generic-receive-offload": False, "receive-checksum-offload": True})
    assert request(document).device == (("offloads", "gro off rx on"),)
    assert faults(document) == []


# --- Automatic addresses --------------------------------------------------------------------------------------------


def test_what_netplan_says_about_automatic_addresses_is_kept():
    document = nic(
        dhcp4=True,
        dhcp6=False,
        optional=True,
        critical=False,
        **{
            "dhcp4-overrides": {"use-dns": False, "route-metric": 200},
            "accept-ra": "no",
            "link-local": ["ipv6"],
        },
    )
    assert request(document).automatic == Automatic(
        dhcp4=True,
        dhcp6=False,
        accept_ra=False,
        link_local=("ipv6",),
        dhcp4_overrides=(("route-metric", "200"), ("use-dns", "false")),
        optional=True,
        critical=False,
    )
    assert request(nic(**{"link-local": []})).automatic == Automatic(link_local=())


@pytest.mark.parametrize(
    "overrides",
    [
        {"hostname": "a\n[Match]\nName=*"},
        {"hostname": "a\n[ipv4]\nnever-default=0"},
        {"hostname": "--script=x"},
        {"route-metric": "1\nUseGateway=yes"},
        {"route-metric": "4294967296"},
        {"route-metric": "٣"},
        {"route-metric": "9" * 5000},
        {"use-dns": "true\nUseGateway=yes"},
    ],
)
def test_no_override_can_add_a_line_to_a_file_or_spoil_it(overrides):
    document = nic(dhcp4=True, **{"dhcp4-overrides": overrides})
    assert request(document).automatic == Automatic(dhcp4=True)
    assert len(faults(document)) == 1


def test_truths_of_overrides_have_one_form():
    overrides = {"use-dns": "Yes", "use-routes": "off", "use-domains": "route"}
    automatic = request(nic(dhcp4=True, **{"dhcp4-overrides": overrides})).automatic
    assert dict(automatic.dhcp4_overrides) == {
        "use-dns": "true", "use-routes": "false", "use-domains": "route",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ipv4_dhcp", Automatic(dhcp4=True)),
        ("ipv6_dhcp", Automatic(dhcp6=True)),
        ("ipv6_dhcpv6-stateful", Automatic(dhcp6=True)),
        ("ipv6_slaac", Automatic(accept_ra=True)),
        ("dhcp4", Automatic(dhcp4=True)),
        ("ipv4", None),
    ],
)
def test_the_type_of_a_network_says_whether_addresses_are_automatic(kind, expected):
    network = {"link": "a", "type": kind, "ip_address": "10.0.0.1/24"}
    assert request(openstack([one_link()], network)).automatic == expected
    if expected is not None:
        subnets = [{"type": kind}]
        assert request(version_1(physical(subnets=subnets))).automatic == expected


# --- Options of bonds and bridges -----------------------------------------------------------------------------------


def test_netplan_turns_on_the_spanning_tree_protocol_only_with_parameters():
    def options(**parameters):
        document = netplan(bridges={"br0": {"interfaces": [], **parameters}})
        return virtual(document, "bridge br0").options

    assert options() == ()
    assert options(parameters={}) == (("stp", "yes"),)
    assert options(parameters={"priority": 5}) == (("priority", "5"), ("stp", "yes"))


def test_a_forward_delay_of_zero_is_what_it_is_without_the_spanning_tree_protocol():
    params = {"bridge_stp": "off", "bridge_fd": 0}
    bridge = {"type": "bridge", "name": "br0", "bridge_interfaces": [], "params": params}
    document = version_1(bridge)
    assert virtual(document, "bridge br0").option("forward-delay") == "0"
    assert faults(document) == []
    document = version_1({**bridge, "params": {**params, "bridge_stp": "on"}})
    assert virtual(document, "bridge br0").option("forward-delay") == "2"
    assert faults(document) == [
        (
            'warning: network-config bridge br0 "config[0].params.bridge_fd" = "0": with the spanning tree protocol, the'
            " forwarding delay is at least 2 seconds, treated as 2"
        )
    ]


@pytest.mark.parametrize(
    ("theirs", "value", "ours", "taken"),
    [
        ("arp-interval", "1s", "arp-interval", "1000"),
        ("arp-ip-targets", ["10.0.0.1", "10.0.0.2"], "arp-ip-target", "10.0.0.1,10.0.0.2"),
        ("arp-validate", "all", "arp-validate", "all"),
        ("arp-all-targets", "all", "arp-all-targets", "all"),
        ("gratuitous-arp", 3, "num-grat-arp", "3"),
        ("gratuitious-arp", 3, "num-grat-arp", "3"),
        ("primary-reselect-policy", "better", "primary-reselect", "better"),
        ("resend-igmp", 2, "resend-igmp", "2"),
        ("packets-per-slave", 4, "packets-per-slave", "4"),
        ("learn-packet-interval", "5s", "lp-interval", "5"),
        ("all-slaves-active", True, "all-slaves-active", "yes"),
    ],
)
def test_the_options_of_a_bond_are_those_of_its_driver(theirs, value, ours, taken):
    document = netplan(bonds={"bond0": {"interfaces": [], "parameters": {theirs: value}}})
    assert virtual(document, "bond bond0").option(ours) == taken
    assert faults(document) == []


@pytest.mark.parametrize(
    ("theirs", "version_1_key", "ours", "value"),
    [
        ("hello-time", "bridge_hello", "hello-time", "3"),
        ("max-age", "bridge_maxage", "max-age", "12"),
        ("ageing-time", "bridge_ageing", "ageing-time", "100"),
        ("priority", "bridge_bridgeprio", "priority", "5"),
    ],
)
def test_the_options_of_a_bridge(theirs, version_1_key, ours, value):
    parameters = {theirs: int(value)}
    bridge = {"type": "bridge", "name": "br0", "bridge_interfaces": []}
    for document in (
        netplan(bridges={"br0": {"interfaces": [], "parameters": parameters}}),
        version_1({**bridge, "params": {version_1_key: int(value)}}),
    ):
        assert virtual(document, "bridge br0").option(ours) == value
        assert faults(document) == []


def device(document, key):
    return dict(request(document, key).device)


BOND = {"type": "bond", "name": "bond0", "bond_interfaces": ["a", "b"]}
BRIDGE = {"type": "bridge", "name": "br0", "bridge_interfaces": ["a", "b"]}


@pytest.mark.parametrize(
    "document",
    [
        netplan(bonds={"bond0": {"interfaces": ["a", "b"], "parameters": {"primary": "b"}}}),
        version_1({**BOND, "params": {"bond-primary": "b"}}),
        version_1({**BOND, "params": {"bond_primary": "b"}}),
        openstack(
            [
                {"id": "1", "type": "phy", "name": "a"},
                {"id": "2", "type": "phy", "name": "b"},
                {"id": "3", "type": "bond", "bond_links": ["1", "2"], "bond_primary": "2"},
            ]
        ),
    ],
)
def test_the_primary_member_of_a_bond_is_asked_of_the_member(document):
    assert (device(document, "name a"), device(document, "name b")) == ({}, {"bond-primary": "yes"})
    assert faults(document) == []


def test_openstack_may_name_the_primary_member_by_its_name():
    links = [
        {**one_link(), "name": "dp1"},
        {"id": "b", "type": "bond", "bond_links": ["a"], "bond_primary": "dp1"},
    ]
    assert device(openstack(links), MAC) == {"bond-primary": "yes"}


@pytest.mark.parametrize(
    "document",
    [
        netplan(
            bridges={
                "br0": {
                    "interfaces": ["a", "b"],
                    "parameters": {"path-cost": {"a": 50}, "port-priority": {"a": 5, "b": "6"}},
                }
            }
        ),
        version_1(
            {
                **BRIDGE,
                "params": {"bridge_pathcost": ["a 50"], "bridge_portprio": ["a 5", "b 6"]},
            }
        ),
    ],
)
def test_path_cost_and_priority_are_asked_of_the_port(document):
    assert device(document, "name a") == {"path-cost": "50", "port-priority": "5"}
    assert device(document, "name b") == {"port-priority": "6"}
    assert faults(document) == []


def test_what_is_asked_of_a_port_that_is_none_or_with_a_wrong_value_is_a_fault():
    parameters = {"path-cost": {"z": 50, "a": 0, "b": {"c": 1}}, "port-priority": {"a": 64}}
    document = netplan(bridges={"br0": {"interfaces": ["a"], "parameters": parameters}})
    begin = 'error: network-config bridge br0 "bridges.br0.parameters'
    assert faults(document) == [
        f'{begin}.path-cost.a" = "0": the path-cost "0" is not a number from 1 to 65535',
        f'{begin}.path-cost.b": the path-cost "" is not a number from 1 to 65535',
        f'{begin}.path-cost.z" = "z": it is not a member or port of this link',
        f'{begin}.port-priority.a" = "64": the port-priority "64" is not a number from 0 to 63',
    ]
    document = netplan(bonds={"bond0": {"interfaces": ["a"], "parameters": {"primary": "b"}}})
    assert faults(document)[0] == (
        'error: network-config bond bond0 "bonds.bond0.parameters.primary" = "b":'
        " it is not a member or port of this link"
    )


def test_wake_on_lan_and_the_mac_address_are_settings_of_the_device():
    document = nic(wakeonlan=True, macaddress="02:00:00:00:00:09")
    assert device(document, MAC) == {"wake-on-lan": "magic", "mac": "02:00:00:00:00:09"}
    assert device(version_1(physical(wakeonlan=True)), MAC) == {"wake-on-lan": "magic"}
    assert faults(document) == []


@pytest.mark.parametrize("word", ["permanent", "random"])
def test_of_the_words_for_mac_addresses_none_has_an_effect(word):
    assert faults(nic(macaddress=word)) == [
        (
            f'warning: network-config {MAC} "ethernets.a.macaddress" = "{word}": only a MAC address can'
            " be set, and the permanent one is the default"
        )
    ]


@pytest.mark.parametrize("kind", ["dhcp4", "dhcp6", "ipv6_slaac", "manual"])
def test_routes_of_a_version_1_subnet_without_an_address_are_made(kind):
    way = {"network": "10.9.0.0/16", "gateway": "10.1.1.254"}
    document = version_1(physical(subnets=[{"type": kind, "routes": [way]}]))
    assert [(str(one.to), str(one.via)) for one in document.routes] == [
        ("10.9.0.0/16", "10.1.1.254")
    ]
    assert faults(document) == []


@pytest.mark.parametrize("kind", ["ipv4_dhcp", "ipv6_dhcpv6-stateful", "ipv6_slaac"])
def test_of_the_routes_of_a_network_with_automatic_addresses_the_default_route_is_information(kind):
    ways = [
        {"network": "::", "netmask": "::", "gateway": "fd00:1::1"},
        {"network": "fd00:9::", "netmask": "ffff:ffff::", "gateway": "fd00:1::1"},
    ]
    address = {"ip_address": "fd00:1::5", "netmask": "ffff:ffff:ffff:ffff::"}
    network = {"link": "a", "type": kind, **address, "routes": ways, "zebra": 1}
    # Of two links with DHCP, neither is known to be the one for management.
    other = {"link": "b", "type": "ipv4_dhcp"}
    document = openstack([one_link(), one_link(id="b", ethernet_mac_address=OTHER)], network, other)
    assert routes(document) == [("fd00:9::/32", "fd00:1::1", MAC)]
    assert document.links[0].routing.gateways == ()
    assert hints(document).get(MAC) in (None, "the platform's document has DHCP on it")
    assert faults(document) == [
        f'warning: network_data.json {MAC} "links[0]": these keys have no effect: networks[0].zebra'
    ]


@pytest.mark.parametrize("mode", ["balance-rr", "active-backup"])
def test_an_option_of_another_bond_mode_costs_only_itself(mode):
    parameters = {"mode": mode, "packets-per-slave": 2}
    document = netplan(bonds={"b": {"interfaces": ["x"], "parameters": parameters}})
    options = dict(virtual(document, "bond b").options)
    assert ("packets-per-slave" in options) is (mode == "balance-rr")
    assert [text.startswith("warning") for text in faults(document)] == [True] * (
        mode != "balance-rr"
    )


@pytest.mark.parametrize(
    ("parameters", "dropped"),
    [
        ({"mode": "active-backup", "lacp-rate": "fast"}, {"lacp-rate": "in this mode"}),
        ({"mode": "balance-tlb", "arp_interval": 100}, {"arp_interval": "in this mode"}),
        ({"mode": "802.3ad", "arp-validate": "all"}, {"arp-validate": "in this mode"}),
        (
            {"mode": "active-backup", "miimon": 100, "arp-interval": 50, "arp-validate": "all"},
            {"arp-interval": "beside miimon", "arp-validate": "beside miimon"},
        ),
        ({"mode": "active-backup", "miimon": 0, "arp-interval": 50, "arp-validate": "all"}, {}),
        (
            {"mode": "active-backup", "arp-interval": 50, "updelay": 200, "downdelay": 0},
            {"updelay": "without miimon"},
        ),
        ({"mode": "802.3ad", "miimon": 0, "downdelay": 200}, {"downdelay": "without miimon"}),
        ({"mode": "802.3ad", "updelay": 200}, {}),
        ({"mode": "active-backup", "lacp-rate": "slow", "arp-interval": 0, "miimon": 100}, {}),
        ({"mode": "802.3ad", "miimon": 100, "arp-validate": "none", "lacp-rate": "fast"}, {}),
    ],
)
def test_an_option_that_the_kernel_refuses_in_this_bond_costs_only_itself(parameters, dropped):
    params = {f"bond-{key}": value for key, value in parameters.items()}
    bond = {"type": "bond", "name": "b", "bond_interfaces": ["dp1"], "params": params}
    document = version_1(physical(), bond)
    made_bond = request(document, "bond b")
    assert link_kinds.incomplete_reason(made_bond.key, made_bond.virtual) is None
    assert {fault.key.rpartition("bond-")[2]: fault.reason for fault in document.faults} == {
        key: f"it has no effect {where}, ignoring it" for key, where in dropped.items()
    }
    kept = {key.replace("_", "-") for key in parameters.keys() - dropped.keys()}
    assert dict(made_bond.virtual.options).keys() <= kept
