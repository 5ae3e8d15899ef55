"""Bonds, bridges, VXLANs and macvlans of dataplane NICs. What this kernel has not is skipped by name: the guests have all."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import ABSENT, mac, refused_route

from neuca_tools.documents.neuca.link_kinds import OPTIONS

NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24\n"
OTHER = f"[interface {mac(2)}]\naddresses = 172.17.0.1/24\n"
BRIDGE = f"[bridge br7]\nmembers = {mac(1)}, {mac(2)}\naddresses = 10.7.0.1/24\n"
BOND = f"[bond bond7]\nmode = active-backup\nmembers = {mac(1)}, {mac(2)}\naddresses = 10.7.0.1/24, fd00:7::1/64\n"
VXLAN = "[vxlan vx7]\nid = 7\nlocal = 172.16.0.1\nremote = 172.16.0.2\naddresses = 10.7.0.1/24\n"
MACVLAN = f"[macvlan mv7]\nparent = {mac(1)}\naddresses = 10.8.0.1/24\n"


@pytest.fixture
def two(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.foreign.may_make("br7", "bond7", "vx7", "mv7")
    return lab


def has(lab, kind):
    tried = lab.run("ip", "link", "add", "probe", "type", kind, check=False)
    if "Unknown device type" in tried.err:
        pytest.skip(f"this kernel has no {kind}")
    assert tried.code == 0, tried
    lab.run("ip", "link", "del", "probe")


def master(lab, name):
    return lab.link(name).get("master")


def is_up(lab, name):
    return "UP" in lab.link(name)["flags"]


def info(lab, name):
    return lab.link(name)["linkinfo"]["info_data"]


# --- bridges --------------------------------------------------------------------------------------------------------


def test_a_bridge_with_an_unusable_option_is_neither_made_nor_taken_apart(two):
    faulty = f"{BRIDGE}stp = flase\n[interface {mac(1)}]\nmtu = 1400\n"
    assert two.once(faulty).code == 78
    assert (master(two, "dp1"), two.link("br7")) == (None, None)
    assert two.link("dp1")["mtu"] == 1400
    assert two.once(BRIDGE).code == 0
    assert two.once(faulty).code == 78
    assert (master(two, "dp1"), master(two, "dp2")) == ("br7", "br7")
    assert two.addresses("br7") == {"10.7.0.1/24"}
    assert two.once(BRIDGE).code == 0


def test_a_bridge_of_the_configuration_is_kept_while_an_option_of_it_is_unusable(two):
    two.configure(BRIDGE)
    assert two.once("[global]\n").code == 0
    assert master(two, "dp1") == "br7"
    two.configure(f"{BRIDGE}stp = flase\n")
    assert two.once("[global]\n").code == 78
    assert (master(two, "dp1"), two.addresses("br7")) == ("br7", {"10.7.0.1/24"})
    two.configure("")
    assert two.once("[global]\n").code == 0
    assert (master(two, "dp1"), two.link("br7")) == (None, None)


def test_a_bridge_is_made_of_two_nics(two):
    assert two.once(BRIDGE).code == 0
    assert (master(two, "dp1"), master(two, "dp2"), is_up(two, "br7")) == ("br7", "br7", True)
    assert (two.addresses("br7"), two.addresses("dp1"), is_up(two, "dp1")) == (
        {"10.7.0.1/24"},
        set(),
        True,
    )


def test_a_bridge_no_longer_requested_is_deleted_and_its_ports_are_restored(two):
    two.once(BRIDGE)
    assert two.once(NIC + OTHER).code == 0
    assert (two.link("br7"), master(two, "dp1"), two.addresses("dp1")) == (
        None,
        None,
        {"172.16.0.1/24"},
    )


def test_a_bridge_with_a_gateway_is_recreated_while_another_nic_gets_a_network(two):
    bridge = f"[bridge br7]\nmembers = {mac(1)}\naddresses = 10.7.0.1/24\ngateway = 10.7.0.3\n"
    assert two.once(bridge).code == 0
    index = two.link("br7")["ifindex"]
    other = f"[interface {mac(2)}]\naddresses = 10.3.0.1/16\n"
    again = two.once(bridge + "stp = yes\n" + other)
    assert again.code == 0, again
    assert two.link("br7")["ifindex"] != index
    assert (two.addresses("br7"), two.addresses("dp2")) == ({"10.7.0.1/24"}, {"10.3.0.1/16"})


@pytest.mark.parametrize("mode", OPTIONS["bond"]["mode"].words)
def test_a_failed_change_of_a_bond_is_rolled_back_in_every_mode(two, mode):
    has(two, "bond")
    bond = BOND.replace("active-backup", mode)
    assert two.once(bond).code == 0
    failing = bond + f"updelay = 200\n[routes]\n10.9.0.0/16 = 10.7.0.2 src {ABSENT}\n"
    attempt = two.once(failing)
    assert (attempt.code, "could not be rolled back" in attempt.err + attempt.out) == (1, False), (
        attempt
    )
    assert (info(two, "bond7")["mode"], info(two, "bond7")["updelay"]) == (mode, 0)
    assert (master(two, "dp1"), two.addresses("bond7")) == (
        "bond7",
        {"10.7.0.1/24", "fd00:7::1/64"},
    )
    assert two.once(bond).code == 0


def test_a_member_that_leaves_has_its_own_address_and_mtu(two):
    two.once(BRIDGE)
    left = f"[bridge br7]\nmembers = {mac(2)}\naddresses = 10.7.0.1/24\n"
    assert two.once(left + NIC + "mtu = 9000\n").code == 0
    assert (master(two, "dp1"), master(two, "dp2"), two.addresses("dp1")) == (
        None,
        "br7",
        {"172.16.0.1/24"},
    )
    assert two.link("dp1")["mtu"] == 9000


def test_an_address_of_a_member_is_refused(two):
    assert two.once(BRIDGE + NIC).code == 4
    assert two.problems("dp1") == [
        ("refused", 'address 172.16.0.1/24: it is in "br7", which can have the address')
    ]
    assert two.addresses("dp1") == set()


def test_the_mtu_of_a_bridge_is_at_most_that_of_its_ports(two):
    jumbo = f"[interface {mac(1)}]\nmtu = 9000\n[interface {mac(2)}]\nmtu = 4000\n"
    assert two.once(jumbo + BRIDGE + "mtu = 5000\n").code == 4
    assert two.problems("br7") == [("mtu", 'MTU 5000 requested, but its port "dp2" has 4000')]
    assert two.once(jumbo + BRIDGE + "mtu = 3000\n").code == 0
    assert (two.link("br7")["mtu"], two.link("dp1")["mtu"]) == (3000, 9000)


def test_what_somebody_put_into_our_bridge_stays_and_keeps_it(two):
    two.once(BRIDGE)
    two.ip("link add theirs type veth peer name peer7")
    two.ip("link set theirs master br7")
    assert two.once().code == 0
    assert two.once(NIC + OTHER).code == 4
    text = 'it is no longer requested, but somebody put "theirs" into it'
    assert two.problems("br7") == [("refused", text)]
    assert (master(two, "theirs"), bool(two.link("br7"))) == ("br7", True)
    two.ip("link del theirs")
    assert two.once().code == 0
    assert two.link("br7") is None


# --- VXLANs and macvlans --------------------------------------------------------------------------------------------


def test_a_vxlan_is_on_the_link_of_its_local_address_and_carries_what_that_leaves(two):
    assert two.once(NIC + "mtu = 9000\n" + VXLAN).code == 0
    found = info(two, "vx7")
    assert (found["id"], found["link"], found["port"], found["local"]) == (
        7,
        "dp1",
        4789,
        "172.16.0.1",
    )
    assert (two.link("vx7")["mtu"], two.addresses("vx7"), is_up(two, "vx7")) == (
        8950,
        {"10.7.0.1/24"},
        True,
    )


def test_a_vxlan_over_ipv6_leaves_seventy_bytes(two):
    six = VXLAN.replace("172.16.0.1", "fd00:16::1").replace("172.16.0.2", "fd00:16::2")
    assert two.once(NIC.replace("172.16.0.1/24", "fd00:16::1/64") + six).code == 0
    assert (two.link("vx7")["mtu"], info(two, "vx7")["local6"]) == (1430, "fd00:16::1")


def test_a_vxlan_that_asks_for_more_is_told_before_packets_vanish(two):
    assert two.once(NIC + VXLAN + "mtu = 1500\n").code == 4
    why = 'MTU 1500 requested, but "dp1" below it has 1500, which leaves 1450 to a VXLAN over IPv4'
    assert (two.problems("vx7"), two.link("vx7")["mtu"]) == ([("mtu", why)], 1450)
    assert two.addresses("vx7") == {"10.7.0.1/24"}


def test_a_vxlan_follows_its_underlay_up_and_down(two):
    for mtu in (9000, 2000, 9000):
        assert two.once(NIC + f"mtu = {mtu}\n" + VXLAN).code == 0
        assert (two.link("dp1")["mtu"], two.link("vx7")["mtu"]) == (mtu, mtu - 50)


def test_a_vxlan_that_is_asked_otherwise_is_made_anew_with_all_that_is_on_it(two):
    two.once(NIC + VXLAN)
    assert two.once(NIC + VXLAN.replace("id = 7", "id = 8")).code == 0
    assert (info(two, "vx7")["id"], two.addresses("vx7")) == (8, {"10.7.0.1/24"})


def test_a_macvlan_has_the_mtu_of_its_nic_and_an_address_of_its_own(two):
    assert two.once(NIC + "mtu = 4000\n" + MACVLAN).code == 0
    assert (info(two, "mv7")["mode"], two.link("mv7")["link"], two.link("mv7")["mtu"]) == (
        "bridge",
        "dp1",
        4000,
    )
    assert two.addresses("mv7") == {"10.8.0.1/24"}
    assert two.once(NIC + MACVLAN + "mtu = 1600\n").code == 4
    assert two.problems("mv7") == [("mtu", 'MTU 1600 requested, but "dp1" below it has 1500')]


def test_a_bridge_over_a_vxlan_comes_and_goes_in_the_right_order(two):
    stack = (
        NIC
        + VXLAN.replace("addresses = 10.7.0.1/24\n", "")
        + "[bridge br7]\nmembers = vxlan vx7\naddresses = 10.7.0.1/24\n"
    )
    two.document(stack)
    planned = [text for text in two.plan() if text.startswith(("create", "add vx7"))]
    assert planned == [
        "create the VXLAN vx7 (id 7, local 172.16.0.1, port 4789, remote 172.16.0.2) on dp1 with MTU 1450",
        "create the bridge br7",
        "add vx7 to br7",
    ]
    assert two.once().code == 0
    assert (master(two, "vx7"), two.link("br7")["mtu"], two.addresses("br7")) == (
        "br7",
        1450,
        {"10.7.0.1/24"},
    )
    two.document(NIC)
    assert [text for text in two.plan() if text.startswith("delete the")] == [
        "delete the bridge br7",
        "delete the VXLAN vx7",
    ]
    assert two.once().code == 0
    assert (two.link("br7"), two.link("vx7"), two.addresses("dp1")) == (
        None,
        None,
        {"172.16.0.1/24"},
    )


def test_a_route_goes_through_a_vxlan(two):
    assert two.once(NIC + VXLAN + "[routes]\n10.20.0.0/16 = 10.7.0.254\n").code == 0
    assert two.routes("10.20.0.0/16") == [("10.7.0.254", "vx7", 20, "110")]


# --- what is refused, what fails, what is handed back ---------------------------------------------------------------


NOT_OURS = [("refused", '"br7" exists and was not created by neucad: it is left alone')]


def test_a_bridge_of_the_image_with_its_ports_is_not_absent(two):
    two.foreign.may_make()
    two.ip("link add br7 type bridge")
    two.ip("link set dp1 master br7")
    assert two.once(BRIDGE).code == 4
    assert two.problems("br7") == NOT_OURS


def test_somebody_elses_bridge_of_our_name_is_a_problem_and_not_ours(two):
    two.foreign.may_make()  # none of these names is the agent's here
    two.ip("link add br7 type bridge")
    assert two.once(BRIDGE).code == 4
    assert two.problems("br7") == NOT_OURS
    assert (two.addresses("br7"), master(two, "dp1")) == (set(), None)
    assert two.once(NIC + OTHER).code == 0
    assert two.link("br7")


def test_a_bridge_that_somebody_made_again_in_place_of_ours_is_theirs(two):
    two.once(BRIDGE)
    two.ip("link del br7")
    two.ip("link add br7 type bridge")
    two.ip("addr add 10.99.0.1/24 dev br7")
    assert two.once(NIC + OTHER).code == 0
    assert two.addresses("br7") == {"10.99.0.1/24"}


@pytest.mark.parametrize("text", [BRIDGE, MACVLAN])
def test_nothing_is_made_of_the_management_nic(two, text):
    two.management()
    theirs = text.replace(mac(1), two.look("link show mgmt0")[0]["address"])
    assert two.once(theirs + OTHER).code == 4
    name = "br7" if text == BRIDGE else "mv7"
    assert "is on the management NIC: it carries the default route" in two.problems(name)[0][1]
    assert (two.link(name), master(two, "mgmt0"), is_up(two, "mgmt0")) == (None, None, True)


def test_a_port_stays_in_a_bridge_with_a_nic_that_is_ignored_and_says_so(two):
    why = 'it {} in "br7", which depends on a management or ignored NIC'
    two.management()
    assert two.once(BRIDGE).code == 0
    two.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(2)}\n")
    for words in (("--dry-run",), ()):
        done = two.neuca("release", *words, "dp1")
        assert (done.code, why.format("is") in done.err, "nomaster" in done.err) == (1, True, True)
    assert two.once(NIC).code == 4
    assert two.problems("dp1") == [("refused", why.format("stays"))]
    two.ip("link set dp1 nomaster")
    assert (two.once().code, two.problems("dp1")) == (0, [])
    assert two.neuca("release", "dp1").code == 0


def test_nothing_is_made_of_an_ignored_nic(two):
    two.veth("dp3", 3, foreign=True)
    two.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(3)}")
    assert two.once(BRIDGE.replace(mac(2), mac(3))).code == 4
    assert two.problems("br7") == [("refused", f"{mac(3)} is ignored")]
    assert (two.link("br7"), master(two, "dp3")) == (None, None)


def test_a_vxlan_that_the_kernel_refuses_takes_its_nic_back_with_it(two):
    two.ip("link add theirs type vxlan id 7 local 172.16.0.1 remote 172.16.0.2 dstport 4789")
    assert two.once(NIC + "mtu = 9000\n" + VXLAN + OTHER).code == 1
    assert (two.link("vx7"), two.link("dp1")["mtu"], two.addresses("dp1")) == (None, 1500, set())
    assert two.addresses("dp2") == {"172.17.0.1/24"}
    two.ip("link del theirs")
    assert two.once().code == 0
    assert two.link("vx7")["mtu"] == 8950


def test_a_second_start_and_an_incomplete_document_change_nothing(two):
    two.once(BRIDGE)
    with two.monitored() as monitor:
        assert two.once().code == 0
        assert two.once(BRIDGE.replace(f"{mac(1)}, {mac(2)}", "zz")).code == 78
        assert monitor.lines() == []
    assert (master(two, "dp1"), master(two, "dp2")) == ("br7", "br7")
    two.once(BRIDGE)


def test_a_released_nic_is_taken_out_of_all_that_is_made_of_it(two):
    two.once(BRIDGE)
    assert two.neuca("release", mac(1)).code == 0
    assert (two.link("br7"), master(two, "dp1"), master(two, "dp2")) == (None, None, None)
    assert two.status()[0] == 4
    assert two.problems("br7") == [("refused", f"{mac(1)} is ignored")]


def test_explain_status_and_show_say_what_it_is_made_of(two):
    two.once(BRIDGE)
    rows = {row["setting"]: row for row in two.neuca("explain", "br7", "--json").json["settings"]}
    assert rows["members"]["desired"] == rows["members"]["current"] == f"{mac(1)}, {mac(2)}"
    assert rows["members"]["origin"] == "line 2, [bridge br7]"
    shown = next(one for one in two.status()[1]["interfaces"] if one["name"] == "br7")
    assert (shown["kind"], shown["members"], shown["ok"]) == ("bridge", [mac(1), mac(2)], True)
    desired = two.neuca("show", "desired", "--json").json["links"]
    assert [one["kind"] for one in desired] == ["physical", "physical", "bridge"]


def test_a_bridge_has_its_options_and_a_second_pass_leaves_it_alone(two):
    options = "forward-delay = 0\nhello-time = 3\nmax-age = 12\nageing-time = 100\npriority = 5\n"
    assert two.once(BRIDGE + "stp = no\n" + options).code == 0
    found = info(two, "br7")
    names = ("stp_state", "forward_delay", "hello_time", "max_age", "ageing_time", "priority")
    assert [found[name] for name in names] == [0, 0, 300, 1200, 10000, 5]
    index = two.link("br7")["ifindex"]
    assert two.once().code == 0
    assert two.link("br7")["ifindex"] == index
    # With the spanning tree protocol, the kernel would raise the delay.
    assert two.once(BRIDGE + "stp = yes\n" + options).code == 4
    assert two.problems("br7") == [("refused", "with stp, forward-delay is at least 2")]


# --- bonds ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def bonding(two):
    has(two, "bond")
    return two


def test_a_bond_is_made_of_nics_that_are_up_with_addresses(bonding):
    bonding.once(NIC + OTHER)
    assert bonding.once(BOND).code == 0
    assert (master(bonding, "dp1"), master(bonding, "dp2")) == ("bond7", "bond7")
    assert (info(bonding, "bond7")["mode"], info(bonding, "bond7")["miimon"]) == (
        "active-backup",
        100,
    )
    assert bonding.addresses("bond7") == {"10.7.0.1/24", "fd00:7::1/64"}
    assert (bonding.addresses("dp1"), is_up(bonding, "dp1"), is_up(bonding, "dp2")) == (
        set(),
        True,
        True,
    )


def test_a_bond_can_check_its_members_by_arp(bonding):
    options = "arp-interval = 1000\narp-ip-target = 10.7.0.8, 10.7.0.9\nnum-grat-arp = 3\n"
    assert bonding.once(BOND + options).code == 0
    found = info(bonding, "bond7")
    assert (found["arp_interval"], found["miimon"]) == (1000, 0)
    assert list(found["arp_ip_target"]) == ["10.7.0.8", "10.7.0.9"]
    index = bonding.link("bond7")["ifindex"]
    assert bonding.once().code == 0
    assert bonding.link("bond7")["ifindex"] == index


def test_a_bond_that_is_no_longer_asked_for_gives_its_members_back(bonding):
    bonding.once(BOND + "mtu = 9000\n")
    assert [bonding.link(name)["mtu"] for name in ("bond7", "dp1", "dp2")] == [9000, 9000, 9000]
    assert bonding.once(NIC + OTHER).code == 0
    assert (bonding.link("bond7"), bonding.link("dp1")["mtu"], bonding.link("dp2")["mtu"]) == (
        None,
        1500,
        1500,
    )
    assert (bonding.addresses("dp1"), bonding.addresses("dp2")) == (
        {"172.16.0.1/24"},
        {"172.17.0.1/24"},
    )
    assert (bonding.link("dp1")["address"], bonding.link("dp2")["address"]) == (mac(1), mac(2))


def test_a_nic_that_leaves_a_bond_has_its_own_address_mac_and_mtu(bonding):
    bonding.once(BOND + "mtu = 9000\n")
    assert bonding.once(BOND.replace(f"{mac(1)}, ", "") + "mtu = 9000\n" + NIC).code == 0
    assert (master(bonding, "dp1"), bonding.link("dp1")["mtu"], bonding.link("dp1")["address"]) == (
        None,
        1500,
        mac(1),
    )
    assert (bonding.addresses("dp1"), is_up(bonding, "dp1"), master(bonding, "dp2")) == (
        {"172.16.0.1/24"},
        True,
        "bond7",
    )


def test_members_of_a_bond_share_a_mac_and_stay_who_they_are(bonding):
    bonding.once(BOND)
    assert bonding.link("dp1")["address"] == bonding.link("dp2")["address"]
    assert bonding.once(BOND + f"[interface {mac(2)}]\nname = data2\n").code == 0
    assert (bonding.link("dp1")["master"], bonding.link("data2")["master"]) == ("bond7", "bond7")
    bonding.once(BOND + f"[interface {mac(2)}]\nname = dp2\n")


def test_the_members_of_a_bond_have_its_mtu(bonding):
    own = f"[interface {mac(1)}]\nmtu = 4000\n[interface {mac(2)}]\nmtu = 4000\n"
    assert bonding.once(own + BOND).code == 0
    assert [bonding.link(name)["mtu"] for name in ("bond7", "dp1", "dp2")] == [4000, 4000, 4000]
    assert bonding.once(own + BOND + "mtu = 3000\n").code == 4
    assert bonding.problems("dp1") == [
        ("mtu", 'MTU 4000 requested, but it is in "bond7", which has 3000')
    ]
    assert [bonding.link(name)["mtu"] for name in ("bond7", "dp1", "dp2")] == [3000, 3000, 3000]


def test_a_vlan_over_a_bond(bonding):
    has_vlan = bonding.run(
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
    if "Unknown device type" in has_vlan.err:
        pytest.skip("this kernel has no 8021q")
    bonding.run("ip", "link", "del", "probe")
    text = BOND + "mtu = 9000\n[vlan bond bond7.5]\naddresses = 10.5.0.1/24\nmtu = 8000\n"
    assert bonding.once(text).code == 0
    found = bonding.link("bond7.5")
    assert (found["link"], found["mtu"], bonding.addresses("bond7.5")) == (
        "bond7",
        8000,
        {"10.5.0.1/24"},
    )
    assert bonding.once(text.replace("active-backup", "balance-rr")).code == 0
    assert (info(bonding, "bond7")["mode"], bonding.addresses("bond7.5")) == (
        "balance-rr",
        {"10.5.0.1/24"},
    )
    assert bonding.once(NIC + OTHER).code == 0
    assert (bonding.link("bond7.5"), bonding.link("bond7")) == (None, None)


def test_a_bond_that_fails_leaves_its_members_as_they_were(bonding):
    bonding.once(NIC + OTHER)
    assert bonding.once(f"{BOND}[routes]\n{refused_route('10.7.0.254')}").code == 1
    assert (bonding.link("bond7"), bonding.addresses("dp1"), is_up(bonding, "dp1")) == (
        None,
        {"172.16.0.1/24"},
        True,
    )
    bonding.permit()
    assert bonding.once().code == 0


def test_a_bond_on_a_kernel_that_has_none_fails_and_leaves_its_nics_as_they_were(two):
    if two.run("ip", "link", "add", "probe", "type", "bond", check=False).code == 0:
        two.run("ip", "link", "del", "probe")
        assert two.once(BOND).code == 0
        return
    two.once(NIC + OTHER)
    assert two.once(BOND).code == 1
    assert (two.addresses("dp1"), two.addresses("dp2"), is_up(two, "dp1")) == (
        {"172.16.0.1/24"},
        {"172.17.0.1/24"},
        True,
    )
    assert two.problems("bond7")[0][0] == "failed"
    assert two.once(NIC + OTHER).code == 0
