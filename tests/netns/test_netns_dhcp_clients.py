"""DHCP on dataplane links of a host without a network manager: dhcpcd, and what a hostile server can reach."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dhcpclient import Clients
from lab import GATEWAY, mac
from networkd import PROGRAM, Networkd
from test_netns_backoff import passes
from test_netns_dhcp import (
    FAR,
    HOSTILE,
    LEASE,
    ROUTER,
    SERVER,
    USUAL,
    answered,
    classless,
    through,
)
from test_netns_unreadable import once_without

from neuca_tools.desired import dhcp_files
from neuca_tools.desired.dhcp_clients import NOT_INSTALLED
from neuca_tools.model import LinkKey

NIC = LinkKey(mac(1))
LABEL = dhcp_files.link_label(NIC)
DOCUMENT = f"[interface {mac(1)}]\nname = dp1\ndhcp4 = yes\n"
EVIL = """SendOption=12:string:$(touch /tmp/neuca-pwned);`reboot`
SendOption=15:string:evil.example
SendOption=6:ipv4address:10.9.0.1
"""
REFUSED = {
    GATEWAY: f"dp1: the DHCP lease of {GATEWAY}: it would take over {GATEWAY}, which is reached through the management NIC,"
    " so it is not used",
    "192.0.2.10": "dp1: the DHCP lease of 192.0.2.10: it is an address of another interface, so it is not used",
}
STATIC = "addresses = 172.16.0.5/24\n"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not PROGRAM.exists(), reason="it requires root and systemd-networkd"
)


@pytest.fixture
def plain(daemons, lab, tmp_path):
    """A guest without a network manager, whose second NIC leads to a DHCP server."""
    lab.management()
    lab.veth("dp1", 1)
    lab.run("ip", "address", "add", f"{FAR}/32", "dev", "lo", where=lab.outside)
    lab.server = Networkd(lab.outside, tmp_path / "server")
    lab.clients = Clients(lab)
    lab.configure(lab.clients.options())
    daemons += [lab.clients, lab.server]
    return lab


def serve(lab, routes=USUAL, extra="", name="dp1"):
    text = SERVER.format(routes=classless(*routes), more="") + extra
    lab.server.write("dp1.network", text.replace("Name=dp1", f"Name={name}"))
    lab.server.start()


def lease(lab, label=LABEL, name="dp1"):
    """Wait for a lease, and make a pass."""
    lab.wait("the lease", lambda: f"{LEASE}/24" in lab.addresses(name) and inbox(lab, label))
    assert lab.once().code == 0


def inbox(lab, label=LABEL):
    """The routes in the table of the link."""
    number = str(dhcp_files.table_of(dhcp_files.link_of_label(label)))
    # A table without routes is an error to `ip route show table`.
    return {one["dst"] for one in lab.look("route show table all") if one.get("table") == number}


def test_a_nic_gets_its_address_mtu_and_routes_and_answers_through_its_own_gateway(plain):
    serve(plain)
    assert plain.once(DOCUMENT + STATIC).code == 0
    lease(plain)
    assert plain.addresses("dp1") == {f"{LEASE}/24", "172.16.0.5/24"}
    assert plain.link("dp1")["mtu"] == 1400
    assert through(plain) == {("10.9.0.0/24", None), ("192.168.77.0/24", ROUTER)}
    assert [one["dev"] for one in plain.look("route show default")] == ["mgmt0"]
    pairs = [[ROUTER, LEASE], [FAR, LEASE]]
    assert answered(plain, pairs) == pairs
    code, data = plain.status()
    assert (code, plain.role(mac(1))) == (0, "dataplane")
    assert [one for one in data["notes"] if "DHCP" in one] == [
        f"dp1: {LEASE}/24 from DHCP or a router advertisement"
    ]


def test_the_status_names_a_nic_that_waits_for_its_lease(plain):
    assert plain.once(DOCUMENT).code == 0
    missing = "dp1: no IPv4 address from DHCP yet"
    assert missing in plain.status()[1]["notes"]
    serve(plain)
    lease(plain)
    assert missing not in plain.status()[1]["notes"]


def test_a_hostile_server_gets_neither_a_route_nor_dns_nor_a_host_name(plain):
    before, name = plain.look("route show table main"), os.uname().nodename
    files = {path: path.read_bytes() for path in map(Path, ("/etc/resolv.conf", "/etc/hostname"))}
    serve(plain, HOSTILE, EVIL)
    plain.once(DOCUMENT)
    lease(plain)
    assert through(plain) == {("10.9.0.0/24", None)}
    now = plain.look("route show table main")
    assert [one for one in now if one["dev"] != "dp1"] == before
    hosts = ("11.1.1.1", FAR, "8.8.8.8", "169.254.169.254", GATEWAY)
    assert {plain.look(f"route get {host}")[0]["dev"] for host in hosts} == {"mgmt0"}
    assert os.uname().nodename == name
    assert plain.run("uname", "-n").out.strip() == name
    assert {path: path.read_bytes() for path in files} == files
    assert not Path("/tmp/neuca-pwned").exists()


@pytest.mark.parametrize("taken", [GATEWAY, "192.0.2.10"])
def test_an_address_of_the_management_network_that_is_in_use_is_not_set(plain, taken):
    """The server gives away the gateway of the management NIC, and this guest's own address there."""
    text = SERVER.format(routes=classless(), more="").replace(f"{ROUTER}/24", "192.0.2.254/24")
    host, offset = taken, int(taken.rpartition(".")[2])
    # Otherwise the host outside, which has the gateway's address, would answer dhcpcd's ARP probes.
    plain.run("sysctl", "-qw", "net.ipv4.conf.dp1.arp_ignore=1", where=plain.outside)
    plain.server.write("dp1.network", text.replace("PoolOffset=51", f"PoolOffset={offset}"))
    plain.server.start()
    plain.once(DOCUMENT)
    plain.wait("the lease", lambda: plain.clients.lease(LABEL))
    assert plain.addresses("dp1") == set()
    assert plain.once().code == 0
    assert [one for one in plain.status()[1]["notes"] if host in one] == [REFUSED[taken]]
    assert plain.look(f"route get {GATEWAY}")[0]["dev"] == "mgmt0"


