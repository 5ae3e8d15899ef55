"""Names: as the document asks, as they were first seen, and never one that somebody else has."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import GATEWAY, MANAGEMENT_MAC, mac


def named(**wishes):
    numbers = {"one": 1, "two": 2, "three": 3}
    return "".join(f"[interface {mac(numbers[key])}]\nname = {name}\naddresses = 172.16.{numbers[key]}.1/24\n"
                   for key, name in wishes.items())  # fmt: skip


def name_of(lab, address):
    return next((one["ifname"] for one in lab.look("link") if one.get("address") == address), None)


def rule(lab, number):
    return (
        lab.folder / "udev" / f"10-neuca-persistent-{mac(number).replace(':', '')}.rules"
    ).read_text()


def test_a_nic_gets_the_name_that_is_asked_and_its_settings_with_it(lab):
    lab.veth("dp1", 1)
    document = named(one="data7") + "mtu = 9000\nsysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
    assert lab.once(document).code == 0
    assert (lab.addresses("data7"), lab.link("data7")["mtu"]) == ({"172.16.1.1/24"}, 9000)
    assert lab.sysctl("net/ipv4/conf/data7/rp_filter") == "2"
    assert 'NAME:="data7"' in rule(lab, 1)


def test_a_nic_that_is_up_is_renamed_and_keeps_what_it_has(lab):
    lab.veth("dp1", 1)
    lab.once(
        f"[interface {mac(1)}]\naddresses = 172.16.1.1/24, fd00:16::1/64\n[routes]\n10.20.0.0/16 = 172.16.1.254\n"
    )
    lab.ip("address add fd00:99::1/64 dev dp1 nodad")
    document = f"[interface {mac(1)}]\nname = data7\naddresses = 172.16.1.1/24, fd00:16::1/64\n"
    assert lab.once(document + "[routes]\n10.20.0.0/16 = 172.16.1.254\n").code == 0
    assert lab.addresses("data7") == {"172.16.1.1/24", "fd00:16::1/64", "fd00:99::1/64"}
    assert lab.routes("10.20.0.0/16") == [("172.16.1.254", "data7", 20, "110")]


def test_the_order_is_the_number_that_a_name_ends_in(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24:7\n").code == 0
    assert name_of(lab, mac(1)) == "eth7"


def test_two_nics_swap_their_names(lab):
    lab.veth("eth1", 1)
    lab.veth("eth2", 2)
    lab.once(named(one="eth1", two="eth2"))
    assert lab.once(named(one="eth2", two="eth1")).code == 0
    assert (name_of(lab, mac(1)), name_of(lab, mac(2))) == ("eth2", "eth1")
    assert (lab.addresses("eth2"), lab.addresses("eth1")) == ({"172.16.1.1/24"}, {"172.16.2.1/24"})
    assert ('NAME:="eth2"' in rule(lab, 1), 'NAME:="eth1"' in rule(lab, 2)) == (True, True)


def test_three_nics_rotate_their_names(lab):
    for number in (1, 2, 3):
        lab.veth(f"eth{number}", number)
    assert lab.once(named(one="eth2", two="eth3", three="eth1")).code == 0
    assert [name_of(lab, mac(number)) for number in (1, 2, 3)] == ["eth2", "eth3", "eth1"]


def test_a_name_that_the_management_nic_has_is_not_taken(lab):
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(named(one="mgmt0")).code == 4
    assert lab.problems("dp1") == [
        ("name", '"dp1" should be "mgmt0", but another interface has that name')
    ]
    assert (name_of(lab, MANAGEMENT_MAC), lab.addresses("dp1")) == ("mgmt0", {"172.16.1.1/24"})
    assert 'NAME:="dp1"' in rule(lab, 1)


def test_an_alternative_name_of_another_interface_is_not_taken(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.ip("link property add dev mgmt0 altname data7")
    assert lab.once(named(one="data7")).code in (1, 4)
    assert lab.link("mgmt0")["altnames"] == ["data7"]
    assert lab.once(named(one="dp1")).code == 0


def test_an_alternative_name_of_its_own_is_in_nobodys_way(lab):
    lab.veth("dp1", 1)
    lab.ip("link property add dev dp1 altname data7")
    assert lab.once(named(one="data7")).code == 0
    assert name_of(lab, mac(1)) == "data7"


def test_an_alternative_name_of_another_nic_costs_only_the_name(lab):
    """As after a change of slots, where each NIC has the other's name of the path."""
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
        lab.ip(f"link property add dev dp{number} altname data{number}")
    document = "".join(
        f"[interface {mac(number)}]\naddresses = 172.16.{number}.1/24\nname = data{3 - number}\n"
        for number in (1, 2)
    )
    assert lab.once(document).code == 4
    for number in (1, 2):
        assert lab.addresses(f"dp{number}") == {f"172.16.{number}.1/24"}
        reason = f'"dp{number}" should be "data{3 - number}", but another interface has that name'
        assert lab.problems(mac(number)) == [("name", reason)]


