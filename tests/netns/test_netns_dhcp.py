"""DHCP on a dataplane NIC with systemd-networkd as client and server, and what a hostile server can reach."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import subprocess
import sys

import delegating
import pytest
from lab import GATEWAY, GATEWAY6, ROOT, mac
from networkd import PROGRAM, Networkd
from test_netns_policy_routing import PROBE

from neuca_tools.desired import dhcp_files
from neuca_tools.model import LinkKey

FAR = "203.0.113.1"
LEASE, ROUTER = "10.9.0.51", "10.9.0.1"
FILE = dhcp_files.file_name("networkd", LinkKey(mac(1)))
TABLE = dhcp_files.table_of(LinkKey(mac(1)))
SERVER = f"""[Match]
Name=dp1
[Network]
Address={ROUTER}/24
DHCPServer=yes
{{more}}
[DHCPServer]
PersistLeases=no
PoolOffset=51
PoolSize=1
DNS={ROUTER}
SendOption=26:uint16:1400
SendOption=121:string:{{routes}}
"""
RA = """IPv6SendRA=yes
[IPv6Prefix]
Prefix=fd00:9::/64
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not PROGRAM.exists(), reason="it requires root and systemd-networkd"
)


def classless(*routes):
    """Option 121 (RFC 3442), as systemd.network(5) writes bytes."""
    data = b""
    for to, via in routes:
        host, length = to.split("/")
        octets = bytes(map(int, host.split(".")))[: (int(length) + 7) // 8]
        data += bytes([int(length)]) + octets + bytes(map(int, via.split(".")))
    return "".join(f"\\x{one:02x}" for one in data)


USUAL = (("192.168.77.0/24", ROUTER), ("0.0.0.0/0", ROUTER), ("169.254.169.254/32", ROUTER))
HOSTILE = (
    ("0.0.0.0/1", ROUTER),
    ("128.0.0.0/1", ROUTER),
    (f"{GATEWAY}/32", ROUTER),
    ("192.0.2.0/24", ROUTER),
    ("11.0.0.0/8", ROUTER),
    ("169.254.169.254/32", ROUTER),
    ("8.8.8.8/32", ROUTER),
    ("169.254.169.253/32", "0.0.0.0"),
    ("0.0.0.0/0", ROUTER),
)


# From a router outside. The second message comes from farther than the link, as its hop limit says.
HOSTILE_ROUTER = f"""import socket
from frames import *
made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
made.bind(("dp1", 0))
evil = ("02:00:00:00:66:66", "fe80::bad")
wide = ("2001:db8:ffff::/64", "fd00:ec2::/64", "2606:4700::/32", "2000::/12", "fe80::/64", "ff02::/64")
narrow = ("{GATEWAY6}/128", "fd00:ec2::254/128")
options = [prefix_information(one) for one in wide + narrow]
options += [prefix_information(one, 0x80) for one in ("::/0", "::/1", "8000::/1", "8000::/2", "64:ff9b::/96")]
options += [route_information(one) for one in ("::/0", "::/1", "8000::/1", "2000::/3", "fd00:ec2::254/128")]
options += [rdnss("fd00:9::bad"), mtu(1280)]
far = bytearray(router_advertisement(*evil, prefix_information("fd00:6::/64")))
far[21] = 64
made.send(far)
made.send(router_advertisement(*evil, *options)[:-5])
made.send(router_advertisement(*evil, *options))
"""
REACHED_BY_MANAGEMENT = (
    GATEWAY6,
    "fd00:ec2::254",
    "2606:4700::1111",
    "2001:db8:ffff::77",
    "2600::1",
    "9000::1",
    "64:ff9b::808:808",
)


def advertise_hostile(lab):
    words = [f"PYTHONPATH={ROOT}/tests/attack", sys.executable, "-c", HOSTILE_ROUTER]
    assert lab.run("env", *words, where=lab.outside).code == 0


class Delegating:
    """`delegating.py` in a namespace, until `stop`."""

    def __init__(self, namespace, *prefixes: str) -> None:
        words = [*namespace.enter, sys.executable, delegating.__file__, *prefixes]
        self._process = subprocess.Popen(words)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def cloud(daemons, lab, tmp_path):
    """A guest whose second NIC leads to a DHCP server; the agent has chosen networkd as the client at an earlier boot."""
    lab.management()
    lab.veth("dp1", 1)
    lab.run("ip", "address", "add", f"{FAR}/32", "dev", "lo", where=lab.outside)
    lab.server = Networkd(lab.outside, tmp_path / "server")
    lab.client = Networkd(lab.guest, tmp_path / "client")
    drive = lab.folder / "drive" / "openstack" / "latest"
    drive.mkdir(parents=True)
    (drive / "meta_data.json").write_text(json.dumps({"uuid": "i"}))
    lab.configure(sources=f"configdrive={lab.folder / 'drive'}")
    (lab.folder / "networkd").mkdir()
    (lab.folder / "networkd" / FILE).write_text("")
    daemons += [lab.client, lab.server]
    return lab


def write(lab, *kinds, static="", routes=()):
    networks = [{"id": kind, "link": "l", "type": kind, "routes": [*routes]} for kind in kinds]
    if static:
        address = {"ip_address": static, "netmask": "24"}
        networks.append({"id": "s", "link": "l", "type": "ipv4", **address})
    links = [{"id": "l", "type": "phy", "ethernet_mac_address": mac(1)}]
    place = lab.folder / "drive" / "openstack" / "latest" / "network_data.json"
    place.write_text(json.dumps({"links": links, "networks": networks, "services": []}))


def ask(lab, *kinds, static="", codes=(0,), routes=()):
    write(lab, *kinds, static=static, routes=routes)
    done = lab.once()
    assert done.code in codes, done.err


def serve(lab, routes=USUAL, more=""):
    lab.server.write("dp1.network", SERVER.format(routes=classless(*routes), more=more))
    lab.server.start()


def lease(lab, address=f"{LEASE}/24"):
    """Start the client with the agent's file, and make a pass once there is a lease.

    A veth has no permanent MAC address, so that it is matched by its current one.
    """
    text = (lab.folder / "networkd" / FILE).read_text()
    lab.client.write(FILE, text.replace("PermanentMACAddress=", "MACAddress="))
    lab.client.start()
    lab.wait("the lease", lambda: address in lab.addresses("dp1") and inbox(lab, address))
    assert lab.once().code == 0


def is_set_again(monitor):
    """Whether the client has set the leased address; systemd 262 keeps no file for a lease."""
    lines = monitor.lines("ADDR")
    return any(LEASE in line and "Deleted" not in line for line in lines)


def inbox(lab, address=LEASE):
    """The routes in the table of the client."""
    family = "-6" if ":" in address else "-4"
    return {one["dst"] for one in lab.look(f"{family} route show table {TABLE}")}


def through(lab):
    """The routes through the NIC in the main table, without the kernel's own."""
    found = lab.look("route show table main dev dp1")
    return {(one["dst"], one.get("gateway")) for one in found if one["protocol"] != "kernel"}


def answered(lab, pairs):
    lab.settle()
    words = [sys.executable, "-c", PROBE, json.dumps(pairs), 10.0]
    return json.loads(lab.run(*words, where=lab.outside).out)


def test_a_nic_gets_its_address_mtu_and_routes_and_answers_through_its_own_gateway(cloud):
    serve(cloud)
    ask(cloud, "ipv4_dhcp", static="172.16.0.5")
    lease(cloud)
    assert cloud.addresses("dp1") == {f"{LEASE}/24", "172.16.0.5/24"}
    assert cloud.link("dp1")["mtu"] == 1400
    assert through(cloud) == {
        ("10.9.0.0/24", None),
        (ROUTER, None),
        ("192.168.77.0/24", ROUTER),
    }
    assert [one["dev"] for one in cloud.look("route show default")] == ["mgmt0"]
    pairs = [[ROUTER, LEASE], [FAR, LEASE]]
    assert answered(cloud, pairs) == pairs
    code, _ = cloud.status()
    assert (code, cloud.role(mac(1))) == (0, "dataplane")


def test_a_hostile_server_gets_no_route_into_the_main_table(cloud):
    before = cloud.look("route show table main")
    serve(cloud, HOSTILE)
    ask(cloud, "ipv4_dhcp")
    lease(cloud)
    assert through(cloud) == {("10.9.0.0/24", None), (ROUTER, None)}
    now = cloud.look("route show table main")
    assert [one for one in now if one["dev"] != "dp1"] == before
    ways = {
        host: cloud.look(f"route get {host}")[0]["dev"] for host in ("11.1.1.1", FAR, "8.8.8.8")
    }
    assert set(ways.values()) == {"mgmt0"}
    assert cloud.look("route get 169.254.169.254")[0]["dev"] == "mgmt0"


@pytest.mark.parametrize("host", [GATEWAY, "192.0.2.10", "169.254.169.254"])
def test_a_broadcast_address_that_takes_over_a_guarded_host_is_reported(cloud, host):
    """networkd of systemd 255 and 257 sets that of the lease (option 28), that of 252 does not."""
    serve(cloud)
    ask(cloud, "ipv4_dhcp")
    lease(cloud)
    cloud.ip(f"address add 10.9.0.52/24 broadcast {host} dev dp1 valid_lft 600 preferred_lft 600")
    assert cloud.once().code == 4
    assert [text for _, text in cloud.problems("dp1") if f"the broadcast address {host} " in text]
    cloud.ip("address delete 10.9.0.52/24 dev dp1")
    assert cloud.once().code == 0


def test_no_delegated_prefix_gets_a_route(cloud, daemons):
    """networkd would add one to the main table for each, to be unreachable."""
    ask(cloud, "ipv6_dhcpv6-stateful", codes=(0, 4))
    prefixes = ("::/1", "8000::/1", "2000::/3", "fd00:ec2::/32", "2001:db8:fff0::/44")
    daemons.append(Delegating(cloud.outside, *prefixes))
    before = cloud.look("-6 route show table main type unreachable")
    lease(cloud, f"{delegating.LEASE}/128")
    assert cloud.look("-6 route show table main type unreachable") == before == []
    assert cloud.look("route get 2600::1")[0]["dev"] == "mgmt0"


def test_the_lease_and_the_settings_of_the_agent_survive_restarts_of_both(cloud):
    serve(cloud)
    ask(cloud, "ipv4_dhcp", static="172.16.0.5")
    lease(cloud)
    routes = through(cloud)
    with cloud.monitored() as monitor:
        assert cloud.once().code == 0
        assert monitor.lines() == []
    with cloud.monitored() as monitor:
        cloud.client.restart()
        cloud.wait("the lease again", lambda: is_set_again(monitor))
    cloud.once()
    assert cloud.addresses("dp1") == {f"{LEASE}/24", "172.16.0.5/24"}
    assert through(cloud) == routes


def test_a_lease_that_is_no_longer_requested_is_released_with_all_that_came_of_it(cloud):
    serve(cloud)
    ask(cloud, "ipv4_dhcp", static="172.16.0.5")
    lease(cloud)
    ask(cloud, static="172.16.0.5")
    assert not (cloud.folder / "networkd" / FILE).exists()
    (cloud.client.files / FILE).unlink()
    cloud.client.stop()
    cloud.wait("no lease", lambda: cloud.addresses("dp1") == {"172.16.0.5/24"})
    cloud.once()
    assert through(cloud) == set()
    assert [one for one in cloud.look("rule show") if one.get("src") == LEASE] == []


def test_an_address_from_router_advertisements_without_their_default_route_in_the_main_table(cloud):
    serve(cloud, more=RA)
    # As nova has them: the default route and a host route of the subnet, which no advertisement has.
    every = {"network": "::", "netmask": "::", "gateway": "fd00:9::1"}
    more = {"network": "fd00:77::", "netmask": "ffff:ffff::", "gateway": "fd00:9::1"}
    ask(cloud, "ipv6_slaac", routes=[every, more], codes=(3,))  # until the next hop is in a network
    text = (cloud.folder / "networkd" / FILE).read_text()
    cloud.client.write(FILE, text.replace("PermanentMACAddress=", "MACAddress="))
    cloud.client.start()

    def own():
        return [one for one in cloud.addresses("dp1") if one.startswith("fd00:9:")]

    cloud.wait("an address", lambda: own() and "fd00:9::/64" in inbox(cloud, "::"))
    before = own()
    assert cloud.once().code == 0
    assert own() == before
    found = cloud.look("-6 route show table main dev dp1")
    assert {one["dst"] for one in found} == {"fd00:9::/64", "fd00:77::/32", "fe80::/64"}
    assert [one["dev"] for one in cloud.look("-6 route show default")] == ["mgmt0"]
    assert cloud.sysctl("net/ipv6/conf/dp1/accept_ra") == "0"


def test_a_hostile_router_gets_no_route_into_the_main_table(cloud):
    before = cloud.look("-6 route show table main")
    serve(cloud, more=RA)
    ask(cloud, "ipv6_slaac")
    text = (cloud.folder / "networkd" / FILE).read_text()
    cloud.client.write(FILE, text.replace("PermanentMACAddress=", "MACAddress="))
    cloud.client.start()
    cloud.wait("an address", lambda: any("fd00:9:" in one for one in cloud.addresses("dp1")))
    cloud.wait("its network", lambda: "fd00:9::/64" in inbox(cloud, "::"))
    with cloud.foreign.changing():  # both routers are next hops of one route
        advertise_hostile(cloud)
        cloud.wait("the advertisement", lambda: "fd00:ec2::/64" in inbox(cloud, "::"))
    cloud.once()
    now = cloud.look("-6 route show table main")
    assert [one for one in now if one["dev"] != "dp1"] == [
        one for one in before if one["dev"] != "dp1"
    ]
    assert {one["dst"] for one in now if one["dev"] == "dp1"} == {"fd00:9::/64", "fe80::/64"}
    routes = [cloud.look(f"route get {host}")[0] for host in REACHED_BY_MANAGEMENT]
    assert {route["dev"] for route in routes} == {"mgmt0"}


@pytest.mark.parametrize("is_platform", [True, False])
def test_a_requested_route_through_a_router_in_the_network_of_the_lease(cloud, is_platform):
    """It is pending until there is a lease. Then the network comes before it: the kernel wants to reach the router."""
    serve(cloud)
    if is_platform:
        more = {"network": "10.99.0.0", "netmask": "255.255.0.0", "gateway": ROUTER}
        ask(cloud, "ipv4_dhcp", routes=[more], codes=(3,))
    else:
        text = f"[interface {mac(1)}]\ndhcp4 = yes\n[routes]\n10.99.0.0/16 = {ROUTER}\n"
        cloud.configure()
        assert cloud.once(text).code == 3
    assert [code for code, _ in cloud.problems()] == ["pending"]
    lease(cloud)
    assert ("10.99.0.0/16", ROUTER) in through(cloud)


def test_the_daemon_uses_a_lease_as_soon_as_there_is_one(cloud):
    serve(cloud)
    ask(cloud, "ipv4_dhcp")
    cloud.start()
    text = (cloud.folder / "networkd" / FILE).read_text()
    cloud.client.write(FILE, text.replace("PermanentMACAddress=", "MACAddress="))
    cloud.client.start()
    cloud.wait("the routes", lambda: ("192.168.77.0/24", ROUTER) in through(cloud))
    pairs = [[FAR, LEASE]]
    assert answered(cloud, pairs) == pairs


def test_networkd_does_dhcp_on_a_bridge_that_has_the_mac_of_its_port(cloud):
    cloud.configure()
    cloud.foreign.may_make("br0")
    file = dhcp_files.file_name("networkd", LinkKey("bridge br0"))
    serve(cloud)
    assert cloud.once(f"[bridge br0]\nmembers = {mac(1)}\ndhcp4 = yes\n").code == 0
    cloud.client.write(file, (cloud.folder / "networkd" / file).read_text())
    cloud.client.start()
    table = dhcp_files.table_of(LinkKey("bridge br0"))
    learned = f"-4 route show table {table}"
    cloud.wait("the lease", lambda: f"{LEASE}/24" in cloud.addresses("br0") and cloud.look(learned))
    assert cloud.once().code == 0
    assert cloud.addresses("dp1") == set()
    routes = {(one["dst"], one.get("gateway")) for one in cloud.look("route show dev br0")}
    assert ("192.168.77.0/24", ROUTER) in routes
    assert ("default", ROUTER) not in routes
    pairs = [[ROUTER, LEASE], [FAR, LEASE]]
    assert answered(cloud, pairs) == pairs
