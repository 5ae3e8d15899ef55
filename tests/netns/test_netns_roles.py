"""Who is who: ignored NICs, the management NIC, NICs that are contested, and roles that stick."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import MANAGEMENT_MAC, mac

RULE = "neuca-persistent"


def rules(lab):
    return sorted(path.name for path in (lab.folder / "udev").glob("*"))


def asked(*numbers, mtu=9000):
    lines = [
        f"[interface {mac(number)}]\naddresses = 172.16.{number}.1/24\nmtu = {mtu}\n"
        for number in numbers
    ]
    return "".join(lines)


# --- the ignore list ---


def test_ignored_nics_in_every_notation_see_no_write_and_have_no_rule_and_no_mark(lab):
    notations = {
        2: "02:00:00:00:01:02",
        0xA3: "02-00-00-00-01-A3",
        0xA4: "0200.0000.01a4",
        0xA5: "0200000001A5",
    }
    lab.management()
    lab.veth("dp1", 1)
    for number in notations:
        lab.veth(f"ign{number}", number, foreign=True)
    lab.ip("link add name mv2 link ign2 type macvlan mode bridge")
    lab.configure(f"[runtime]\ndataplane-macs-to-ignore = {' , '.join(notations.values())}")
    with lab.monitored() as monitor:
        done = lab.once(asked(1, *notations) + f"[vlan {mac(2)}.7]\naddresses = 10.7.0.1/24\n")
        assert [line for line in monitor.lines() if "ign" in line or "mv2" in line] == []
    assert done.code == 0, done
    assert rules(lab) == [f"10-{RULE}-020000000101.rules", f"15-{RULE}-020000000099.rules"]
    texts = [
        path.read_bytes()
        for folder in ("nm", "networkd", "sysctl", "udev")
        for path in (lab.folder / folder).glob("*")
    ]
    for number in notations:
        assert not any(
            mac(number).encode() in text or f"ign{number}".encode() in text for text in texts
        )
        assert lab.role(mac(number)) == "ignored"
        assert lab.problems(mac(number)) == [("ignored", "it is on the list of NICs to ignore")]


def test_an_ignored_nic_that_is_absent_is_no_shortfall(lab):
    lab.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(2)}")
    lab.veth("dp1", 1)
    assert lab.once(asked(1, 2)).code == 0


def test_a_macvlan_that_shares_the_mac_of_a_dataplane_nic_is_not_touched(lab):
    lab.veth("dp1", 1, up=True)
    lab.ip(f"link add name mv1 link dp1 address {mac(1)} type macvlan mode passthru")
    assert lab.once(asked(1)).code == 0
    assert lab.addresses("dp1") == {"172.16.1.1/24"}
    assert lab.link("mv1")["mtu"] == 1500


def test_the_ignore_list_is_held_against_the_current_mac_too(lab):
    lab.veth("dp1", 1, foreign=True)
    lab.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(9)}")
    lab.ip(f"link set dp1 address {mac(9)}")
    assert lab.once(asked(1, 9)).code == 4
    assert lab.problems(mac(1)) == [("absent", f'no NIC has the MAC "{mac(1)}"')]
    assert lab.addresses("dp1") == set()


def test_a_nic_that_becomes_ignored_is_left_as_it_is(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.once(asked(1, 2))
    lab.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(2).upper()}")
    with lab.monitored() as monitor:
        assert lab.once(asked(1)).code == 0
        assert monitor.lines() == []
    assert lab.addresses("dp2") == {"172.16.2.1/24"}
    assert rules(lab) == [f"10-{RULE}-020000000101.rules"]


def test_a_dataplane_nic_in_a_bridge_with_an_ignored_one_is_contested(lab):
    lab.veth("dp1", 1, foreign=True)
    lab.veth("dp2", 2, foreign=True)
    lab.ip("link add name br0 type bridge")
    for name in ("dp1", "dp2"):
        lab.ip(f"link set {name} master br0")
    lab.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(2)}")
    assert lab.once(asked(1)).code == 4
    assert lab.problems(mac(1)) == [("contested", '"dp1" belongs to "br0": it is left alone')]


def everything_of(lab, name):
    """What the kernel and our files say of a NIC."""
    words = (f"-d link show {name}", f"address show dev {name}", "rule", "-6 rule")
    tables = (f"route show table all dev {name}", f"-6 route show table all dev {name}")
    return [lab.ip(text).out for text in words + tables] + [rules(lab)]


def test_a_second_device_with_the_mac_of_a_configured_nic_takes_nothing_from_it(lab):
    """A virtual function before it has its master (Azure takes them away and gives them back)."""
    lab.management()
    lab.veth("dp1", 1, up=True)
    done = lab.once(
        f"[interface {mac(1)}]\naddresses = 172.16.1.1/24, fd00:1::1/64\nmtu = 9000\n"
        "gateway = 172.16.1.254\npolicy-routing = yes\n"
    )
    assert done.code == 0, done
    configured = everything_of(lab, "dp1")
    lab.veth("vf0", 1)
    for _ in range(2):
        assert lab.once().code == 4
        assert everything_of(lab, "dp1") == configured
        assert lab.addresses("vf0") == set()
        assert [code for code, _ in lab.problems(mac(1))] == ["contested"]
    lab.ip("link del vf0")
    assert lab.once().out == "ok: nothing to do\n"
    assert everything_of(lab, "dp1") == configured


# --- the management NIC ---


def test_the_nic_with_the_default_route_is_management(lab):
    lab.management()
    lab.once("[global]\nhost_name = x\n")
    assert lab.role(MANAGEMENT_MAC) == "management"


@pytest.mark.parametrize("family", [4, 6])
def test_a_default_route_of_either_family_makes_the_management_nic(lab, family):
    lab.management(default_route=False)
    gateway = {4: "192.0.2.1", 6: "2001:db8:ffff::1"}[family]
    lab.ip(f"-{family} route add default via {gateway} dev mgmt0")
    lab.once("[global]\nhost_name = x\n")
    assert lab.role(MANAGEMENT_MAC) == "management"


def test_the_nic_with_the_route_to_the_metadata_service_is_management(lab):
    lab.management(default_route=False)
    lab.ip("route add 169.254.169.254/32 dev mgmt0")
    lab.veth("dp1", 1)
    assert lab.once(asked(1) + f"[interface {MANAGEMENT_MAC}]\nmtu = 1400\n").code == 4
    assert lab.problems("mgmt0") == [
        ("refused", "it is on the management NIC: it carries the route to the metadata service")
    ]


def test_the_nic_that_the_configuration_names_is_management(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2, foreign=True)
    lab.configure(f"[network]\nmanagement-macs = {mac(2).replace(':', '').upper()}")
    assert lab.once(asked(1, 2)).code == 4
    assert lab.problems("dp2") == [
        ("refused", "it is on the management NIC: [network] management-macs names it")
    ]


def test_a_nic_in_a_bridge_that_carries_the_default_route_is_management(lab):
    lab.veth("m1", 7, up=True, foreign=True)
    lab.ip("link add name br0 type bridge")
    lab.ip("link set m1 master br0")
    lab.ip("link set br0 up")
    lab.ip("address add 192.0.2.10/24 dev br0")
    lab.ip("route add default via 192.0.2.1 dev br0")
    lab.veth("dp1", 1)
    assert lab.once(asked(1, 7)).code == 4
    assert lab.role(mac(7)) == "management"
    assert lab.once(asked(1) + "[routes]\n192.0.2.0/24 = 172.16.1.254\n").code == 4
    assert lab.problems() == [
        ("refused", "route to 192.0.2.0/24: it is the management network 192.0.2.0/24")
    ]


def test_a_macvlan_on_a_nic_that_carries_the_default_route_makes_the_nic_management(lab):
    lab.veth("m1", 7, up=True, foreign=True)
    lab.ip("link add name mv0 link m1 type macvlan mode bridge")
    lab.ip("link set mv0 up")
    lab.ip("address add 192.0.2.10/24 dev mv0")
    lab.ip("route add default via 192.0.2.1 dev mv0")
    assert lab.once(asked(7)).code == 4
    assert lab.role(mac(7)) == "management"


def test_unnamed_nics_are_untouched_without_record_default_route_or_configuration(
    lab,
):
    lab.veth("dp1", 1)
    lab.veth("other", 2, foreign=True)
    assert lab.once(asked(1)).code == 0
    assert lab.role(mac(2)) == "unlisted"
    assert rules(lab) == [f"10-{RULE}-020000000101.rules"]


# --- roles that stick ---


def test_a_default_route_that_the_user_adds_does_not_turn_a_dataplane_nic_round(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.once(asked(1))
    lab.ip("route add default via 172.16.1.254 dev dp1 metric 1")
    lab.ip("route del default via 192.0.2.1 dev mgmt0")
    assert lab.once(asked(1, mtu=8000)).code == 0
    assert (lab.role(mac(1)), lab.role(MANAGEMENT_MAC)) == ("dataplane", "management")
    assert lab.link("dp1")["mtu"] == 8000


def test_the_management_nic_stays_one_without_any_route(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.once(asked(1))
    for words in (
        "route del default",
        "-6 route del default",
        "address flush dev mgmt0",
        "link set mgmt0 down",
    ):
        lab.ip(words)
    assert lab.once(asked(1) + f"[interface {MANAGEMENT_MAC}]\nmtu = 1400\n").code == 4
    assert lab.problems("mgmt0") == [
        ("refused", "it is on the management NIC: it is recorded as the management NIC")
    ]


def test_a_nic_first_named_by_a_document_with_the_default_route_is_management(lab):
    lab.veth("dp1", 1, up=True, foreign=True)
    lab.ip("address add 172.16.1.1/24 dev dp1")
    lab.ip("route add default via 172.16.1.254 dev dp1")
    assert lab.once(asked(1)).code == 4
    assert lab.role(mac(1)) == "management"


# --- contested ---


def test_two_nics_with_one_mac_are_both_left_alone(lab):
    lab.veth("dp1", 1, foreign=True)
    lab.veth("dp2", address=mac(1), foreign=True)
    lab.veth("dp3", 3)
    assert lab.once(asked(1, 3)).code == 4
    assert lab.problems(mac(1)) == [
        ("contested", f'2 devices have the MAC "{mac(1)}" (dp1, dp2): they are left alone')
    ]
    assert lab.addresses("dp3") == {"172.16.3.1/24"}


def test_when_only_one_nic_is_left_with_the_mac_it_is_configured(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", address=mac(1))
    lab.once(asked(1))
    lab.ip("link del dp2")
    assert lab.once().code == 0
    assert lab.addresses("dp1") == {"172.16.1.1/24"}


def test_a_nic_in_a_bridge_is_left_alone_until_it_is_free(lab):
    lab.veth("dp1", 1)
    lab.ip("link add name br0 type bridge")
    lab.ip("link set dp1 master br0")
    assert lab.once(asked(1)).code == 4
    assert (lab.link("dp1")["mtu"], lab.addresses("dp1")) == (1500, set())
    assert lab.problems(mac(1)) == [("contested", '"dp1" belongs to "br0": it is left alone')]
    lab.ip("link set dp1 nomaster")
    assert lab.once().code == 0
    assert lab.link("dp1")["mtu"] == 9000


def test_an_absent_nic_costs_the_others_nothing(lab):
    lab.veth("dp1", 1)
    assert lab.once(asked(1, 2)).code == 4
    assert lab.problems(mac(2)) == [("absent", f'no NIC has the MAC "{mac(2)}"')]
    assert lab.addresses("dp1") == {"172.16.1.1/24"}


def test_devices_that_are_no_nics_are_never_taken_for_one(lab):
    lab.veth("base", 8, foreign=True)
    lab.ip(f"link add name mv1 link base address {mac(1)} type macvlan mode bridge")
    lab.ip(f"link add name br2 address {mac(2)} type bridge")
    lab.ip(f"link add name ifb3 address {mac(3)} type ifb")
    lab.ip(f"link add name vx4 address {mac(4)} type vxlan id 4 dstport 4789")
    assert lab.once(asked(1, 2, 3, 4)).code == 4
    for number in (1, 2, 3, 4):
        assert lab.problems(mac(number)) == [("absent", f'no NIC has the MAC "{mac(number)}"')]


def test_what_a_nic_was_asked_while_it_was_in_a_bridge_is_done_when_it_is_free(lab):
    lab.veth("dp1", 1)
    line = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1."
    assert lab.once(line + "1/24\n").code == 0
    lab.ip("link add br9 type bridge")
    lab.ip("link set dp1 master br9")
    assert lab.once(line + "2/24\n").code == 4
    assert lab.addresses("dp1") == {"172.16.1.1/24"}
    lab.ip("link set dp1 nomaster")
    assert lab.once().code == 0
    assert lab.addresses("dp1") == {"172.16.1.2/24"}


def test_a_document_cannot_use_the_management_network_before_that_has_its_address(lab):
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(f"[interfaces]\n{mac(1)} = up\n").code == 0
    with lab.foreign.changing():
        lab.ip("address flush dev mgmt0")
    assert lab.once(f"[interfaces]\n{mac(1)} = up:ipv4:192.0.2.77/24\n").code == 4
    assert lab.problems("dp1") == [
        ("refused", "address 192.0.2.77/24: it is inside the management network 192.0.2.0/24")
    ]
    assert lab.addresses("dp1") == set()