def bind(lab, host):
    """The server binds this address for ever; dhcpcd says so."""
    lease = {"ip_address": host, "subnet_mask": "255.255.255.0", "dhcp_lease_time": 4294967295}
    lab.clients.report(LABEL, "BOUND", **lease)
    return f"{host}/24" in lab.addresses("dp1")


def test_no_address_of_the_management_network_is_set_while_its_nic_has_none(plain):
    """As at a boot at which the management NIC gets its lease after the others."""
    assert plain.once(DOCUMENT).code == 0
    plain.ip("address flush dev mgmt0")
    plain.once()
    assert [host for host in (GATEWAY, "192.0.2.10") if bind(plain, host)] == []
    plain.ip("address add 192.0.2.10/24 dev mgmt0")
    plain.once()
    assert not bind(plain, GATEWAY)  # until the default route is there
    plain.ip(f"route add default via {GATEWAY} dev mgmt0")
    assert plain.once().code == 0
    assert bind(plain, "192.0.2.77")
    assert plain.once().code == 0


def test_no_address_is_set_whose_broadcast_address_the_management_nic_has(plain):
    plain.ip("address add 192.0.2.11/24 dev mgmt0")
    assert plain.once(DOCUMENT).code == 0
    lease = {"ip_address": "192.0.2.9", "subnet_mask": "255.255.255.252", "dhcp_lease_time": 600}
    plain.clients.report(LABEL, "BOUND", **lease)
    assert plain.addresses("dp1") == set()
    assert "192.0.2.11 dev dp1" not in plain.run("ip", "route", "show", "table", "local").out
    text = "dp1: the DHCP lease of 192.0.2.9: its broadcast address 192.0.2.11 is an address of another interface,"
    assert [note for note in plain.status()[1]["notes"] if "lease" in note] == [
        f"{text} so it is not used"
    ]


def test_the_address_of_a_service_of_the_configuration_is_not_set(plain):
    sources = f"openstack=http://192.0.2.77, file:{plain.document_file}"
    plain.configure(plain.clients.options(), sources=sources, timeout=1)
    plain.once(DOCUMENT)
    assert not bind(plain, "192.0.2.77")
    assert plain.look("route get 192.0.2.77")[0]["dev"] == "mgmt0"