def test_a_nic_that_comes_back_under_another_name_gets_its_first_one(lab):
    lab.veth("dp1", 1)
    lab.once(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24\n")
    lab.ip("link set dp1 down")
    lab.ip("link set dp1 name odd")
    assert lab.once().code == 0
    assert (name_of(lab, mac(1)), lab.addresses("dp1")) == ("dp1", {"172.16.1.1/24"})


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("listed", [True, False])
def test_a_nic_that_takes_the_place_of_another_keeps_the_name_at_boot(lab, first, second, listed):
    lab.management()
    lab.veth("eth1", first)
    sections = {one: f"[interface {mac(one)}]\naddresses = 172.16.{one}.1/24\n" for one in (1, 2)}
    lab.once(sections[first])
    with lab.foreign.changing():
        lab.run("ip", "link", "delete", "eth1")
    lab.veth("eth1", second)
    lab.once(sections[second] + (sections[first] if listed else ""))
    lab.command("neucad", "--names", "--config", lab.config_file)
    assert lab.addresses("eth1") == {f"172.16.{second}.1/24"}
    lab.veth("eth2", first)
    assert lab.once("".join(sections.values())).code == 0
    lab.command("neucad", "--names", "--config", lab.config_file)
    assert [name_of(lab, mac(one)) for one in (second, first)] == ["eth1", "eth2"]


def test_a_nic_that_became_the_users_keeps_its_name(lab):
    lab.veth("dp1", 1)
    lab.once(f"[interfaces]\n{mac(1)} = user\n")
    assert 'NAME:="dp1"' in rule(lab, 1)


def test_with_a_new_name_the_sysctl_file_and_the_marks_follow(lab):
    lab.veth("dp1", 1)
    setting = "sysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
    lab.once(f"[interface {mac(1)}]\n{setting}")
    assert lab.once(f"[interface {mac(1)}]\nname = data7\n{setting}").code == 0
    assert "net/ipv4/conf/data7/rp_filter" in (lab.folder / "sysctl" / "neuca.conf").read_text()
    assert "interface-name:data7.*" in (lab.folder / "nm" / "neuca.conf").read_text()


def shuffle(lab, **names):
    """Rename by hand, all at once."""
    with lab.foreign.changing():
        for number, (old, _) in enumerate(names.items()):
            lab.ip(f"link set {old} name tmp{number}")
        for number, (_, new) in enumerate(names.items()):
            lab.ip(f"link set tmp{number} name {new}")


def pin(lab):
    with lab.foreign.changing():
        return lab.command("neucad", "--names", "--config", lab.config_file)


def test_before_the_network_every_nic_gets_its_name_back_the_management_nic_too(lab):
    lab.management()
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    assert (
        lab.once(
            f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24\n{mac(2)} = up:ipv4:172.16.2.1/24\n"
        ).code
        == 0
    )
    shuffle(lab, mgmt0="dp1", dp1="dp2", dp2="mgmt0")
    assert [code for code, _ in lab.problems("dp1")] == ["name"]
    assert pin(lab).code == 0
    assert [name_of(lab, one) for one in (MANAGEMENT_MAC, mac(1), mac(2))] == [
        "mgmt0",
        "dp1",
        "dp2",
    ]
    assert (lab.addresses("dp1"), lab.addresses("dp2")) == ({"172.16.1.1/24"}, {"172.16.2.1/24"})
    assert (pin(lab).code, pin(lab).err) == (0, "")


def test_a_nic_in_the_place_of_the_management_nic_keeps_its_name_and_is_reached(lab):
    """Also in later boots, in whatever order: ifupdown knows the link by its name only."""
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n").code == 0
    lab.ip("link delete mgmt0")
    lab.veth("mgmt0", 7, up=True, foreign=True)
    assert pin(lab).code == 0
    lab.ip("address add 192.0.2.10/24 dev mgmt0")
    lab.ip(f"route add default via {GATEWAY} dev mgmt0")
    assert lab.once().code == 0
    assert (name_of(lab, mac(7)), lab.role(mac(7))) == ("mgmt0", "management")
    shuffle(lab, mgmt0="dp1", dp1="mgmt0")
    assert pin(lab).code == 0
    assert (name_of(lab, mac(7)), name_of(lab, mac(1))) == ("mgmt0", "dp1")


def test_pinning_never_renames_an_ignored_nic_and_only_its_names_owner_suffers(
    lab,
):
    for number in (1, 2, 3):
        lab.veth(f"dp{number}", number)
    lab.once(
        "".join(
            f"[interface {mac(number)}]\naddresses = 172.16.{number}.1/24\n" for number in (1, 2, 3)
        )
    )
    shuffle(lab, dp1="dp2", dp2="dp1")
    lab.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(1)}")
    assert pin(lab).code == 0
    assert [name_of(lab, mac(number)) for number in (1, 2, 3)] == ["dp2", "dp1", "dp3"]
    assert lab.once().code == 4
    assert lab.problems("dp1") == [
        ("name", '"dp1" should be "dp2", but another interface has that name')
    ]


