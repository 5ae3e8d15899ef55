"""VLANs on dataplane NICs. Kernels without 8021q skip all of it by name: the guests of tests/machine have it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac, refused_route

NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24\n"


def vlan(text="", number=5, nic=1):
    return f"[vlan {mac(nic)}.{number}]\naddresses = 10.{number % 250}.0.1/24, fd00:{number}::1/64\n{text}"


@pytest.fixture
def trunk(lab):
    lab.veth("dp1", 1)
    tried = lab.run(
        "ip",
        "link",
        "add",
        "link",
        "dp1",
        "name",
        "probe",
        "type",
        "vlan",
        "id",
        "4000",
        check=False,
    )
    if "Unknown device type" in tried.err:
        pytest.skip("this kernel has no 8021q")
    assert tried.code == 0, tried
    lab.ip("link del probe")
    return lab


def details(lab, name):
    link = lab.link(name)
    return link["link"], link["linkinfo"]["info_data"]["id"], link["mtu"], "UP" in link["flags"]


def test_a_vlan_is_created_with_all_that_is_asked(trunk):
    assert trunk.once(NIC + "mtu = 9000\n" + vlan("mtu = 8000\ntxqueuelen = 500\n")).code == 0
    assert details(trunk, "dp1.5") == ("dp1", 5, 8000, True)
    assert (trunk.addresses("dp1.5"), trunk.link("dp1.5")["txqlen"]) == (
        {"10.5.0.1/24", "fd00:5::1/64"},
        500,
    )


def test_a_vlan_has_a_mac_of_its_own_and_is_made_again_for_another_one(trunk):
    for own in ("02:00:00:00:05:01", "02:00:00:00:05:02"):
        assert trunk.once(NIC + vlan(f"mac = {own}\n")).code == 0
        assert (trunk.link("dp1.5")["address"], trunk.link("dp1")["address"]) == (own, mac(1))
        assert trunk.addresses("dp1.5") == {"10.5.0.1/24", "fd00:5::1/64"}
    rows = {
        row["setting"]: row for row in trunk.neuca("explain", "dp1.5", "--json").json["settings"]
    }
    assert (rows["mac"]["desired"], rows["mac"]["current"]) == (
        "02:00:00:00:05:02",
        "02:00:00:00:05:02",
    )


def test_a_vlan_makes_its_nic_come_up(trunk):
    assert trunk.once(vlan()).code == 0
    assert "UP" in trunk.link("dp1")["flags"]
    assert trunk.addresses("dp1") == set()


def test_a_vlan_gets_its_mtu_in_the_request_that_creates_it(trunk):
    with trunk.monitored() as monitor:
        assert trunk.once(NIC + "mtu = 9000\n" + vlan("mtu = 8000\n")).code == 0
        first = next(line for line in monitor.lines("LINK") if "dp1.5" in line)
    assert " mtu 8000 " in first


def test_mtus_are_raised_and_lowered_in_the_order_that_the_kernel_wants(trunk):
    for mtu in (9000, 2000, 9000):
        assert trunk.once(NIC + f"mtu = {mtu}\n" + vlan(f"mtu = {mtu}\n")).code == 0
        assert (trunk.link("dp1")["mtu"], trunk.link("dp1.5")["mtu"]) == (mtu, mtu)


def test_a_vlan_mtu_above_its_nics_is_refused_and_costs_only_itself(trunk):
    assert trunk.once(NIC + vlan("mtu = 8000\n")).code == 4
    assert trunk.problems("dp1.5") == [("mtu", 'MTU 8000 requested, but its NIC "dp1" has 1500')]
    assert (trunk.link("dp1.5")["mtu"], trunk.addresses("dp1.5")) == (
        1500,
        {"10.5.0.1/24", "fd00:5::1/64"},
    )


def test_lowering_a_nic_below_a_vlan_that_is_not_ours_is_refused(trunk):
    trunk.ip("link set dp1 mtu 9000")
    trunk.ip("link add link dp1 name theirs type vlan id 77")
    assert trunk.once(NIC + "mtu = 1500\n").code == 4
    assert trunk.problems("dp1") == [
        (
            "refused",
            'MTU 1500 requested, but "theirs" on "dp1" was not created by neucad and has MTU 9000',
        )
    ]
    assert (trunk.link("dp1")["mtu"], trunk.link("theirs")["mtu"]) == (9000, 9000)


def test_a_vlan_that_is_no_longer_asked_for_is_deleted_and_other_peoples_stay(trunk):
    trunk.once(NIC + vlan() + vlan(number=6))
    trunk.ip("link add link dp1 name theirs type vlan id 77")
    assert trunk.once(NIC + vlan(number=6)).code == 0
    assert (trunk.link("dp1.5"), bool(trunk.link("dp1.6")), bool(trunk.link("theirs"))) == (
        None,
        True,
        True,
    )


def test_a_vlan_of_an_incomplete_document_stays(trunk):
    trunk.once(NIC + vlan())
    assert trunk.once(NIC + "[interfaces]\nzz = up\n").code == 78
    assert details(trunk, "dp1.5")[1] == 5


def test_a_vlan_that_was_there_is_configured_and_never_deleted(trunk):
    trunk.ip("link add link dp1 name theirs type vlan id 5")
    assert trunk.once(NIC + vlan()).code == 0
    assert trunk.addresses("theirs") == {"10.5.0.1/24", "fd00:5::1/64"}
    assert trunk.once(NIC).code == 0
    assert trunk.addresses("theirs") == set()


def test_a_sysctl_of_a_vlan_whose_name_has_a_dot(trunk):
    assert trunk.once(NIC + vlan("sysctl.net.ipv4.conf.{interface}.rp_filter = 2\n")).code == 0
    assert trunk.sysctl("net/ipv4/conf/dp1.5/rp_filter") == "2"
    assert (
        "-net/ipv4/conf/dp1.5/rp_filter = 2\n"
        in (trunk.folder / "sysctl" / "neuca.conf").read_text()
    )
    shown = trunk.neuca("show", "desired", "--json").json["links"][-1]["sysctl"]
    assert shown == {"net.ipv4.conf.dp1/5.rp_filter": "2"}


def test_a_vlan_with_a_name_of_its_own_is_covered_by_the_marks(trunk):
    assert trunk.once(NIC + vlan("name = storage\n")).code == 0
    assert details(trunk, "storage")[:2] == ("dp1", 5)
    assert "interface-name:storage" in (trunk.folder / "nm" / "neuca.conf").read_text()
    assert "Name=storage\n" in (trunk.folder / "networkd" / "05-neuca-vlans.network").read_text()


def test_a_default_name_that_is_too_long_becomes_a_short_one(trunk):
    trunk.ip("link set dp1 name averylongname0")
    assert trunk.once(vlan(number=1445)).code == 0
    assert details(trunk, "n000101.1445")[:2] == ("averylongname0", 1445)


def test_a_vlan_name_that_somebody_else_has_is_a_problem(trunk):
    trunk.management()
    assert trunk.once(NIC + vlan("name = mgmt0\n")).code == 4
    assert [one["problems"] for one in trunk.status()[1]["interfaces"] if one["vlan_id"] == 5] == [
        [{"code": "name", "text": 'VLAN 5 should be "mgmt0", but another interface has that name'}]
    ]


def test_a_vlan_cannot_be_up_on_a_nic_that_is_asked_to_be_down(trunk):
    assert trunk.once(f"[interfaces]\n{mac(1)} = down\n" + vlan()).code == 4
    assert "UP" not in trunk.link("dp1")["flags"]
    assert trunk.problems("dp1.5") == [
        ("refused", "VLAN 5 cannot be up: its NIC is requested to be down")
    ]


def test_a_nic_that_goes_down_takes_its_vlan_along_and_back(trunk):
    trunk.once(NIC + vlan())
    trunk.ip("link set dp1 down")
    assert trunk.once().code == 0
    assert details(trunk, "dp1.5")[3]
    assert trunk.addresses("dp1.5") == {"10.5.0.1/24", "fd00:5::1/64"}


def test_routes_go_through_a_vlan(trunk):
    document = NIC + vlan() + "[routes]\n10.20.0.0/16 = 10.5.0.254\n2001:db8:20::/48 = fd00:5::fe\n"
    assert trunk.once(document).code == 0
    assert trunk.routes("10.20.0.0/16") == [("10.5.0.254", "dp1.5", 20, "110")]
    assert trunk.routes("2001:db8:20::/48", 6) == [("fd00:5::fe", "dp1.5", 20, "110")]


def test_no_vlan_is_made_on_an_ignored_nic(trunk):
    trunk.veth("dp2", 2, foreign=True)
    trunk.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(2)}")
    assert trunk.once(NIC + vlan(nic=2)).code == 0
    assert trunk.link("dp2.5") is None


def test_a_nic_is_renamed_under_its_vlan(trunk):
    trunk.once(NIC + vlan())
    assert trunk.once(NIC + "name = data7\n" + vlan()).code == 0
    assert details(trunk, "data7.5")[:2] == ("data7", 5)


def test_a_vlan_that_fails_takes_its_nic_back_with_it(trunk):
    text = NIC + "mtu = 9000\n" + vlan() + f"[routes]\n{refused_route('10.5.0.254')}"
    assert trunk.once(text).code == 1
    assert (trunk.link("dp1.5"), trunk.link("dp1")["mtu"], trunk.addresses("dp1")) == (
        None,
        1500,
        set(),
    )
    trunk.permit()
    assert trunk.once().code == 0


def test_a_vlan_on_a_kernel_that_has_none_fails_alone_and_its_nic_is_configured(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    probe = lab.run(*"ip link add link dp1 name probe type vlan id 4000".split(), check=False)
    done = lab.once(NIC + vlan() + f"[interface {mac(2)}]\naddresses = 172.17.0.1/24\n")
    if probe.code:
        assert done.code == 1
        assert lab.addresses("dp1") == {"172.16.0.1/24"}
        reason = "create VLAN 5 on dp1 as dp1.5: Operation not supported (Unknown device type)"
        assert done.out == f"not done: dp1.5: {reason}\nfailed: 10 changed, 1 not done\n"
    assert lab.addresses("dp2") == {"172.17.0.1/24"}
    lab.once(f"[interface {mac(2)}]\naddresses = 172.17.0.1/24\n")
