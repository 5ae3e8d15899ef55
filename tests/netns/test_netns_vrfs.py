"""VRFs of dataplane links on the real kernel. Most small kernels have none: there the guests run these tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from lab import mac

VRF = f"[vrf blue]\ntable = 100\nmembers = {mac(1)}\n"
NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n"
OTHER = f"[interface {mac(2)}]\naddresses = 172.17.0.1/24, fd00:17::1/64\n"
ROUTES = (
    "[routes]\n10.20.0.0/16 = 172.16.0.254\n0.0.0.0/0 = 172.16.0.254\n"
    "2001:db8:20::/48 = fd00:16::fe\n"
)
WHOLE = VRF + NIC + ROUTES


@pytest.fixture
def vrf(lab):
    tried = lab.run("ip", "link", "add", "probe", "type", "vrf", "table", "9999", check=False)
    if tried.code:
        assert "Unknown device type" in tried.err or "not supported" in tried.err, tried
        pytest.skip("this kernel has no vrf")
    lab.run("ip", "link", "del", "probe")
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.foreign.may_make("blue", "red")
    return lab


def master(lab, name):
    return lab.link(name).get("master")


def table(lab, number, family=4):
    """The unicast routes of a table: prefix, gateway, device and protocol."""
    shown = lab.run(
        "ip", "-N", "-j", f"-{family}", "route", "show", "table", str(number), check=False
    )
    return {
        (one["dst"], one.get("gateway"), one["dev"], one.get("protocol", "3"))
        for one in (json.loads(shown.out) if shown.out else [])
        if one.get("type", "unicast") in ("unicast", "1") and one.get("dev")
    }


def ours(lab, number, family=4):
    return {
        (to, via, dev) for to, via, dev, protocol in table(lab, number, family) if protocol == "110"
    }


def nothing_is_left(lab):
    with lab.monitored() as monitor:
        assert lab.once().code == 0
        assert [line for line in monitor.lines() if "dp1" in line or "blue" in line] == []
    assert lab.plan() == []


def test_a_member_has_its_addresses_and_its_routes_in_the_table_of_its_vrf(vrf):
    done = vrf.once(WHOLE)
    assert done.code == 0, done
    assert master(vrf, "dp1") == "blue"
    assert vrf.link("blue")["linkinfo"]["info_data"]["table"] == 100
    assert {"172.16.0.1/24", "fd00:16::1/64"} <= vrf.addresses("dp1")
    assert ours(vrf, 100) == {
        ("10.20.0.0/16", "172.16.0.254", "dp1"),
        ("default", "172.16.0.254", "dp1"),
    }
    assert ours(vrf, 100, 6) == {("2001:db8:20::/48", "fd00:16::fe", "dp1")}
    assert ("172.16.0.0/24", None, "dp1", "2") in table(vrf, 100)
    assert not any(dev == "dp1" for _, _, dev, _ in (*table(vrf, 254), *table(vrf, 254, 6)))


def test_a_second_pass_does_nothing(vrf):
    vrf.once(WHOLE)
    nothing_is_left(vrf)


def test_a_configured_nic_moves_into_a_vrf_and_out_of_it(vrf):
    plain = NIC + "[routes]\n10.20.0.0/16 = 172.16.0.254\n2001:db8:20::/48 = fd00:16::fe\n"
    vrf.once(plain)
    before = (table(vrf, 254), table(vrf, 254, 6), vrf.addresses("dp1"))
    assert vrf.once(VRF + plain).code == 0
    assert {"172.16.0.1/24", "fd00:16::1/64"} <= vrf.addresses("dp1")
    assert (ours(vrf, 254), ours(vrf, 254, 6)) == (set(), set())
    assert ours(vrf, 100) == {("10.20.0.0/16", "172.16.0.254", "dp1")}
    assert ours(vrf, 100, 6) == {("2001:db8:20::/48", "fd00:16::fe", "dp1")}
    nothing_is_left(vrf)
    assert vrf.once(plain).code == 0
    assert (vrf.link("blue"), master(vrf, "dp1")) == (None, None)
    assert (table(vrf, 254), table(vrf, 254, 6), vrf.addresses("dp1")) == before
    assert (table(vrf, 100), table(vrf, 100, 6)) == (set(), set())


def test_an_ipv6_address_of_the_user_survives(vrf):
    vrf.once(NIC)
    vrf.ip("addr add fd00:9::9/64 dev dp1")
    assert vrf.once(VRF + NIC).code == 0
    assert "fd00:9::9/64" in vrf.addresses("dp1")


def test_the_management_nic_is_as_before(vrf):
    before = (vrf.link("mgmt0"), vrf.addresses("mgmt0"))
    routes = {one for one in table(vrf, 254) if one[2] == "mgmt0"}
    vrf.once(WHOLE)
    vrf.once("[global]\n")
    assert (vrf.link("mgmt0"), vrf.addresses("mgmt0")) == before
    assert {one for one in table(vrf, 254) if one[2] == "mgmt0"} == routes
    assert vrf.link("blue") is None
    assert vrf.addresses("dp1") == set()


def test_two_members_swap_their_vrfs(vrf):
    both = f"[vrf blue]\ntable = 100\nmembers = {{}}\n[vrf red]\ntable = 200\nmembers = {{}}\n{NIC}{OTHER}"
    assert vrf.once(both.format(mac(1), mac(2))).code == 0
    assert vrf.once(both.format(mac(2), mac(1))).code == 0
    assert (master(vrf, "dp1"), master(vrf, "dp2")) == ("red", "blue")
    assert {"172.16.0.1/24", "fd00:16::1/64"} <= vrf.addresses("dp1")
    assert {"172.17.0.1/24", "fd00:17::1/64"} <= vrf.addresses("dp2")
    nothing_is_left(vrf)


def test_a_new_table_takes_everything_along(vrf):
    vrf.once(WHOLE)
    assert vrf.once(WHOLE.replace("table = 100", "table = 70000")).code == 0
    assert ours(vrf, 70000) == {
        ("10.20.0.0/16", "172.16.0.254", "dp1"),
        ("default", "172.16.0.254", "dp1"),
    }
    assert table(vrf, 100) == set()
    nothing_is_left(vrf)


def test_a_gateway_is_the_default_route_of_the_vrf(vrf):
    assert vrf.once(VRF + NIC + "gateway = 172.16.0.254, fd00:16::fe\n").code == 0
    assert ours(vrf, 100) == {("default", "172.16.0.254", "dp1")}
    assert ours(vrf, 100, 6) == {("default", "fd00:16::fe", "dp1")}
    rules = vrf.run("ip", "-j", "-N", "rule").out
    assert [
        one for one in json.loads(rules) if one["priority"] >= 31000 and one["priority"] < 32000
    ] == []
    nothing_is_left(vrf)


def test_packets_of_a_member_do_not_follow_the_main_table(vrf):
    vrf.once(WHOLE)
    shown = vrf.run("ip", "-j", "route", "get", "8.8.8.8", "vrf", "blue").out
    assert json.loads(shown)[0]["dev"] == "dp1"
    assert json.loads(vrf.run("ip", "-j", "route", "get", "8.8.8.8").out)[0]["dev"] == "mgmt0"


@pytest.mark.parametrize("to", ["0.0.0.0/0", "0.0.0.0/1", "10.9.0.0/16"])
def test_no_document_adds_a_route_to_the_vrf_of_somebody_else(vrf, to):
    vrf.ip("link add theirs type vrf table 10")
    vrf.once(NIC + f"[routes]\n{to} = 172.16.0.254 table 10\n")
    text = f'route to {to}: the table 10 is that of the VRF "theirs", which neucad did not create'
    assert ("refused", text) in vrf.problems()
    assert ours(vrf, 10) == set()


def test_the_management_nic_in_a_vrf_of_somebody_else_is_not_taken_out(vrf):
    vrf.ip("link add theirs type vrf table 10")
    vrf.ip("link set theirs up")
    vrf.ip("link set dp2 master theirs")
    vrf.once(f"[vrf blue]\ntable = 100\nmembers = {mac(2)}\n{OTHER}")
    assert master(vrf, "dp2") == "theirs"


def test_a_pass_that_was_killed_after_the_vrf_was_made_is_continued(vrf):
    vrf.once(WHOLE)
    vrf.ip("link set dp1 nomaster")
    assert vrf.once().code == 0
    assert (master(vrf, "dp1"), ours(vrf, 254)) == ("blue", set())
    assert {"172.16.0.1/24", "fd00:16::1/64"} <= vrf.addresses("dp1")
    assert ("default", "172.16.0.254", "dp1") in ours(vrf, 100)


def test_status_shows_the_vrf_with_its_members(vrf):
    vrf.once(WHOLE)
    shown = next(one for one in vrf.status()[1]["interfaces"] if one["name"] == "blue")
    assert (shown["kind"], shown["members"], shown["ok"]) == ("vrf", [mac(1)], True)


def test_a_kernel_without_vrfs_leaves_the_member_as_it_was(lab):
    tried = lab.run("ip", "link", "add", "probe", "type", "vrf", "table", "9999", check=False)
    if not tried.code:
        lab.run("ip", "link", "del", "probe")
        pytest.skip("this kernel has vrf")
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(WHOLE).code == 1
    assert lab.addresses("dp1") == set()
    assert [code for code, _ in lab.problems("blue")] == ["failed"]
    assert [one for one in table(lab, 254) if one[2] == "dp1"] == []
    lab.applied = False  # it stays undone on this kernel
