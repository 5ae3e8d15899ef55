"""The defects of neuca-guest-tools 1.7 that concern the network, by their letters: none can happen here."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from lab import MANAGEMENT_MAC, mac

ONE = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
LATER = "[scripts]\nbootscript = #!/bin/sh\n    echo ran >> {}/said\n"


def rules(host):
    return {
        path.name.rpartition("-")[2][:12]
        for path in (host.folder / "udev").glob("*neuca-persistent*")
    }


def bare(number):
    return mac(number).replace(":", "")


def test_a_an_absent_nic_costs_the_nics_after_it_nothing(host):
    done = host.once(
        f"[interfaces]\n{bare(7)} = up:ipv4:172.16.7.1/24\n{bare(2)} = up:ipv4:172.16.2.1/24\n"
    )
    assert (done.code, host.addresses("dp2")) == (4, {"172.16.2.1/24"})
    assert host.problems(mac(7)) == [("absent", f'no NIC has the MAC "{mac(7)}"')]


def test_b_a_document_without_interfaces_has_its_other_sections_done(host):
    assert host.once(LATER.format(host.folder)).code == 0
    assert host.command("neucad", "--guest", "--config", host.config_file).code == 0
    assert (host.folder / "said").read_text() == "ran\n"


def test_c_an_empty_address_flushes_none(host):
    host.ip("address add 10.99.0.1/24 dev dp1")
    host.once(f"[interfaces]\n{bare(1)} = up:ipv4:\n")
    assert host.addresses("dp1") == {"10.99.0.1/24"}


def test_d_an_ignored_nic_has_neither_a_rule_nor_a_mark(host):
    text = host.config_file.read_text()
    host.config_file.write_text(
        text.replace("[runtime]\n", f"[runtime]\ndataplane-macs-to-ignore = {mac(2)}\n")
    )
    host.once(ONE + f"[interface {mac(2)}]\naddresses = 172.16.2.1/24\n")
    assert rules(host) == {bare(1), MANAGEMENT_MAC.replace(":", "")}
    assert mac(2) not in (host.folder / "nm" / "neuca.conf").read_text()


def test_e_ipv6_is_read_whole_in_addresses_and_routes(host):
    text = f"[interfaces]\n{bare(1)} = up:ipv6:fd00:16::1/64\n[routes]\n2001:db8:20::/48 = fd00:16::fe\n"
    assert host.once(text).code == 0
    assert (host.addresses("dp1"), host.routes("2001:db8:20::/48", 6)[0][0]) == (
        {"fd00:16::1/64"},
        "fd00:16::fe",
    )


def test_f_addresses_of_the_user_stay_when_ours_changes(host):
    host.once(ONE)
    host.ip("address add 10.99.0.1/24 dev dp1")
    host.once(ONE.replace("172.16.1.1", "172.16.1.2"))
    assert host.addresses("dp1") == {"10.99.0.1/24", "172.16.1.2/24"}


def test_g_a_route_is_not_set_again_and_an_invalid_one_not_at_all(host):
    text = ONE + "[routes]\n10.20.0.0/16 = 172.16.1.254\n10.21.0.0/40 = 172.16.1.254\n"
    assert host.once(text).code == 78
    with host.monitored() as monitor:
        host.once()
        assert monitor.lines() == []
    assert (len(host.routes("10.20.0.0/16")), host.look("route show 10.21.0.0/16")) == (1, [])


def test_i_a_nic_that_was_renamed_by_hand_keeps_its_rule_and_gets_its_name_back(host):
    host.once(ONE)
    host.ip("link set dp1 name other")
    assert host.once().code == 0
    rule = (host.folder / "udev" / f"10-neuca-persistent-{bare(1)}.rules").read_text()
    assert ('NAME:="dp1"' in rule, host.addresses("dp1")) == (True, {"172.16.1.1/24"})


def test_j_every_management_nic_has_a_rule(host):
    host.veth("mgmt1", 9, up=True, foreign=True)
    text = host.config_file.read_text()
    host.config_file.write_text(text + f"[network]\nmanagement-macs = {MANAGEMENT_MAC}, {mac(9)}\n")
    host.once(ONE)
    assert {MANAGEMENT_MAC.replace(":", ""), bare(9)} <= rules(host)
