"""DHCPv6 and router advertisements on dataplane links of a host without a network manager, and what hostile ones reach."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from dhcpclient import Clients
from dnsmasq import Dnsmasq
from lab import GATEWAY6, ROOT, has_ended, mac
from test_netns_dhcp import REACHED_BY_MANAGEMENT, advertise_hostile, answered
from test_netns_trial import Trial

from neuca_tools.desired import dhcp_files
from neuca_tools.model import LinkKey

NIC = LinkKey(mac(1))
LABEL = dhcp_files.link_label(NIC)
DHCP6, ADVERTISED = f"{LABEL}:dhcp6", f"{LABEL}:ra"
TABLE = str(dhcp_files.table_of(NIC))
DOCUMENT = f"[interface {mac(1)}]\nname = dp1\n"
STATIC = "addresses = 172.16.0.5/24\n"
ROUTER, LEASE = "fd00:9::1", "fd00:9::51"
FAR = "fd00:99::1"
OWN = "fd00:9::ff:fe00:101"  # as the MAC address has it (RFC 4291, appendix A)
STATEFUL = (f"dhcp-range={LEASE},{LEASE},64,600",)
SLAAC = ("dhcp-range=fd00:9::,ra-only,64,600",)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it requires root")


@pytest.fixture
def plain(daemons, lab, tmp_path_factory):
    """A guest without a network manager, whose second NIC leads to a router that is a DHCPv6 server too."""
    lab.management()
    lab.veth("dp1", 1)
    for address, device in ((f"{ROUTER}/64", "dp1"), (f"{FAR}/128", "lo")):
        lab.run("ip", "address", "add", address, "dev", device, "nodad", where=lab.outside)
    lab.server = Dnsmasq(lab.outside, tmp_path_factory.mktemp("server"))
    lab.clients = Clients(lab)
    lab.configure(lab.clients.options())
    daemons += [lab.clients, lab.server]
    yield lab
    lab.server.stop()  # the next advertisement would be a write while a pass must write nothing


def serve(lab, *lines):
    lab.server.start(*lines)


def details(lab, name="dp1"):
    """The addresses that are not link-local, and not tentative any more."""
    found = lab.look(f"-6 address show dev {name} scope global -tentative")
    return [one for each in found for one in each.get("addr_info", ()) if one]


def learned(lab, name="dp1"):
    return {f"{one['local']}/{one['prefixlen']}" for one in details(lab, name)}


def inbox(lab):
    """The destinations of the routes in the table of the link."""
    return {one["dst"] for one in lab.look("-6 route show table all") if one.get("table") == TABLE}


def main(lab, name="dp1"):
    found = lab.look(f"-6 route show table main dev {name}")
    return {one["dst"] for one in found} - {"fe80::/64"}


def test_a_nic_gets_an_address_from_dhcpv6_and_answers_through_the_router(plain):
    serve(plain, *STATEFUL)
    assert plain.once(DOCUMENT + "dhcp6 = yes\n" + STATIC).code == 0
    plain.wait("the lease", lambda: f"{LEASE}/128" in learned(plain) and "default" in inbox(plain))
    assert plain.once().code == 0
    assert learned(plain) == {f"{LEASE}/128"}
    assert main(plain) == {"fd00:9::/64"}
    assert plain.sysctl("net/ipv6/conf/dp1/accept_ra") == "0"
    assert plain.sysctl("net/ipv6/conf/dp1/addr_gen_mode") == "0"
    assert plain.sysctl("net/ipv6/conf/dp1/autoconf") == "1"
    assert [one["dev"] for one in plain.look("-6 route show default")] == ["mgmt0"]
    pairs = [[ROUTER, LEASE], [FAR, LEASE]]
    assert sorted(answered(plain, pairs)) == sorted(pairs)
    code, data = plain.status()
    assert (code, plain.role(mac(1))) == (0, "dataplane")
    assert [one for one in data["notes"] if "DHCP" in one] == [
        f"dp1: {LEASE}/128 from DHCP or a router advertisement"
    ]


def test_a_nic_autoconfigures_itself_without_the_kernel(plain):
    serve(plain, *SLAAC, "ra-param=dp1,mtu:1400,10,1800")
    assert plain.once(DOCUMENT + "accept-ra = yes\n" + STATIC).code == 0
    plain.wait("an address", lambda: f"{OWN}/64" in learned(plain) and "default" in inbox(plain))
    assert plain.once().code == 0
    assert learned(plain) == {f"{OWN}/64"}
    assert main(plain) == {"fd00:9::/64"}
    assert plain.link("dp1")["mtu"] == 1400
    assert plain.sysctl("net/ipv6/conf/dp1/accept_ra") == "0"
    assert [one["dev"] for one in plain.look("-6 route show default")] == ["mgmt0"]
    pairs = [[ROUTER, OWN], [FAR, OWN]]
    assert sorted(answered(plain, pairs)) == sorted(pairs)
    assert plain.status()[0] == 0
    plain.once(DOCUMENT + STATIC)
    assert (learned(plain), inbox(plain), main(plain)) == (set(), set(), set())
    assert plain.link("dp1")["mtu"] == 1500
    assert list(plain.clients.folder.glob(f"{LABEL}*")) == []


def test_routers_are_asked_again_when_the_link_has_been_down(plain):
    """The kernel has dropped the addresses; the next advertisement that nobody asked for is minutes away."""
    router = ("link add br0 type bridge", "link add port0 type veth peer name router0",
              "link set port0 master br0 up", "link set dp1 master br0", "link set br0 up",
              f"address del {ROUTER}/64 dev dp1", "link set router0 up",
              f"address add {ROUTER}/64 dev router0 nodad")  # fmt: skip
    for words in router:
        assert plain.run("ip", *words.split(), where=plain.outside).code == 0
    plain.server.interface = "router0"  # whose carrier stays
    serve(plain, *SLAAC, "ra-param=router0,600,1800")
    assert plain.once(DOCUMENT + "accept-ra = yes\n").code == 0
    plain.wait("an address", lambda: f"{OWN}/64" in learned(plain) and "default" in inbox(plain))
    # Those of the kernel outside have the MAC address of their sender.
    ours = "RTR-SOLICIT(router0) \n"
    asked = plain.server.log().count(ours)
    plain.ip("link set dp1 down")
    plain.wait("no address", lambda: not learned(plain))
    plain.ip("link set dp1 up")
    plain.wait("a solicitation", lambda: plain.server.log().count(ours) > asked)
    plain.wait("the address", lambda: f"{OWN}/64" in learned(plain) and "default" in inbox(plain))
    plain.once()


def test_a_client_that_a_trial_has_started_can_be_ended(plain):
    """The process of a trial blocks SIGTERM."""
    assert plain.once(DOCUMENT).code == 0
    (plain.folder / "later").write_text(DOCUMENT + "accept-ra = yes\n")
    trial = Trial(plain, 3600)
    assert (plain.neuca("confirm").code, trial.end()[0]) == (0, 0)
    plain.clients.end(ADVERTISED, signal.SIGTERM)
    plain.once(DOCUMENT)


def test_a_client_with_a_new_request_takes_the_place_of_the_one_before(plain):
    """SIGTERM ends that one, although the child of the daemon that has started it ignores the signal."""
    plain.configure(plain.clients.options(), poll=1)
    plain.document(DOCUMENT + "accept-ra = yes\n")
    plain.start()
    plain.wait("the client", lambda: plain.clients.alive(ADVERTISED))
    pid = plain.clients.pid(ADVERTISED)
    plain.document(DOCUMENT + "accept-ra = yes\nmtu = 1400\n")
    plain.wait("another client", lambda: plain.clients.pid(ADVERTISED) not in (0, pid))
    assert has_ended(pid)


def test_what_the_kernel_has_autoconfigured_is_ours_from_then_on(plain):
    """As on a host whose kernel heard a router during boot."""
    serve(plain, *SLAAC)
    for words in ("dp1/accept_ra", "dp1/autoconf"):
        plain.sysctl(f"net/ipv6/conf/{words}", "1")
    plain.ip("link set dp1 up")
    plain.wait("the kernel's address", lambda: f"{OWN}/64" in learned(plain))
    plain.once(DOCUMENT + "accept-ra = yes\n")
    plain.wait("our own", lambda: f"{OWN}/64" in learned(plain) and "default" in inbox(plain))
    assert plain.once().code == 0
    found = plain.look("-6 route show table main dev dp1")
    assert {one["dst"] for one in found} == {"fd00:9::/64", "fe80::/64"}
    assert [one["dev"] for one in plain.look("-6 route show default")] == ["mgmt0"]


def test_hostile_routers_reach_nothing_but_the_nic(plain):
    before = plain.look("-6 route show table main"), plain.look("route show table main")
    resolv = Path("/etc/resolv.conf").read_bytes()
    serve(plain, *SLAAC)
    plain.once(DOCUMENT + "accept-ra = yes\ndhcp6 = yes\n")
    plain.wait("an address", lambda: f"{OWN}/64" in learned(plain))
    advertise_hostile(plain)
    plain.wait(
        "the advertisement", lambda: any(one.startswith("fd00:ec2:") for one in learned(plain))
    )
    plain.once()
    now = plain.look("-6 route show table main"), plain.look("route show table main")
    for then, here in zip(before, now):
        assert [one for one in here if one["dev"] != "dp1"] == [
            one for one in then if one["dev"] != "dp1"
        ]
    assert main(plain) == {"fd00:9::/64"}
    assert not any("fd00:6:" in one for one in learned(plain))
    routes = [plain.look(f"route get {host}")[0] for host in REACHED_BY_MANAGEMENT]
    assert {route["dev"] for route in routes} == {"mgmt0"}
    assert Path("/etc/resolv.conf").read_bytes() == resolv


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        ("2001:db8:ffff::10", "it is an address of another interface"),
        (GATEWAY6, f"it would take over {GATEWAY6}, which is reached through the management NIC"),
        (
            "fd00:ec2::254",
            "it would take over fd00:ec2::254, which is reached through the management NIC",
        ),
    ],
)
def test_a_hostile_dhcpv6_server_takes_over_no_address(plain, taken, reason):
    prefix = taken.rpartition("::")[0]
    plain.run(
        "ip", "address", "add", f"{prefix}::66/64", "dev", "dp1", "nodad", where=plain.outside
    )
    serve(
        plain, f"dhcp-range={taken},{taken},64,600", "dhcp-option=option6:dns-server,[fd00:9::bad]"
    )
    plain.once(DOCUMENT + "dhcp6 = yes\n")
    # The client and the listener to routers do not wait for each other.
    plain.wait("both", lambda: plain.clients.lease(DHCP6) and "default" in inbox(plain))
    plain.once()
    assert f"{taken}/128" not in plain.addresses("dp1")
    text = f"dp1: the DHCP lease of {taken}: {reason}, so it is not used"
    assert [one for one in plain.status()[1]["notes"] if taken in one] == [text]
    assert plain.look(f"route get {GATEWAY6}")[0]["dev"] == "mgmt0"


IMPOSTOR = """import socket
from frames import *
made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
made.bind(("dp1", 0))
option = prefix_information("fd00:98::/64")
made.send(router_advertisement("02:00:00:00:66:66", "fe80::ff:fe00:101", option, lifetime=65535))
made.send(router_advertisement("02:00:00:00:66:66", "fe80::bad", lifetime=0))
"""


def test_a_router_with_the_address_of_the_guest_hides_no_other(plain):
    """Its preference is high. The second one is no router, but the kernel notes that it is one."""
    plain.once(DOCUMENT + "accept-ra = yes\n")
    words = [f"PYTHONPATH={ROOT}/tests/attack", sys.executable, "-c", IMPOSTOR]

    def is_heard():
        plain.run("env", *words, where=plain.outside)
        return "fd00:98::ff:fe00:101/64" in learned(plain)

    plain.wait("the impostor", is_heard)
    serve(plain, *SLAAC, "ra-param=dp1,10,1800")
    plain.wait("the router", lambda: {"default", "fd00:9::/64"} <= inbox(plain))
    plain.once()
    ways = plain.look("-6 route show table all default dev dp1")
    assert len(ways) == 2
    assert "fe80::bad" not in {way["gateway"] for way in ways}
    assert len({way["gateway"] for way in ways}) == 1


FLOOD = """import socket, time
from frames import *
made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
made.bind(("dp1", 0))
for size in range(1200, 1500):
    made.send(router_advertisement("02:00:00:00:66:66", "fe80::bad", mtu(size)))
    time.sleep(0.02)