DAMAGED = (
    '{"refused": "x"}',
    '{"refused": "x", "index": null}',
    '{"index": 1e400}',
    '{"index": 1, "mtu_before": []}',
    '{"index": 1, "addresses": []}',
    '{"index": 1, "addresses": {"a": 1}}',
    '{"index": 1, "address": "10.9.0.51/24"}',
    "[" * 60000,
)


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:40])
def test_a_damaged_lease_file_is_as_good_as_none(plain, text):
    assert plain.once(DOCUMENT).code == 0
    place = plain.clients.folder / f"{LABEL}.lease"
    place.write_text(text)
    assert (plain.once().code, plain.status()[0]) == (0, 0)
    plain.clients.report(LABEL, "EXPIRE")
    place.write_text(text)
    assert bind(plain, LEASE)
    assert plain.once().code == 0


def test_the_lease_survives_restarts_of_the_agent_and_a_second_pass_does_nothing(plain):
    serve(plain)
    plain.once(DOCUMENT)
    lease(plain)
    pid = plain.clients.pid(LABEL)
    with plain.monitored() as monitor:
        assert plain.once().code == 0
        assert monitor.lines() == []
    assert (plain.clients.pid(LABEL), plain.clients.alive(LABEL)) == (pid, True)


def test_a_client_that_has_died_is_started_again_and_keeps_its_address(plain):
    serve(plain)
    plain.once(DOCUMENT)
    lease(plain)
    pid, written = plain.clients.pid(LABEL), plain.clients.written(LABEL)
    plain.clients.end(LABEL)
    assert f"{LEASE}/24" in plain.addresses("dp1")
    assert plain.plan() == ["start the DHCP client of dp1"]
    assert plain.once().code == 0
    assert plain.clients.alive(LABEL)
    assert plain.clients.pid(LABEL) != pid
    plain.wait("the lease of the new client", lambda: plain.clients.written(LABEL) != written)
    plain.wait("the end of its helper", lambda: not plain.clients.reporting(LABEL))
    assert f"{LEASE}/24" in plain.addresses("dp1")


@pytest.mark.parametrize("end", [".process", "{pid}/stat"])
def test_a_client_is_not_taken_for_dead_for_lack_of_a_descriptor(plain, end):
    serve(plain)
    plain.once(DOCUMENT)
    lease(plain)
    pid = plain.clients.pid(LABEL)
    done = once_without(plain, end.format(pid=pid))
    assert (done.code, "Too many open files" in done.err) == (1, True)
    assert (plain.clients.pid(LABEL), plain.clients.alive(LABEL)) == (pid, True)
    assert f"{LEASE}/24" in plain.addresses("dp1")


def test_the_daemon_starts_a_client_that_has_died(plain):
    """By the next poll, and nothing else: what was changed by hand stays."""
    serve(plain)
    plain.configure(plain.clients.options(), poll=1)
    plain.document(DOCUMENT + STATIC)
    plain.start()
    plain.wait("the routes", lambda: ("192.168.77.0/24", ROUTER) in through(plain))
    plain.ip("address add 172.16.0.6/24 dev dp1")
    pid, written = plain.clients.pid(LABEL), plain.clients.written(LABEL)
    plain.clients.end(LABEL)
    plain.wait("another client", lambda: plain.clients.pid(LABEL) != pid)
    plain.wait("the lease of the new client", lambda: plain.clients.written(LABEL) != written)
    plain.wait("the end of its helper", lambda: not plain.clients.reporting(LABEL))
    assert "172.16.0.6/24" in plain.addresses("dp1")
    assert plain.plan() == []
    assert plain.daemon.stop() == 0


