"""What router advertisements leave in the settings of a NIC: hop limit, IPv6 MTU and the timers of its neighbours."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys

import frames
import pytest
from lab import GATEWAY6, mac, refused_route

OURS = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
CONF, NEIGH = "net/ipv6/conf/dp1", "net/ipv6/neigh/dp1"
HOSTILE = {"hops": 1, "timers": (100, 4000000000), "lifetime": 0}
ADVERTISED = {
    f"{CONF}/hop_limit": "1",
    f"{CONF}/mtu": "1280",
    f"{NEIGH}/base_reachable_time_ms": "100",
    f"{NEIGH}/retrans_time_ms": "4000000000",
    f"{NEIGH}/gc_stale_time": "0",
}
DEFAULTS = {
    f"{CONF}/hop_limit": "64",
    f"{CONF}/mtu": "1500",
    f"{NEIGH}/base_reachable_time_ms": "30000",
    f"{NEIGH}/retrans_time_ms": "1000",
    f"{NEIGH}/gc_stale_time": "60",
}


def advertise(evil):
    evil.advertise(frames.mtu(1280), **HOSTILE)


@pytest.fixture
def attacked(guest, attackers):
    """A guest whose dp1 has what an attacker advertised, before any document names the NIC."""
    guest.management()
    evil = attackers().on_dataplane("dp1", 1, up=True)

    def is_taken():
        advertise(evil)
        return settings(guest) == ADVERTISED

    guest.wait("the advertisement is taken", is_taken)
    return guest, evil


def settings(guest):
    return {path: guest.sysctl(path) for path in ADVERTISED}


def test_what_an_advertisement_set_is_reset_when_the_nic_becomes_dataplane(attacked):
    guest, evil = attacked
    assert guest.once(OURS).code == 0
    assert settings(guest) == DEFAULTS
    assert guest.plan() == []
    advertise(evil)
    evil.delivered()
    assert settings(guest) == DEFAULTS
    assert guest.once().code == 0
    assert guest.plan() == []


@pytest.mark.parametrize("line", ["dhcp6 = yes", "accept-ra = yes"])
def test_what_the_kernel_took_is_reset_although_a_document_requests_a_client(attacked, line):
    guest, _ = attacked
    guest.once(f"{OURS}{line}\n")
    assert settings(guest) == DEFAULTS
    assert guest.sysctl(f"{CONF}/accept_ra") == "0"


def test_what_was_reset_stays_when_the_nic_goes_down_and_up(attacked):
    guest, evil = attacked
    with guest.foreign.changing():
        guest.ip("link set dp1 down")
        guest.ip("link set dp1 up")
    assert guest.sysctl(f"{CONF}/hop_limit") == "1"  # the kernel resets the MTU alone
    assert guest.once(OURS).code == 0
    with guest.foreign.changing():
        guest.ip("link set dp1 down")
        guest.ip("link set dp1 up")
    guest.settle()
    advertise(evil)
    evil.delivered()
    assert settings(guest) == DEFAULTS


def test_release_does_not_bring_an_advertised_value_back(attacked):
    guest, _ = attacked
    assert guest.once(OURS).code == 0
    assert guest.neuca("release", "dp1").code == 0
    assert guest.sysctl(f"{CONF}/accept_ra") == "1"
    assert settings(guest) == DEFAULTS


def test_a_value_of_the_document_wins(attacked):
    guest, _ = attacked
    asked = f"{OURS}sysctl.net.ipv6.conf.{{interface}}.hop_limit = 200\n"
    assert guest.once(asked).code == 0
    assert settings(guest) == {**DEFAULTS, f"{CONF}/hop_limit": "200"}
    assert guest.once(OURS).code == 0
    assert settings(guest) == DEFAULTS


def test_a_value_of_an_administrators_sysctl_file_wins(attacked):
    guest, _ = attacked
    directory = guest.folder / "etc/sysctl.d"
    directory.mkdir(parents=True)
    guest.configure(f"[linux]\nsysctl-directory = {directory}")
    file = directory / "50-admin.conf"
    file.write_text("net.ipv6.conf.dp1.hop_limit = 100\nnet.ipv6.neigh.*.retrans_time_ms = 2000\n")
    assert guest.once(OURS).code == 0
    expected = {f"{CONF}/hop_limit": "100", f"{NEIGH}/retrans_time_ms": "2000"}
    assert settings(guest) == {**DEFAULTS, **expected}
    assert guest.plan() == []


def test_the_default_of_the_host_applies(attacked):
    guest, _ = attacked
    guest.sysctl("net/ipv6/conf/default/hop_limit", 128)
    assert guest.once(OURS).code == 0
    assert guest.sysctl(f"{CONF}/hop_limit") == "128"


@pytest.mark.parametrize("options", [{"lifetime": 9000}, *(
    {"options": tuple(map(frames.prefix_information, prefixes)), "lifetime": 0}
    for prefixes in (("::/0",), ("::/1", "8000::/1"), ("2001:db8:ffff::/64",), (f"{GATEWAY6}/128",))
)])  # fmt: skip
def test_a_document_cannot_have_the_kernel_take_what_is_advertised(guest, attackers, options):
    """The packets of the host leave through the management NIC, before and after the document."""
    guest.management()
    evil = attackers().on_dataplane("dp1", 1, up=True)
    more = dict(options)
    evil.advertise(*more.pop("options", ()), **more)
    evil.delivered()
    asked = f"{OURS}sysctl.net.ipv6.conf.{{interface}}.accept_ra = 1\n"
    guest.once(asked)
    more = dict(options)
    evil.advertise(*more.pop("options", ()), **more)
    evil.delivered()
    hosts = ("2600::1", "9000::1", GATEWAY6)
    with evil.captured(lambda frame: any(frames.packed(host) in frame for host in hosts)) as seen:
        for host in hosts:
            guest.run(sys.executable, "-c", SENT, host)
        evil.delivered()
    assert seen == []
    assert {guest.look(f"-6 route get {host}")[0]["dev"] for host in hosts} == {"mgmt0"}
    code, text = guest.problems("dp1")[0]
    assert code == "refused"
    assert text.startswith("sysctl net.ipv6.conf.{interface}.accept_ra: any host on the link could")


SENT = "import socket, sys; socket.socket(socket.AF_INET6, 2).sendto(b'x', (sys.argv[1], 9))"


def test_what_the_configuration_has_the_kernel_take_is_kept(attacked):
    """Its author is root, who may trust the routers of a network."""
    guest, _ = attacked
    guest.configure(f"[interface {mac(1)}]\nsysctl.net.ipv6.conf.{{interface}}.accept_ra = 1")
    assert guest.once(OURS).code == 0
    assert settings(guest) == ADVERTISED


def test_a_value_on_a_nic_that_took_no_advertisement_is_left_alone(guest, attackers):
    guest.management()
    guest.sysctl("net/ipv6/conf/default/accept_ra", 0)
    attackers().on_dataplane("dp1", 1, up=True)
    guest.sysctl(f"{CONF}/hop_limit", 200)
    assert guest.once(OURS).code == 0
    assert guest.sysctl(f"{CONF}/hop_limit") == "200"


def test_a_later_change_by_hand_wins(attacked):
    guest, _ = attacked
    assert guest.once(OURS).code == 0
    guest.sysctl(f"{CONF}/hop_limit", 99)
    assert guest.once().code == 0
    assert guest.sysctl(f"{CONF}/hop_limit") == "99"


def test_a_nic_that_fails_is_rolled_back_without_what_was_advertised(attacked):
    """The kernel refuses the largest timers that an advertisement can set."""
    guest, _ = attacked
    asked = f"[interface {mac(1)}]\naddresses = fd00:16::1/64, 10.16.0.1/24\n"
    asked += f"[routes]\n{refused_route('10.16.0.254')}"
    done = guest.once(asked)
    assert done.code == 1
    refused = [line for line in done.err.splitlines() if "Invalid argument" in line]
    assert [line for line in refused if "route 198.51.100.0/25" not in line] == []
    assert guest.sysctl(f"{CONF}/accept_ra") == "1"
    assert settings(guest) == DEFAULTS
    guest.applied = False  # the document cannot be applied
