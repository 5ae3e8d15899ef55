"""`sources = none`: the configuration is the whole request, and what it drops is removed."""

from __future__ import annotations

import signal

import pytest
from lab import mac

NIC = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
OTHER_ADDRESS = NIC.replace("172.16.1.1", "172.16.1.2")
SETTINGS = "mtu = 1400\ntxqueuelen = 555\nsysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
BRIDGE = f"[bridge br0]\nmembers = {mac(2)}\naddresses = 10.5.0.1/24\n"
VLAN = f"[vlan {mac(1)}.5]\naddresses = 10.7.0.1/24\n"
POLICY = "[network]\npolicy-routing = on\n"
GATEWAY = "gateway = 172.16.1.254\n"
MORE = {
    "an address": NIC.replace("1/24", "1/24, fd00:1::1/64"),
    "settings": NIC + SETTINGS,
    "policy routing": POLICY + NIC + GATEWAY,
    "a sysctl of the host": NIC + "sysctl.net.ipv4.tcp_ecn = 1\n",
    "a bridge": NIC + BRIDGE,
    "a VLAN": NIC + VLAN,
}


@pytest.fixture
def host(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.foreign.may_make("br0", "dp1.5")
    lab.configure(NIC, sources="none")
    assert lab.once().code == 0
    return lab


def state(lab):
    """What the agent sets."""
    link = lab.link("dp1")
    names = ("net/ipv4/conf/dp1/rp_filter", "net/ipv4/tcp_ecn")
    return (
        lab.addresses("dp1"),
        (link["mtu"], link["txqlen"], *map(lab.sysctl, names)),
        lab.run("ip", "rule").out,
        lab.run("ip", "route", "show", "table", "all", "proto", "157").out,
        [lab.link(name) for name in ("br0", "dp1.5")],
        lab.link("dp2").get("master"),
    )


@pytest.mark.parametrize("what", MORE)
def test_what_the_configuration_no_longer_requests_is_removed(host, what):
    before = state(host)
    host.configure(MORE[what], sources="none")
    host.once()
    if what == "a VLAN" and host.link("dp1.5") is None:
        pytest.skip("this kernel has no 8021q")
    assert state(host) != before
    host.configure(NIC, sources="none")
    assert host.once().code == 0
    assert (state(host), host.plan(), host.problems()) == (before, [], [])


def test_plan_and_apply_replace_an_address(host):
    host.configure(OTHER_ADDRESS, sources="none")
    assert any("172.16.1.1/24" in line for line in host.plan())
    assert host.neuca("apply").code == 0
    assert host.addresses("dp1") == {"172.16.1.2/24"}
    status = host.neuca("status").out
    assert "no document (the configuration names no source (sources = none))" in status


def start(host):
    """The daemon, after its first pass and the poll that follows it."""
    host.start()
    host.wait("the first pass", lambda: "pass: " in host.daemon.log())
    host.settle()


def test_a_daemon_replaces_an_address_when_it_reloads_the_configuration(host):
    start(host)
    host.configure(OTHER_ADDRESS, sources="none")
    host.daemon.signal(signal.SIGHUP)
    host.wait("the other address", lambda: host.addresses("dp1") == {"172.16.1.2/24"})


def test_a_source_that_has_not_answered_removes_nothing(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.configure(NIC)
    assert lab.once().code == 3
    lab.configure(OTHER_ADDRESS)
    assert lab.once().code == 3
    assert lab.addresses("dp1") == {"172.16.1.1/24", "172.16.1.2/24"}


@pytest.mark.parametrize("command", ["once", "apply", "daemon"])
def test_a_document_is_dropped_with_the_last_source(lab, command):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    assert lab.once(NIC + NIC.replace(mac(1), mac(2)).replace("16.1.1", "16.2.1")).code == 0
    lab.configure(OTHER_ADDRESS, sources="none")
    if command == "daemon":
        lab.start()
    else:
        assert (lab.once() if command == "once" else lab.neuca(command)).code == 0
    lab.wait("the address of the document", lambda: lab.addresses("dp2") == set())
    assert lab.addresses("dp1") == {"172.16.1.2/24"}
    lab.wait("a state", lambda: lab.status()[0] == 0)


def test_an_applied_document_stays_although_there_is_no_source(host):
    start(host)
    host.document(NIC + "mtu = 1400\n")
    assert host.neuca("apply", "--source", f"file:{host.document_file}").code == 0
    why = "the configuration requests no document (sources = none), which is not applied"
    host.wait("a poll", lambda: why in host.neuca("status").out)
    assert host.link("dp1")["mtu"] == 1400
    assert host.neuca("apply").code == 0
    assert host.link("dp1")["mtu"] == 1500