def test_a_client_that_dies_again_and_again_is_started_at_growing_intervals(plain):
    """There is a poll each second. The client of another NIC is not affected."""
    plain.veth("dp2", 2)
    plain.clients.precede("exit 1; ")
    plain.configure(plain.clients.options(), poll=1)
    plain.document(DOCUMENT + f"[interface {mac(2)}]\naddresses = 172.17.0.1/24\n")
    plain.start()
    plain.wait("the first pass", (plain.folder / "run/last-pass.json").exists)
    (made,) = passes(plain, seconds=20.0)
    started = plain.daemon.log().count("start the DHCP client of dp1")
    assert 3 <= started <= 6, plain.daemon.log()
    assert made <= started + 2, plain.daemon.log()
    plain.document(DOCUMENT)
    plain.wait("the other NIC", lambda: not plain.addresses("dp2"))
    plain.applied = False  # a plan is left: to start the client


def test_an_address_is_set_for_the_time_of_its_lease(plain):
    """The kernel removes it then, whether the client is still there or not."""
    serve(plain, extra="DefaultLeaseTimeSec=600\nMaxLeaseTimeSec=600\n")
    plain.once(DOCUMENT)
    lease(plain)
    (found,) = plain.look("-4 address show dev dp1")[0]["addr_info"]
    assert 500 < found["preferred_life_time"] <= found["valid_life_time"] <= 600


def test_what_is_no_longer_requested_ends_with_all_that_came_of_it(plain):
    serve(plain)
    plain.once(DOCUMENT + STATIC)
    lease(plain)
    pid = plain.clients.pid(LABEL)
    assert plain.once(DOCUMENT.replace("dhcp4 = yes\n", STATIC)).code == 0
    assert not Path(f"/proc/{pid}/stat").exists() or not plain.clients.alive(LABEL)
    assert plain.addresses("dp1") == {"172.16.0.5/24"}
    assert through(plain) == set()
    assert inbox(plain) == set()
    assert plain.link("dp1")["mtu"] == 1500
    assert list(plain.clients.folder.glob(f"{LABEL}*")) == []
    assert [one for one in plain.look("rule show") if one.get("src") == LEASE] == []


def test_a_released_nic_has_neither_client_nor_lease(plain):
    serve(plain)
    plain.once(DOCUMENT)
    lease(plain)
    assert plain.neuca("release", mac(1)).code == 0
    assert not plain.clients.alive(LABEL)
    assert plain.addresses("dp1") == set()


@pytest.mark.parametrize("option", ["runtime dataplane-macs-to-ignore", "network management-macs"])
def test_a_nic_that_the_configuration_protects_loses_its_client_and_keeps_what_it_has(
    plain, option
):
    """An administrator may be logged in through it."""
    serve(plain)
    plain.once(DOCUMENT)
    lease(plain)
    section, name = option.split()
    plain.configure(f"{plain.clients.options()}[{section}]\n{name} = {mac(1)}\n")
    assert "stop the DHCP client of dp1" in {text.replace(mac(1), "dp1") for text in plain.plan()}
    with plain.monitored() as monitor:
        plain.once()
        assert [line for line in monitor.lines() if "dp1" in line] == []
    assert not plain.clients.alive(LABEL)
    assert list(plain.clients.folder.glob(f"{LABEL}*")) == []
    assert plain.addresses("dp1") == {f"{LEASE}/24"}
    assert plain.link("dp1")["mtu"] == 1400


def test_the_client_of_a_nic_that_is_gone_ends(plain):
    serve(plain)
    plain.once(DOCUMENT)
    lease(plain)
    plain.ip("link delete dp1")
    plain.server.stop()
    plain.once()
    assert not plain.clients.alive(LABEL)
    assert list(plain.clients.folder.glob(f"{LABEL}*")) == []


def test_the_daemon_ends_the_client_of_a_nic_that_is_gone_but_not_of_one_that_is_down(plain):
    plain.configure(plain.clients.options(), poll=1)
    plain.document(DOCUMENT + f"[interface {mac(2)}]\nmtu = 1400\n")
    plain.start()
    plain.wait("the client", lambda: plain.clients.alive(LABEL))
    pid = plain.clients.pid(LABEL)
    plain.ip("link set dp1 down")
    plain.veth("dp2", 2)
    plain.wait("a pass", lambda: plain.link("dp2")["mtu"] == 1400)
    assert (plain.clients.pid(LABEL), plain.clients.alive(LABEL)) == (pid, True)
    plain.ip("link delete dp1")
    plain.wait("no client", lambda: not list(plain.clients.folder.glob(f"{LABEL}*")))
    plain.veth("dp1", 1)
    plain.wait("the client", lambda: plain.clients.alive(LABEL))