"""


def test_a_flood_of_advertisements_changes_the_link_now_and_then(plain):
    """50 a second for 6 s, each with another MTU; the link changes every three seconds at most."""
    serve(plain, *SLAAC)
    plain.once(DOCUMENT + "accept-ra = yes\n")
    plain.wait("an address", lambda: f"{OWN}/64" in learned(plain))
    words = ["env", f"PYTHONPATH={ROOT}/tests/attack", sys.executable, "-c", FLOOD]
    flood = threading.Thread(target=plain.run, args=words, kwargs={"where": plain.outside})
    mtus, began = set(), time.monotonic()
    flood.start()
    while flood.is_alive():
        mtus.add(plain.link("dp1")["mtu"])
        time.sleep(0.05)
    assert len(mtus) <= 3 + (time.monotonic() - began) / 3  # a busy machine takes longer

    def is_heard():  # a router repeats itself: one advertisement may be lost behind the flood
        plain.run(*words[:-1], FLOOD.replace("range(1200, 1500)", "(1450,)"), where=plain.outside)
        return plain.link("dp1")["mtu"] == 1450

    plain.wait("one of later", is_heard)
    assert plain.once().code == 0


def test_a_lease_survives_the_agent_and_is_released_once_withdrawn(plain):
    serve(plain, *STATEFUL)
    plain.once(DOCUMENT + "dhcp6 = yes\n")
    plain.wait("the lease", lambda: f"{LEASE}/128" in learned(plain) and "default" in inbox(plain))
    plain.once()
    pids = [plain.clients.pid(label) for label in (DHCP6, ADVERTISED)]
    with plain.monitored() as monitor:
        assert plain.once().code == 0
        assert monitor.lines() == []
    assert [plain.clients.pid(label) for label in (DHCP6, ADVERTISED)] == pids
    assert plain.once(DOCUMENT + STATIC).code == 0
    assert not any(plain.clients.alive(label) for label in (DHCP6, ADVERTISED))
    assert (learned(plain), inbox(plain), main(plain)) == (set(), set(), set())
    assert list(plain.clients.folder.glob(f"{LABEL}*")) == []
    plain.wait("the release", lambda: "DHCPRELEASE" in plain.server.log())


def test_a_client_that_does_not_give_up_its_lease_in_time_is_ended(plain):
    serve(plain, *STATEFUL)
    plain.once(DOCUMENT + "dhcp6 = yes\n")
    plain.wait("the lease", lambda: f"{LEASE}/128" in learned(plain))
    plain.once()
    client = os.pidfd_open(plain.clients.pid(DHCP6))
    os.kill(plain.clients.pid(DHCP6), signal.SIGSTOP)
    assert plain.once(DOCUMENT + STATIC).code == 0
    assert select.select([client], [], [], 0)[0] == [client]
    os.close(client)


def test_clients_that_have_died_are_started_again_and_their_addresses_stay(plain):
    serve(plain, *STATEFUL)
    plain.once(DOCUMENT + "dhcp6 = yes\n")
    plain.wait("the lease", lambda: f"{LEASE}/128" in learned(plain) and "default" in inbox(plain))
    plain.once()
    written = plain.clients.written(DHCP6)
    for label in (DHCP6, ADVERTISED):
        plain.clients.end(label)
    assert f"{LEASE}/128" in plain.addresses("dp1")
    assert plain.plan() == ["start the DHCPv6 client of dp1", "start the autoconfiguration of dp1"]
    assert plain.once().code == 0
    plain.wait("the lease of the new client", lambda: plain.clients.written(DHCP6) != written)
    plain.wait("the end of its helper", lambda: not plain.clients.reporting(DHCP6))
    assert f"{LEASE}/128" in learned(plain)
    (ends,) = [one["valid_life_time"] for one in details(plain)]
    assert 0 < ends <= 600


def test_a_client_that_has_died_keeps_its_address_while_the_server_is_down(plain):
    """It asks whether the lease still holds, and drops it without an answer within 10 seconds."""
    (plain.folder / "leases").mkdir()
    plain.clients.precede(f"mount --bind {plain.folder}/leases /var/lib; ")
    serve(plain, *STATEFUL)
    plain.once(DOCUMENT + "dhcp6 = yes\n")
    plain.wait("the lease", lambda: f"{LEASE}/128" in learned(plain) and "default" in inbox(plain))
    before = plain.clients.lease(DHCP6)
    plain.server.stop()
    plain.clients.end(DHCP6)
    with plain.monitored() as monitor:
        assert plain.once().code == 0
        plain.wait("its end", lambda: any("Deleted" in line for line in monitor.lines("ADDR")), 30)
        plain.wait("its return", lambda: f"{LEASE}/128" in learned(plain))
    assert plain.clients.lease(DHCP6) == before
    (ends,) = [one["valid_life_time"] for one in details(plain)]
    assert 0 < ends < 600
    plain.once()


def test_both_families_come_from_their_own_clients_and_end_separately(plain):
    plain.run("ip", "address", "add", "10.9.0.1/24", "dev", "dp1", where=plain.outside)
    serve(plain, *STATEFUL, "dhcp-range=10.9.0.51,10.9.0.51,600", "dhcp-option=26,1400")
    plain.once(DOCUMENT + "dhcp4 = yes\ndhcp6 = yes\n")
    both = {"10.9.0.51/24", f"{LEASE}/128"}
    plain.wait("both leases", lambda: both <= plain.addresses("dp1") and "default" in inbox(plain))
    plain.wait("no tentative address", lambda: learned(plain) == {f"{LEASE}/128"})
    assert plain.once().code == 0
    pairs = [["10.9.0.1", "10.9.0.51"], [FAR, LEASE]]
    assert sorted(answered(plain, pairs)) == sorted(pairs)
    assert plain.link("dp1")["mtu"] == 1400
    assert len([one for one in plain.status()[1]["notes"] if " from DHCP " in one]) == 2
    assert plain.once(DOCUMENT + "dhcp4 = yes\n").code == 0
    assert (plain.addresses("dp1"), inbox(plain)) == ({"10.9.0.51/24"}, set())
    assert plain.clients.alive(LABEL)


@pytest.mark.long
def test_a_lease_is_renewed_and_ends_once_nobody_renews_it(plain):
    """dnsmasq leases no address for less than two minutes."""
    serve(plain, f"dhcp-range={LEASE},{LEASE},64,120")
    plain.once(DOCUMENT + "dhcp6 = yes\n")
    plain.wait("the lease", lambda: plain.clients.lease(DHCP6))
    first = max(plain.clients.lease(DHCP6)["addresses"].values())
    plain.wait("its renewal", lambda: max(plain.clients.lease(DHCP6)["addresses"].values()) > first)
    plain.server.stop()
    plain.wait("its end", lambda: learned(plain) == set(), seconds=200)
    plain.wait("no lease", lambda: not plain.clients.lease(DHCP6))
    plain.once()
