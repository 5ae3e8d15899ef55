"""MTU, transmit queue, sysctls: within the device's limits, and back to what they were when nobody asks any more."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

NIC = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n[interface {mac(1)}]\n"


def test_an_mtu_is_raised_and_lowered(lab):
    lab.veth("dp1", 1)
    for mtu in (9000, 1400, 1500):
        assert lab.once(f"{NIC}mtu = {mtu}\n").code == 0
        assert lab.link("dp1")["mtu"] == mtu


def test_an_mtu_beyond_the_devices_maximum_is_refused_and_the_rest_is_applied(lab):
    lab.tap("dp1", 1)
    done = lab.once(f"{NIC}mtu = 65535\ntxqueuelen = 500\n")
    assert done.code == 4
    assert (lab.link("dp1")["mtu"], lab.link("dp1")["txqlen"], lab.addresses("dp1")) == (
        1500,
        500,
        {"172.16.0.1/24"},
    )
    assert lab.problems("dp1") == [("mtu", 'MTU 65535 requested, but "dp1" supports at most 65521')]


def test_an_mtu_that_was_set_stays_when_the_next_one_is_refused(lab):
    lab.tap("dp1", 1)
    lab.once(f"{NIC}mtu = 9000\n")
    assert lab.once(f"{NIC}mtu = 65535\n").code == 4
    assert lab.link("dp1")["mtu"] == 9000
    assert lab.once(NIC).code == 0
    assert lab.link("dp1")["mtu"] == 1500


def test_an_mtu_below_what_is_stacked_on_the_nic_is_refused(lab):
    lab.veth("dp1", 1, up=True)
    lab.ip("link set dp1 mtu 9000")
    lab.ip("link add name theirs link dp1 type macvlan mode bridge")
    done = lab.once(f"{NIC}mtu = 1500\n")
    assert done.code == 4
    assert (lab.link("dp1")["mtu"], lab.link("theirs")["mtu"]) == (9000, 9000)
    assert lab.problems("dp1") == [
        (
            "refused",
            'MTU 1500 requested, but "theirs" on "dp1" was not created by neucad and has MTU 9000',
        )
    ]
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    lab.ip("link set theirs mtu 1400")
    assert lab.once().code == 0
    assert (lab.link("dp1")["mtu"], lab.link("theirs")["mtu"]) == (1500, 1400)


def test_ipv6_and_an_mtu_below_1280_is_a_bad_line_that_costs_only_itself(lab):
    lab.veth("dp1", 1)
    done = lab.once(f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\nmtu = 1000\n")
    assert (done.code, done.err.splitlines()[-1]) == (
        78,
        (
            f'neuca: error: line 3: [interface {mac(1)}] "mtu" = "1000": '
            "an MTU below 1280 cannot carry the IPv6 addresses of this link"
        ),
    )
    assert (lab.link("dp1")["mtu"], lab.addresses("dp1")) == (
        1500,
        {"172.16.0.1/24", "fd00:16::1/64"},
    )


def test_an_ipv6_address_comes_with_the_mtu_that_makes_room_for_it(lab):
    lab.veth("dp1", 1)
    lab.once(f"{NIC}mtu = 1000\n")
    document = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\nmtu = 1500\n"
    document += "sysctl.net.ipv6.conf.{interface}.accept_ra = 0\n"
    assert lab.once(document).code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/24", "fd00:16::1/64"}
    assert lab.sysctl("net/ipv6/conf/dp1/accept_ra") == "0"


def test_an_ipv6_address_on_a_nic_whose_mtu_nobody_asks_for_and_is_too_small(lab):
    lab.veth("dp1", 1)
    lab.ip("link set dp1 mtu 1000")
    done = lab.once(f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n")
    assert (done.code, lab.addresses("dp1")) == (4, {"172.16.0.1/24"})
    assert lab.problems("dp1") == [
        ("refused", "address fd00:16::1/64: IPv6 needs an MTU of at least 1280")
    ]


def test_what_is_no_longer_asked_for_goes_back_to_what_it_was(lab):
    lab.veth("dp1", 1)
    lab.ip("link set dp1 mtu 1450 txqueuelen 77")
    lab.sysctl("net/ipv4/conf/dp1/rp_filter", 1)
    lab.foreign.may_set("net/core/somaxconn")
    before = lab.sysctl("net/core/somaxconn")
    everything = (
        f"{NIC}mtu = 9000\ntxqueuelen = 5000\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n"
    )
    lab.once(everything + "sysctl.net.core.somaxconn = 8192\n")
    lab.once(everything.replace("9000", "8000").replace("5000", "4000"))
    assert lab.sysctl("net/core/somaxconn") == before
    assert lab.once(NIC).code == 0
    assert (lab.link("dp1")["mtu"], lab.link("dp1")["txqlen"]) == (1450, 77)
    assert lab.sysctl("net/ipv4/conf/dp1/rp_filter") == "1"


def test_a_nic_removed_from_the_document_regains_its_settings_and_stays_up(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.once(
        f"{NIC}mtu = 9000\ntxqueuelen = 5000\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n"
    )
    assert lab.once(f"[interfaces]\n{mac(2)} = up\n").code == 0
    dp1 = lab.link("dp1")
    assert (dp1["mtu"], dp1["txqlen"], "UP" in dp1["flags"], lab.addresses("dp1")) == (
        1500,
        1000,
        True,
        set(),
    )
    assert lab.sysctl("net/ipv4/conf/dp1/rp_filter") == "0"


def test_a_nic_that_becomes_the_users_gets_its_own_settings_back(lab):
    lab.veth("dp1", 1)
    lab.once(f"{NIC}mtu = 9000\ntxqueuelen = 5000\n")
    assert lab.once(f"[interfaces]\n{mac(1)} = user\n").code == 0
    assert (lab.link("dp1")["mtu"], lab.link("dp1")["txqlen"]) == (1500, 1000)
    lab.ip("link set dp1 mtu 1300")
    assert lab.once().code == 0
    assert lab.link("dp1")["mtu"] == 1300


def test_a_setting_that_the_user_changed_by_hand_and_nobody_asks_for_stays(lab):
    lab.veth("dp1", 1)
    lab.once(f"{NIC}mtu = 9000\n")
    lab.once(NIC)
    lab.ip("link set dp1 mtu 4000 txqueuelen 3")
    assert lab.once().code == 0
    assert (lab.link("dp1")["mtu"], lab.link("dp1")["txqlen"]) == (4000, 3)


def test_a_value_that_the_kernel_does_not_take_for_a_sysctl_costs_only_itself(lab):
    lab.veth("dp1", 1)
    done = lab.once(f"{NIC}mtu = 9000\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = no\n")
    assert done.code == 1
    assert (lab.link("dp1")["mtu"], lab.addresses("dp1")) == (9000, {"172.16.0.1/24"})
    assert lab.problems("dp1") == [
        ("failed", 'set the sysctl net.ipv4.conf.dp1.rp_filter from "0" to "no": Invalid argument')
    ]
    assert lab.once(NIC).code == 0


def test_a_sysctl_that_this_kernel_has_not_costs_only_itself(lab):
    lab.veth("dp1", 1)
    done = lab.once(f"{NIC}sysctl.net.ipv4.conf.{{interface}}.no_such_thing = 1\n")
    assert (done.code, lab.addresses("dp1")) == (1, {"172.16.0.1/24"})
    assert lab.problems("dp1") == [
        (
            "failed",
            'set the sysctl net.ipv4.conf.dp1.no_such_thing to "1": No such file or directory',
        )
    ]
    assert lab.once(NIC).code == 0


def test_sysctls_are_compared_as_the_kernel_reads_and_rounds_them(lab):
    """Hexadecimal, octal, and a time that is no whole number of ticks on some kernels."""
    lab.veth("dp1", 1)
    values = {"ipv4/conf/{}/rp_filter": "0x2", "ipv4/conf/{}/medium_id": "010"}
    values.update({"ipv6/neigh/{}/retrans_time_ms": "1003", "ipv4/neigh/{}/locktime": "33"})
    lines = [
        f"sysctl.net/{path.format('{interface}')} = {value}\n" for path, value in values.items()
    ]
    text = f"[interfaces]\n{mac(1)} = up\n[interface {mac(1)}]\n{''.join(lines)}"
    assert lab.once(text).code == 0
    assert lab.sysctl("net/ipv4/conf/dp1/rp_filter") == "2"
    assert lab.sysctl("net/ipv4/conf/dp1/medium_id") == "8"
    assert 1003 <= int(lab.sysctl("net/ipv6/neigh/dp1/retrans_time_ms")) < 1013
    assert lab.plan() == []


def test_advertisements_are_accepted_again_after_an_mtu_without_ipv6(lab):
    """Below an MTU of 1280 a NIC has no sysctls of IPv6; then it has those of a new NIC."""
    lab.sysctl("net/ipv6/conf/default/accept_ra", 1)
    lab.veth("dp1", 1)
    text = f"[interfaces]\n{mac(1)} = up\n[interface {mac(1)}]\naddresses = 172.16.0.1/24\n"
    assert lab.once(f"{text}mtu = 1000\n").code == 0
    assert lab.once(f"{text}mtu = 1400\n").code == 0
    assert lab.sysctl("net/ipv6/conf/dp1/accept_ra") == "0"
    assert lab.once("[interfaces]\n").code == 0
    assert lab.sysctl("net/ipv6/conf/dp1/accept_ra") == "1"


def test_advertisements_are_off_with_and_without_dhcpv6_of_another_program(lab):
    """A client reads them by itself; a typo does not turn them on either."""
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
        lab.sysctl(f"net/ipv6/conf/dp{number}/accept_ra", 1)
    nics = [f"[interface {mac(number)}]\naddresses = 172.16.{number}.1/24\n" for number in (1, 2)]
    lab.once(f"{nics[0]}dhcp6 = yes\n")
    lab.ip("address add fd00:9::1/128 dev dp1 valid_lft 600 preferred_lft 600")
    for typo in ("dhcp6 = yes\n", "dhcp6 = yse\n", "dhpc6 = yes\n"):
        lab.once(f"{nics[0]}{typo}{nics[1]}{typo}")
        lab.once(f"{nics[0]}{typo}{nics[1]}{typo}mtu = 1400\n")
        assert lab.sysctl("net/ipv6/conf/dp1/accept_ra") == "0", typo
        assert lab.sysctl("net/ipv6/conf/dp2/accept_ra") == "0", typo
        assert "fd00:9::1/128" in lab.addresses("dp1"), typo


@pytest.fixture
def fixed(lab):
    """A container host: nothing below /proc/sys can be written."""
    lab.veth("dp1", 1)
    lab.sysctl("net/ipv6/conf/dp1/accept_ra", 1)
    lab.run("mount", "--bind", "/proc/sys", "/proc/sys")
    lab.run("mount", "-o", "remount,bind,ro", "/proc/sys")
    return lab


def test_where_proc_sys_is_read_only_what_nobody_requests_is_a_note(fixed):
    nic = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n"
    done = fixed.once(nic)
    assert done.code == 0, done
    code, data = fixed.status()
    assert (code, data["state"]) == (0, "ok")
    (note,) = data["interfaces"][0]["notes"]
    assert note == {
        "setting": "net/ipv6/conf/{interface}/accept_ra",
        "effect": "not applicable",
        "reason": 'it stays "1", because /proc/sys is read-only here',
    }
    fixed.ip("address add 172.16.0.9/24 dev dp1")
    moved = nic.replace("172.16.0.1/24", "172.16.0.2/24, 172.16.0.3/24")
    assert fixed.once(f"{moved}[routes]\n10.9.0.0/16 = 172.16.0.254\n").code == 0
    kept = {"172.16.0.9/24", "fd00:16::1/64"}
    assert fixed.addresses("dp1") == kept | {"172.16.0.2/24", "172.16.0.3/24"}
    assert fixed.routes("10.9.0.0/16")
    assert fixed.once(nic.replace("172.16.0.1/24, ", "")).code == 0
    assert fixed.addresses("dp1") == kept


def test_where_proc_sys_is_read_only_what_a_document_requests_is_a_failure(fixed):
    nic = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24\n"
    requested = "sysctl.net.ipv6.conf.{interface}.accept_ra = 0\n"
    assert fixed.once(f"{nic}{requested}").code == 1
    assert fixed.status()[1]["state"] == "failed"
    assert fixed.once(nic).code == 0