def test_the_daemon_uses_a_lease_as_soon_as_there_is_one(plain):
    serve(plain)
    plain.document(DOCUMENT)
    plain.start()
    plain.wait("the routes", lambda: ("192.168.77.0/24", ROUTER) in through(plain))
    pid = plain.clients.pid(LABEL)
    assert plain.daemon.stop() == 0
    assert plain.clients.alive(LABEL)
    assert plain.once().code == 0
    assert plain.clients.pid(LABEL) == pid


def test_a_client_that_is_not_installed_is_one_problem(plain):
    plain.clients.program.unlink()
    plain.once(DOCUMENT)
    assert plain.problems("dp1") == [("refused", NOT_INSTALLED)]


def test_a_bridge_gets_a_lease_although_it_has_the_mac_of_its_port(plain):
    bridge = "bridge-br0"
    plain.foreign.may_make("br0")
    serve(plain)
    assert plain.once(f"[bridge br0]\nmembers = {mac(1)}\ndhcp4 = yes\n").code == 0
    lease(plain, bridge, "br0")
    assert plain.link("br0")["address"] == plain.link("dp1")["address"]
    assert plain.addresses("br0") == {f"{LEASE}/24"}
    assert plain.addresses("dp1") == set()
    routes = {(one["dst"], one.get("gateway")) for one in plain.look("route show dev br0")}
    assert routes == {("10.9.0.0/24", None), ("192.168.77.0/24", ROUTER)}
    pairs = [[ROUTER, LEASE], [FAR, LEASE]]
    assert answered(plain, pairs) == pairs
    assert plain.once(f"[interface {mac(1)}]\nname = dp1\n").code == 0
    assert plain.link("br0") is None
    assert not plain.clients.alive(bridge)
    assert list(plain.clients.folder.glob(f"{bridge}*")) == []


def test_a_withdrawal_that_was_interrupted_is_completed(plain):
    """The agent was killed after it had withdrawn the request, and before it had ended the client."""
    serve(plain)
    plain.once(DOCUMENT)
    lease(plain)
    request = plain.clients.folder / f"{LABEL}.json"
    request.rename(request.with_suffix(".gone"))
    assert plain.once(DOCUMENT.replace("dhcp4 = yes\n", STATIC)).code == 0
    assert not plain.clients.alive(LABEL)
    assert plain.addresses("dp1") == {"172.16.0.5/24"}
    assert list(plain.clients.folder.glob(f"{LABEL}*")) == []


def test_a_server_cannot_take_an_address_of_the_document_by_leasing_it(plain):
    static = f"addresses = {LEASE}/24\n"
    serve(plain)
    plain.once(DOCUMENT + static)
    plain.wait("the lease", lambda: plain.clients.lease(LABEL))
    assert plain.once().code == 0
    (found,) = plain.look("-4 address show dev dp1")[0]["addr_info"]
    assert (found["local"], "dynamic" in found) == (LEASE, False)
    plain.once(DOCUMENT.replace("dhcp4 = yes\n", static))
    assert plain.addresses("dp1") == {f"{LEASE}/24"}


GIVEN = {
    "ip_address": LEASE,
    "subnet_mask": "255.255.255.0",
    "dhcp_lease_time": 600,
    "routers": ROUTER,
}


@pytest.fixture
def reported(plain):
    """A guest whose client is asleep: the test reports the leases."""
    plain.clients.precede("exec sleep 1000; ")
    assert plain.once(DOCUMENT).code == 0
    plain.wait("the client", lambda: plain.clients.alive(LABEL))
    return plain