def test_marks_are_written_before_the_network_if_the_document_is_local(lab):
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    lab.foreign.may_make("mv0")
    nic = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\nmtu = 9000\n"
    lab.document(f"{nic}[macvlan mv0]\nparent = {mac(1)}\n")
    step = ("neucad", "--names", "--config", lab.config_file)
    with lab.monitored() as monitor:
        assert lab.command(*step).code == 0
        assert f"unmanaged-devices+=mac:{mac(1)}" in (lab.folder / "nm" / "neuca.conf").read_text()
        assert (
            f"PermanentMACAddress={mac(1)}"
            in (lab.folder / "networkd" / "05-neuca-nics.network").read_text()
        )
        assert monitor.lines() == []
    assert not (lab.folder / "state" / "record.json").exists()
    assert lab.once().code == 0
    assert (lab.addresses("dp1"), lab.link("dp1")["mtu"]) == ({"172.16.1.1/24"}, 9000)
    (lab.folder / "nm" / "neuca.conf").unlink()
    assert lab.command(*step).code == 0
    assert not (lab.folder / "nm" / "neuca.conf").exists(), (
        "a boot that knows its NICs looks at nothing"
    )
    assert lab.once().code == 0


def test_a_document_that_takes_every_nic_marks_none_ahead_and_the_configuration_does(lab):
    lab.veth("dp1", 1)
    lab.document(f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n")
    assert pin(lab).code == 0
    assert not (lab.folder / "nm" / "neuca.conf").exists()
    lab.configure(f"[interface {mac(1)}]\naddresses = 172.16.1.1/24")
    assert pin(lab).code == 0
    assert f"unmanaged-devices+=mac:{mac(1)}" in (lab.folder / "nm" / "neuca.conf").read_text()


def test_the_step_before_the_network_asks_no_service(lab):
    lab.veth("dp1", 1)
    lab.configure(sources="ec2=http://127.0.0.1:1")
    assert lab.command("neucad", "--names", "--config", lab.config_file).code == 0
    assert not (lab.folder / "nm").exists()
    assert not (lab.folder / "udev").exists()


@pytest.mark.parametrize(
    "asked",
    [f"[interface {mac(1)}]\nname = mgmt0\n", f"[bridge mgmt0]\nmembers = {mac(1)}\n"],
    ids=["nic", "bridge"],
)
def test_the_name_of_the_absent_management_nic_is_given_to_nothing_else(lab, asked):
    lab.management()
    lab.veth("dp1", 1)
    lab.foreign.may_make("mgmt0")
    assert lab.once(f"[interface {mac(1)}]\n").code == 0
    rules = {path.name for path in (lab.folder / "udev").iterdir()}
    lab.ip("link del mgmt0")
    assert lab.once(asked).code == 4
    assert (lab.link("mgmt0"), lab.link("dp1") is not None) == (None, True)
    assert {path.name for path in (lab.folder / "udev").iterdir()} == rules
