"""Addresses are reconciled, never flushed: what the user added stays, what we added and nobody asks for any more goes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_interface

import pytest
from lab import mac


def up(*addresses, number=1):
    """A document with one NIC that has these addresses."""
    return f"[interfaces]\n{mac(number)} = up\n[interface {mac(number)}]\naddresses = {', '.join(addresses)}\n"


def test_an_address_that_the_user_added_stays(lab):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24", "fd00:16::1/64"))
    lab.ip("address add 172.16.5.1/24 dev dp1")
    lab.ip("address add fd00:98::1/64 dev dp1 valid_lft 900 preferred_lft 900")
    lab.ip("address add fd00:99::1/64 dev dp1 preferred_lft 0")
    assert lab.once(up("172.16.0.2/24", "fd00:16::2/64")).code == 0
    assert lab.addresses("dp1") == {
        "172.16.0.2/24",
        "fd00:16::2/64",
        "172.16.5.1/24",
        "fd00:98::1/64",
        "fd00:99::1/64",
    }
    assert lab.routes("fd00:98::/64", 6) == [(None, "dp1", 256, "kernel")]
    assert "deprecated" in lab.ip("address show dev dp1").out


def test_an_address_of_ours_that_is_no_longer_asked_for_goes(lab):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24", "172.17.0.1/24", "fd00:16::1/64"))
    assert lab.once(up("172.17.0.1/24")).code == 0
    assert lab.addresses("dp1") == {"172.17.0.1/24"}
    assert lab.once(f"[interfaces]\n{mac(1)} = up\n").code == 0
    assert lab.addresses("dp1") == set()


def test_an_address_set_before_the_first_pass_stays_the_users_even_if_requested(lab):
    lab.veth("dp1", 1, up=True)
    lab.ip("address add 172.16.0.1/24 dev dp1")
    lab.once(up("172.16.0.1/24", "172.17.0.1/24"))
    lab.once(up("172.17.0.1/24"))
    assert lab.addresses("dp1") == {"172.16.0.1/24", "172.17.0.1/24"}


@pytest.mark.parametrize("promote", [0, 1])
def test_changing_an_address_keeps_the_users_secondary_of_the_same_network(lab, promote):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24"))
    lab.sysctl("net/ipv4/conf/dp1/promote_secondaries", promote)
    lab.ip("address add 172.16.0.50/24 dev dp1")
    assert lab.once(up("172.16.0.2/24")).code == 0
    assert lab.addresses("dp1") == {"172.16.0.2/24", "172.16.0.50/24"}
    assert lab.sysctl("net/ipv4/conf/dp1/promote_secondaries") == str(promote)


def test_the_same_address_with_another_prefix_length_replaces_ours(lab):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24", "fd00:16::1/64"))
    assert lab.once(up("172.16.0.1/25", "fd00:16::1/80")).code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/25", "fd00:16::1/80"}


@pytest.mark.parametrize("lifetime", ["", " valid_lft 900 preferred_lft 900"])
def test_the_same_ipv6_address_of_another_program_with_another_length_is_replaced(lab, lifetime):
    lab.veth("dp1", 1, up=True)
    lab.ip(f"address add fd00:16::1/128 dev dp1{lifetime}")
    lab.ip("address add 172.16.0.1/16 dev dp1")
    assert lab.once(up("172.16.0.1/24", "fd00:16::1/64")).code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/16", "172.16.0.1/24", "fd00:16::1/64"}


def test_an_address_moves_from_one_nic_to_another(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.once(up("172.16.0.1/24", "fd00:16::1/64") + up("172.17.0.1/24", number=2))
    assert lab.once(up("172.17.0.1/24") + up("172.16.0.1/24", "fd00:16::1/64", number=2)).code == 0
    assert lab.addresses("dp1") == {"172.17.0.1/24"}
    assert lab.addresses("dp2") == {"172.16.0.1/24", "fd00:16::1/64"}


def test_one_changed_address_changes_that_one_alone(lab):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24", "172.17.0.1/24"))
    with lab.monitored() as monitor:
        lab.once(up("172.16.0.2/24", "172.17.0.1/24"))
        seen = monitor.lines("ADDR")
    assert {
        ("Deleted" in line, "172.16.0.1/24" in line, "172.16.0.2/24" in line) for line in seen
    } == {(True, True, False), (False, False, True)}


def test_two_addresses_of_one_network_both_stay_when_the_first_goes(lab):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24", "172.16.0.2/24", "172.16.0.3/24"))
    assert lab.once(up("172.16.0.2/24", "172.16.0.3/24")).code == 0
    assert lab.addresses("dp1") == {"172.16.0.2/24", "172.16.0.3/24"}


def test_an_address_that_the_user_removed_by_hand_comes_back_with_the_next_start(lab):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24"))
    lab.ip("address del 172.16.0.1/24 dev dp1")
    assert lab.status()[0] == 4
    assert lab.once().code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    lab.once(up("172.16.0.9/24"))
    assert lab.addresses("dp1") == {"172.16.0.9/24"}


@pytest.mark.parametrize("lifetime", ["valid_lft 900 preferred_lft 900", "preferred_lft 0"])
def test_an_asked_address_with_a_lifetime_is_there_for_good_afterwards(lab, lifetime):
    lab.veth("dp1", 1, up=True)
    for address in ("172.16.0.1/24", "fd00:16::1/64"):
        lab.ip(f"address add {address} dev dp1 {lifetime}")
    assert lab.once(up("172.16.0.1/24", "fd00:16::1/64")).code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/24", "fd00:16::1/64"}
    assert not {"dynamic", "deprecated"} & {*lab.ip("address show dev dp1").out.split()}


def test_ipv6_gives_way_to_ipv4_with_an_mtu_below_1280(lab):
    """The kernel drops IPv6 with the MTU, and then has no address to delete."""
    lab.veth("dp1", 1)
    assert lab.once(up("fd00:16::1/64")).code == 0
    assert lab.once(up("172.16.0.1/24") + "mtu = 1000\n").code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    assert lab.link("dp1")["mtu"] == 1000
    assert lab.once(up("fd00:16::1/64")).code == 0
    assert lab.addresses("dp1") == {"fd00:16::1/64"}


def test_an_address_to_whose_network_the_kernel_adds_no_route_is_set_once(lab):
    lab.veth("dp1", 1)
    assert lab.once(up("0.0.0.4/24")).code == 0
    assert lab.addresses("dp1") == {"0.0.0.4/24"}


@pytest.mark.parametrize("how", ["noprefixroute", "deleted", "local"])
def test_a_requested_address_without_the_route_to_its_network_gets_it(lab, how):
    lab.veth("dp1", 1, up=True)
    text = up("172.16.0.1/24", "fd00:16::1/64") + "[routes]\n10.1.0.0/16 = 172.16.0.254\n"
    if how != "noprefixroute":
        assert lab.once(text).code == 0
    for address in ("172.16.0.1/24", "fd00:16::1/64"):
        network = ip_interface(address).network
        if how == "noprefixroute":
            lab.ip(f"address add {address} dev dp1 noprefixroute")
        else:
            lab.ip(f"route delete {network} dev dp1")
        if how == "local":  # which does not lead to the network
            lab.ip(f"route add local {network} dev dp1")
    assert lab.once(text).code == 0
    assert lab.routes("172.16.0.0/24") == [(None, "dp1", 0, "kernel")]
    assert lab.routes("fd00:16::/64", 6) == [(None, "dp1", 256, "kernel")]
    assert lab.routes("10.1.0.0/16")
    assert lab.addresses("dp1") == {"172.16.0.1/24", "fd00:16::1/64"}


@pytest.mark.parametrize("way", [f"interface {mac(1)}", "172.16.0.254"])
def test_a_requested_route_may_replace_the_one_to_the_network_of_an_address(lab, way):
    lab.veth("dp1", 1)
    routes = f"172.16.0.0/24 = {way} metric 0\nfd00:16::/64 = interface {mac(1)} metric 256\n"
    assert lab.once(f"{up('172.16.0.1/24', 'fd00:16::1/64')}[routes]\n{routes}").code == 0
    assert len(lab.routes("172.16.0.0/24") + lab.routes("fd00:16::/64", 6)) == 2
    assert lab.plan() == []


def test_an_address_that_another_host_has_is_a_problem(lab):
    lab.veth("dp1", 1, up=True)
    for table in ("all", "dp1"):
        lab.sysctl(f"net/ipv6/conf/{table}/accept_dad", 1)
    lab.run("ip", "address", "add", "fd00:16::1/64", "dev", "dp1", "nodad", where=lab.outside)
    lab.ip("address add fd00:16::1/64 dev dp1")
    words = ("ip", "-6", "address", "show", "dev", "dp1", "dadfailed")
    lab.wait("the detection", lambda: "fd00" in lab.run(*words).out)
    lab.document(up("fd00:16::1/64", "172.16.0.1/24"))
    # `once` waits until no address is tentative.
    assert lab.command("neuca", "apply", "--config", lab.config_file).code == 4
    text = "address fd00:16::1/64: not in use, because another host has it (dadfailed)"
    assert text in lab.command("neuca", "status", "--config", lab.config_file).out
    assert "172.16.0.1/24" in lab.addresses("dp1")


@pytest.mark.parametrize("kept", ["", "172.18.1.0/24 = interface {}\n"])
def test_a_nic_with_direct_ipv4_routes_goes_from_ipv4_to_ipv6(lab, kept):
    """With the last IPv4 address, the kernel deletes every IPv4 route of a link."""
    lab.veth("dp1", 1)
    kept = kept.format(f"interface {mac(1)}").replace("interface interface", "interface")
    routes = f"[routes]\n{kept}" if kept else ""
    lab.once(f"[interface {mac(1)}]\naddresses = 10.21.0.2/16\n{routes}")
    new = f"[interface {mac(1)}]\naddresses = fd00:26::1/64\n[routes]\n{kept}172.17.1.0/24 = interface {mac(1)}\n"
    assert lab.once(new).code == 0
    assert lab.addresses("dp1") == {"fd00:26::1/64"}
    assert [route[1] for route in lab.routes("172.17.1.0/24")] == ["dp1"]
    assert len(lab.routes("172.18.1.0/24")) == bool(kept)
    assert lab.plan() == []


def test_routes_of_others_that_need_no_address_of_ours_outlive_the_last_one(lab):
    lab.veth("dp1", 1)
    lab.once(up("172.16.0.1/24", "fd00:16::1/64"))
    lab.ip("nexthop add id 5 dev dp1")
    kept = ["10.60.0.0/16 dev dp1", "10.61.0.0/16 via 10.60.0.9 dev dp1", "10.62.0.0/16 nhid 5"]
    kept += ["10.62.1.0/24 via inet6 fd00:16::9 dev dp1"]
    lost = ["10.63.0.0/16 via 172.16.0.9 dev dp1", "10.64.0.0/16 dev dp1 src 172.16.0.1"]
    for words in (*kept, *lost):
        lab.ip(f"route add {words}")
    assert lab.once(up("fd00:16::1/64")).code == 0
    present = [route["dst"] for route in lab.look("route show dev dp1")]
    assert present == [words.split()[0] for words in kept]


def test_a_link_local_address_is_of_its_link_also_where_the_management_gateway_has_one(lab):
    lab.management(default_route=False)
    lab.ip("-6 route add default via fe80::1 dev mgmt0")
    lab.veth("dp1", 1)
    assert lab.once(up("fe80::5/64", "10.1.1.5/24")).code == 0
    assert lab.problems() == []
    assert "10.1.1.5/24" in lab.addresses("dp1")
    (shown,) = [one for one in lab.look("-6 address show dev dp1") if one]
    assert "fe80::5" in [one["local"] for one in shown["addr_info"]]