@pytest.mark.parametrize("is_fixed", [False, True])
def test_an_address_that_ends_takes_no_other_one_of_its_network_with_it(reported, is_fixed):
    """As the kernel would without promote_secondaries. In the unit of a client, /proc/sys is read-only."""
    assert reported.sysctl("net/ipv4/conf/dp1/promote_secondaries") == "0"
    if is_fixed:
        reported.run("mount", "-o", "bind,ro", "/proc/sys", "/proc/sys")
    reported.clients.report(LABEL, "BOUND", **GIVEN)
    reported.clients.report(LABEL, "RENEW", **{**GIVEN, "ip_address": "10.9.0.61"})
    assert reported.addresses("dp1") == {"10.9.0.61/24"}
    assert inbox(reported) == {"default", "10.9.0.0/24"}
    reported.once(DOCUMENT + "addresses = 10.9.0.7/24\n")
    reported.clients.report(LABEL, "NAK")
    assert reported.addresses("dp1") == {"10.9.0.7/24"}
    reported.once()


def test_a_lease_that_cannot_be_set_completely_leaves_no_address_behind(reported):
    reported.clients.report(LABEL, "BOUND", **GIVEN)
    reported.ip("link set dp1 down")  # which refuses routes
    with pytest.raises(AssertionError):
        reported.clients.report(LABEL, "RENEW", **{**GIVEN, "ip_address": "10.9.0.61"})
    assert reported.addresses("dp1") == {f"{LEASE}/24", "10.9.0.61/24"}
    reported.ip("link set dp1 up")
    reported.clients.report(LABEL, "NAK")
    assert reported.addresses("dp1") == set()
    reported.once()


def test_an_mtu_that_a_lease_no_longer_has_is_restored(reported):
    for mtu, expected in ((1400, 1400), (1450, 1450), (0, 1500), (1400, 1400)):
        reported.clients.report(LABEL, "RENEW", **GIVEN, interface_mtu=mtu)
        assert reported.link("dp1")["mtu"] == expected
    reported.once(DOCUMENT + "mtu = 1400\n")
    reported.clients.report(LABEL, "RENEW", **GIVEN, interface_mtu=1300)
    assert reported.link("dp1")["mtu"] == 1400
    reported.clients.report(LABEL, "NAK")
    assert (reported.addresses("dp1"), reported.link("dp1")["mtu"]) == (set(), 1400)
    reported.once()


def test_a_lease_without_an_end_is_known_as_a_lease(reported):
    reported.clients.report(LABEL, "BOUND", **{**GIVEN, "dhcp_lease_time": 0xFFFFFFFF})
    reported.once()
    notes = [note for note in reported.status()[1]["notes"] if LEASE in note]
    assert notes == [f"dp1: {LEASE}/24 from DHCP or a router advertisement"]


def test_a_lease_lasts_until_its_end_although_no_server_confirms_it(reported):
    """dhcpcd reports EXPIRE when it has been started again, and no server answers for 5 seconds."""
    reported.clients.report(LABEL, "BOUND", **GIVEN)
    reported.clients.report(LABEL, "EXPIRE")
    assert reported.addresses("dp1") == {f"{LEASE}/24"}
    assert inbox(reported) == {"default", "10.9.0.0/24"}
    reported.clients.report(LABEL, "RENEW", **{**GIVEN, "dhcp_lease_time": 5})
    reported.clients.report(LABEL, "EXPIRE")
    assert (reported.addresses("dp1"), inbox(reported)) == (set(), set())
    assert not reported.clients.lease(LABEL)


def test_the_routes_of_a_lease_return_with_the_link_although_no_server_confirms_it(reported):
    """The kernel drops them with the link. dhcpcd reports EXPIRE when that is lost, and after 5 seconds with it."""
    reported.clients.report(LABEL, "BOUND", **GIVEN)
    before = reported.clients.lease(LABEL)
    reported.ip("link set dp1 down")
    reported.clients.report(LABEL, "EXPIRE", **GIVEN)
    reported.ip("link set dp1 up")
    assert inbox(reported) == set()
    reported.clients.report(LABEL, "EXPIRE", **{**GIVEN, "ip_address": "10.9.0.61"})
    assert (reported.addresses("dp1"), inbox(reported)) == ({f"{LEASE}/24"}, set())
    reported.clients.report(LABEL, "EXPIRE", **GIVEN)
    assert inbox(reported) == {"default", "10.9.0.0/24"}
    assert reported.clients.lease(LABEL)["addresses"].keys() == before["addresses"].keys()
    (address,) = reported.look("-4 address show dev dp1")[0]["addr_info"]
    assert address["valid_life_time"] <= 600
    assert reported.once().code == 0
